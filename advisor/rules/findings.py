"""A rule that fired as a finding: its sentence, its numbers, its places and its fixes; savings shared out; the order.

No part of the step is promised twice. Causes stand above their symptoms, then those first that are expected to save
most.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from advisor.model.finding import OUTLIERS, Evidence, Finding, Fix, Operator, Patch, Place, Reach, Saving, Symptom
from advisor.rules import wording
from advisor.rules.evaluation import Candidate, MeasuredRun, fixes_in_order, fixes_of_other_causes, is_of_job
from advisor.rules.rule_form import Fix as RuleFix
from advisor.text import UNKNOWN, first_sentence
from advisor.vocabulary.parts import SKEW
from advisor.vocabulary.severities import SEVERITIES

Key: TypeAlias = tuple[object, str]  # a pool: the worker whose it is, None for the job's, and the part of the step
_INPUT: Final = "input"
_NOT_PACED: Final = {_INPUT, OUTLIERS}  # what else the step gets shorter by, the loader limits
_OFF: Final = 0.1  # of what loading takes: so far off were eight of nine whose truth was measured (docs/savings.md)


class Share(NamedTuple):
    """What a rule may claim of a worker's step, the high end by part; and of both ends what others claim."""

    low_ms: float
    high_ms: float
    parts: Mapping[str, float]
    shared_ms: tuple[float, float]


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
    low, high = cut * low, cut * high
    full = sum(min(candidate.pool_ms(pool), candidate.most_ms(pool)) for pool in candidate.pools)
    least = candidate.low_ms * min(1.0, full / candidate.high_ms) if candidate.high_ms else 0.0
    if candidate.pool not in _NOT_PACED and _INPUT not in candidate.pools:  # what shortens loading, it does not limit
        slack, of = candidate.known("loader_slack_part"), {pool: ms for (_, pool), ms in open_.items()}
        part = (candidate.unprofiled(high, of) / high if high else 0.0) or 1.0
        paced, step_ms = (candidate.worker, "loader_slack"), (candidate.step_ms or 0.0) / part
        most_ms = step_ms * (1.0 if slack is None else slack)
        slack_ms = rest.setdefault(paced, part * most_ms) / part
        off_ms = _OFF * (step_ms - most_ms)
        low, high = min(low, max(0.0, slack_ms - off_ms)), min(high, slack_ms)
        least, full = min(least, max(0.0, most_ms - off_ms)), min(full, most_ms)
        rest[paced] = part * (slack_ms - high)
    parts = _draw(high, rest, open_)
    if candidate.evens_ms:
        _draw(cut * candidate.evens_ms, rest, _open(candidate, [SKEW], rest))
    return Share(low, high, parts, (max(0.0, least - low), max(0.0, min(candidate.high_ms, full) - high)))


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
_ENOUGH: Final = 0.1  # own choice, of the time that a finding is about: what saves less of it is no cause of it
_ALIKE: Final = 1.1  # own choice: of savings about so near each other, the surer one stands first

Shares: TypeAlias = Mapping[str, Share | None]


def ranked(candidates: Iterable[Candidate], shares: Shares) -> list[tuple[Candidate, list[Candidate]]]:
    """The candidates that are findings, the most important first, each with its symptoms."""
    ordered = sorted(candidates, key=lambda c: _rank(c, shares[c.rule.id]))
    # The rule under which each rule is shown: its topmost cause or rival, else itself.
    above = {c.rule.id: _cause(c, ordered, shares) for c in ordered}
    for each in ordered:
        name = each.rule.id
        if above[name] is None and (rival := _rival(each, ordered, shares)):
            root = _root(rival, above)
            above[name] = root if root != name else None
    roots = {name: _root(name, above) for name in above}
    symptoms: dict[str, list[Candidate]] = {}
    for each in ordered:
        symptoms.setdefault(roots[each.rule.id], []).append(each)
    return [(c, [s for s in symptoms[c.rule.id] if s is not c]) for c in ordered if roots[c.rule.id] == c.rule.id]


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
    rest_ms = rest.high_ms
    if any(is_same_time(cause, symptom) for cause in causes):
        # Of the first part of the step from which either draws: not each step has the others.
        claims = [shares[candidate.rule.id] for candidate in (symptom, *causes)]
        sources = {pool for claim in claims if claim for pool in claim.parts}
        first = next((pool for pool in symptom.pools if pool in sources), symptom.pools[0])
        rest_ms = rest.parts.get(first, 0.0)
    if rest_ms > max(effects):
        return None
    return causes[effects.index(max(effects)) if symptom.is_of_ranks else 0].rule.id


