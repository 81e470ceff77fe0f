"""The order of the findings: causes above symptoms, then what saves most; no part of the step is promised twice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from advisor.rules.candidates import Candidate, is_of_job
from advisor.vocabulary.parts import SKEW
from advisor.vocabulary.severities import SEVERITIES

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
    spared = _spared(candidate, open_, causes)
    high = max(candidate.high_ms - spared, 0.0)
    low = min(max(candidate.low_ms - spared, 0.0), high)
    cut = min(1.0, sum(open_.values()) / high) if high else 0.0
    parts = _draw(cut * high, rest, open_)
    if candidate.evens_ms:
        _draw(cut * candidate.evens_ms, rest, _open(candidate, [SKEW], rest))
    full = sum(min(candidate.pool_ms(pool), candidate.most_ms(pool)) for pool in candidate.pools)
    return Share(cut * low, cut * high, parts, max(0.0, min(candidate.high_ms, full) - cut * high))


def _spared(candidate: Candidate, open_: Mapping[Key, float], causes: Iterable[Share | None]) -> float:
    """How much of the claim is missing in the first of its pools because its causes drew it."""
    pool = candidate.pools[0]
    missing = min(candidate.high_ms or 0.0, candidate.pool_ms(pool)) - open_[key(candidate, pool)]
    return max(0.0, min(missing, sum(share.parts.get(pool, 0.0) for share in causes if share)))


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


_LITTLE: Final = 0.01
_ALIKE: Final = 1.1  # own choice: of savings about so near each other, the surer one stands first

Shares: TypeAlias = Mapping[str, Share | None]


def ranked(candidates: Iterable[Candidate], shares: Shares) -> list[tuple[Candidate, list[Candidate]]]:
    """The candidates that are findings, the most important first, each with its symptoms."""
    ordered = sorted(candidates, key=lambda c: _rank(c, shares[c.rule.id]))
    roots = _roots(ordered, shares)
    symptoms: dict[str, list[Candidate]] = {}
    for each in ordered:
        symptoms.setdefault(roots[each.rule.id], []).append(each)
    return [(c, [s for s in symptoms[c.rule.id] if s is not c]) for c in ordered if roots[c.rule.id] == c.rule.id]


def _roots(ordered: Sequence[Candidate], shares: Shares) -> dict[str, str]:
    """The rule under which each rule is shown: its topmost cause or rival, else itself."""
    above = {c.rule.id: _cause(c, ordered, shares) for c in ordered}
    for each in ordered:
        name = each.rule.id
        if above[name] is None and (rival := _rival(each, ordered, shares)):
            root = _root(rival, above)
            above[name] = root if root != name else None
    return {name: _root(name, above) for name in above}


def _root(rule: str, above: Mapping[str, str | None]) -> str:
    while (cause := above[rule]) is not None:
        rule = cause
    return rule


def _cause(symptom: Candidate, ordered: Iterable[Candidate], shares: Shares) -> str | None:
    """The rule that explains this one, unless this one's share is more than its causes take.

    That is the first one; of what all ranks lose, the one that evens them out most. Where a cause is about the same
    time, what counts is the share of that time, not what else the symptom may save.
    """
    causes = [c for c in ordered if _explains(c, symptom) and not _is_weaker(c, symptom, shares)]
    if not causes:
        return None
    rest, effects = shares[symptom.rule.id], [_effect(c, symptom, shares) for c in causes]
    if rest is None:
        return causes[0].rule.id
    is_same = any(is_same_time(cause, symptom) for cause in causes)
    rest_ms = rest.parts.get(_first_pool(symptom, causes, shares), 0.0) if is_same else rest.high_ms
    if rest_ms > max(effects):
        return None
    return causes[effects.index(max(effects)) if symptom.is_of_ranks else 0].rule.id


def _explains(cause: Candidate, symptom: Candidate) -> bool:
    if symptom.rule.saving and cause.rule.about.outweighs_ms:
        return set(symptom.workers) <= set(cause.workers)
    return symptom.rule.id in cause.rule.explains


def _is_weaker(cause: Candidate, symptom: Candidate, shares: Shares) -> bool:
    """Whether a cause would hide what weighs more, where neither has a number; what is only a symptom hides."""
    is_open = not (symptom.rule.about.symptom or shares[cause.rule.id] or shares[symptom.rule.id])
    return is_open and SEVERITIES.index(cause.severity) > SEVERITIES.index(symptom.severity)


def _first_pool(symptom: Candidate, causes: Iterable[Candidate], shares: Shares) -> str:
    """The part of the step that both are about: the first from which either draws; not each step has the others."""
    claims = [shares[candidate.rule.id] for candidate in (symptom, *causes)]
    sources = {pool for claim in claims if claim for pool in claim.parts}
    return next((pool for pool in symptom.pools if pool in sources), symptom.pools[0])


def _effect(cause: Candidate, symptom: Candidate, shares: Shares) -> float:
    """How much of what the symptom is about goes away with the cause."""
    if symptom.is_of_ranks and not cause.is_of_ranks:
        return cause.evens_ms
    if cause.rule.about.outweighs_ms:
        return cause.rule.about.outweighs_ms
    return _high_ms(shares[cause.rule.id])


def _rival(candidate: Candidate, ordered: Iterable[Candidate], shares: Shares) -> str | None:
    """The first rule that saves out of the same part of the step, if that leaves next to nothing of this claim."""
    share = shares[candidate.rule.id]
    if share is None or not candidate.high_ms or share.high_ms > _LITTLE * candidate.high_ms:
        return None
    pools = _pools(candidate)
    rivals = (c.rule.id for c in ordered if c is not candidate and _high_ms(shares[c.rule.id]) and pools & _pools(c))
    return next(rivals, None)


def _pools(candidate: Candidate) -> set[object]:
    return {key(candidate, pool) for pool in candidate.pools}


def _high_ms(share: Share | None) -> float:
    return 0.0 if share is None else share.high_ms


def _rank(candidate: Candidate, share: Share | None) -> tuple[object, ...]:
    # time of unknown cause is in no saving: where it is most of the step, all others are doubtful; and where most of
    # the recording happens once, they are of its smaller part
    later = (candidate.rule.about.loss, candidate.severity) not in {("unknown", "high"), ("once", "medium")}
    expected, low_ms = (candidate.expected_ms(share.low_ms, share.high_ms), share.low_ms) if share else (0.0, 0.0)
    size = round(math.log(expected, _ALIKE)) if expected > 0 else -math.inf
    severity = SEVERITIES.index(candidate.severity)
    return later, share is None, -size, -low_ms, -expected, candidate.rule.about.recording, severity, candidate.rule.id
