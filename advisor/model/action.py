"""Actions: what to do, in the order in which to do it; findings with one fix are one action."""

import math
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import Field

from advisor.model.finding import CERTAINTY, OUTLIERS, Finding, Fix, Saving
from advisor.model.reason import Frozen
from advisor.text import first_sentence

MOST: Final = 3  # actions on the one screen
SMALL: Final = 0.01  # of the step: a saving below it is on no first screen, and a low end below it decides no order
LARGE: Final = 0.1  # own choice, of each step: what surely saves so much comes before what is paid once
_CAUSE: Final = 0.3  # own choice, of the step: so does the known cause of so much, where the step is not too little
_ENOUGH: Final = 0.05  # of the recording, as in one-time-work
_LITTLE: Final = 0.05  # own choice, of the step: a cause without a number that is no small one is worth more
_RECORDS: Final = re.compile(r"([^.]*): (`advisor record [^`]*`\.)(.*)")
_ALL: Final = 0.95  # own choice, of some work
_MOST_TIME: Final = 0.5  # of the step: a cause without a number that it is about weighs half of it


class Action(Frozen):
    """One thing to do, and what it changes the step to.

    Attributes:
        do: What to do, in the words of the first fix of the first finding; `numerics` says how it changes results.
        findings: The keys of the findings that it mends.
        repeats: Of these, those that tell of the same loss as the first: evidence, whose savings are not counted again.
        step_ms: The step before any action; the mean of all complete ones if it is long steps that get shorter.
        low_ms: What it saves of that step at least; null if it is not known, or if it `records` another time.
        high_ms: What it saves at most.
        after: The part of the step that has to get shorter before this saves anything; null if none has to.
        then_low_ms: The step after this action and all before it, at best. Savings come out of disjoint parts of the
            step, so they add up, but the work stays that none of them saves. Of work, which is saved once, it saves the
            same part of what those before it leave. One `after` a part that no action before it shortens, or surely
            does, adds nothing.
        then_high_ms: The same at worst.
        sure_share: What is sure to be saved of the step: the low end, 0 if that is below 1 %. It orders the actions.
        expected_share: The middle of the interval, weighed by the confidence. It orders those that are equally sure.
        with_long_steps: Whether the step is the mean of all, long ones included.
        records: Whether to record again, because this recording does not show how to save the time.
    """

    do: str
    numerics: str | None = None
    findings: tuple[str, ...]
    repeats: tuple[str, ...] = Field((), exclude_if=operator.not_)
    step_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    after: str | None = None
    then_low_ms: float | None = None
    then_high_ms: float | None = None
    sure_share: float = 0.0
    expected_share: float = 0.0
    with_long_steps: bool = False
    records: bool = False

    @property
    def shares(self) -> tuple[float, float]:
        """Both ends of the saving, of the step."""
        length_ms = self.step_ms or 0.0
        return ((self.low_ms or 0.0) / length_ms, (self.high_ms or 0.0) / length_ms) if length_ms else (0.0, 0.0)

    @property
    def is_recording(self) -> bool:
        """Whether it asks for another recording of the job, which a profiler of kernels is not."""
        return self.records and "record" in first_sentence(self.do).lower()

    @property
    def is_small(self) -> bool:
        """Whether it probably saves less than is worth a place on the first screen."""
        if self.high_ms is None:
            return 0 < self.expected_share < SMALL
        return sum(self.shares) / 2 < SMALL


