"""The longest step as a picture: what the device runs, its gaps with cause, length and action."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.model.action import MOST
from advisor.model.report import Run
from advisor.model.timeline import Timeline
from advisor.text import ns
from advisor.vocabulary.idle_causes import idle_part
from advisor.vocabulary.parts import part_short

_KINDS: Final = {"kernel": "compute", "memcpy": "memcpy", "memset": "memset", "collective": "collective"}
_PIXEL: Final = 1 / 800  # of the step: what is closer together is one thing in a picture
_NEAR: Final = 0.01  # of the step: gaps of one cause that are closer together are one
_WORTH_A_LABEL: Final = 0.02  # of the step
_MOST_LABELS: Final = 5

Stretch = tuple[float, float, str]
"""Begin and end, of 1, and the part of the step that it is."""


def annotated_step(run: Run) -> Mapping[str, Any] | None:
    """What the picture is drawn from; None where no device's work was recorded.

    `bars` are what runs and what does not, `gaps` the longest gaps with their labels.
    """
    line = run.timeline
    streams = {at for at, track in enumerate(line.tracks) if track.kind == "stream"} if line else set()
    if line is None or not streams or not line.dur_ns:
        return None
    busy = _joined(_events(line, streams), _PIXEL)
    idle = _joined(_idle(line), _PIXEL)
    if not busy:
        return None
    rows = [{"start": start, "end": end, "part": part} for start, end, part in (*idle, *busy)]
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


def _joined(stretches: Iterable[Stretch], near: float) -> list[Stretch]:
    """Stretches of one part that are no farther apart than that as one, in the order in which they begin."""
    joined: list[Stretch] = []
    last: dict[str, int] = {}
    for start, end, part in sorted(stretches):
        at = last.get(part)
        if at is not None and start - joined[at][1] <= near:
            joined[at] = (joined[at][0], max(joined[at][1], end), part)
        else:
            last[part] = len(joined)
            joined.append((start, end, part))
    return joined


def _gaps(run: Run, line: Timeline) -> list[dict[str, Any]]:
    """The longest gaps, each with its cause, how long the device idles in it, and the action that shortens it."""
    every = [*_idle(line)]
    numbers = _actions(run)
    gaps: list[tuple[float, dict[str, Any]]] = []
    for first, last, part in _joined(every, _NEAR):
        inside = [(a, b) for a, b, of in every if of == part and first <= a and b <= last]
        idle, (start, end) = sum(b - a for a, b in inside), max(inside, key=lambda ends: ends[1] - ends[0])
        if idle >= _WORTH_A_LABEL:
            action = f", action {numbers[part]}" if part in numbers else ""
            label = f"{part_short(part)} {ns(idle * line.dur_ns)}{action}"
            gaps.append((idle, {"start": start, "end": end, "label": label}))
    longest = sorted(gaps, key=lambda gap: -gap[0])[:_MOST_LABELS]
    return sorted((gap for _, gap in longest), key=lambda gap: gap["start"])


def _actions(run: Run) -> dict[str, int]:
    """The number of the action that shortens a part, where one may save half of it."""
    numbers = {key: number for number, action in enumerate(run.worthwhile[:MOST], 1) for key in action.findings}
    parts = [p for p in (run.accounting.parts if run.accounting else ()) if not p.saved_ms or 2 * p.saved_ms >= p.ms]
    first = {part.part: min((numbers[key] for key in part.findings if key in numbers), default=0) for part in parts}
    return {part: number for part, number in first.items() if number}
