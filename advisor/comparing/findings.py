"""What became of each finding: new, worse, gone, better, as before, or not to be told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, NamedTuple

from advisor.comparing.predictions import predictions
from advisor.model.comparison import NEWS_FIRST, FindingChange, FindingStatus, Side, SideFinding
from advisor.model.finding import Finding
from advisor.model.reason import Reason
from advisor.model.remarks import remark
from advisor.model.report import Report, Run
from advisor.model.trials import Trials
from advisor.vocabulary.severities import SEVERITIES


def mark_new(report: Report, baseline: Report) -> Report:
    """The report with each finding marked: is it new against the baseline's run of the same name, or its only one?"""
    return report.model_copy(
        update={"runs": tuple(_with_news(run, _counterpart(run, report, baseline)) for run in report.runs)}
    )


def finding_changes(
    runs: tuple[Sequence[Run], Sequence[Run]],
    of: tuple[Side, Side],
    middle: Literal["median", "mean"],
    least_ms: float,
    trials: Trials | None = None,
) -> Iterator[FindingChange]:
    """Every finding of either side, new ones first, then by how grave they are; each side has a run at least.

    `middle` is which time of a side the verdict is about. A saving that moves by less than `least_ms` is the same.
    """
    base, head = runs
    sides = (_Runs("base", base, of[0].per), _Runs("head", head, of[1].per))
    is_per_step = of[0].per == of[1].per == "step"
    least_ms = least_ms if is_per_step else math.inf
    times = tuple(side.mean_ms if middle == "mean" else side.median_ms for side in of) if is_per_step else (None, None)
    before, after = _common(base), _common(head)
    keys = dict.fromkeys([*after, *before])
    changes = [_finding_change(key, before.get(key), after.get(key), sides, least_ms) for key in keys]
    changes = predictions(_with_causes(changes), (base[0], head[0]), times, trials)
    yield from sorted(changes, key=lambda change: (NEWS_FIRST.index(change.status), _gravity(change)))


_OF_THE_STEP: Final = frozenset({"step_ms", "step_mean_ms", "steps"})
_SAME_NUMBER: Final = 0.05  # by which a number has to differ to be another one


def _gravity(change: FindingChange) -> tuple[int, float]:
    finding = change.head or change.base
    worth = -finding.saving.high_ms if finding and finding.saving else 0.0
    severity = None if finding is None or finding.under else finding.severity
    return SEVERITIES.index(severity) if severity else len(SEVERITIES), worth


class _Known(NamedTuple):
    rule: str
    title: str
    finding: SideFinding
    causes: Mapping[str, _Cause] = {}


class _Cause(NamedTuple):
    """A number behind a finding; `ms` is what a share or a duration makes of the step."""

    value: float
    ms: float | None


def _common(runs: Sequence[Run]) -> dict[str, _Known]:
    """The findings and symptoms that at least half of the runs have, each as the first of them has it."""
    each = [dict(_known(run)) for run in runs]
    times = Counter(key for of_run in each for key in of_run)
    first = {key: known for of_run in reversed(each) for key, known in of_run.items()}
    return {key: first[key] for key in dict.fromkeys(chain(*each)) if 2 * times[key] >= len(runs)}


def _known(run: Run) -> Iterator[tuple[str, _Known]]:
    """By key, a run's symptoms and then its findings: what is both counts as the finding."""
    for finding in run.findings:
        for symptom in finding.symptoms:
            known = SideFinding(severity=symptom.severity, saving=None, says=symptom.says, under=finding.title)
            yield symptom.rule, _Known(symptom.rule, symptom.title, known)
    for finding in run.findings:
        where = tuple(place for place in finding.where if place.stack)
        known = SideFinding(
            severity=finding.severity,
            saving=finding.saving,
            says=finding.says,
            where=where,
            fixes=finding.fixes_for(run.source.framework),
        )
        causes = _causes(finding, run.source.steps.step_mean_ms)
        yield finding.key, _Known(finding.rule, finding.title, known, causes)


def _causes(finding: Finding, step_ms: float | None) -> dict[str, _Cause]:
    """The numbers that the finding rests on itself: without the step's time, and without what a fix would gain."""
    saved = finding.saving.high_ms if finding.saving else None
    causes = {}
    for item in finding.evidence:
        gain = item.metric.endswith("_gain_ms") or (item.unit == "ms" and item.value == saved)
        if isinstance(item.value, int | float) and not gain and item.metric not in _OF_THE_STEP:
            of_step = {"ms": 1.0, "share": step_ms}.get(item.unit)
            causes[item.metric] = _Cause(item.value, item.value * of_step if of_step else None)
    return causes


