"""The judge: rules against measurements; shares out savings so that none is promised twice; ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol, get_args

import polars as pl

from advisor.errors import contained
from advisor.metrics.metric import METRICS, Scope
from advisor.model.missing import Missing
from advisor.model.report import (
    OUTLIERS,
    SEVERITIES,
    Confidence,
    Evidence,
    Finding,
    Fix,
    NotEvaluable,
    Patch,
    Place,
    Reach,
    Reason,
    Saving,
    Severity,
    Suppressed,
    Symptom,
)
from advisor.rules import wording
from advisor.rules.book import Applies, Rule
from advisor.rules.verdicts import Verdict, fixes_in_order, fixes_of_other_causes, verdicts, workloads

CERTAINTY: Final[Mapping[Confidence, float]] = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""Weight of a saving's midpoint by the rule's confidence: the expected saving, which ranks findings."""

_WORTH: Final = 0.01  # of the step: step times of one job vary by 1 to 3 %

_AS_MUCH: Final = 0.99  # of the most that any worker wins: what differs less is the same, for the reason above
_SEVERAL: Final = 2
_NO_FRAMEWORK: Final = "cuda"
_UNKNOWN: Final = Missing("nothing_to_compute_from")
_UNEVEN: Final = "skew"  # the part of the step that ranks lose because they are not equally long


class Measured(Protocol):
    """What the judge asks of a run: just measured, or kept from earlier."""

    @property
    def format(self) -> str:
        """The reader's name."""

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""

    @property
    def pace(self) -> int:
        """The worker that sets the job's pace."""

    @property
    def reasons(self) -> Mapping[str, Missing]:
        """Per metric that could not be told, why."""

    def rows(self, scope: Scope) -> pl.DataFrame:
        """The rows that rules of this scope are held against, a column per metric."""

    def framework(self, worker: int) -> str | None:
        """The worker's framework, where it is known."""

    def used_steps(self, worker: int) -> tuple[int, ...] | None:
        """The numbers of the steps that the worker's values rest on; None where it marks no steps."""

    def places(self, metric: str, worker: int) -> pl.DataFrame:
        """Places in the recording behind a value, the most telling first; empty where none."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """Why a rule's finding is not reported, and until when (ISO 8601); expired, it is reported again."""

    reason: str
    until: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The five outcomes of a rule book on one run."""

    findings: tuple[Finding, ...]
    not_evaluable: tuple[NotEvaluable, ...]
    passed: tuple[str, ...]
    not_applicable: tuple[str, ...]
    suppressed: tuple[Suppressed, ...]
    notes: tuple[str, ...] = ()


class _Share(NamedTuple):
    """What a rule may claim of a worker's step, and of the high end how much from which part of the step."""

    low_ms: float
    high_ms: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Fired:
    """A rule that fired: the row it is told of, all workers it holds for, and what the job's step gets shorter by.

    `evens_ms` is by how much the ranks differ less once the high saving is had: from the latest to the typical one.
    """

    rule: Rule
    verdict: Verdict
    row: Mapping[str, object]
    workers: tuple[int, ...]
    low_ms: float | None
    high_ms: float | None
    evens_ms: float = 0.0
    says: str = ""

    @property
    def device(self) -> str:
        """What to call the device that the job ran on."""
        name = self.row.get("device_name")
        return wording.device(name if isinstance(name, str) else None)

    @property
    def heading(self) -> str:
        return self.rule.heading(self.device)

    @property
    def severity(self) -> Severity:
        return self.verdict.severity or "low"

    @property
    def confidence(self) -> Confidence:
        levels: Sequence[Confidence] = list(CERTAINTY)
        return levels[min(levels.index(self.rule.confidence) + self.verdict.doubted, len(levels) - 1)]

    @property
    def expected_ms(self) -> float:
        low, high = self.low_ms, self.high_ms
        return 0.0 if low is None or high is None else (low + high) / 2 * CERTAINTY[self.confidence]


