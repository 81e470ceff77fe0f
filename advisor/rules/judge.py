"""The judge: the rules of a book applied to a run, each with one outcome."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import polars as pl

from advisor.errors import RuleError, contained
from advisor.metrics.evaluate import NOTHING
from advisor.model.clause import Missing, Note
from advisor.model.finding import Finding, NotEvaluable, Suppressed
from advisor.model.reason import Reason
from advisor.rules.evaluation import Candidate, MeasuredRun, candidate, verdicts, with_parts, workloads
from advisor.rules.findings import finding, ranked, shares, with_words
from advisor.rules.rule_file import Rule
from advisor.rules.wording import is_tpu

_T = TypeVar("_T")

Outcome: TypeAlias = Candidate | NotEvaluable | Literal["passed", "not_applicable"]


class Suppression(NamedTuple):
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
    notes: tuple[Note, ...] = ()


def judge(run: MeasuredRun, rules: Mapping[str, Rule], suppressions: Mapping[str, Suppression]) -> Judgement:
    """Judge one run by the rules; findings of suppressed ones are not reported."""
    # What comes of each rule; a bug in one of them leaves the others as they are.
    settings = {scope: _settings(rows, run, rules.values()) for scope, rows in run.frames.items()}
    outcomes = {
        rule.id: _judged_alone(rule, partial(_outcome, rule, run.frames[rule.scope], settings[rule.scope], run))
        for rule in rules.values()
    }
    active = {rule: why for rule, why in suppressions.items() if not why.expired}
    candidates = [outcome for outcome in outcomes.values() if isinstance(outcome, Candidate)]
    results = _findings([c for c in candidates if c.rule.id not in active], run)
    unknown = [outcome for outcome in (*outcomes.values(), *results) if isinstance(outcome, NotEvaluable)]
    return Judgement(
        findings=tuple(result for result in results if isinstance(result, Finding)),
        not_evaluable=tuple(unknown),
        passed=tuple(rule for rule, outcome in outcomes.items() if outcome == "passed"),
        not_applicable=tuple(rule for rule, outcome in outcomes.items() if outcome == "not_applicable"),
        suppressed=tuple(
            Suppressed(rule=c.rule.id, title=c.heading, severity=c.severity, reason=why.reason, until=why.until)
            for c in candidates
            if (why := active.get(c.rule.id))
        ),
        notes=tuple(
            Note("suppression_expired", rule=c.rule.id, until=why.until or "", reason=why.reason)
            for c in candidates
            if (why := suppressions.get(c.rule.id)) and why.expired
        ),
    )


def _judged_alone(rule: Rule, work: Callable[[], _T | NotEvaluable]) -> _T | NotEvaluable:
    """What `work` gives; of a bug in it, or in the rule's templates, that the rule could not be judged."""

    def unjudged(why: Missing) -> NotEvaluable:  # nothing is missing but the rule itself
        return NotEvaluable(rule=rule.id, title=rule.heading(), missing={rule.id: Reason.of(why)})

    try:
        return contained(work, lambda kind: unjudged(Missing.of_failure(kind)))
    except RuleError as error:
        return unjudged(Missing("rule_wrong", why=str(error)))


class _Setting(NamedTuple):
    """Where a row of metrics comes from, as far as rules ask."""

    framework: str
    on_device: bool
    on_tpu: bool
    capability: float | None
    distributed: bool
    workloads: set[str]
    phases: set[str] | None
    known: set[str]


