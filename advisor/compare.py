"""Two sets of runs held against each other: is the head slower, where did the time go, what changed in the work.

The verdict is about step times alone; everything else explains it and is told whatever the verdict is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.comparison import (
    Amount,
    Comparison,
    FindingChange,
    FindingStatus,
    Found,
    Obstacle,
    Series,
    Shift,
    Side,
    StepChange,
    Verdict,
    WorkChange,
)
from advisor.errors import NothingFound
from advisor.report import SEVERITIES, Finding, Report, Run, Value
from advisor.significance import Contrast, Floats, contrast, wander, welch
from advisor.text import bytes_, count, listing, ms, one_line, percent

__all__ = ["LEAST_EFFECT", "Comparison", "compare", "mark_new"]

LEAST_EFFECT: Final = 0.02
"""A smaller change of the step time is none (NVBench, perfgate and rustc-perf agree on the order of magnitude)."""

_SAME: Final = 0.05  # what an interval has to rule out before two sides count as the same
_ALPHA: Final = 0.01  # of adjusted probabilities of kernels and ops
_WORTH: Final = 0.001  # of the base's step: work that moves less is not listed
_OTHER_COUNT: Final = 0.05  # by which the number per step has to differ
_SAVING_MOVED: Final = 0.01  # of the base's step: a finding whose saving moves less is the same finding
_MOST_WORK: Final = 200
_LONGEST_NOTE: Final = 300
_CUT: Final = 2000  # rows of a report's tables; beyond, what is missing may only have been cut off
_SIZES: Final[dict[str, dict[str, type[pl.DataType]]]] = {
    "launch": {"kind": pl.String, "name": pl.String, "grid": pl.Int64, "block": pl.Int64, "bytes": pl.Int64},
    "op": {"name": pl.String, "shapes": pl.String},
}
_NUMBERS: Final[dict[str, type[pl.DataType]]] = {
    "calls": pl.Int64,
    "calls_per_step": pl.Float64,
    "mean_us": pl.Float64,
    "sd_us": pl.Float64,
}


def compare(base: Sequence[Run], head: Sequence[Run], *, advisor_version: str) -> Comparison:
    """The head's runs against the base's.

    Args:
        base: At least one run of the job before the change.
        head: At least one run of it after the change.
        advisor_version: Ours.

    Raises:
        NothingFound: a side has no run.
    """
    if not base or not head:
        raise NothingFound(f"{'base' if not base else 'head'}: no run to compare")
    ranks = _common_ranks([*base, *head])
    before, after = _side(base, ranks), _side(head, ranks)
    change = _contrast(before, after)
    decided = _verdict(base, head, before, after, change)
    breakdown = _breakdown(base, head, ranks)
    step_ms = sum(shift.base_ms for shift in breakdown) or sum(shift.head_ms for shift in breakdown)
    return Comparison(
        advisor_version=advisor_version,
        verdict=decided.verdict,
        reason=decided.reason,
        obstacle=decided.obstacle,
        cause=_cause(decided.verdict, breakdown),
        change=change and _step_change(change, _least(before)),
        base=before,
        head=after,
        breakdown=breakdown,
        work=_work(base, head, _WORTH * step_ms),
        findings=tuple(_findings(base, head, _SAVING_MOVED * step_ms)),
        notes=tuple(_notes(base, head, ranks)),
    )


def mark_new(report: Report, baseline: Report) -> Report:
    """The report with each finding marked: is it new against the baseline's run of the same name, or its only one?"""
    return report.model_copy(
        update={"runs": tuple(_marked(run, _counterpart(run, report, baseline)) for run in report.runs)}
    )


# ---------------------------------------------------------------------------------------------- step times


def _common_ranks(runs: Sequence[Run]) -> frozenset[int]:
    """The workers that all runs recorded; those of any where they have none in common."""
    recorded = [frozenset(worker.worker for worker in run.source.workers) for run in runs]
    return frozenset.intersection(*recorded) or frozenset.union(*recorded)