def _explains(cause: Candidate, symptom: Candidate) -> bool:
    if symptom.rule.saving and cause.verdict.outweighs_ms:
        return set(symptom.workers) <= set(cause.workers)
    return symptom.rule.id in cause.rule.explains


def _is_weaker(cause: Candidate, symptom: Candidate, shares: Shares) -> bool:
    """Whether a cause would hide what weighs more, where neither has a number; what is only a symptom hides."""
    is_open = not (symptom.rule.about.symptom or shares[cause.rule.id] or shares[symptom.rule.id])
    return is_open and SEVERITIES.index(cause.severity) > SEVERITIES.index(symptom.severity)


def _effect(cause: Candidate, symptom: Candidate, shares: Shares) -> float:
    """How much of what the symptom is about goes away with the cause."""
    if symptom.is_of_ranks and not cause.is_of_ranks:
        return cause.evens_ms
    return cause.verdict.outweighs_ms or _high_ms(shares[cause.rule.id])


def _rival(candidate: Candidate, ordered: Iterable[Candidate], shares: Shares) -> str | None:
    """The first rule that saves out of the same part of the step, if that leaves next to nothing of this claim."""
    share = shares[candidate.rule.id]
    if share is None or not candidate.high_ms or share.high_ms > _LITTLE * candidate.high_ms:
        return None
    pools = {key(candidate, pool) for pool in candidate.pools}
    others = (c for c in ordered if c is not candidate and _high_ms(shares[c.rule.id]))
    return next((c.rule.id for c in others if any(key(c, pool) in pools for pool in c.pools)), None)


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


_SITES: Final = {
    "https://docs.pytorch.org/": "pytorch",
    "https://www.tensorflow.org/": "tensorflow",
    "https://docs.jax.dev/": "jax",
}


def finding(candidate: Candidate, share: Share | None, symptoms: Iterable[Candidate], run: MeasuredRun) -> Finding:
    """The finding, with what is its share of the step; a RuleError where a template cannot have its numbers."""
    rule, worker, recorded_ms = candidate.rule, candidate.worker, candidate.known("step_mean_ms")
    eligible = _eligible(candidate, run.frameworks.get(worker), run.format)
    saving, parsed = _saving(candidate, share, eligible), rule.expressions()
    # The metrics that the verdict rests on, then those the rule adds.
    judged = (name for key, e in parsed.items() if not key.startswith("saving") for name in sorted(e.names))
    metrics = tuple(dict.fromkeys(name for name in (*judged, *rule.shows) if rule.has_metric(name)))
    places = (run.places(rule.metric(name).name, worker).to_dicts() for name in metrics)  # of the first that has any
    # Where it holds: of a rule about the job the one rank that it is about, if there is one, else all.
    rank = candidate.row.get(rule.about.rank or "")
    of_job = (rank,) if isinstance(rank, int) else run.workers
    of_rule = candidate.workers if rule.scope == "worker" else of_job
    return Finding(
        key=rule.id,
        rule=rule.id,
        title=candidate.heading,
        severity=candidate.severity_of((saving.low_share + saving.high_share) / 2 if saving else 0.0),
        culprit=str(candidate.row.get(rule.about.culprit or "") or "") or None,
        loss=rule.about.loss,
        time_share=None if saving or not recorded_ms else candidate.time_ms / recorded_ms,
        of_recording=rule.about.recording,
        phase=rule.applies.phase[0] if rule.applies.phase and not rule.about.symptom else None,
        confidence=candidate.confidence,
        saving=saving,
        scope=Reach(workers=of_rule, steps=run.used_steps.get(worker) or (), told_of=worker),
        says=candidate.says,
        sentence_share=candidate.sentence_share,
        why=wording.prose(rule.why, on_device=candidate.on_device),
        evidence=_evidence(candidate, metrics),
        where=tuple(map(Place.model_validate, next((rows for rows in places if rows), ()))),
        fixes=_fixes(candidate, eligible, run.frameworks.get(worker)),
        symptoms=tuple(Symptom(rule=s.rule.id, title=s.heading, says=s.says, severity=s.severity) for s in symptoms),
        explains=rule.explains,
        docs=f"docs/rules/{rule.id}.md",
        condition=" ".join(rule.texts["when"].split()),
        references=tuple(f"{' '.join(r.what.split())}: {r.where}" for r in rule.references),
        params={name: value for name, value in rule.params.items() if name in parsed["when"].names},
    )


