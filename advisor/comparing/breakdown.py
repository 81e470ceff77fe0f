"""Which category of the breakdown moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from advisor.comparing.steps import number, pace
from advisor.model.comparison import Shift, Verdict
from advisor.model.report import Run


def shifts(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> tuple[Shift, ...]:
    """The categories in ms per used step, of both sides."""
    before, after = _categories(base, ranks), _categories(head, ranks)
    return tuple(
        Shift(category=name, base_ms=before.get(name, 0.0), head_ms=after.get(name, 0.0))
        for name in dict.fromkeys([*before, *after])
    )


def _categories(runs: Sequence[Run], ranks: frozenset[int]) -> dict[str, float]:
    """Milliseconds per used step by category, a mean over the runs."""
    timed = list(filter(None, (_parts_ms(run, ranks) for run in runs)))
    totals: Counter[str] = Counter()
    for parts in timed:
        totals.update(parts)
    return {name: total / len(timed) for name, total in totals.items()}


def _parts_ms(run: Run, ranks: frozenset[int]) -> dict[str, float]:
    """Milliseconds per used step of the rank that sets the pace; of the slowest that counts where that one does not."""
    steps = run.source.steps
    worker = pace(run, ranks)
    if worker == steps.worker:
        return {name: share * steps.step_mean_ms for name, share in run.breakdown.items() if steps.step_mean_ms}
    rows = [row for row in run.metrics.get("device", ()) if row.get("worker") == worker]
    slowest = max(rows, key=lambda row: number(row, "step_mean_ms"), default={})
    step_ms = number(slowest, "step_mean_ms")
    return {name: step_ms * number(slowest, f"{name}_share") for name in run.breakdown} if step_ms else {}


def cause(verdict: Verdict, breakdown: Sequence[Shift]) -> Shift | None:
    """The category that moved most in the verdict's direction."""
    if verdict not in {"slower", "faster"} or not breakdown:
        return None
    sign = 1 if verdict == "slower" else -1
    most = max(breakdown, key=lambda shift: sign * shift.change_ms)
    return most if sign * most.change_ms > 0 else None
