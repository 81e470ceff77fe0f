"""What to do, in words: each action with what it changes the step to, alone and after those before it."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.model.action import MOST, Action
from advisor.model.finding import Finding, Saving
from advisor.model.report import Run
from advisor.present import document as doc
from advisor.present.findings import source_lines
from advisor.present.next_recording import NSYS, advised, combined, record
from advisor.present.source import rank_name
from advisor.present.verdict import AFTER_OTHERS, at_stake, headline, in_brief, per_step, remedy, until
from advisor.text import (
    capital,
    count,
    first_sentence,
    listing,
    ms,
    percent,
    precise_ms,
    quantity,
    sentences_of,
    shorter,
)
from advisor.vocabulary.parts import PARTS, WORK, pool_short

_NOTHING: Final = "ow end: nothing"  # in a method
_BECAUSE: Final = ", because "
_LEAST: Final = 0.005  # of the step: a smaller part asks for no word, nor a difference from the bar of twice as much
_UNSURE: Final = 0.02  # of the step
_NEARLY_ALL: Final = 0.99  # of the step: nobody saves so much
_SHARED: Final = " (they share some time)"
_NO_TIME: Final = 0.002  # of the step: it would be shown as 0
_VAGUE: Final = 1.4  # times the low end is below the high end: the reader asks why
_CLEAR: Final = 0.01  # of the step: less is no wide interval
_REST: Final = 0.05  # of a saving: what all parts together lack is told
_PART: Final = 0.15  # of a saving: what comes out of a lesser part is not told
_LONGEST: Final = 70  # characters of why a range is wide: what is longer stands only beside the finding


def actions(run: Run) -> doc.Actions | None:
    """The first things to do; None where there is nothing to do, or nothing that is worth it."""
    lines = [_line(action, run) for action in run.listed]
    listed = tuple(
        _action(action, number, run, line="" if line in lines[:at] else line)
        for at, ((number, action), line) in enumerate(zip(run.numbered, lines, strict=True))
    )
    if run.records_first:
        again = f"Record again: `{record(run)}`. After that:" if record(run) else "Record again. After that:"
        listed = (doc.Action(number=1, do=again, becomes="", says="", changes="", rules=(), severity="high"), *listed)
    if not listed and run.unexplained and (do := remedy(run)):
        shows = _unknown(Action(do=do, findings=(), records="ecord " in do), run)
        do = combined(do, run, asks=do.endswith("record again."))
        listed = (doc.Action(number=1, do=do, becomes=shows, says="", changes="", rules=(), severity="low"),)
    return doc.Actions(listed) if listed else None


def _line(action: Action, run: Run) -> str:
    """The line of the user's code that the first finding lies in: one that several share is said once."""
    lines = source_lines(next(of for of in run.findings if of.key == action.findings[0]))
    return f"Called from `{lines[0].path}:{lines[0].line}`." if lines else ""


def _action(action: Action, number: int, run: Run, line: str) -> doc.Action:
    of_key = {finding.key: finding for finding in reversed(run.findings)}
    findings = [of_key[key] for key in action.findings]
    fixes = [fix for finding in findings for fix in finding.fixes_for(run.source.framework)[:1] if fix.do == action.do]
    asks, code = number == advised(run), next((fix.code for fix in fixes if fix.code), "")
    stands_above = (NSYS in code and (asks or not action.records)) or code.rpartition(" = ")[2].strip() in action.do
    return doc.Action(
        number=number,
        do=combined(first_sentence(action.do), run, asks=asks),
        becomes=becomes(action, run),
        says=" ".join(_evidence(findings, run, line)),
        rest=tuple(sentences_of(action.do)[1:]),
        more=tuple(_unsaid(findings[0], run)[1:]),
        code="" if stands_above else code,
        changes=f"This changes results: {action.numerics}." if action.numerics else "",
        rules=tuple(finding.rule for finding in findings[:MOST]),
        severity=findings[0].severity,
        is_new=any(finding.new for finding in findings),
        then=_then(number, run),
        most=quantity(action.high_ms, "ms") if action.high_ms else "",
    )