def _side(runs: Sequence[Run], ranks: frozenset[int]) -> Side:
    series = tuple(Series(run=run.name, steps_ms=_step_times(run, ranks)) for run in runs)
    times = np.array([time for one in series for time in one.steps_ms])
    mean = float(times.mean()) if len(times) else None
    sizes = {_world_size(run) for run in runs}
    return Side(
        series=series,
        steps=len(times),
        median_ms=float(np.median(times)) if len(times) else None,
        mean_ms=mean,
        cv=float(times.std(ddof=1)) / mean if mean and len(times) > 1 else None,
        devices=tuple(sorted({d.name or d.model or "unnamed device" for run in runs for d in run.source.devices})),
        world_size=sizes.pop() if len(sizes) == 1 else None,
    )


def _step_times(run: Run, ranks: frozenset[int]) -> tuple[float, ...]:
    """Milliseconds of each complete step that did not compile, in order: outliers are part of what a job takes.

    A step is as long as its slowest rank's.
    """
    if not run.source.steps.marked:
        return ()
    used = [(row["step"], row["worker"], row["step_ms"]) for row in run.metrics.get("step", ())]
    outliers = [(s.step, s.worker, s.step_ms) for s in run.source.steps.left_out if s.outlier]
    longest: dict[int, float] = {}
    for step, worker, time in chain(used, outliers):
        if worker in ranks and isinstance(step, int) and isinstance(time, int | float) and time > 0:
            longest[step] = max(longest.get(step, 0.0), float(time))
    return tuple(longest[step] for step in sorted(longest))


def _contrast(base: Side, head: Side) -> Contrast | None:
    before, after = _samples(base), _samples(head)
    return contrast(before, after) if before and after else None


def _samples(side: Side) -> list[Floats]:
    return [np.array(one.steps_ms) for one in side.series if one.steps_ms]


def _least(base: Side) -> float:
    """The smallest change that counts: 2 %, or how far ten or more runs of the base stray by themselves."""
    return max(LEAST_EFFECT, wander(_samples(base)) or 0.0)


def _step_change(found: Contrast, least: float) -> StepChange:
    return StepChange(ratio=found.ratio, low=found.low, high=found.high, p=found.p, least=least)


# ---------------------------------------------------------------------------------------------- the verdict


class _Decided(NamedTuple):
    verdict: Verdict
    reason: str
    obstacle: Obstacle | None = None


def _verdict(base: Sequence[Run], head: Sequence[Run], before: Side, after: Side, change: Contrast | None) -> _Decided:
    """What can be said of the step times, and why that or nothing."""
    if unlike := _incomparable(base, head):
        return unlike
    if change is None:
        lacking = listing([name for name, side in (("base", before), ("head", after)) if not side.steps])
        why = f"no marked, complete step to time on the {lacking}: call prof.step() at the end of each"
        return _Decided("inconclusive", why, "no-steps")
    if change.undecidable:
        why = f"too few steps: {before.steps} against {after.steps}; profile ten a side or more, better twenty"
        return _Decided("inconclusive", why, "few-steps")
    least = _least(before)
    measured = f"p = {change.p:.2g}, {count(before.steps, 'step')} against {after.steps}"
    if change.differs(least):
        if cost := _recording_costs(base, head, change, before.median_ms or 0.0, least):
            return _Decided("inconclusive", cost, "profiler")
        return _Decided("slower" if change.ratio > 1 else "faster", f"the steps differ beyond their noise ({measured})")
    return _alike(before, after, change, max(_SAME, least), measured)


def _alike(before: Side, after: Side, change: Contrast, margin: float, measured: str) -> _Decided:
    """Steps that do not differ are the same only where a change that matters can be ruled out."""
    if sorted(one.steps_ms for one in before.series) == sorted(one.steps_ms for one in after.series):
        return _Decided("same", "both sides are the same recording")
    if change.within(margin):
        return _Decided("same", f"a change of {percent(margin)} or more can be ruled out ({measured})")
    span = f"{_signed(change.low)} to {_signed(change.high)}"
    why = f"the steps vary too much: the change lies anywhere from {span} ({measured}); profile more steps"
    return _Decided("inconclusive", why, "noise")