def judge(found: Measured, rules: Mapping[str, Rule], suppressions: Mapping[str, Suppression]) -> Judgement:
    """Judge one run.

    Args:
        found: Its metrics.
        rules: The rule book, by id.
        suppressions: By rule id, the findings not to report.
    """
    of_scope = {scope: found.rows(scope) for scope in get_args(Scope)}
    settings = {scope: _settings(rows, found) for scope, rows in of_scope.items()}
    outcomes = {
        name: contained(
            partial(_outcome, rule, of_scope[rule.scope], settings[rule.scope], found), partial(_failed, rule)
        )
        for name, rule in rules.items()
    }
    fired = [outcome for outcome in outcomes.values() if isinstance(outcome, _Fired)]
    unknown = [outcome for outcome in outcomes.values() if isinstance(outcome, NotEvaluable)]
    passed = [rules[name].id for name, outcome in outcomes.items() if outcome == "passed"]
    elsewhere = [rules[name].id for name, outcome in outcomes.items() if outcome == "not_applicable"]
    active = {rule: s for rule, s in suppressions.items() if not s.expired}
    suppressed = tuple(_suppressed(f, s) for f in fired if (s := active.get(f.rule.id)))
    told = _findings([f for f in fired if f.rule.id not in active], found)
    findings = tuple(finding for finding in told if isinstance(finding, Finding))
    unknown += [failed for failed in told if isinstance(failed, NotEvaluable)]
    notes = [
        f"the suppression of {f.rule.id} expired on {s.until} ({s.reason})"
        for f in fired
        if (s := suppressions.get(f.rule.id)) and s.expired
    ]
    return Judgement(findings, tuple(unknown), tuple(passed), tuple(elsewhere), suppressed, tuple(notes))


def _outcome(
    rule: Rule, rows: pl.DataFrame, settings: Iterable[_Setting], found: Measured
) -> _Fired | NotEvaluable | Literal["passed", "not_applicable"]:
    """What comes of one rule on the rows of its scope, whose settings are in the same order."""
    fits = [_applies(rule.applies, setting, found.format) for setting in settings]
    applicable = rows if all(fits) else rows.filter(pl.Series(fits, dtype=pl.Boolean))
    outcomes = verdicts(rule, applicable)
    if not applicable.height:
        return "not_applicable"
    if any(v.outcome == "fired" for v in outcomes):
        fired = _fired(rule, outcomes, applicable, found.pace)
        return replace(fired, says=_said(fired, found))
    if missing := [v for v in outcomes if v.outcome == "not_evaluable"]:
        return _not_evaluable(rule, missing, found)
    return "passed"


def _failed(rule: Rule, kind: str) -> NotEvaluable:
    """A rule that a bug keeps from judging: nothing is missing but the rule itself."""
    return NotEvaluable(rule=rule.id, title=rule.heading(), missing={rule.id: Reason.of(Missing.of_failure(kind))})


def _suppressed(f: _Fired, why: Suppression) -> Suppressed:
    return Suppressed(rule=f.rule.id, title=f.heading, severity=f.severity, reason=why.reason, until=why.until)


class _Setting(NamedTuple):
    """Where a row of metrics comes from, as far as rules ask."""

    framework: str
    on_device: bool
    capability: float | None
    distributed: bool
    workloads: set[str]


def _settings(rows: pl.DataFrame, found: Measured) -> list[_Setting]:
    columns = {"worker", "device", "capability", "ranks_in_job", "collective_share", "workload"}
    return [
        _Setting(
            found.framework(row["worker"]) or "any",
            row["device"] is not None,
            row["capability"],
            _distributed(row),
            workloads(row),
        )
        for row in rows.select(columns & {*rows.columns}).iter_rows(named=True)
    ]


def _applies(applies: Applies, setting: _Setting, file_format: str) -> bool:
    """Whether the rule makes sense there; an unknown capability is left to the rule."""
    return (
        (not applies.framework or setting.framework in applies.framework)
        and (not applies.format or file_format in applies.format)
        and (applies.device is None or applies.device == setting.on_device)
        and (applies.distributed is None or applies.distributed == setting.distributed)
        and not setting.workloads.isdisjoint(applies.workload)
        and (
            applies.min_capability is None or setting.capability is None or setting.capability >= applies.min_capability
        )
    )


def _distributed(row: Mapping[str, float | None]) -> bool:
    return (row.get("ranks_in_job") or 0) > 1 or (row.get("collective_share") or 0) > 0


