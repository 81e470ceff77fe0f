"""The longest step as a picture: what the device runs, its gaps with cause, length and action."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.model.report import Run
from advisor.model.timeline import Timeline
from advisor.text import ns
from advisor.vocabulary.idle_causes import idle_part
from advisor.vocabulary.parts import part_short

_KINDS: Final = {"kernel": "compute"} | {kind: kind for kind in ("memcpy", "memset", "collective", "graphics")}
_PIXEL: Final = 1 / 800  # of the step: what is closer together is one thing in a picture
_WORTH_A_LABEL: Final = 0.02  # of the step
_MOST_LABELS: Final = 5

Stretch = tuple[float, float, str]
"""Begin and end, of 1, and the part of the step that it is."""


def annotated_step(run: Run) -> Mapping[str, Any] | None:
    """What the picture is drawn from; None where no device's work was recorded.

    `bars` are what runs and what does not, `gaps` the longest gap of each cause with its label.
    """
    line = run.timeline
    streams = {at for at, track in enumerate(line.tracks) if track.kind == "stream"} if line else set()
    if line is None or not streams or not line.dur_ns:
        return None
    busy = _joined(_events(line, streams))
    if not busy:
        return None
    rows = [{"start": start, "end": end, "part": part} for start, end, part in (*_joined(_idle(line)), *busy)]
    return {"bars": rows, "gaps": _gaps(run, line)}


def _events(line: Timeline, streams: set[int]) -> Iterable[Stretch]:
    events = line.events
    columns = zip(events.track, events.kind, events.start_ns, events.dur_ns, strict=True)
    for track, kind, start_ns, dur_ns in columns:
        if track in streams:
            yield _stretch(line, start_ns, dur_ns, _KINDS.get(line.texts[kind], "compute"))


def _idle(line: Timeline) -> Iterable[Stretch]:
    return (_stretch(line, idle.start_ns, idle.dur_ns, idle_part(idle.cause, idle.dur_ns)) for idle in line.idle)


def _stretch(line: Timeline, start_ns: int, dur_ns: int, part: str) -> Stretch:
    return start_ns / line.dur_ns, (start_ns + dur_ns) / line.dur_ns, part


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Stretches of one part that are no farther apart than a pixel as one, in the order in which they begin."""
    joined: list[Stretch] = []
    last: dict[str, int] = {}
    for start, end, part in sorted(stretches):
        at = last.get(part)
        if at is not None and start - joined[at][1] <= _PIXEL:
            joined[at] = (joined[at][0], max(joined[at][1], end), part)
        else:
            last[part] = len(joined)
            joined.append((start, end, part))
    return joined


def _gaps(run: Run, line: Timeline) -> list[dict[str, Any]]:
    """The longest gap of each cause, with how long the device idles because of it and the action that shortens that."""
    gaps: dict[str, list[Stretch]] = {}
    for gap in _idle(line):
        gaps.setdefault(gap[2], []).append(gap)
    numbers = _actions(run)
    labels: list[tuple[float, dict[str, Any]]] = []
    for part, each in gaps.items():
        idle, (start, end, _) = sum(b - a for a, b, _ in each), max(each, key=lambda gap: gap[1] - gap[0])
        action = f", action {numbers[part]}" if part in numbers else ""
        label = f"{part_short(part)} {ns(idle * line.dur_ns)}{action}"
        labels.append((idle, {"start": start, "end": end, "label": label}))
    most = sorted((of for of in labels if of[0] >= _WORTH_A_LABEL), key=lambda of: -of[0])[:_MOST_LABELS]
    return sorted((gap for _, gap in most), key=lambda gap: gap["start"])


def _actions(run: Run) -> dict[str, int]:
    """The number of the action that shortens a part, where one may save half of it."""
    numbers = {key: number for number, action in enumerate(run.listed, 1) for key in action.findings}
    parts = [p for p in (run.accounting.parts if run.accounting else ()) if not p.saved_ms or 2 * p.saved_ms >= p.ms]
    first = {part.part: min((numbers[key] for key in part.findings if key in numbers), default=0) for part in parts}
    return {part: number for part, number in first.items() if number}