def _incomparable(base: Sequence[Run], head: Sequence[Run]) -> _Decided | None:
    """Other hardware or another number of ranks: a difference in speed would say nothing about the change."""
    theirs, ours = _models(base), _models(head)
    if theirs != ours:
        why = f"different hardware: {_named(theirs)} against {_named(ours)}"
        return _Decided("inconclusive", why, "hardware")
    sizes, others = ({_world_size(run) for run in runs} for runs in (base, head))
    if sizes != others:
        told = [listing([str(size) for size in sorted(group)]) for group in (sizes, others)]
        return _Decided("inconclusive", f"different world size: {told[0]} against {told[1]} ranks", "world-size")
    return None


def _models(runs: Sequence[Run]) -> frozenset[str]:
    """What the runs ran on; the model where it is known, because drivers changed how they name it."""
    return frozenset(d.model or d.name or "unnamed device" for run in runs for d in run.source.devices)


def _named(models: frozenset[str]) -> str:
    return listing([one_line(model, 80) for model in sorted(models)]) or "no device"


def _world_size(run: Run) -> int:
    return run.source.world_size or len(run.source.workers)


def _recording_costs(
    base: Sequence[Run], head: Sequence[Run], change: Contrast, base_ms: float, least: float
) -> str | None:
    """Why the verdict does not hold if what recording costs differs between the sides by enough to be the change."""
    costs = [_overhead_ms(runs) for runs in (base, head)]
    extra = (costs[1] - costs[0]) / base_ms if base_ms else 0.0
    slower = change.ratio > 1
    unexplained = change.ratio - (max(extra, 0) if slower else min(extra, 0))
    if unexplained >= 1 + least if slower else unexplained <= 1 / (1 + least):
        return None
    return (
        f"profiler overhead: recording costs about {ms(costs[0])} a step on the base and {ms(costs[1])} on the head, "
        "which may be the whole change; record both with the same settings, without stacks"
    )


def _overhead_ms(runs: Sequence[Run]) -> float:
    """What recording costs per step: the profiler's own work or, if more, that of recording each op."""
    rows = [run.metrics["run"][0] for run in runs if run.metrics.get("run")]
    costs = [
        max(_number(row, "profiler_share"), _number(row, "tracing_share")) * _number(row, "step_mean_ms")
        for row in rows
    ]
    return float(np.mean(costs)) if costs else 0.0