def _fired(rule: Rule, outcomes: Sequence[Verdict], rows: pl.DataFrame, pace: int) -> _Fired:
    """The rule's finding, told of the worker that sets the job's pace, where that is known, else of the worst."""
    workers = rows["worker"].to_list()
    hits = [v for v in outcomes if v.outcome == "fired"]
    own = _of_each(rows, "own_whole_step_ms") or _of_each(rows, "own_step_ms")
    most = max(v.high_ms or 0.0 for v in hits)
    shown = min(
        hits,
        key=lambda v: (
            bool(own) and workers[v.row] != pace,
            SEVERITIES.index(v.severity or "low"),
            -most if (v.high_ms or 0.0) >= _AS_MUCH * most else -(v.high_ms or 0.0),
            workers[v.row] != pace,  # the report's other numbers are that worker's
            v.row,
        ),
    )
    row, held = rows.row(shown.row, named=True), tuple(workers[v.row] for v in hits)
    fired = _Fired(rule, shown, row, held, shown.low_ms, shown.high_ms)
    if not own or fired.low_ms is None or fired.high_ms is None or _levels(rule):
        return fired
    apart = _of_each(rows, "alone_whole_step_ms") or own
    low = _of_the_job(own, _left(own, [v.low_ms for v in outcomes]))
    left = _left(apart, [v.high_ms for v in outcomes])
    high = _of_the_job(apart, left)
    evens = max(0.0, _lateness(apart) - _lateness(left)) if _of_each(rows, "persistent_skew_ms") else 0.0
    return replace(fired, low_ms=min(low, high), high_ms=high, evens_ms=evens)


def _of_each(rows: pl.DataFrame, metric: str) -> list[float]:
    """The metric of every rank where several tell it, 0 for one that is left out of the comparison; else none."""
    values = rows[metric] if metric in rows.columns else pl.Series(dtype=pl.Float64)
    return values.fill_null(0.0).to_list() if values.count() >= _SEVERAL else []


def _left(own: Sequence[float], saved: Sequence[float | None]) -> list[float]:
    """What is left of each rank's own part of the step."""
    return [ms - (gain or 0.0) for ms, gain in zip(own, saved, strict=True)]


def _of_the_job(own: Sequence[float], left: Sequence[float]) -> float:
    """What the job's step gets shorter by when each rank's own part of it does: the slowest rank sets the pace."""
    return max(0.0, max(own) - max(left))


