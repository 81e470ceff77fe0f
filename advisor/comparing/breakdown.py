"""Where the time of both sides goes: the parts of the step, the phases of servers, modules with their ops."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from advisor.comparing.steps import pace
from advisor.model.comparison import Frame, PhaseChange, PhaseTimes, Shift, Side, Verdict
from advisor.model.finding import Value
from advisor.model.intervals import Floats
from advisor.model.report import Run, number
from advisor.vocabulary.kinds import PHASES
from advisor.vocabulary.parts import LONG, PARTS


def shifts(
    runs: tuple[Sequence[Run], Sequence[Run]],
    ranks: frozenset[int],
    sides: tuple[Side, Side],
    of: Literal["median", "mean"],
) -> tuple[Shift, ...]:
    """The parts of the step that the verdict is about, in ms: those of a side add up to its time.

    A median is of usual steps, so that what long ones add to the mean is no part of it. Without steps the parts are of
    all that was recorded.
    """
    before, after = (_parts(of_side, ranks, side, of) for of_side, side in zip(runs, sides, strict=True))
    codes = [code for code in PARTS if code in before or code in after]
    return tuple(Shift(part=code, base_ms=before.get(code, 0.0), head_ms=after.get(code, 0.0)) for code in codes)


def _parts(runs: Sequence[Run], ranks: frozenset[int], side: Side, of: Literal["median", "mean"]) -> dict[str, float]:
    """Milliseconds by part: the shares are a mean over the runs."""
    timed = list(filter(None, (_parts_ms(run, ranks, is_unprofiled=side.is_unprofiled) for run in runs)))
    totals: Counter[str] = Counter()
    for parts in timed:
        totals.update(parts)
    if of == "median":
        del totals[LONG]
    time_ms = side.mean_ms if of == "mean" else side.median_ms
    scale = time_ms / totals.total() if side.per == "step" and time_ms and totals.total() else 1 / max(1, len(timed))
    return {name: total * scale for name, total in totals.items()}


def _parts_ms(run: Run, ranks: frozenset[int], *, is_unprofiled: bool) -> dict[str, float]:
    """Milliseconds per used step of the rank that sets the pace; of the slowest that counts where that one does not.

    They are of the recorded step, with its waits for other programs, unless both sides are of the step without these.
    """
    steps = run.source.steps
    worker = pace(run, ranks)
    if worker == steps.worker and (is_unprofiled or steps.unprofiled_ms is None):
        parts = run.accounting.parts if run.accounting else ()
        return {part.part: part.share * steps.length_ms for part in parts if steps.length_ms}
    rows = [row for row in run.metrics.get("device", ()) if row.get("worker") == worker]
    slowest = max(rows, key=lambda row: number(row, "step_mean_ms"), default={})
    own = [row for row in run.metrics.get("accounting", ()) if _place(row) == _place(slowest)]
    return {str(row["part"]): number(row, "share") * number(slowest, "step_mean_ms") for row in own}


def _place(row: Mapping[str, Value]) -> tuple[Value, Value]:
    return row.get("worker"), row.get("device")


def cause(verdict: Verdict, breakdown: Sequence[Shift]) -> Shift | None:
    """The part that moved most in the verdict's direction."""
    if verdict not in {"slower", "faster"} or not breakdown:
        return None
    sign = 1 if verdict == "slower" else -1
    most = max(breakdown, key=lambda shift: sign * shift.change_ms)
    return most if sign * most.change_ms > 0 else None


_DECODE: Final = "decode"
_NUMBERS: Final = ("step_ms", "idle_share", "launch_share", "communication_share")


def phase_changes(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> tuple[PhaseChange, ...]:
    """Each phase that a side has; means over its runs."""
    pairs = ((phase, _times(base, ranks, phase), _times(head, ranks, phase)) for phase in PHASES)
    return tuple(PhaseChange(phase=name, base=before, head=after) for name, before, after in pairs if before or after)


def compared_phase(runs: Iterable[Run]) -> str | None:
    """The phase whose steps alone are compared: to decode, where steps of a run prefill too and all runs decode.

    How long a prefill takes is up to the prompts, and how many there are, to chance.
    """
    phases = [{row.get("phase") for row in run.metrics.get("step", ())} for run in runs]
    mixes = any(len(of - {None}) > 1 for of in phases)
    return _DECODE if mixes and all(_DECODE in of for of in phases) else None


def _times(runs: Sequence[Run], ranks: frozenset[int], phase: str) -> PhaseTimes | None:
    of_phase = ((run, row) for run in runs for row in run.metrics.get("phase", ()) if row.get("phase") == phase)
    rows = [row for run, row in of_phase if row.get("worker") == pace(run, ranks)]
    steps = sum(number(row, "steps") for row in rows)
    if not steps:
        return None
    means = {name: sum(number(row, name) * number(row, "steps") for row in rows) / steps for name in _NUMBERS}
    return PhaseTimes(steps=int(steps), **means)


_TABLE: Final = "call_tree"
_MOST_FRAMES: Final = 400  # as many as one side has at most; the rest is too small to be seen
_DEEPEST: Final = 500

_Path: TypeAlias = tuple[tuple[str | None, str], ...]
"""Names and kinds from the top down."""


def frames(base: Sequence[Run], head: Sequence[Run]) -> tuple[Frame, ...]:
    """Every frame of either side, parents first; nothing where a run has no such tree.

    Frames are the same where they bear the same names along the same path. Of several runs, times are means.
    """
    if not all(run.metrics.get(_TABLE) for run in (*base, *head)):
        return ()
    times: defaultdict[_Path, Floats] = defaultdict(lambda: np.zeros(4))
    for at, runs in ((0, base), (2, head)):
        for path, total_ms, self_ms in (frame for run in runs for frame in _paths(run.metrics[_TABLE])):
            times[path][at : at + 2] += np.array([total_ms, self_ms]) / len(runs)
    longest = sorted(times, key=lambda path: (-float(times[path][::2].max()), len(path)))[:_MOST_FRAMES]
    number = {path: i for i, path in enumerate(sorted(longest, key=lambda path: (len(path), longest.index(path))))}
    return tuple(
        Frame(
            parent=number[path[:-1]] if len(path) > 1 else None,
            name=path[-1][0],
            kind=path[-1][1],
            base_ms=float(base_ms),
            base_self_ms=float(base_self_ms),
            head_ms=float(head_ms),
            head_self_ms=float(head_self_ms),
        )
        for path in number
        for base_ms, base_self_ms, head_ms, head_self_ms in [times[path]]
    )


def _paths(rows: Sequence[Mapping[str, Value]]) -> Iterator[tuple[_Path, float, float]]:
    """Each frame's path, total and self time; a frame whose parent does not stand before it is left out."""
    paths: dict[Value, _Path] = {None: ()}
    for row in rows:
        above, name, total, own = paths.get(row.get("parent")), row.get("name"), row.get("total_ms"), row.get("self_ms")
        if above is None or len(above) >= _DEEPEST or not isinstance(total, int | float):
            continue
        paths[row.get("id")] = path = (*above, (None if name is None else str(name), str(row.get("kind"))))
        yield path, float(total), float(own) if isinstance(own, int | float) else 0.0
