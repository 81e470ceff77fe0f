"""Which part of the step moved."""

from collections import Counter
from collections.abc import Mapping, Sequence

from advisor.comparing.steps import pace
from advisor.model.comparison import Shift, Verdict
from advisor.model.finding import Value
from advisor.model.report import Run, number
from advisor.vocabulary.parts import PARTS


def shifts(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> tuple[Shift, ...]:
    """The parts of the accounting in ms per used step, of both sides."""
    before, after = _means(base, ranks), _means(head, ranks)
    codes = [code for code in PARTS if code in before or code in after]
    return tuple(Shift(part=code, base_ms=before.get(code, 0.0), head_ms=after.get(code, 0.0)) for code in codes)


def _means(runs: Sequence[Run], ranks: frozenset[int]) -> dict[str, float]:
    """Milliseconds per used step by part, a mean over the runs."""
    timed = list(filter(None, (_parts_ms(run, ranks) for run in runs)))
    totals: Counter[str] = Counter()
    for parts in timed:
        totals.update(parts)
    return {name: total / len(timed) for name, total in totals.items()}


def _parts_ms(run: Run, ranks: frozenset[int]) -> dict[str, float]:
    """Milliseconds per used step of the rank that sets the pace; of the slowest that counts where that one does not.

    They are of the recorded step, with its waits for other programs, also where a report is of the step without these.
    """
    steps = run.source.steps
    worker = pace(run, ranks)
    if worker == steps.worker and steps.unprofiled_ms is None:
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
