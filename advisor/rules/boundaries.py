"""Cases that follow from the limits of a rule: a metric exactly at its limit, and just on either side of it.

They start from the cases that a rule has, and change one metric. A limit at which nothing changes, whatever the case,
decides nothing there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl

from advisor.metrics.metric import NAMES, table_of
from advisor.rules.evaluation import verdicts
from advisor.rules.expressions import comparisons, parse
from advisor.rules.rule_file import Rule

Key: TypeAlias = tuple[str | int, ...]
"""Where a condition stands in the rule file."""
Metrics: TypeAlias = Mapping[str, Any]

_BESIDE: Final = 0.01  # of a limit, or the step from a limit of 0: less than any change of a limit that matters
_DIGITS: Final = 12
_SILENT: Final = ("passed", None, False)


class AtLimit(NamedTuple):
    """A case at a limit or beside it: where the limit stands, the comparison, the metrics, and the rule's answer."""

    key: Key
    limit: str
    values: Metrics
    answer: object

    @property
    def is_silent(self) -> bool:
        """Whether the rule does not fire."""
        return self.answer == _SILENT


def at_limits(rule: Rule) -> tuple[list[AtLimit], list[tuple[Key, str]]]:
    """The cases, and the limits that decide in none of them, each with its key."""
    edges, idle = [], []
    for key, text in _conditions(rule).items():
        for first, sign, second in comparisons(text):
            limit = f"{first} {sign} {second}"
            cases = next(_decided(rule, key, (first, second)), None)
            if cases is None:
                idle.append((key, limit))
            else:
                edges += [AtLimit(key, limit, values, answer) for values, answer in cases]
    return edges, idle


def _conditions(rule: Rule) -> dict[Key, str]:
    """Every condition of the rule and of its fixes; what it saves is none."""
    texts: dict[Key, str] = {tuple(key.split(".")): text for key, text in rule.texts.items() if "saving" not in key}
    return texts | {("fixes", *key): condition for key, condition in rule.texts_of_fixes.items()}


def _decided(rule: Rule, key: Key, sides: tuple[str, str]) -> Iterator[list[tuple[Metrics, object]]]:
    """By case and metric, what the rule answers around the limit, if the answer changes there."""
    names = parse(f"({sides[0]}) = ({sides[1]})", rule.types, rule.params).names - rule.params.keys()
    for name in sorted(names):
        around = _around(rule, name, sides)
        verdicts_around = iter(answers(rule, key, [row for rows in around for row in rows]))
        for rows in around:
            cases = [(row, next(verdicts_around)) for row in rows]
            if any(answer != cases[0][1] for _, answer in cases):
                yield cases


def answers(rule: Rule, key: Key, rows: Sequence[Metrics]) -> list[object]:
    """Of a fix whether its condition holds, else whether the rule fires, how severe it is, and how sure."""
    frame = table_of(rows, rule.types)
    if key[0] == "fixes":
        return parse(_conditions(rule)[key], rule.types, rule.params).over(frame, rule.params)
    return [(verdict.outcome, verdict.severity, verdict.lower) for verdict in verdicts(rule, frame)]


def _around(rule: Rule, name: str, sides: tuple[str, str]) -> list[list[Metrics]]:
    """The metrics of each case with this one around the value at which both sides are equal."""
    cases = [case.metrics for case in rule.cases.values()]
    if rule.types[name] in {pl.String, NAMES}:
        words = [side[1:-1] for side in sides if side.startswith("'")]
        return [[{**values, name: word} for word in (*words, "?")] for values in cases]
    ends = [_difference(rule, sides, [{**values, name: at} for values in cases]) for at in (0.0, 1.0)]
    near: list[list[Metrics]] = [
        [{**values, name: value} for value in _near(*of_case)]
        for values, of_case in zip(cases, zip(*ends, strict=True), strict=True)
    ]
    gaps = iter([abs(gap or 0.0) for gap in _difference(rule, sides, [row for rows in near for row in rows])])
    closest = [min(((next(gaps), row) for row in rows), key=itemgetter(0)) for rows in near if rows]
    closest.sort(key=itemgetter(0))  # first the cases in which a number meets the limit exactly
    is_count = rule.types[name] == pl.Int64
    return [[{**row, name: value} for value in _points(float(row[name]), is_count=is_count)] for _, row in closest]


def _difference(rule: Rule, sides: tuple[str, str], rows: Sequence[Metrics]) -> list[float | None]:
    """By how much the left side exceeds the right one in each row; None where it is unknown or no number."""
    frame = table_of(rows, rule.types)
    text = f"({sides[0]}) - ({sides[1]})" if "'" not in "".join(sides) else "0 / 0"
    return parse(text, rule.types, rule.params).over(frame, rule.params)


def _near(from_zero: float | None, from_1: float | None) -> list[float]:
    """Where a line through both is 0, and the numbers next to that; none if it is nowhere."""
    if from_zero is None or from_1 is None or from_zero == from_1:
        return []
    root = float(f"{from_zero / (from_zero - from_1):.{_DIGITS}g}")
    return [root, math.nextafter(root, math.inf), math.nextafter(root, -math.inf)]


def _points(limit: float, *, is_count: bool) -> list[float]:
    """The limit and the values beside it; none that is negative where the limit is not."""
    step = 1.0 if is_count else abs(limit) * _BESIDE or _BESIDE
    below, above = (math.ceil(limit) - 1, math.floor(limit) + 1) if is_count else (limit - step, limit + step)
    points = [below, above] if is_count and limit % 1 else [below, limit, above]
    return [value for value in points if value >= 0 or limit < 0]