def _unprofiled(candidate: Candidate, part: float) -> dict[str, object]:
    """The row's names with what they take without the profiler, but for those that were timed without it."""
    rule, names = candidate.rule, {name: of for name, of in candidate.row.items() if isinstance(of, list)}
    timed = (name for name in names if not (rule.has_metric(name) and rule.metric(name).unprofiled))
    return {
        name: [{**each, "ms": each["ms"] * part} if each.get("ms") else each for each in names[name]] for name in timed
    }


def with_words(candidate: Candidate, run: MeasuredRun) -> Candidate:
    """The candidate with what its rule says, with the run's numbers; a RuleError where it cannot be said of them."""
    phrases = wording.PHRASES[run.used_steps.get(candidate.worker) is not None]
    about = (pool for pool in (candidate.pool, candidate.rule.about.loss) if candidate.known(f"unprofiled_{pool}_part"))
    pool, recorded_ms = next(about, None), candidate.known("step_mean_ms")
    step = wording.Step(phrases["each_step"], candidate.step_ms, recorded_ms, {}, candidate.part_of_recorded(pool))
    if candidate.known("unprofiled_input_part") is not None:  # the metrics are of the recorded step, savings are not
        phrases = wording.OF_RECORDED_STEP
        if pool is None:  # nothing shows what time of no part takes without the profiler
            step = step._replace(words=phrases["each_step"], ms=recorded_ms)
    elif candidate.row.get("whole_step_mean_ms") is not None:
        phrases = wording.OF_USUAL_STEP
    values = {**candidate.row, **_unprofiled(candidate, step.part), **candidate.rule.params, **phrases}
    values |= {wording.DEVICE: candidate.device, wording.STEP: step}
    try:
        says = wording.say(candidate.rule.says, values)
    except ValueError as error:
        raise candidate.rule.error(("says",), str(error)) from None
    first = first_sentence(says)
    shares = [share for words, share in step.shares.items() if words in first]
    return replace(candidate, says=says, sentence_share=shares[0] if len(shares) == 1 else None)


def _saving(candidate: Candidate, share: Share | None, fixes: Sequence[RuleFix]) -> Saving | None:
    """What is saved of the step that all times of a report are of, by the first of the fixes."""
    rule, step_ms, cause_ms = candidate.rule, candidate.step_ms, candidate.verdict.cause_ms
    if share is None or rule.saving is None or not step_ms:
        return None
    of = OUTLIERS if share.parts.get(OUTLIERS, 0.0) > share.high_ms / 2 else candidate.pool or rule.saving.of
    # waits for other programs need not go with the work that they lengthen
    waits = candidate.known("run_delay_share") if candidate.known("unprofiled_step_ms") is None else None
    awaited = str(candidate.row.get("awaited_part") or of)  # what takes part of it away need not wait for it
    surely = 1 - (waits or 0.0)
    ends = (share.low_ms * surely, share.high_ms)
    low_ms, high_ms = (min(candidate.unprofiled(ms, share.parts), step_ms) for ms in ends)
    shared_ms, most_ms = (candidate.part_of_recorded(of) * ms for ms in share.shared_ms)
    return Saving(
        low_ms=low_ms,
        high_ms=high_ms,
        low_share=low_ms / step_ms,
        high_share=high_ms / step_ms,
        of=of,
        parts={pool: candidate.unprofiled(ms, {pool: ms}) for pool, ms in share.parts.items()},
        shared_low_ms=shared_ms * surely,
        shared_ms=most_ms,
        after=None if of == OUTLIERS or awaited in {of, *share.parts} else awaited,
        method=wording.prose((fixes and fixes[0].method) or rule.saving.method, on_device=candidate.on_device),
        cause_ms=None if cause_ms is None else min(candidate.unprofiled(cause_ms, share.parts), high_ms),
    )


