"""What became of each finding: new, worse, gone or only hidden, better; and what the promised savings came to."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from advisor.comparing.steps import Pair
from advisor.model.comparison import NEWS_FIRST, Effect, FindingChange, FindingStatus, Prediction, SideFinding
from advisor.model.finding import Evidence, Operator
from advisor.model.reason import Reason, remark
from advisor.model.report import Report, Run
from advisor.model.trials import Trials
from advisor.vocabulary.severities import SEVERITIES


def mark_new(report: Report, baseline: Report) -> Report:
    """The report with each finding marked: is it new against the baseline's run of the same name, or its only one?"""
    alone = len(report.runs) == len(baseline.runs) == 1
    by_name = {old.name: old for old in reversed(baseline.runs)}
    runs = list(report.runs)
    for at, run in enumerate(runs):
        if (old := baseline.runs[0] if alone else by_name.get(run.name)) is not None:
            known, findings = dict(_known(old)), []
            for finding in run.findings:
                is_unknown = finding.key not in known and _not_judged(finding.rule, [old], "baseline")
                findings.append(finding.model_copy(update={"new": None if is_unknown else finding.key not in known}))
            runs[at] = run.model_copy(update={"findings": tuple(findings)})
    return report.model_copy(update={"runs": tuple(runs)})


def finding_changes(pair: Pair, least_ms: float, trials: Trials | None = None) -> Iterator[FindingChange]:
    """Every finding of either side, new ones first, then by how grave they are.

    A saving that moves by less than `least_ms` is the same.
    """
    least_ms = least_ms if pair.is_per_step else math.inf
    before, after = _common(pair.base), _common(pair.head)
    keys = dict.fromkeys([*after, *before])
    changes = [_finding_change(key, before.get(key), after.get(key), pair, least_ms) for key in keys]
    changes = predictions(_with_causes(changes), pair, trials)
    yield from sorted(changes, key=lambda change: (NEWS_FIRST.index(change.status), _gravity(change)))


_OF_THE_STEP: Final = frozenset({"step_ms", "step_mean_ms", "steps"})
_SAME_NUMBER: Final = 0.05  # by which a number has to differ to be another one


def _gravity(change: FindingChange) -> tuple[int, float]:
    finding = change.head or change.base
    worth = -finding.saving.high_ms if finding and finding.saving else 0.0
    severity = None if finding is None or finding.under else finding.severity
    return SEVERITIES.index(severity) if severity else len(SEVERITIES), worth


_Cause: TypeAlias = tuple[float, float | None]
"""A number behind a finding, and what a share or a duration makes of the step, in ms."""


class _Known(NamedTuple):
    rule: str
    title: str
    finding: SideFinding
    causes: Mapping[str, _Cause] = {}


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
        of, says, fixes = finding.severity, finding.says, finding.fixes_for(run.source.framework)
        known = SideFinding(severity=of, saving=finding.saving, says=says, where=where, fixes=fixes)
        # The numbers that it rests on itself: without the step's time, and without what a fix would gain.
        saved, causes = finding.saving.high_ms if finding.saving else None, {}
        for item in finding.evidence:
            gain = item.metric.endswith("_gain_ms") or (item.unit == "ms" and item.value == saved)
            if isinstance(item.value, int | float) and not gain and item.metric not in _OF_THE_STEP:
                of_step = {"ms": 1.0, "share": run.source.steps.step_mean_ms}.get(item.unit)
                causes[item.metric] = item.value, item.value * of_step if of_step else None
        yield finding.key, _Known(finding.rule, finding.title, known, causes)


def _finding_change(
    key: str, before: _Known | None, after: _Known | None, pair: Pair, least_ms: float
) -> FindingChange:
    status: FindingStatus
    unmeasured = (name for name, side in (("base", pair.before), ("head", pair.after)) if not side.per)
    why = next((remark("side_not_measured", side=name) for name in unmeasured), None)
    if before and after:
        known, status, why = after, _moved(before, after, least_ms), None
    elif after:
        known, status, why = after, "new", why or _not_judged(after.rule, pair.base, "base")
    elif before:
        if pair.after.per == "recording":  # a window without steps may lie in another phase of the job
            why = remark("side_without_steps", side="head")
        known, status, why = before, "gone", why or _not_judged(before.rule, pair.head, "head")
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
    (value, ms), (value_now, ms_now) = was, now
    if ms is not None and ms_now is not None and abs(ms_now - ms) < least_ms:
        return True
    return abs(value_now - value) <= _SAME_NUMBER * max(abs(value), abs(value_now))