def _lateness(own: Sequence[float]) -> float:
    """By how much the latest rank exceeds the typical one, which is the lower median."""
    return max(own) - sorted(own)[(len(own) - 1) // 2]


def _of_all_ranks(pool: str) -> bool:
    """Whether a part of the step is the job's, not each rank's own."""
    return METRICS[f"{pool}_share"].scope == "run"


def _levels(rule: Rule) -> bool:
    """Whether the rule's saving is that ranks wait less for each other."""
    return rule.saving is not None and _of_all_ranks(rule.saving.of)


def _not_evaluable(rule: Rule, verdicts_: Iterable[Verdict], found: Measured) -> NotEvaluable:
    missing = dict.fromkeys(metric for verdict in verdicts_ for metric in verdict.missing)
    of = rule.saving.of if rule.saving else None
    return NotEvaluable(
        rule=rule.id,
        title=rule.heading(),
        of=of,
        missing={m: Reason.of(found.reasons.get(m, _UNKNOWN)) for m in missing},
    )


def _findings(fired: Sequence[_Fired], found: Measured) -> tuple[Finding | NotEvaluable, ...]:
    """Findings ranked, each with what it accounts for beneath it; then the rules that failed at telling theirs."""
    shared = _shared_out(fired)
    ranked = sorted(fired, key=lambda f: _rank(f, shared[f.rule.id]))
    above = {f.rule.id: _cause(f, ranked, shared) for f in ranked}
    for f in ranked:
        if above[f.rule.id] is None and (taker := _taker(f, ranked, shared)):
            root = _root(taker, above)
            above[f.rule.id] = root if root != f.rule.id else None
    beneath: dict[str, list[_Fired]] = {}
    for f in ranked:
        if (root := _root(f.rule.id, above)) != f.rule.id:
            beneath.setdefault(root, []).append(f)
    told = [
        _finding_of(f, shared[f.rule.id], beneath.get(f.rule.id, ()), found) for f in ranked if above[f.rule.id] is None
    ]
    if not (failed := [rule for rule in told if isinstance(rule, NotEvaluable)]):
        return tuple(told)
    names = {rule.rule for rule in failed}  # what lay beneath one of them speaks for itself
    return (*_findings([f for f in fired if f.rule.id not in names], found), *failed)


def _finding_of(f: _Fired, shared: _Share | None, beneath: Iterable[_Fired], found: Measured) -> Finding | NotEvaluable:
    def told() -> Finding | NotEvaluable:
        return _finding(f, shared, beneath, found)

    return contained(told, partial(_failed, f.rule))


def _cause(f: _Fired, ranked: Iterable[_Fired], shared: Mapping[str, _Share | None]) -> str | None:
    """The fired rule that explains this one, unless what is left of it is more than its causes take.

    That is the first one; of what all ranks lose, the one that evens them out most.
    """
    causes = [c for c in ranked if f.rule.id in c.rule.explains]
    if not causes:
        return None
    rest, takes = shared[f.rule.id], [_takes(c, f, shared) for c in causes]
    if rest is None:
        return causes[0].rule.id
    if rest.high_ms > max(takes):
        return None
    return causes[takes.index(max(takes)) if _levels(f.rule) else 0].rule.id


def _taker(f: _Fired, ranked: Iterable[_Fired], shared: Mapping[str, _Share | None]) -> str | None:
    """The first rule that saves out of the same part of the step, where that leaves nothing of what this one claims."""
    share = shared[f.rule.id]
    if share is None or share.high_ms or not f.high_ms:
        return None
    return next((g.rule.id for g in ranked if _high(shared[g.rule.id]) and _pools(f) & _pools(g)), None)


def _pools(f: _Fired) -> set[tuple[object, str]]:
    saving = f.rule.saving
    return {_key(f, pool) for pool in (saving.of, *saving.beyond)} if saving else set()


def _takes(cause: _Fired, f: _Fired, shared: Mapping[str, _Share | None]) -> float:
    """What a cause takes of what another rule is about."""
    if _levels(f.rule) and not _levels(cause.rule):
        return cause.evens_ms
    return _high(shared[cause.rule.id])


def _high(share: _Share | None) -> float:
    return 0.0 if share is None else share.high_ms


def _root(rule: str, above: Mapping[str, str | None]) -> str:
    while (cause := above[rule]) is not None:
        rule = cause
    return rule


def _rank(f: _Fired, saving: _Share | None) -> tuple[object, ...]:
    later = not (f.rule.leads and f.severity == "high")
    return later, saving is None, -_expected(saving, f.confidence), SEVERITIES.index(f.severity), f.rule.id


def _expected(saving: _Share | None, confidence: Confidence) -> float:
    return 0.0 if saving is None else (saving.low_ms + saving.high_ms) / 2 * CERTAINTY[confidence]


def _shared_out(fired: Sequence[_Fired]) -> dict[str, _Share | None]:
    """Low and high saving per rule: what all claim from one part of a worker's step never exceeds that part.

    Causes take before what they explain, then those with more to win; a claim that is cut keeps its proportions.
    """
    left: dict[tuple[object, str], float] = {}
    shared: dict[str, _Share | None] = {}
    for f in sorted(fired, key=lambda f: (_depth(f, fired), -f.expected_ms, f.rule.id)):
        if f.rule.saving is None or f.low_ms is None or f.high_ms is None:
            shared[f.rule.id] = None
            continue
        pools = {_key(f, pool): _pool_ms(f, pool) for pool in (f.rule.saving.of, *f.rule.saving.beyond)}
        left = pools | left
        high = max(f.high_ms, 0.0)
        low = min(max(f.low_ms, 0.0), high)
        part = min(1.0, sum(left[pool] for pool in pools) / high) if high else 0.0
        shared[f.rule.id] = _Share(part * low, part * high, _take(part * high, left, pools))
        if f.evens_ms:
            left = {_key(f, _UNEVEN): _pool_ms(f, _UNEVEN)} | left
            _take(min(part * f.evens_ms, left[_key(f, _UNEVEN)]), left, [_key(f, _UNEVEN)])
    return shared


def _key(f: _Fired, pool: str) -> tuple[object, str]:
    return None if _of_all_ranks(pool) else f.row["worker"], pool


def _take(claim: float, left: dict[tuple[object, str], float], pools: Iterable[tuple[object, str]]) -> dict[str, float]:
    """Takes a claim out of what is left in the pools, the first one first; how much came out of each."""
    parts = {}
    for pool in pools:
        if part := min(claim, left[pool]):
            left[pool] -= part
            claim -= part
            parts[pool[1]] = part
    return parts


def _depth(f: _Fired, fired: Sequence[_Fired]) -> int:
    """Length of the longest chain of fired causes above a rule; the linter keeps `explains` free of circles."""
    return max((1 + _depth(c, fired) for c in fired if f.rule.id in c.rule.explains), default=0)


def _pool_ms(f: _Fired, pool: str) -> float:
    """Milliseconds per step in that part of the step."""
    share, mean = f.row[f"{pool}_share"], f.row["step_mean_ms"]
    return float(share) * float(mean) if isinstance(share, float) and isinstance(mean, float) else 0.0


def _finding(f: _Fired, shared: _Share | None, beneath: Iterable[_Fired], found: Measured) -> Finding:
    rule = f.rule
    shown, limits = _shown(f), _limits(f)
    worker = _worker(f)
    saving = _saving(f, shared)
    return Finding(
        key=rule.id,
        rule=rule.id,
        title=f.heading,
        severity=_carried(f.severity, saving) if rule.capped else f.severity,
        loss=rule.loss,
        confidence=f.confidence,
        saving=saving,
        scope=Reach(
            workers=f.workers if rule.scope == "worker" else _about(f) or found.workers,
            steps=found.used_steps(worker) or (),
            told_of=worker,
        ),
        says=f.says,
        why=" ".join(rule.why.split()),
        evidence=tuple(
            Evidence(
                metric=m,
                value=f.row[m],
                unit=METRICS[m].unit,
                meaning=METRICS[m].meaning,
                limit=limits.get("when", {}).get(m),
                limits={level: limits[level][m] for level in SEVERITIES if m in limits.get(level, ())},
                formula=METRICS[m].formula,
            )
            for m in shown
        ),
        where=_places(shown, worker, found),
        fixes=_fixes(f, found.framework(worker), found.format),
        symptoms=tuple(Symptom(rule=s.rule.id, title=s.heading, says=s.says, severity=s.severity) for s in beneath),
        explains=rule.explains,
        docs=f"docs/rules/{rule.id}.md",
        condition=" ".join(str(rule.when).split()),
        references=tuple(f"{' '.join(r.what.split())}: {r.where}" for r in rule.references),
        params={name: value for name, value in rule.params.items() if name in rule.expressions(f.row)["when"].names},
    )


def _carried(severity: Severity, saving: Saving | None) -> Severity:
    """The severity, lowered to what the saving carries.

    High takes a least saving that is worth it, medium one that is so midway between least and most.
    """
    if saving is None or saving.low_share >= _WORTH:
        return severity
    most: Severity = "medium" if (saving.low_share + saving.high_share) / 2 >= _WORTH else "low"
    return max(severity, most, key=SEVERITIES.index)


def _fixes(f: _Fired, framework: str | None, format_: str) -> tuple[Fix, ...]:
    """The fixes for the job's framework; all of them where it is not known or the rule has none for it.

    Those whose condition is known not to hold are left out, unless there are no others.
    Only those that go with the profile's format, unless there is none. A program of no framework gets what is meant for
    any only where the rule has nothing for it.
    """
    ordered = fixes_in_order(f.rule, f.row)
    ordered = [fix for fix in ordered if not fix.format or format_ in fix.format] or ordered
    meant = [fix for fix in ordered if framework is None or fix.framework in {framework, "any"}]
    if framework == _NO_FRAMEWORK:
        meant = [fix for fix in meant if fix.framework == framework] or meant
    shown, unfit = meant or ordered, fixes_of_other_causes(f.rule, f.row)
    return tuple(
        Fix(
            framework=fix.framework,
            do=" ".join(_filled(fix.do, f).split()),
            code=fix.code and _filled(fix.code, f),
            **fix.model_dump(include={"link", "numerics", "choice", "cannot_show"}),
            patch=_patch(fix.trial, f),
        )
        for fix in [fix for fix in shown if fix not in unfit] or shown
    )


def _patch(trial: Mapping[str, bool | int | str] | None, f: _Fired) -> Patch | None:
    """How to try a fix, with this job's numbers."""
    if trial is None:
        return None
    filled = {key: _filled(value, f) if isinstance(value, str) else value for key, value in trial.items()}
    return Patch(name=str(filled.pop("patch")), arguments=filled)


def _filled(template: str, f: _Fired) -> str:
    try:
        return wording.fill(template, {**f.row, **f.rule.params})
    except ValueError as error:
        raise f.rule.unsayable(str(error)) from None


def _worker(f: _Fired) -> int:
    worker = f.row["worker"]
    assert isinstance(worker, int)  # noqa: S101 - the frame's key
    return worker


def _about(f: _Fired) -> tuple[int, ...]:
    """The number of the one rank that the finding is about; none where it is about all."""
    rank = f.row.get(f.rule.about) if f.rule.about else None
    return (rank,) if isinstance(rank, int) else ()


def _said(f: _Fired, found: Measured) -> str:
    phrases = wording.PHRASES[found.used_steps(_worker(f)) is not None]
    if f.row.get("unprofiled_step_ms") is not None:  # the metrics are of the recorded step, savings are not
        phrases = wording.OF_RECORDED_STEP
    try:
        return wording.say(f.rule.says, {**f.row, **f.rule.params, **phrases, wording.DEVICE: f.device})
    except ValueError as error:
        raise f.rule.unsayable(str(error)) from None


def _shown(f: _Fired) -> tuple[str, ...]:
    """The metrics that the verdict rests on, then those the rule adds."""
    parsed = f.rule.expressions(f.row)
    judged = (name for key, e in parsed.items() if not key.startswith("saving") for name in sorted(e.names))
    return tuple(dict.fromkeys(name for name in (*judged, *f.rule.shows) if name in METRICS))


def _limits(f: _Fired) -> dict[str, dict[str, float]]:
    """What each metric is held against for the rule to fire (`when`), and for each severity."""
    parsed = f.rule.expressions(f.row)
    return {
        key.removeprefix("severity."): e.limits(f.row, f.rule.params)
        for key, e in parsed.items()
        if key == "when" or key.startswith("severity.")
    }


def _places(shown: Iterable[str], worker: int, found: Measured) -> tuple[Place, ...]:
    """The places of the first metric that names any."""
    for metric in shown:
        if (rows := found.places(metric, worker)).height:
            return tuple(Place.model_validate(row) for row in rows.to_dicts())
    return ()


def _saving(f: _Fired, shared: _Share | None) -> Saving | None:
    """What is saved of the mean step; of that with the uneven steps, where it is they that get shorter."""
    rule = f.rule
    if shared is None or rule.saving is None:
        return None
    pools = (rule.saving.of, *rule.saving.beyond)
    of = next((pool for pool in pools if _pool_ms(f, pool)), rule.saving.of)  # the first that has any time
    step_ms = f.row.get("complete_step_mean_ms") if of == OUTLIERS else None
    step_ms = step_ms or f.row["step_mean_ms"]
    if not isinstance(step_ms, float) or not step_ms:
        return None
    unprofiled_ms = f.row.get("unprofiled_step_ms")  # the profiler's cost is in the shares, not in what a job saves
    scale = unprofiled_ms / step_ms if isinstance(unprofiled_ms, float) and of != OUTLIERS else 1.0
    return Saving(
        low_ms=scale * shared.low_ms,
        high_ms=scale * shared.high_ms,
        low_share=shared.low_ms / step_ms,
        high_share=shared.high_ms / step_ms,
        of=of,
        parts={pool: scale * part for pool, part in shared.parts.items()},
        method=" ".join(rule.saving.method.split()),
    )
