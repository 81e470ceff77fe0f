"""The order of the findings: causes above their symptoms, then those first that are expected to save most."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from advisor.rules.candidates import Candidate
from advisor.rules.pools import Share, is_same_time, key
from advisor.vocabulary.severities import SEVERITIES

_LITTLE: Final = 0.01
_ENOUGH: Final = 0.1  # own choice, of the time that a finding is about: what saves less of it is no cause of it
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
        of_less = all(shares[c.rule.id] for c in causes) and max(effects) < _ENOUGH * symptom.time_ms
        return None if of_less else causes[0].rule.id
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
    weight = SEVERITIES.index(candidate.severity), -candidate.time_ms
    return later, share is None, -size, -low_ms, -expected, candidate.rule.about.recording, *weight, candidate.rule.id