def actions(
    findings: Sequence[Finding],
    framework: str | None,
    step_ms: float | None,
    work_ms: Mapping[str, float],
    used_share: float = 1.0,
) -> tuple[Action, ...]:
    """What to do about the findings of a run, the first to be done first.

    What is surely saved decides, so that no wide interval stands above a narrow one with a higher low end. A cause
    of medium weight and more whose saving nobody knows stands above what is expected to save less than a twentieth
    of the step, or of most of the step than half of that, weighed by its confidence, and above what may save
    nothing and has low confidence; not if it asks for another recording and is about no known time. That is first
    if the recording is what is wrong, or if it is about more than is expected of any fix, or of a cause of most of
    the step whose saving nobody knows. Where most of the recording happens once, what saves next to nothing of it
    stands behind that. Other findings about the recording ask for nothing here, nor do small ones
    without a saving if others do. `step_ms` is the step where no saving says what it is of, `work_ms` how much
    of it each pool of useful work takes, and `used_share` how much of the recording all steps are.
    """
    groups: list[tuple[Fix, list[Finding]]] = []
    repeats = set[str]()
    for finding in [*filter(_asks, findings)] or [of for of in findings if of.loss not in {None, "once"}]:
        fix = next(iter(finding.fixes_for(framework)), None)
        if fix is None:
            continue
        alike = (n for n, (other, of) in enumerate(groups) if _larger(other, fix) or _repeats(finding, of[0], findings))
        place = next(alike, None)
        if place is None:
            groups.append((fix, [finding]))
        else:
            other, before = groups[place]
            groups[place] = (_larger(other, fix) or other, [*before, finding])
            repeats |= set() if _larger(other, fix) else {finding.key}
    plans = [_action(alike, fix, step_ms, repeats) for fix, alike in groups]
    grave = {finding.key: finding for finding in findings if finding.severity != "low"}
    timed = {key: f.time_share for key, f in grave.items() if f.time_share}
    halves = [CERTAINTY[grave[key].confidence] * share / 2 for key, share in timed.items() if share > _MOST_TIME]
    least = max([_LITTLE, *halves])
    most = max([action.expected_share for action in plans] + halves, default=0.0)
    doubts = {finding.key for finding in findings if finding.of_recording}
    once = {f.key for f in findings if f.is_most_of_recording}
    causes = [max([a.shares[1], *(timed.get(key, 0.0) for key in a.findings)]) for a in plans if not a.is_recording]
    of_recording = used_share if once else 1.0
    little = {key for a in plans if a.high_ms and a.shares[1] * of_recording < SMALL for key in a.findings}
    is_large = any(a.sure_share >= LARGE and little.isdisjoint(a.findings) for a in plans)
    is_large |= used_share >= _ENOUGH and max(causes, default=0) >= _CAUSE
    foremost = {f.key for f in findings if _is_foremost(f)} - (once if is_large else set())
    leads = next((a for a in plans if a.records and (doubts & {*a.findings} or a.expected_share == most > 0)), None)
    plans.sort(
        key=lambda a: (
            not foremost & {*a.findings},
            a is not leads,
            not little.isdisjoint(a.findings),
            a.high_ms is None and not a.expected_share,
            a.after is not None,
            -a.sure_share,
            -a.expected_share,
            used_share >= _ENOUGH and not once.isdisjoint(a.findings),
        )
    )
    firm = {finding.key for finding in findings if finding.confidence != "low"}
    much = [a.expected_share >= least and (a.sure_share > 0 or not firm.isdisjoint(a.findings)) for a in plans]
    last = max((at for at, is_much in enumerate(much, 1) if is_much), default=0)  # behind it what is grave comes first
    first = foremost | {*(leads.findings if leads else ())}
    about = {} if last else timed  # what saves much is above, and another recording is no second thing to do
    plans[last:] = sorted(
        plans[last:],
        key=lambda a: (
            first.isdisjoint(a.findings)
            and (a.expected_share > 0 or (about if a.records else grave).keys().isdisjoint(a.findings))
        ),
    )
    won = {finding.key: finding.saving for finding in findings if finding.saving and finding.key not in repeats}
    return tuple(_in_sequence(plans, won, step_ms, work_ms))


def in_order(findings: Sequence[Finding], of: Iterable[Action]) -> tuple[Finding, ...]:
    """The findings as the actions on them stand; before these what is most of the time or makes all numbers doubtful.

    The others stand behind.
    """
    place = {key: number for number, action in enumerate(of) for key in action.findings}
    first = [finding for finding in findings if _is_foremost(finding)]
    rest = [finding for finding in findings if finding not in first]
    return (*first, *sorted(rest, key=lambda finding: place.get(finding.key, len(place))))


def _is_foremost(finding: Finding) -> bool:
    """Whether it is of most of the recording, or makes all numbers doubtful."""
    return finding.is_most_of_recording or (finding.lacks_work and finding.severity == "high")


def _asks(finding: Finding) -> bool:
    is_grave = finding.severity == "high" if finding.of_recording else finding.severity != "low"
    return is_grave or (finding.saving is not None and not finding.of_recording)


def _larger(fix: Fix, other: Fix) -> Fix | None:
    """Of two fixes that are one the one that does more; None where they are two.

    They are one if their first sentences are, or if one patch does what the other does, and perhaps more. Of two that
    record again with one command it is both.
    """
    first, second = _RECORDS.match(fix.do), _RECORDS.match(other.do)
    if fix.records and other.records and fix.do != other.do and first and second:
        todo = first[1] if first[1] == second[1] else f"{first[1]}; {second[1][:1].lower()}{second[1][1:]}"
        return fix.model_copy(update={"do": f"{todo}: {max(first[2], second[2], key=len)}{first[3] or second[3]}"})
    if fix.patch is None or other.patch is None or fix.patch.name != other.patch.name:
        return fix if first_sentence(fix.do) == first_sentence(other.do) else None
    own, others = fix.patch.arguments.items(), other.patch.arguments.items()
    return fix if others <= own else other if own <= others else None


