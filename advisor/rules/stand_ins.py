"""Findings about parts of one thing: the finding about all of it stands for them, unless one part is most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from advisor.rules.candidates import Candidate
from advisor.vocabulary.severities import SEVERITIES

_MOST: Final = 0.5  # of what the head covers: a part with so much is the better name for it


def with_parts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates; one that stands for its parts saves as much, and is as severe, as the greatest of them.

    Beside a part that is most of it, it saves of the rest only: what both cover is the same time.
    """
    by_rule = {candidate.rule.id: candidate for candidate in candidates}
    return [_with_parts(c, [by_rule[rule] for rule in c.rule.parts if rule in by_rule]) for c in candidates]


def _with_parts(head: Candidate, parts: Sequence[Candidate]) -> Candidate:
    if not parts or any(part.worker != head.worker for part in parts):
        return head
    if most := [part for part in parts if _covered_ms(part) >= _MOST * _covered_ms(head)]:
        rest_ms, high_ms = _covered_ms(head) - max(map(_covered_ms, most)), head.high_ms or 0.0
        part = max(0.0, min(1.0, rest_ms / high_ms)) if high_ms else 0.0
        return replace(head, low_ms=part * (head.low_ms or 0.0), high_ms=part * high_ms)
    every = (head, *parts)
    return replace(
        head,
        low_ms=max(each.low_ms or 0.0 for each in every),
        high_ms=max(each.high_ms or 0.0 for each in every),
        least=min((each.severity for each in every), key=SEVERITIES.index),
    )


def _covered_ms(candidate: Candidate) -> float:
    value = candidate.row.get(candidate.rule.covers) if candidate.rule.covers else None
    return value if isinstance(value, float) else 0.0
