"""What to do, in words: each action with what it changes the step to, and all of them together."""

from collections.abc import Sequence
from typing import Final

from advisor.model.action import Action
from advisor.model.finding import Finding
from advisor.model.report import Run
from advisor.present import document as doc
from advisor.present.verdict import title
from advisor.text import WIDE, count, first_sentence, interval, ms, percents, without_shared_unit

MOST: Final = 3
"""Actions on the one screen."""

_LONG: Final = 110  # characters of a sentence that loses the list at its end


def actions(run: Run) -> doc.Actions | None:
    """The first things to do; None where there is nothing to do, or nothing that is worth it."""
    first = worthwhile(run)[:MOST]
    if not first:
        return None
    items = tuple(_action(action, number, run) for number, action in enumerate(first, 1))
    return doc.Actions(items, _together(first, run))


def worthwhile(run: Run) -> list[Action]:
    """The actions that have a place on a first screen, the first to be done first."""
    return [action for action in run.actions if not action.is_small]


def _action(action: Action, number: int, run: Run) -> doc.Action:
    findings = [finding for key in action.findings for finding in run.findings if finding.key == key]
    return doc.Action(
        number=number,
        do=first_sentence(action.do),
        becomes=becomes(action, run),
        says=_evidence(findings, run),
        changes=f"This changes results: {action.numerics}." if action.numerics else "",
        rules=tuple(finding.rule for finding in findings[:MOST]),
        severity=findings[0].severity,
        is_new=any(finding.new for finding in findings),
    )


def _evidence(findings: Sequence[Finding], run: Run) -> str:
    """What was measured, without a list of names behind it; of several findings what each is."""
    if len(findings) > 1:
        rest = f" And {count(len(findings) - MOST, 'more finding')}." if len(findings) > MOST else ""
        return " ".join(f"{title(finding, run)}." for finding in findings[:MOST]) + rest
    sentence = first_sentence(findings[0].says)
    head, names, _ = sentence.partition(": ")
    is_list = names and len(sentence) > _LONG and head.count("(") == head.count(")")
    return f"{head}." if is_list else sentence


def becomes(action: Action, run: Run) -> str:
    """`176 → 117-140 ms a step (20-34 % shorter).`; empty where nobody knows."""
    if action.records:
        return "This recording does not show how to save that time." if action.expected_share else ""
    if action.high_ms is None or action.low_ms is None or not action.step_ms:
        return ""
    if action.high_ms <= 0:
        return "Alone this saves nothing: another rank or part of the job takes as long."
    mean = " on average, long steps included" if action.with_long_steps else ""
    shorter = f"{percents(*action.shares)} shorter"
    ends = (action.step_ms - action.high_ms, action.step_ms - action.low_ms)
    return f"{_change(action.step_ms, *ends, _per(run))}{mean} ({shorter})."


def _together(first: Sequence[Action], run: Run) -> str:
    """`All together: 176 → 97-130 ms a step.`; empty where fewer than two save anything known."""
    known = [action for action in first if action.high_ms]
    least, most = (known[-1].then_low_ms, known[-1].then_high_ms) if len(known) > 1 else (None, None)
    if least is None or most is None:
        return ""
    length_ms = max(action.step_ms or 0.0 for action in known)
    which = "All" if len(known) == len(first) else f"{' and '.join(str(first.index(a) + 1) for a in known)}"
    return f"{which} together: {_change(length_ms, least, most, _per(run))}."


def _per(run: Run) -> str:
    return " a step" if run.source.steps.marked else ""


def _change(before: float, least: float, most: float, per: str) -> str:
    """`71 → 35-42 ms a step`; with one end where the other says nothing: nearly no change, or nearly no time left."""
    if (before - most) * WIDE <= before - least:
        after, end = ms(least), " at best"
    elif least * WIDE <= most:
        after, end = ms(most), " or less"
    else:
        after, end = interval(least, most), ""
    return f"{without_shared_unit(ms(before), after)} → {after}{per}{end}"