def _number(row: Mapping[str, Value], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _signed(ratio: float) -> str:
    sign = "+" if ratio >= 1 else "\N{MINUS SIGN}"
    return sign + percent(abs(ratio - 1))


# ---------------------------------------------------------------------------------------------- where the time went


def _breakdown(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> tuple[Shift, ...]:
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
    if steps.worker is None or steps.worker in ranks:
        return {name: share * steps.step_mean_ms for name, share in run.breakdown.items() if steps.step_mean_ms}
    rows = [row for row in run.metrics.get("device", ()) if row.get("worker") in ranks]
    slowest = max(rows, key=lambda row: _number(row, "step_mean_ms"), default={})
    whole = _number(slowest, "step_mean_ms")
    return {name: whole * _number(slowest, f"{name}_share") for name in run.breakdown} if whole else {}


def _cause(verdict: Verdict, breakdown: Sequence[Shift]) -> Shift | None:
    """The category that moved most in the verdict's direction."""
    if verdict not in {"slower", "faster"} or not breakdown:
        return None
    sign = 1 if verdict == "slower" else -1
    most = max(breakdown, key=lambda shift: sign * shift.change_ms)
    return most if sign * most.change_ms > 0 else None


# ---------------------------------------------------------------------------------------------- kernels and ops


def _work(base: Sequence[Run], head: Sequence[Run], least_ms: float) -> tuple[WorkChange, ...]:
    """What work appeared, vanished, is done more or less often, or takes longer or shorter; most time moved first."""
    frames = [_work_table(scope, base, head) for scope in _SIZES]
    changed = [change for frame in frames for change in _work_changes(frame, least_ms)]
    return tuple(sorted(changed, key=lambda one: -abs(one.change_ms))[:_MOST_WORK])


def _work_table(scope: str, base: Sequence[Run], head: Sequence[Run]) -> pl.DataFrame:
    """Both sides' numbers beside each other, a row per kind, name and size; null on the side that lacks it."""
    keys = list(_SIZES[scope])
    before, after = (_amounts(scope, runs) for runs in (base, head))
    both = before.join(after, on=keys, how="full", coalesce=True, nulls_equal=True, suffix="_head")
    told = [_told(scope, runs) for runs in (base, head)]
    if not all(told):
        both = both.clear()
    elif any(len(run.metrics[scope]) >= _CUT for run in [*base, *head]):
        both = both.drop_nulls(["mean_us", "mean_us_head"])
    kind = pl.col("kind") if "kind" in keys else pl.lit("op")
    return both.with_columns(kind=kind, size=_size(scope))


def _told(scope: str, runs: Sequence[Run]) -> bool:
    """Whether all runs have the table; reports of earlier versions have none."""
    return all(scope in run.metrics for run in runs)


def _amounts(scope: str, runs: Sequence[Run]) -> pl.DataFrame:
    """One side's numbers per kind, name and size over all its runs."""
    keys = list(_SIZES[scope])
    schema = {**_SIZES[scope], **_NUMBERS}
    rows = [{name: row.get(name) for name in schema} for run in runs for row in run.metrics.get(scope, ())]
    number, mean = pl.col("calls"), pl.col("mean_us")
    whole = (number * mean).sum() / number.sum()
    squares = ((number - 1) * pl.col("sd_us").fill_null(0) ** 2 + number * (mean - whole) ** 2).sum()
    return (
        pl.DataFrame(rows, schema=schema, orient="row", strict=False)
        .filter(number > 0, mean.is_finite(), pl.col("calls_per_step").is_finite())
        .group_by(keys)
        .agg(
            calls=number.sum(),
            per_step=pl.col("calls_per_step").sum() / len(runs),
            mean_us=whole,
            sd_us=pl.when(number.sum() > 1).then((squares / (number.sum() - 1)).sqrt()),
        )
    )


def _size(scope: str) -> pl.Expr:
    if scope == "op":
        return pl.col("shapes")
    threads = pl.format("{} \N{MULTIPLICATION SIGN} {}", "grid", "block")
    size = pl.col("bytes").map_elements(bytes_, return_dtype=pl.String)
    return pl.coalesce(threads, size)


def _work_changes(table: pl.DataFrame, least_ms: float) -> Iterator[WorkChange]:
    """Names on one side only come as one; of the others each size is told by itself."""
    keys = ["kind", "name"]
    here, there = pl.col("mean_us").is_not_null(), pl.col("mean_us_head").is_not_null()
    one_sided = ~(here.any() & there.any()).over(keys)
    for row in _summed(table.filter(one_sided)).iter_rows(named=True):
        yield from _one_sided(row, least_ms)
    others = table.filter(~one_sided)
    for row in others.filter(here != there).iter_rows(named=True):
        yield from _one_sided(row, least_ms)
    both = others.filter(here & there)
    sides = [
        [both[f"{name}{suffix}"].cast(pl.Float64).to_numpy() for name in ("mean_us", "sd_us", "calls")]
        for suffix in ("", "_head")
    ]
    p = welch(*[[mean, np.nan_to_num(spread), number] for mean, spread, number in sides])
    for row, adjusted in zip(both.iter_rows(named=True), p, strict=True):
        yield from _two_sided(row, float(adjusted), least_ms)


def _summed(table: pl.DataFrame) -> pl.DataFrame:
    """All sizes of a name together."""

    def of(suffix: str) -> list[pl.Expr]:
        number, mean = pl.col(f"per_step{suffix}"), pl.col(f"mean_us{suffix}")
        present = number.is_not_null().any()
        whole = (number * mean).sum() / number.sum()
        return [
            pl.when(present).then(number.sum()).alias(f"per_step{suffix}"),
            pl.when(present).then(whole).alias(f"mean_us{suffix}"),
        ]

    return table.group_by("kind", "name", maintain_order=True).agg(
        *of(""), *of("_head"), size=pl.when(pl.len() == 1).then(pl.col("size").first())
    )


def _one_sided(row: Mapping[str, object], least_ms: float) -> Iterator[WorkChange]:
    base, head = _amount(row, ""), _amount(row, "_head")
    change = WorkChange(**_what(row), status="vanished" if base else "appeared", base=base, head=head)
    if abs(change.change_ms) >= least_ms:
        yield change


def _two_sided(row: Mapping[str, object], p: float, least_ms: float) -> Iterator[WorkChange]:
    base, head = _amount(row, ""), _amount(row, "_head")
    if base is None or head is None:
        return
    ratio = head.mean_us / base.mean_us if base.mean_us else np.inf
    longer = p < _ALPHA and abs(ratio - 1) >= LEAST_EFFECT
    often = abs(head.per_step - base.per_step) >= _OTHER_COUNT * max(base.per_step, head.per_step)
    if not (longer or often) or abs(head.ms_per_step - base.ms_per_step) < least_ms:
        return
    by_count = abs(head.per_step - base.per_step) * base.mean_us
    by_length = abs(head.mean_us - base.mean_us) * head.per_step
    if often and (not longer or by_count >= by_length):
        yield WorkChange(**_what(row), status="count", base=base, head=head)
    else:
        yield WorkChange(**_what(row), status="slower" if ratio > 1 else "faster", base=base, head=head, p=p)


def _what(row: Mapping[str, object]) -> dict[str, object]:
    return {"work": row["kind"], "name": row["name"], "size": row["size"]}


def _amount(row: Mapping[str, object], suffix: str) -> Amount | None:
    number, mean = row[f"per_step{suffix}"], row[f"mean_us{suffix}"]
    if not isinstance(number, float) or not isinstance(mean, float):
        return None
    return Amount(per_step=number, mean_us=mean, ms_per_step=number * mean / 1e3)


# ---------------------------------------------------------------------------------------------- findings


def _findings(base: Sequence[Run], head: Sequence[Run], least_ms: float) -> Iterator[FindingChange]:
    """Every finding of either side, new ones first, then by how grave they are."""
    before, after = _common(base), _common(head)
    keys = dict.fromkeys([*after, *before])
    changes = [_finding_change(key, before.get(key), after.get(key), base, head, least_ms) for key in keys]
    yield from sorted(changes, key=lambda change: (_STATUSES.index(change.status), _gravity(change)))


_STATUSES: Final[tuple[FindingStatus, ...]] = ("new", "worse", "gone", "better", "kept", "untold")


def _gravity(change: FindingChange) -> tuple[int, float]:
    found = change.head or change.base
    worth = -found.saving.high_ms if found and found.saving else 0.0
    return SEVERITIES.index(found.severity) if found and found.severity else len(SEVERITIES), worth


class _Known(NamedTuple):
    rule: str
    title: str
    found: Found


def _common(runs: Sequence[Run]) -> dict[str, _Known]:
    """The findings and symptoms that at least half of the runs have, each as the first of them has it."""
    each = [dict(_known(run)) for run in runs]
    times = Counter(key for one in each for key in one)
    first = {key: known for one in reversed(each) for key, known in one.items()}
    return {key: first[key] for key in dict.fromkeys(chain(*each)) if 2 * times[key] >= len(runs)}


def _known(run: Run) -> Iterator[tuple[str, _Known]]:
    """By key, a run's symptoms and then its findings: what is both counts as the finding."""
    for finding in run.findings:
        for symptom in finding.symptoms:
            found = Found(severity=None, saving=None, says=symptom.says, under=finding.title)
            yield symptom.rule, _Known(symptom.rule, symptom.title, found)
    for finding in run.findings:
        found = Found(severity=finding.severity, saving=finding.saving, says=finding.says)
        yield finding.key, _Known(finding.rule, finding.title, found)


def _finding_change(  # noqa: PLR0913, PLR0917 - both sides of a key, twice
    key: str,
    before: _Known | None,
    after: _Known | None,
    base: Sequence[Run],
    head: Sequence[Run],
    least_ms: float,
) -> FindingChange:
    status: FindingStatus
    why = None
    if before and after:
        known, status = after, _moved(before.found, after.found, least_ms)
    elif after:
        known, status, why = after, "new", _unheld(after.rule, base, "base")
    elif before:
        known, status, why = before, "gone", _unheld(before.rule, head, "head")
    else:
        raise ValueError(f"{key}: a finding of neither side")
    return FindingChange(
        key=key,
        rule=known.rule,
        title=known.title,
        status="untold" if why else status,
        base=before and before.found,
        head=after and after.found,
        why=why,
    )


def _unheld(rule: str, runs: Sequence[Run], side: str) -> str | None:
    """Why the absence of a rule's finding from these runs does not mean that it passed; None where it does."""
    for run in runs:
        for unknown in run.not_evaluable:
            if unknown.rule == rule:
                return f"the {side} could not tell: {'; '.join(dict.fromkeys(unknown.missing.values()))}"
        if any(s.rule == rule for s in run.suppressed):
            return f"suppressed on the {side}"
        if rule not in {*run.passed, *run.not_applicable, *(known.rule for _, known in _known(run))}:
            return f"the {side} was checked without this rule"
    return None


def _moved(before: Found, after: Found, least_ms: float) -> FindingStatus:
    """Whether a finding of both sides weighs more than before: by its severity, then by the time it would save.

    Not by its share of the step: that moves wherever the rest of the step does.
    """
    change = 0
    if before.severity and after.severity:
        change = SEVERITIES.index(before.severity) - SEVERITIES.index(after.severity)
    if not change and before.saving and after.saving:
        gained = after.saving.high_ms - before.saving.high_ms
        change = int(gained >= least_ms) - int(gained <= -least_ms)
    return "worse" if change > 0 else "better" if change < 0 else "kept"


def _counterpart(run: Run, report: Report, baseline: Report) -> Run | None:
    alone = len(report.runs) == len(baseline.runs) == 1
    return baseline.runs[0] if alone else next((old for old in baseline.runs if old.name == run.name), None)


def _marked(run: Run, old: Run | None) -> Run:
    if old is None:
        return run
    known = dict(_known(old))
    findings = tuple(f.model_copy(update={"new": _is_new(f, known, old)}) for f in run.findings)
    return run.model_copy(update={"findings": findings})


def _is_new(finding: Finding, known: Mapping[str, _Known], old: Run) -> bool | None:
    """None where the baseline could not judge the rule."""
    if finding.key in known:
        return False
    return None if _unheld(finding.rule, [old], "baseline") else True


# ---------------------------------------------------------------------------------------------- notes


def _notes(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> Iterator[str]:
    """What a reader should know before trusting the comparison."""
    recorded = {worker.worker for run in [*base, *head] for worker in run.source.workers}
    if recorded > ranks:
        yield f"step times are those of the {count(len(ranks), 'rank')} that all runs recorded, of {len(recorded)}"
    if any(one != other for one, other in _pairs(base, head, lambda run: run.source.framework)):
        yield "the sides were recorded with different frameworks"
    if any(one != other for one, other in _pairs(base, head, lambda run: run.source.format)):
        yield "the sides were recorded with different profilers: names of work may differ for that alone"
    for name, runs in (("base", base), ("head", head)):
        if not all(_told(scope, runs) for scope in _SIZES):
            yield f"the {name} is a report without tables of kernels and ops: write it again from its profile"
        if read := list(dict.fromkeys(note for run in runs for note in run.source.salvaged)):
            more = f" (and {len(read) - 1} more)" if len(read) > 1 else ""
            yield f"noted while reading the {name}: {one_line(read[0], _LONGEST_NOTE)}{more}"


def _pairs(base: Sequence[Run], head: Sequence[Run], of: Callable[[Run], object]) -> Iterator[tuple[object, object]]:
    return zip([of(base[0])] * len(head), map(of, head), strict=True)