def _outcome(rule: Rule, rows: pl.DataFrame, settings: Iterable[_Setting], run: MeasuredRun) -> Outcome:
    """What comes of one rule on the rows of its scope, whose settings are in the same order."""
    fits = [not _unmet(rule, setting, run.format) for setting in settings]
    if not any(fits):
        return "not_applicable"
    applicable = rows if all(fits) else rows.filter(pl.Series(fits, dtype=pl.Boolean))
    of_rows = verdicts(rule, rule.judged(applicable))
    if any(verdict.outcome == "fired" for verdict in of_rows):
        silent = candidate(rule, of_rows, rule.own(applicable), run.pace)
        return with_words(replace(silent, is_fragment=run.is_fragment), run)
    unjudged = [run.used_steps[applicable["worker"][verdict.row]] for verdict in of_rows if verdict.missing]
    if len(unjudged) < len(of_rows) and all(steps == () for steps in unjudged):
        return "passed"  # by all that have a step that can be used
    missing = dict.fromkeys(metric for verdict in of_rows for metric in verdict.missing)
    return NotEvaluable(
        rule=rule.id,
        title=rule.heading(),
        of=rule.saving.of if rule.saving else None,
        beyond=tuple(rule.saving.then_from) if rule.saving else (),
        missing={name: Reason.of(run.reasons.get(rule.metric(name).name, NOTHING)) for name in missing},
    )


def _findings(candidates: Sequence[Candidate], run: MeasuredRun) -> tuple[Finding | NotEvaluable, ...]:
    """Findings ranked, each with its symptoms; then the rules that failed at theirs."""
    candidates = with_parts(candidates)
    shared = shares(candidates)
    results: list[Finding | NotEvaluable] = [
        _judged_alone(c.rule, partial(finding, c, shared[c.rule.id], symptoms, run))
        for c, symptoms in ranked(candidates, shared)
    ]
    if not (failures := [result for result in results if isinstance(result, NotEvaluable)]):
        return tuple(results)
    names = {failure.rule for failure in failures}  # the symptoms of one of them are findings themselves
    return (*_findings([c for c in candidates if c.rule.id not in names], run), *failures)


def _settings(rows: pl.DataFrame, run: MeasuredRun, rules: Iterable[Rule]) -> list[_Setting]:
    known = {column for rule in rules for column in _known(rule)}
    columns = {*("worker", "device", "device_name", "capability", "ranks_in_job", "collective_share")}
    columns |= {*("workload", "phases"), *known}
    return [
        _Setting(
            run.frameworks.get(row["worker"]) or "any",
            row["device"] is not None,
            is_tpu(row.get("device_name")),
            row["capability"],
            (row.get("ranks_in_job") or 0) > 1 or (row.get("collective_share") or 0) > 0,
            workloads(row),
            set(row["phases"].split(", ")) if row.get("phases") else None,
            {column for column in known if row.get(column) is not None},
        )
        for row in rows.select(columns & {*rows.columns}).iter_rows(named=True)
    ]


def unmet(rule: Rule, run: MeasuredRun) -> tuple[str, ...]:
    """The conditions of `applies`, by key, that keep a rule from a run: those of its first row that lacks any."""
    settings = _settings(run.frames[rule.scope], run, [rule])
    lacking = [tuple(_unmet(rule, setting, run.format)) for setting in settings]
    return next(iter(lacking), ()) if all(lacking) else ()


def _unmet(rule: Rule, setting: _Setting, file_format: str) -> list[str]:
    """The conditions, by key, that do not hold there; an unknown capability is left to the rule."""
    applies, phases = rule.applies, setting.phases
    if phases is None:  # a server's steps may have any
        phases = {*applies.phase} if "serving" in setting.workloads else set()
    least = applies.min_capability or 0.0
    unmet = {
        "framework": applies.framework and setting.framework not in applies.framework,
        "format": applies.format and file_format not in applies.format,
        "device": applies.device not in {None, setting.on_device},
        "tpu": applies.tpu not in {None, setting.on_tpu},
        "distributed": applies.distributed not in {None, setting.distributed},
        "known": not setting.known.issuperset(_known(rule)),
        "workload": setting.workloads.isdisjoint(applies.workload),
        "phase": applies.phase and phases.isdisjoint(applies.phase),
        "min_capability": (setting.capability or least) < least,
    }
    return [key for key, is_unmet in unmet.items() if is_unmet]


def _known(rule: Rule) -> list[str]:
    """The metrics that it needs to apply, by the names that they have in rows."""
    return [rule.metric(name).name for name in rule.applies.known]