def _evidence(findings: Sequence[Finding], run: Run, line: str) -> Iterator[str]:
    """What was measured, unless the headline says it; where; what else that mends."""
    first, *others = findings
    yield from filter(None, [*_unsaid(first, run)[:1], line])
    yield from (in_brief(finding.says) for finding in others[: MOST - 1])
    if len(findings) > MOST:
        yield f"And {count(len(findings) - MOST, 'more finding')}."


def _unsaid(finding: Finding, run: Run) -> list[str]:
    """The sentences of a finding that the headline has not, the first in brief."""
    verdict, (first, *others) = headline(run), sentences_of(finding.says)
    return [sentence for sentence in (in_brief(first), *others) if sentence[1:] not in verdict]


def becomes(action: Action, run: Run) -> str:
    """`176 → 117-140 ms a step (20-34 % shorter).` and why it may be little, or why there is no such number."""
    if action.records or action.high_ms is None or action.low_ms is None or not action.step_ms:
        no_step = "" if run.source.steps.length_ms else "How much this saves is unknown: the recording has no steps."
        return no_step or _unknown(action, run)
    is_rest, low_ms, high_ms = _is_rest(action, run), action.low_ms, action.high_ms
    if high_ms <= 0:
        why = "Alone this saves nothing: something else takes as long."
        return f"{AFTER_OTHERS} this saves nothing." if is_rest else why
    ends, known = (action.step_ms - high_ms, action.step_ms - low_ms), shorter(action.step_ms, low_ms, high_ms)
    if action.after:
        return f"{until(action.after)}; then it saves {known.saved}{per_step(run)}."
    at_best, whose = _may_save_nothing(action.step_ms, *ends), _whose(action, run)
    share = percent(high_ms / action.step_ms) if at_best else known.share
    saves = f"at most {known.ends[1]}" if at_best else known.saved
    change = f"{_change(action.step_ms, *ends, run)} ({share} shorter"
    if is_rest:
        change = f"{AFTER_OTHERS} it saves {saves} of {known.before}{per_step(run)} ({share}"
    return f"{whose}{change}{_pools(action, run, high_ms)}{_width(action, run, low_ms, high_ms)})."


def _is_rest(action: Action, run: Run) -> bool:
    """Whether others save much of what the one finding of an action would save alone."""
    known = _savings(action, run)
    return len(known) == 1 and known[0].is_rest


def _unknown(action: Action, run: Run) -> str:
    """What it saves at most where nobody knows how much, as far as that is known; what shows the rest."""
    step_ms, findings = action.step_ms or run.source.steps.length_ms or math.inf, _findings(action, run)
    lacking = {finding.loss for finding in findings if finding.lacks_work}
    parts = run.accounting.parts if run.accounting and run.accounting.busy_share > _CLEAR else ()
    lacking |= {finding.saving.of for finding in findings if finding.saving and action.records} - {*WORK}
    shares = [part.share for part in parts if part.part in lacking]
    shares += [finding.time_share or 0.0 for finding in findings]
    most_ms = max(at_stake(action, run)[1], step_ms * max(shares, default=0.0))
    part = run.unexplained if run.outcome.code == "loss" and (action.records or not findings) else None
    if part and (not most_ms or not {*part.findings}.isdisjoint(action.findings)):
        most_ms = max(most_ms, part.ms)
    if action.records and 0 < most_ms < _NEARLY_ALL * step_ms:
        of = f"{ms(step_ms)}{per_step(run)} ({percent(most_ms / step_ms)})"
        return f"Saving: at most {ms(most_ms)} of {of}; the new recording shows how much."
    if most_ms and not action.records:
        most = f"{ms(most_ms)}{per_step(run)} ({percent(most_ms / step_ms)})"
        return f"This saves between nothing and {most}: `advisor compare BEFORE AFTER` shows how much."
    if action.records:
        return "Saving: unknown until that is recorded."
    if once := [item.value for of in findings if of.loss == "once" for item in of.evidence if item.unit == "ms"]:
        return f"This saves up to {quantity(once[0], 'ms')} of each run."
    return "The recording does not show how much this saves: `advisor compare BEFORE AFTER` does."