def _evidence(candidate: Candidate, metrics: Sequence[str]) -> tuple[Evidence, ...]:
    # By metric, the limit from which the rule fires (`fires`), and from which it has each severity.
    limits: dict[str, dict[str, tuple[Operator, float]]] = defaultdict(dict)
    for key, expression in candidate.rule.expressions().items():
        if key == "when" or key.startswith("severity."):
            for metric, limit in expression.limits(candidate.row, candidate.rule.params).items():
                limits[metric]["fires" if key == "when" else key.removeprefix("severity.")] = limit
    declared = {name: candidate.rule.metric(name) for name in metrics}
    return tuple(
        Evidence(
            metric=declared[metric].name,
            value=candidate.row[metric],
            unit=declared[metric].unit,
            meaning=declared[metric].meaning,
            limit=limits.get(metric, {}).get("fires", (None, None))[1],
            limits={level: limits[metric][level][1] for level in SEVERITIES if level in limits.get(metric, ())},
            signs={level: sign for level, (sign, _) in limits.get(metric, {}).items() if sign != ">="},
            formula=wording.formula(declared[metric].formula, on_device=candidate.on_device) or None,
        )
        for metric in metrics
        if candidate.row[metric] is not None or metric not in candidate.rule.shows
    )


def _eligible(candidate: Candidate, framework: str | None, format_: str) -> list[RuleFix]:
    """The fixes for the job's framework; all of them if it is not known or the rule has none for it.

    Those whose condition is known not to hold are left out: they are of other causes.
    Only those that go with the profile's format, unless there is none. A program of no framework gets what is meant for
    any only if the rule has nothing for it.
    """
    ordered = fixes_in_order(candidate.rule, candidate.row)
    ordered = [fix for fix in ordered if not fix.format or format_ in fix.format] or ordered
    meant = [fix for fix in ordered if framework is None or fix.framework in {framework, "any"}]
    if framework == "cuda":
        meant = [fix for fix in meant if fix.framework == framework] or meant
    unfit = fixes_of_other_causes(candidate.rule, candidate.row)
    return [fix for fix in meant or ordered if fix not in unfit]


def _fixes(candidate: Candidate, eligible: Iterable[RuleFix], framework: str | None) -> tuple[Fix, ...]:
    others = tuple(site for site, of in _SITES.items() if framework not in {None, of})
    return tuple(
        Fix(
            framework=fix.framework,
            do=" ".join(_filled(fix.do, candidate).split()),
            code=fix.code and _filled(fix.code, candidate),
            **fix.model_dump(include={"numerics", "choice", "cannot_show", "records"}),
            link=None if (fix.link or "").startswith(others) else fix.link,
            patch=_patch(fix.trial, candidate),
            is_estimated=fix.estimated,
        )
        for fix in eligible
    )


def _patch(trial: Mapping[str, bool | int | str] | None, candidate: Candidate) -> Patch | None:
    """How to try a fix, with this job's numbers; not where one of them is unknown or empty."""
    of = (trial or {}).items()
    filled = {key: _filled(value, candidate) if isinstance(value, str) else value for key, value in of}
    if not filled or {"", UNKNOWN} & {*filled.values()}:
        return None
    return Patch(name=str(filled.pop("patch")), arguments=filled)


def _filled(template: str, candidate: Candidate) -> str:
    try:
        return wording.fill(template, {**candidate.row, **candidate.rule.params})
    except ValueError as error:
        raise candidate.rule.error(("says",), str(error)) from None
