"""Savings shared out: no part of the step is promised twice."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from advisor.rules.candidates import Candidate, is_of_job
from advisor.vocabulary.parts import SKEW

Key: TypeAlias = tuple[object, str]
"""A pool: the worker whose it is, None for the job's, and the part of the step."""


class Share(NamedTuple):
    """What a rule may claim of a worker's step; of the high end how much from which part, and what others claim."""

    low_ms: float
    high_ms: float
    parts: Mapping[str, float]
    shared_ms: float


def shares(candidates: Sequence[Candidate]) -> dict[str, Share | None]:
    """Low and high saving per rule: what all claim from one part of a worker's step never exceeds that part.

    Causes draw before what they explain, then those that save more; a claim that is cut keeps its proportions. What
    causes drew from the pool that a claim is about it does not get from others: it is the same time.
    """
    rest: dict[Key, float] = {}
    claims: dict[str, Share | None] = {}
    ordered = sorted(candidates, key=lambda c: (_depth(c, candidates), -c.expected_ms(c.low_ms, c.high_ms), c.rule.id))
    for each in ordered:
        claims[each.rule.id] = _share(each, rest, [claims[c.rule.id] for c in ordered if is_same_time(c, each)])
    return claims


def is_same_time(cause: Candidate, symptom: Candidate) -> bool:
    """Whether a rule explains another, and both are about the same part of the same step."""
    explains = symptom.rule.id in cause.rule.explains and cause.worker == symptom.worker
    return explains and cause.pools[:1] == symptom.pools[:1]


def _share(candidate: Candidate, rest: dict[Key, float], causes: Iterable[Share | None]) -> Share | None:
    """The candidate's share, drawn from what the pools still hold."""
    if not candidate.pools or candidate.low_ms is None or candidate.high_ms is None:
        return None
    open_ = _open(candidate, candidate.pools, rest)
    # How much of the claim is missing in the first of its pools because its causes drew it.
    pool = candidate.pools[0]
    missing = min(candidate.high_ms or 0.0, candidate.pool_ms(pool)) - open_[key(candidate, pool)]
    spared = max(0.0, min(missing, sum(share.parts.get(pool, 0.0) for share in causes if share)))
    high = max(candidate.high_ms - spared, 0.0)
    low = min(max(candidate.low_ms - spared, 0.0), high)
    cut = min(1.0, sum(open_.values()) / high) if high else 0.0
    parts = _draw(cut * high, rest, open_)
    if candidate.evens_ms:
        _draw(cut * candidate.evens_ms, rest, _open(candidate, [SKEW], rest))
    full = sum(min(candidate.pool_ms(pool), candidate.most_ms(pool)) for pool in candidate.pools)
    return Share(cut * low, cut * high, parts, max(0.0, min(candidate.high_ms, full) - cut * high))


def _open(candidate: Candidate, pools: Iterable[str], rest: dict[Key, float]) -> dict[Key, float]:
    """What each of these pools still holds for the candidate; one that nobody has drawn from yet is full."""
    keys = {key(candidate, pool): pool for pool in pools}
    for each, pool in keys.items():
        rest.setdefault(each, candidate.pool_ms(pool))
    return {each: min(rest[each], candidate.most_ms(pool)) for each, pool in keys.items()}


def _draw(claim: float, rest: dict[Key, float], open_: Mapping[Key, float]) -> dict[str, float]:
    """Draws a claim from the pools, the first one first; how much came out of each."""
    parts = {}
    for pool, most in open_.items():
        if part := min(claim, most):
            rest[pool] -= part
            claim -= part
            parts[pool[1]] = part
    return parts


def key(candidate: Candidate, pool: str) -> Key:
    """Whose pool it is: the job's or the worker's."""
    return None if is_of_job(pool) else candidate.worker, pool


def _depth(candidate: Candidate, candidates: Sequence[Candidate]) -> int:
    """Length of the longest chain of causes above a rule; the linter keeps `explains` free of circles."""
    above = (c for c in candidates if candidate.rule.id in c.rule.explains)
    return max((1 + _depth(c, candidates) for c in above), default=0)
