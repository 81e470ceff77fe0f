"""The accounting of a run: each part of its mean step with the findings that explain it, or what to record."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from advisor.model.finding import Finding, NotEvaluable
from advisor.model.reason import Reason
from advisor.model.report import Accounting, Part, Row, number
from advisor.model.source import Steps
from advisor.vocabulary import parts
from advisor.vocabulary.parts import LONG, PARTS, SKEW, WORK

_TRANSFERS: Final = frozenset({"memcpy", "memset", "collective", SKEW})
_WORTH: Final = 0.1  # of a loss: a finding about it that saves less leaves it as it is, and does not explain it
_MAJORITY: Final = 0.5  # of a loss: with so much of it saved, a finding about another part explains it too
_LARGE: Final = 0.2  # own choice, of the step: a loss that no finding is about, though its lines are known


def account(
    rows: Sequence[Row], steps: Steps, findings: Iterable[Finding], unjudged: Sequence[NotEvaluable]
) -> Accounting | None:
    """The parts of the step of one worker; None where it has no time.

    `rows` are the worker's of the table `accounting`: part, share, unprofiled_share, range, range_share, lines. What
    uneven steps add to the mean step is a part of it. A finding that holds for this worker explains its loss, whichever
    worker's numbers it shows; what others of its workers save is not of this step.
    """
    worker, step_ms, usual_ms = steps.worker, steps.length_ms, steps.usual_ms
    if not rows or not step_ms or not usual_ms:
        return None
    of = "unprofiled_share" if "unprofiled_share" in rows[0] else "share"
    shares = [(row, number(row, of)) for row in rows if row["part"] != LONG]
    of_mean = [{**row, "share": share * usual_ms / step_ms} for row, share in shares if share]
    of_worker = [finding for finding in findings if worker in {finding.scope.told_of, *finding.scope.workers}]
    if step_ms > usual_ms:
        long: Row = next((row for row in rows if row["part"] == LONG), {"part": LONG})
        of_mean.append({**long, "share": 1 - usual_ms / step_ms})
    own = [finding for finding in of_worker if finding.scope.told_of in {worker, None}]
    by_part = {str(row["part"]): row for row in of_mean}
    # By part and rule what is saved at most: losses go before work. Waits of ranks are in the largest part of the step.
    times = {code: number(row, "share") * step_ms for code, row in by_part.items()}
    remaining = dict(times)
    largest = max(times, key=lambda part: times[part])
    saved: dict[str, dict[str, float]] = {part: {} for part in times}
    for finding in own:
        for pool, claim in (finding.saving.parts if finding.saving else {}).items():
            rest = claim
            of_pool = [code for code in remaining if pool in PARTS[code].pools]
            for part in (*of_pool, *([largest] if pool == SKEW else [])):
                takes = min(rest, remaining[part])
                remaining[part] -= takes
                rest -= takes
                saved[part][finding.rule] = saved[part].get(finding.rule, 0.0) + takes
    parts = tuple(_part(PARTS[code], row, step_ms, of_worker, saved[code], unjudged) for code, row in by_part.items())
    return Accounting(step_ms=step_ms, parts=parts)


def _part(  # noqa: PLR0913, PLR0917 - a row of the table beside all that may explain it
    part: parts.Part,
    row: Row,
    step_ms: float,
    findings: Iterable[Finding],
    saved: Mapping[str, float],
    unjudged: Iterable[NotEvaluable],
) -> Part:
    share = number(row, "share")
    ms = share * step_ms
    about = {f.rule for f in findings if f.loss in {part.code, *part.pools} or (f.saving and f.saving.of in part.pools)}
    is_cause = any(f.rule in about and (f.loss or _claim(f, part) >= _WORTH * ms) for f in findings)
    rules = [f.rule for f in findings if f.rule in about or saved.get(f.rule)]
    saved_ms = sum(saved.values())
    is_in_lines = row.get("lines") is not None and not part.is_useful and share < _LARGE
    is_explained = is_cause or saved_ms > _MAJORITY * ms or is_in_lines
    is_open = not (is_explained or part.is_useful)
    return Part(
        part=part.code,
        is_useful=part.is_useful,
        ms=ms,
        share=share,
        findings=tuple(rules),
        saved_ms=saved_ms,
        is_explained=is_explained,
        reasons=_reasons(part, unjudged) if is_open else (),
        range=row.get("range"),
        range_share=row.get("range_share"),
        lines=row.get("lines"),
    )


def _claim(finding: Finding, part: parts.Part) -> float:
    """What a finding saves of a part at most, in ms, whichever worker's numbers it shows."""
    return sum(ms for pool, ms in (finding.saving.parts if finding.saving else {}).items() if pool in part.pools)


def _reasons(part: parts.Part, unjudged: Iterable[NotEvaluable]) -> tuple[Reason, ...]:
    """What kept the rules about a loss from judging, large shares first, then what is common.

    Rules about work and transfers, which may come out of another loss too, do not tell why that is there.
    """
    pools, others = {*part.pools}, [rule for rule in unjudged if rule.of not in WORK]
    about = [r for r in others if r.of in pools or (r.of not in _TRANSFERS and not pools.isdisjoint(r.beyond))]
    of_rules = [{why.code: why for why in rule.missing.values()} for rule in about]
    times = Counter(code for reasons in of_rules for code in reasons)
    words = {code: why for reasons in of_rules for code, why in reasons.items()}
    shares = {code: float(why.facts.get("share") or 0) for code, why in words.items()}
    return tuple(words[code] for code in sorted(words, key=lambda code: (-shares[code], -times[code])))