def _pools(action: Action, run: Run, high_ms: float) -> str:
    """`; at most 21 ms of input and 19 ms of ops`: the parts of the bar that the high end adds up from, if several.

    Where more is saved than what is told of the cause, how much more, and why.
    """
    savings = _savings(action, run)
    rest_ms = high_ms - sum(of.high_ms if of.cause_ms is None else of.cause_ms for of in savings)
    if rest_ms > _REST * high_ms:
        return f"; {ms(high_ms - rest_ms)} is measured, the rest is estimated"
    known = defaultdict[str, float](float)
    for saving in savings:
        for pool, most_ms in saving.parts.items():
            known[pool_short(pool)] += most_ms
    parts = sorted(((most_ms, name) for name, most_ms in known.items() if most_ms > _PART * high_ms), reverse=True)
    if not parts or abs(sum(known.values()) - high_ms) > _PART * high_ms:
        return ""
    of = {name: name if name.startswith("outside") else f"of {name}" for _, name in parts}
    rest_ms = high_ms - sum(most_ms for most_ms, _ in parts)
    if rest_ms > _REST * high_ms:
        parts, of = [*parts, (rest_ms, "elsewhere")], of | {"elsewhere": "elsewhere"}
    if len(parts) == 1:
        return ""
    return f"; at most {listing([f'{ms(most_ms)} {of[name]}' for most_ms, name in parts])}"


def _width(action: Action, run: Run, low_ms: float, high_ms: float) -> str:
    """That it may save clearly less than at best, and why, if its methods say it in short.

    Where it may save nothing, a reason for that comes before other reasons of a low end.
    """
    step_ms, known = action.step_ms or math.inf, _savings(action, run)
    if high_ms - low_ms <= max((_VAGUE - 1) * low_ms, _CLEAR * step_ms):
        return ""
    other = ("Without a GPU" if run.source.devices else "With a GPU", *["Without steps"] * run.source.steps.marked)
    methods = [of.method for of in sorted(known, key=lambda of: of.low_ms - of.high_ms)]  # the widest first
    lows = [text for method in methods for text in sentences_of(method) if "ow end:" in text and _BECAUSE in text]
    reasons = [text for text in lows if not text.startswith(other)]
    may_be_none = _may_save_nothing(step_ms, step_ms - high_ms, step_ms - low_ms)
    reasons.sort(key=lambda text: may_be_none and _NOTHING not in text)
    why = next((text.partition(_BECAUSE)[2].removesuffix(".") for text in reasons), "")
    is_short = 0 < len(why) <= _LONGEST
    if may_be_none:
        return f"; perhaps nothing, because {why}" if is_short else "; perhaps nothing"
    return f"; wide because {why}" if is_short else ""


def _savings(action: Action, run: Run) -> list[Saving]:
    counted = (finding for finding in _findings(action, run) if finding.key not in action.repeats)
    return [finding.saving for finding in counted if finding.saving]


def _findings(action: Action, run: Run) -> list[Finding]:
    return [finding for finding in run.findings if finding.key in action.findings]


def _whose(action: Action, run: Run) -> str:
    """`Rank 0: `, where another rank's step is counted than the one that all other numbers are of."""
    scope = next(finding.scope for finding in run.findings if finding.key == action.findings[0])
    is_pace = (of := scope.told_of) in {None, run.source.steps.worker} or len(run.source.workers) <= 1
    alone = ", the only one where this shows" if scope.workers == (of,) else ""
    return "" if is_pace else f"{capital(rank_name(run.source, of or 0))}{alone}: "


