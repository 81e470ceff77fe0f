"""Cases at the limits of a rule, held against another rule."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.rules.lint import AtLimit, Key, answers
from advisor.rules.rule_file import Rule


def misjudged(rule: Rule, cases: Iterable[AtLimit]) -> list[AtLimit]:
    """Those of the cases to which this rule has another answer."""
    by_key: dict[Key, list[AtLimit]] = {}
    for case in cases:
        by_key.setdefault(case.key, []).append(case)
    return [
        case
        for key, of_key in by_key.items()
        for case, answer in zip(of_key, answers(rule, key, [case.values for case in of_key]), strict=True)
        if answer != case.answer
    ]
