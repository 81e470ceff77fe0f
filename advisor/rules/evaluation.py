"""A run as the judge sees it, and one rule against its rows of metrics: fired, passed or not evaluable, row by row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from advisor.metrics.evaluate import Measurements
from advisor.metrics.metric import Scope
from advisor.model.clause import FRAGMENT, Missing
from advisor.rules.expressions import Expression, evaluated
from advisor.rules.rule_file import Rule
from advisor.rules.rule_form import Fix
from advisor.vocabulary.severities import Severity


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What the judge asks of a run.

    `format` is the reader's name, and `pace` the worker that sets the job's pace. In a fragment kernels were recorded
    in only a small part of the host's time. `reasons` say why metrics are unknown. `frames` have the rows that rules of
    a scope judge, a column per metric. By worker: its framework, and the numbers of the steps that its values rest on,
    None where it marks none. `places` gives those in the recording behind a metric of a worker, the clearest first.
    """

    format: str
    pace: int
    is_fragment: bool
    reasons: Mapping[str, Missing]
    frames: Mapping[Scope, pl.DataFrame]
    frameworks: Mapping[int, str | None]
    used_steps: Mapping[int, tuple[int, ...] | None]
    places: Callable[[str, int], pl.DataFrame]

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""
        return tuple(sorted(self.used_steps))


def measured_run(measurements: Measurements) -> MeasuredRun:
    """A run that was just measured."""
    profile, views = measurements.selection.profile, measurements.selection.critical
    return MeasuredRun(
        format=profile.format,
        pace=measurements.pace,
        is_fragment=any(note.code == FRAGMENT for note in profile.salvaged),
        reasons=measurements.reasons,
        frames={scope: measurements.rows(scope) for scope in get_args(Scope)},
        frameworks=dict(profile.workers.select("worker", "framework").rows()),
        used_steps={view.worker: tuple(view.steps["step"].to_list()) if view.has_marks else None for view in views},
        places=measurements.places,
    )


Outcome: TypeAlias = Literal["fired", "passed", "not_evaluable"]


class Verdict(NamedTuple):
    """What a rule says of one row. `missing` names the metrics whose absence kept it from judging.

    `severity` is the level that the rule states, None if what is saved decides.

    `low_ms` and `high_ms` are None where the rule claims no saving or the saving cannot be told; a row that passes has
    them too. `of_ms` is what comes out of the first pool at most, None where all may. `lower` says whether the
    confidence is a level lower.
    """

    row: int
    outcome: Outcome
    severity: Severity | None = None
    missing: tuple[str, ...] = ()
    low_ms: float | None = None
    high_ms: float | None = None
    of_ms: float | None = None
    lower: bool = False


def verdicts(rule: Rule, rows: pl.DataFrame) -> list[Verdict]:
    """One verdict per row of `rows`, whose columns are metrics.

    A null in any metric that `when` or `severity` names makes the row not evaluable, decided before evaluation.

    Raises:
        RuleError: an expression of the rule is wrong.
    """
    if not rows.height:
        return []
    parsed = rule.expressions()
    judged = [key for key in parsed if key == "when" or key.startswith("severity.")]
    needed = sorted(set().union(*(parsed[key].names for key in judged)) - rule.params.keys())
    unknown = {metric: [value is None for value in rows[metric].to_list()] for metric in needed}
    missing = [[m for m in needed if unknown[m][row]] for row in range(rows.height)]
    values = {} if all(missing) else evaluated(parsed, rows, rule.params)
    return [_verdict(rule, row, values, missing[row]) for row in range(rows.height)]


def fixes_in_order(rule: Rule, row: Mapping[str, object]) -> Sequence[Fix]:
    """The rule's fixes as they matter in this row of metrics, without those that are made already.

    First those whose condition holds, then those without one, then those whose condition is unknown or does not hold.
    Those for other kinds of work are left out, and those of unknown condition that hold numbers of the job.

    Raises:
        RuleError: a condition is wrong.
    """
    holds, order = _holding(rule, row), {True: 1, None: 3, False: 4}
    kinds = workloads(row)
    unsayable = {n for (n, key), known in holds.items() if key == "when" and known is None and "{{" in rule.fixes[n].do}
    fits = [
        n
        for n, fix in enumerate(rule.fixes)
        if not holds.get((n, "unless")) and not (fix.workload and kinds.isdisjoint(fix.workload))
    ]
    open_ = [n for n in fits if n not in unsayable]
    place = {n: order[holds[n, "when"]] if (n, "when") in holds else 2 for n in open_}
    return [rule.fixes[n] for n in sorted(open_, key=lambda n: place[n])]


def workloads(row: Mapping[str, object]) -> set[str]:
    """The kinds of work that a row of metrics is of."""
    return set(str(row.get("workload") or "unknown").split(", "))


def fixes_of_other_causes(rule: Rule, row: Mapping[str, object]) -> Sequence[Fix]:
    """The fixes whose condition is known not to hold in this row of metrics.

    Raises:
        RuleError: a condition is wrong.
    """
    holds = _holding(rule, row)
    return [fix for n, fix in enumerate(rule.fixes) if holds.get((n, "when")) is False]


def _holding(rule: Rule, row: Mapping[str, object]) -> dict[tuple[int, str], bool | None]:
    """Whether each condition holds; None where what it needs is not known."""
    values = ((key, value_of(condition, row, rule)) for key, condition in rule.fix_conditions().items())
    return {key: None if value is None else bool(value) for key, value in values}


def value_of(expression: Expression, row: Mapping[str, object], rule: Rule) -> Any:  # noqa: ANN401 - a number, a text or a truth
    """What an expression of the rule comes to in a row of metrics; None where what it needs is not known."""
    known = {name: row[name] for name in expression.names - rule.params.keys()}
    if None in known.values():
        return None
    return expression.over(pl.DataFrame([known or {"": None}]), rule.params)[0]


def _verdict(rule: Rule, row: int, values: Mapping[str, list[Any]], missing: Iterable[str]) -> Verdict:
    if missing := tuple(missing):
        return Verdict(row, "not_evaluable", missing=missing)
    low, high, of_ms = (values.get(f"saving.{end}_ms", {row: None})[row] for end in ("low", "high", "of"))
    if low is None or high is None:
        low = high = None
    if not values["when"][row]:
        return Verdict(row, "passed", None, (), low, high, of_ms)
    lower = bool(values.get("confidence.lower_if", {row: False})[row])
    levels = () if rule.is_decided(low) else rule.levels
    severity = next((level for level in levels if values[f"severity.{level}"][row]), None)
    return Verdict(row, "fired", severity, (), low, high, of_ms, lower)