def _then(number: int, run: Run) -> str:
    """`1 and 2 together: 176 → 97-130 ms a step.`; empty for the first that saves anything known, and for any other."""
    known = next((of for of in _totals(run) if of[0][-1] == str(number) and len(of[0]) > 1), None)
    if known is None:
        return ""
    numbers, now_ms, least_ms, most_ms = known
    each = [of for at, of in run.numbered if str(at) in numbers]
    many = ", if all ranks gain as much" if any(_whose(of, run) for of in each) else ""
    sure = f" None of them is sure to save much: try {numbers[0]} first." if most_ms >= (1 - _UNSURE) * now_ms else ""
    alone = sum(of.shares[1] for of in each)
    shared = _SHARED if now_ms - least_ms < (alone - _UNSURE) * now_ms else ""
    return f"{listing(numbers)} together{many}: {_change(*known[1:], run)}{shared}.{sure}"


def sequence(run: Run) -> list[dict[str, float | str]]:
    """The step now and after each listed action and all before it, in words and in ms; empty where nobody knows."""
    rows: list[dict[str, float | str]] = []
    for numbers, now_ms, low, high in _totals(run):
        rows = rows or [{"step": f"now: {precise_ms(now_ms)}", "low_ms": now_ms, "high_ms": now_ms}]
        words = f"after {listing(numbers)}: {_change(now_ms, low, high, run)}"
        rows.append({"step": words, "low_ms": low, "high_ms": high})
    return rows


def after_first(run: Run) -> tuple[str, float, str, dict[str, float]]:
    """The step after action 1, of those used, in words; which share that saves, in words too, and of which parts."""
    action = next((of for number, of in run.numbered if number == 1 and not (of.records or of.after)), None)
    if action is None or action.with_long_steps or _whose(action, run) or _is_rest(action, run):
        return "", 0.0, "", {}
    claims, now_ms, (low, high) = defaultdict[str, float](float), action.step_ms or 0.0, action.shares
    for saving in _savings(action, run):
        for pool, most_ms in saving.pools.items():
            claims[next((part.code for part in PARTS.values() if pool in part.pools), pool)] += most_ms
    ends = now_ms * (1 - high), now_ms * (1 - low)
    saved, how = (low + high) / 2, "the middle of what it saves"
    if _may_save_nothing(now_ms, *ends):
        saved, how = high, "the most that it saves"
    return f"after action 1: {_change(now_ms, *ends, run)}", saved, how, claims if high else {}


def _totals(run: Run) -> Iterator[tuple[list[str], float, float, float]]:
    """The numbers of the listed actions that save anything known, one more each time; the step now, and after these."""
    listed = [(str(at), a) for at, a in run.numbered if a.high_ms and a.then_high_ms is not None]
    longest_ms = max((action.step_ms or 0.0 for _, action in listed), default=0.0)
    now_ms = run.length_ms or longest_ms
    for at, (_, action) in enumerate(listed, 1):
        yield [number for number, _ in listed[:at]], now_ms, action.then_low_ms or 0.0, action.then_high_ms or 0.0


def _change(now_ms: float, least_ms: float, most_ms: float, run: Run) -> str:
    """`71 → 35-42 ms a step`; `71 → 35 ms a step at best`."""
    per = per_step(run)
    if _may_save_nothing(now_ms, least_ms, most_ms):
        return f"{shorter(now_ms, now_ms - least_ms, now_ms - least_ms).change}{per} at best"
    if least_ms < _NO_TIME * now_ms:
        return f"{precise_ms(now_ms)} \N{RIGHTWARDS ARROW} at most {precise_ms(most_ms)}{per}"
    return f"{shorter(now_ms, now_ms - most_ms, now_ms - least_ms).change}{per}"


def _may_save_nothing(now_ms: float, least_ms: float, most_ms: float) -> bool:
    """Whether a step may stay as it is, though it can get clearly shorter: an end that says nothing is left out."""
    return most_ms > (1 - _LEAST) * now_ms > least_ms
