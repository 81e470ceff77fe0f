"""The judge: the rules of a book applied to a run, each with one outcome."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

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
    facts = {scope: _facts(rows, rules.values()) for scope, rows in run.frames.items()}
    outcomes = {
        rule.id: _judged_alone(rule, partial(_outcome, rule, run.frames[rule.scope], facts[rule.scope], run))
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


def _outcome(rule: Rule, rows: pl.DataFrame, facts: Iterable[Mapping[str, Any]], run: MeasuredRun) -> Outcome:
    """What comes of one rule on the rows of its scope, whose facts are in the same order."""
    fits = [not _unmet(rule, row, run) for row in facts]
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


def _facts(rows: pl.DataFrame, rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Where each row of metrics comes from, as far as rules ask."""
    columns = {*("worker", "device", "device_name", "capability", "ranks_in_job", "collective_share")}
    columns |= {*("workload", "phases"), *(column for rule in rules for column in _known(rule))}
    return rows.select(columns & {*rows.columns}).to_dicts()


def unmet(rule: Rule, run: MeasuredRun) -> tuple[str, ...]:
    """The conditions of `applies`, by key, that keep a rule from a run: those of its first row that lacks any."""
    lacking = [tuple(_unmet(rule, row, run)) for row in _facts(run.frames[rule.scope], [rule])]
    return next(iter(lacking), ()) if all(lacking) else ()


def _unmet(rule: Rule, row: Mapping[str, Any], run: MeasuredRun) -> list[str]:
    """The conditions, by key, that do not hold there; an unknown capability is left to the rule."""
    applies, kinds = rule.applies, workloads(row)
    phases = set((row.get("phases") or "").split(", ")) - {""} or ({*applies.phase} if "serving" in kinds else set())
    is_distributed = (row.get("ranks_in_job") or 0) > 1 or (row.get("collective_share") or 0) > 0
    least = applies.min_capability or 0.0
    unmet = {
        "framework": applies.framework and (run.frameworks.get(row["worker"]) or "any") not in applies.framework,
        "format": applies.format and run.format not in applies.format,
        "device": applies.device not in {None, row["device"] is not None},
        "tpu": applies.tpu not in {None, is_tpu(row.get("device_name"))},
        "distributed": applies.distributed not in {None, is_distributed},
        "known": any(row.get(metric) is None for metric in _known(rule)),
        "workload": kinds.isdisjoint(applies.workload),
        "phase": applies.phase and phases.isdisjoint(applies.phase),  # a server's steps may have any that is unknown
        "min_capability": (row["capability"] or least) < least,
    }
    return [key for key, is_unmet in unmet.items() if is_unmet]


def _known(rule: Rule) -> list[str]:
    """The metrics that it needs to apply, by the names that they have in rows."""
    return [rule.metric(name).name for name in rule.applies.known]