def _repeats(finding: Finding, first: Finding, findings: Sequence[Finding]) -> bool:
    """Whether a finding tells of the same loss as one that saves more, so that it is no second thing to do.

    Most of what it saves, of the same part, is counted there, and by none else; or one explains the other, and what it
    saves alone is not sure, and less at best than the other surely saves.
    """
    own, other = finding.saving, first.saving
    if own is None or other is None or first.of_recording or first.scope.told_of != finding.scope.told_of:
        return False
    pools = {*own.pools}
    users = [of for of in findings if of is not finding and of.saving and not pools.isdisjoint(of.saving.parts)]
    if own.shared_ms > own.high_ms and own.of == other.of and pools <= {*other.parts} and users == [first]:
        return True
    is_chain = first.rule in finding.explains or finding.rule in first.explains
    return is_chain and not own.low_ms and own.high_ms <= other.low_ms


def _action(findings: Sequence[Finding], fix: Fix, step_ms: float | None, repeats: Collection[str]) -> Action:
    counted = [finding for finding in findings if finding.saving and finding.key not in repeats]
    known = [saving for finding in counted if (saving := finding.saving)]
    wholes = [saving.high_ms / saving.high_share for saving in known if saving.high_share > 0]
    length_ms = max(wholes, default=step_ms)
    plan = Action(
        do=fix.do,
        numerics=fix.numerics,
        findings=tuple(finding.key for finding in findings),
        repeats=tuple(finding.key for finding in findings if finding.key in repeats),
        step_ms=length_ms,
        after=known[0].after if known and all(saving.after for saving in known) else None,
        with_long_steps=any(saving.of == OUTLIERS for saving in known),
        records=fix.records or any(finding.of_recording for finding in findings),
    )
    if not known or not length_ms:
        return plan
    low, high = (min(most, length_ms) for most in _of_one_worker(counted))
    certainty = min(CERTAINTY[finding.confidence] for finding in counted)
    expected = {"expected_share": (low + high) / 2 * certainty / length_ms}
    if fix.records:
        return plan.model_copy(update=expected)
    sure = low / length_ms if low >= SMALL * length_ms else 0.0
    return plan.model_copy(update={**expected, "sure_share": sure, "low_ms": low, "high_ms": high})


def _of_one_worker(findings: Sequence[Finding]) -> tuple[float, float]:
    """What they save in all, low and high, of the worker with most: workers of a job do the same step at once."""
    sums: dict[int | None, tuple[float, float]] = {}
    for of, saving in ((finding.scope.told_of, finding.saving) for finding in findings if finding.saving):
        low, high = sums.get(of, (0.0, 0.0))
        sums[of] = low + saving.low_ms, high + saving.high_ms
    return max(low for low, _ in sums.values()), max(high for _, high in sums.values())


def _in_sequence(
    plans: Sequence[Action], won: Mapping[str, Saving], step_ms: float | None, work_ms: Mapping[str, float]
) -> Iterator[Action]:
    """The actions that save anything known, each with the step after it and all before it; the others as they are.

    `won` is what each finding saves, by key. Two changes of the same kernels do not add up: the second is of the time
    that the first leaves. Of a step of another length, such as another rank's, the same share is saved of this one.
    What is about a loss takes no more of the work after others if it would take all: the loss is of their time, too.
    No step gets shorter than the work that stays, unless one action alone says so.
    """
    length_ms = step_ms or max((action.step_ms or 0.0 for action in plans), default=0.0)
    low = high = 0.0
    shorter, surely = set[str | None]([None]), set[str | None]([None])
    rest = dict.fromkeys(work_ms, 1.0)
    for action in plans:
        if action.high_ms is None:
            yield action
            continue
        known, scale = [won[key] for key in action.findings if key in won], length_ms / (action.step_ms or length_ms)
        sure_ms, most_ms = (share * length_ms for share in action.shares)
        sure_ms, most_ms = sure_ms * (action.after in surely), most_ms * (action.after in shorter)
        pools = [saving.pools for saving in known]
        claims = {pool: sum(parts.get(pool, 0.0) for parts in pools) for of in pools for pool in of}
        about, claimed_ms = {saving.of for saving in known}, sum(claims.values())
        claims = {of: ms for of, ms in claims.items() if of in about or scale * ms < _ALL * work_ms.get(of, math.inf)}
        new_ms = sum(rest.get(pool, 1.0) * ms for pool, ms in claims.items())
        new = new_ms / claimed_ms if claimed_ms else 1.0
        if most_ms:
            rest = {of: part * max(1 - scale * claims.get(of, 0.0) / work_ms[of], 0.0) for of, part in rest.items()}
        most_in_all_ms = length_ms - sum(part * work_ms[of] for of, part in rest.items())
        low, high = (max(min(of + new * ms, most_in_all_ms), of, ms) for of, ms in ((low, sure_ms), (high, most_ms)))
        shorter |= about
        surely |= about if action.low_ms else set()
        then = {"then_low_ms": length_ms - high, "then_high_ms": length_ms - low}
        yield action.model_copy(update={end: max(ms, 0.0) for end, ms in then.items()})