class _Runs(NamedTuple):
    """The runs of a side, and what their times are of."""

    side: str
    runs: Sequence[Run]
    per: str | None


def _finding_change(
    key: str, before: _Known | None, after: _Known | None, sides: tuple[_Runs, _Runs], least_ms: float
) -> FindingChange:
    status: FindingStatus
    why = None
    if before and after:
        known, status = after, _moved(before, after, least_ms)
    elif after:
        known, status, why = after, "new", _unmeasured(sides) or _not_judged(after.rule, sides[0].runs, "base")
    elif before:
        known, status, why = before, "gone", _not_gone(sides) or _not_judged(before.rule, sides[1].runs, "head")
    else:
        raise ValueError(f"{key}: a finding of neither side")
    return FindingChange(
        key=key,
        rule=known.rule,
        title=known.title,
        status="unknown" if why else status,
        base=before and before.finding,
        head=after and after.finding,
        why=why,
    )


def _unmeasured(sides: tuple[_Runs, _Runs]) -> Reason | None:
    """Why no finding can be said to have come or gone, where a side could not be measured."""
    return next((remark("side_not_measured", side=of.side) for of in sides if not of.per), None)


def _not_gone(sides: tuple[_Runs, _Runs]) -> Reason | None:
    """Why no finding can be said to be gone: a window without steps may lie in another phase of the job."""
    head = sides[1]
    if head.per == "recording":
        return remark("side_without_steps", side=head.side)
    return _unmeasured(sides)


def _not_judged(rule: str, runs: Sequence[Run], side: str) -> Reason | None:
    """Why the absence of a rule's finding from these runs does not mean that it passed; None where it does."""
    for run in runs:
        for unknown in run.not_evaluable:
            if unknown.rule == rule:
                return remark("side_could_not_tell", side=side, why="; ".join(unknown.words))
        if any(s.rule == rule for s in run.suppressed):
            return remark("suppressed", side=side)
        if rule not in {*run.passed, *run.not_applicable, *(known.rule for _, known in _known(run))}:
            return remark("without_rule", side=side)
    return None


def _moved(was: _Known, now: _Known, least_ms: float) -> FindingStatus:
    """Whether a finding of both sides weighs more than before: by the time it would save, else by its severity.

    Not by its share of the step: that moves wherever the rest of the step does, and a severity with it. Nor where the
    numbers that it rests on are what they were: then the rest of the step moved, and with it what a fix is worth.

    A symptom has a severity and no saving. Where both sides have it as one, its cause decides: see `_with_causes`.
    """
    common = was.causes.keys() & now.causes.keys()
    if common and all(_same(was.causes[metric], now.causes[metric], least_ms) for metric in common):
        return "same"
    base, head = was.finding, now.finding
    change = 0
    if base.saving and head.saving:
        gained = head.saving.high_ms - base.saving.high_ms
        change = int(gained >= least_ms) - int(gained <= -least_ms)
    if not change and base.severity and head.severity and not (base.under and head.under):
        change = SEVERITIES.index(base.severity) - SEVERITIES.index(head.severity)
    return "worse" if change > 0 else "better" if change < 0 else "same"


def _with_causes(changes: Sequence[FindingChange]) -> list[FindingChange]:
    """A symptom of both sides moves as the cause that accounts for it in the head does."""
    causes = {change.title: change.status for change in changes if change.status in {"worse", "better"}}
    return [
        change.model_copy(update={"status": causes.get(change.head.under or "", change.status)})
        if change.status == "same" and change.base and change.head and change.base.under
        else change
        for change in changes
    ]


def _same(was: _Cause, now: _Cause, least_ms: float) -> bool:
    """Whether a number did not move, or the time that it makes of the step did not."""
    if was.ms is not None and now.ms is not None and abs(now.ms - was.ms) < least_ms:
        return True
    return abs(now.value - was.value) <= _SAME_NUMBER * max(abs(was.value), abs(now.value))


def _counterpart(run: Run, report: Report, baseline: Report) -> Run | None:
    alone = len(report.runs) == len(baseline.runs) == 1
    return baseline.runs[0] if alone else next((old for old in baseline.runs if old.name == run.name), None)


def _with_news(run: Run, old: Run | None) -> Run:
    if old is None:
        return run
    known = dict(_known(old))
    findings = tuple(f.model_copy(update={"new": _is_new(f, known, old)}) for f in run.findings)
    return run.model_copy(update={"findings": findings})


def _is_new(finding: Finding, known: Mapping[str, _Known], old: Run) -> bool | None:
    """None where the baseline could not judge the rule."""
    if finding.key in known:
        return False
    return None if _not_judged(finding.rule, [old], "baseline") else True
