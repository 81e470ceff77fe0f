"""Which part of the step moved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from advisor.comparing.steps import pace
from advisor.model.comparison import Shift, Side, Verdict
from advisor.model.finding import Value
from advisor.model.report import Run, number
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