_AS_LONG: Final = 0.8  # of the time behind a finding: with so much of it left, only the step around it grew
_HALF: Final = 0.5  # of the least predicted saving: a step that got shorter by less did not get what was promised
# Parts of the step that disappear behind a longer one
_WAITS: Final = frozenset(
    ("input", "launch_gap", "sync_idle", "host_busy", "queued_idle", "dependency_idle", "collective", "memcpy")
)
_OF_STEP: Final = re.compile(r"Part of .*\bthe (?:recorded )?step\b")  # what such a share means
_AT_LEAST: Final[Operator] = ">="
_LOWER: Final = frozenset({_AT_LEAST, ">"})


def predictions(changes: Sequence[FindingChange], pair: Pair, trials: Trials | None = None) -> list[FindingChange]:
    """The changes, what only hides called so, what is gone with what its fix promised and a trial measured."""
    before, after = pair.times_ms
    if not before or not after or not pair.is_per_step:
        return list(changes)
    shorter_ms = before - after
    known = [_uncovered(change, pair) for change in changes]
    known = [_hidden(change, known, pair, shorter_ms / before) for change in known]
    gone = {change.rule: change.base.saving for change in known if change.status == "gone" and change.base}
    promised = {rule: saving for rule, saving in gone.items() if saving}
    effect = None
    if trials and (tried := trials.gain_of(promised)):
        gain, findings = tried
        effect = Effect(low_ms=before * (1 - gain.high), high_ms=before * (1 - gain.low), findings=findings)
    prediction = Prediction(
        low_ms=before * sum(saving.low_share for saving in promised.values()),
        high_ms=before * sum(saving.high_share for saving in promised.values()),
        measured_ms=shorter_ms,
        findings=len(promised),
        trial=effect,
    )
    return [
        change.model_copy(update={"prediction": prediction})
        if change.status == "gone" and change.base and change.base.saving
        else change
        for change in known
    ]


def _hidden(change: FindingChange, changes: Sequence[FindingChange], pair: Pair, shorter: float) -> FindingChange:
    """The change; `hidden` in place of `gone` where its time is still there, or may be behind a new bottleneck."""
    if change.status != "gone" or change.base is None:
        return change
    times = _as_long(change.key, pair.base[0], pair.head[0])
    why = remark("dwarfed", base=times[0], head=times[1]) if times else _masked(change, changes, shorter)
    return change.model_copy(update={"status": "hidden", "why": why}) if why else change


def _uncovered(change: FindingChange, pair: Pair) -> FindingChange:
    """The change; `uncovered` in place of `new` where its time was there before, in a longer step."""
    times = _as_long(change.key, pair.head[0], pair.base[0]) if change.status == "new" else None
    if times is None:
        return change
    return change.model_copy(update={"status": "uncovered", "why": remark("dominant", base=times[1], head=times[0])})


def _as_long(key: str, run: Run, other: Run) -> tuple[float, float] | None:
    """The time behind a run's finding and the same of the other run, if that is as long or longer; else None.

    Every other number that decides whether the rule fires has to be within its limit there too.
    """
    finding = next((finding for finding in run.findings if finding.key == key), None)
    numbers = [item for item in finding.evidence if item.limit is not None] if finding else []
    times = [(_ms(run, item), _ms(other, item)) for item in numbers if _is_time(item)]
    both = [(here, there) for here, there in times if here and there is not None]
    is_as_long = bool(both) and all(there >= _AS_LONG * here for here, there in both)
    is_within = all(_is_within(item, other) for item in numbers if not _is_time(item))
    return both[0] if is_as_long and is_within else None


def _is_time(item: Evidence) -> bool:
    """Whether a number is time of the step of which the rule asks for enough."""
    is_of_step = item.unit == "ms" or (item.unit == "share" and bool(_OF_STEP.match(item.meaning)))
    return is_of_step and item.signs.get("fires", _AT_LEAST) in _LOWER


def _is_within(item: Evidence, run: Run) -> bool:
    """Whether the run's number is on the side of the limit on which the rule fires; true where it has none."""
    value, sign = run.of_pace.get(item.metric), item.signs.get("fires", _AT_LEAST)
    if not isinstance(value, int | float) or item.limit is None:
        return True
    return value >= item.limit if sign in _LOWER else value <= item.limit


def _ms(run: Run, item: Evidence) -> float | None:
    """A number of the worker that sets the run's pace, in ms of the recorded step."""
    value = run.of_pace.get(item.metric)
    if not isinstance(value, int | float):
        return None
    return float(value) if item.unit == "ms" else float(value) * (run.source.steps.step_mean_ms or 0.0)


def _masked(change: FindingChange, changes: Sequence[FindingChange], shorter: float) -> Reason | None:
    """A wait that is not there while the step did not get shorter: something new takes as long."""
    saving = change.base.saving if change.base else None
    if saving is None or saving.of not in _WAITS or shorter >= _HALF * saving.low_share:
        return None
    for other in changes:
        grown = other.head.saving if other.status in {"new", "worse"} and other.head else None
        if grown and grown.high_share >= saving.low_share:
            return remark("masked", title=other.title)
    return None
