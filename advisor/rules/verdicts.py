"""One rule against rows of metrics: fired, passed or not evaluable, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from advisor.report import SEVERITIES, Severity
from advisor.rules.book import Fix, Rule
from advisor.rules.expressions import Expression, evaluated

Outcome: TypeAlias = Literal["fired", "passed", "not_evaluable"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says of one row. `missing` names the metrics whose absence kept it from judging.

    `low_ms` and `high_ms` are None where the rule claims no saving or the saving cannot be told; a row that passes has
    them too.
    """

    row: int
    outcome: Outcome
    severity: Severity | None = None
    missing: tuple[str, ...] = ()
    low_ms: float | None = None
    high_ms: float | None = None
    doubted: bool = False


def verdicts(rule: Rule, rows: pl.DataFrame) -> list[Verdict]:
    """One verdict per row of `rows`, whose columns are metrics.

    A null in any metric that `when` or `severity` names makes the row not evaluable, decided before evaluation.

    Raises:
        RuleError: an expression of the rule is wrong.
    """
    parsed = rule.expressions(rows.columns)
    judged = [key for key in parsed if key == "when" or key.startswith("severity.")]
    needed = sorted(set().union(*(parsed[key].names for key in judged)) - rule.params.keys())
    values = evaluated(parsed, rows, rule.params)
    unknown = {metric: [value is None for value in rows[metric].to_list()] for metric in needed}
    return [_verdict(rule, row, values, [m for m in needed if unknown[m][row]]) for row in range(rows.height)]


def fixes_in_order(rule: Rule, row: Mapping[str, object]) -> Sequence[Fix]:
    """The rule's fixes as they matter in this row of metrics.

    First those whose condition holds, then those without one, last those whose condition does not hold or is unknown.

    Raises:
        RuleError: a condition is wrong.
    """
    conditions = rule.fix_conditions(row)
    order = {True: 0, None: 1, False: 2}
    held = [None if n not in conditions else _holds(conditions[n], row, rule) for n in range(len(rule.fixes))]
    return [fix for _, fix in sorted(zip(held, rule.fixes, strict=True), key=lambda pair: order[pair[0]])]


def _holds(condition: Expression, row: Mapping[str, object], rule: Rule) -> bool:
    known = {name: row[name] for name in condition.names - rule.params.keys()}
    if None in known.values():
        return False
    return bool(condition.over(pl.DataFrame([known or {"": None}]), rule.params)[0])


def _verdict(rule: Rule, row: int, values: Mapping[str, list[Any]], missing: Iterable[str]) -> Verdict:
    if missing := tuple(missing):
        return Verdict(row, "not_evaluable", missing=missing)
    levels = [level for level in SEVERITIES if level in rule.severity and values[f"severity.{level}"][row]]
    low, high = (values.get(f"saving.{end}_ms", {row: None})[row] for end in ("low", "high"))
    if low is None or high is None:
        low = high = None
    if not values["when"][row]:
        return Verdict(row, "passed", None, (), low, high)
    doubted = "doubt" in values and bool(values["doubt"][row])
    return Verdict(row, "fired", levels[0] if levels else "low", (), low, high, doubted)
