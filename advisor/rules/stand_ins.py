"""Findings about parts of one thing: the finding about all of it stands for them, unless one part is most of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from advisor.rules.candidates import Candidate

_MOST: Final = 0.5  # of the time that the head is about: a part with so much is the better name for it


def with_parts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates; one that stands for its parts saves as much as the greatest of them.

    Beside a part that is most of it, it saves of the rest only: what both cover is the same time.
    """
    by_rule = {candidate.rule.id: candidate for candidate in candidates}
    return [_with_parts(c, [by_rule[rule] for rule in c.rule.about.parts if rule in by_rule]) for c in candidates]


def _with_parts(head: Candidate, parts: Sequence[Candidate]) -> Candidate:
    if not parts or any(part.worker != head.worker for part in parts):
        return head
    if most := [part for part in parts if _time_ms(part) >= _MOST * _time_ms(head)]:
        rest_ms, high_ms = _time_ms(head) - max(map(_time_ms, most)), head.high_ms or 0.0
        part = max(0.0, min(1.0, rest_ms / high_ms)) if high_ms else 0.0
        return replace(head, low_ms=part * (head.low_ms or 0.0), high_ms=part * high_ms)
    every = (head, *parts)
    return replace(
        head, low_ms=max(each.low_ms or 0.0 for each in every), high_ms=max(each.high_ms or 0.0 for each in every)
    )


def _time_ms(candidate: Candidate) -> float:
    value = candidate.row.get(candidate.rule.about.time or "")
    return value if isinstance(value, float) else 0.0
