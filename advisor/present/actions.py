"""What to do, in words: each action with what it changes the step to, alone and after those before it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.model.action import MOST, Action
from advisor.model.finding import Finding
from advisor.model.report import Run
from advisor.present import document as doc
from advisor.present.stacks import source_lines
from advisor.present.verdict import at_stake, headline, is_open, says_nothing, until
from advisor.text import (
    WIDE,
    count,
    first_sentence,
    interval,
    listing,
    ms,
    percent,
    percents,
    precise_ms,
    same_scale,
    sentences_of,
)
from advisor.vocabulary.parts import PARTS, pool_short

_LONG: Final = 110  # characters of a sentence whose list is cut to its first entry
_ONE_PART: Final = 0.9  # of a saving: the rest needs no name, unless the bar shows less of that part than is saved
_LITTLE: Final = 0.02  # of a saving: a part that needs no name


def actions(run: Run) -> doc.Actions | None:
    """The first things to do; None where there is nothing to do, or nothing that is worth it."""
    first = run.worthwhile[:MOST]
    return doc.Actions(tuple(_action(first, place, run) for place in range(1, len(first) + 1))) if first else None


def _action(first: Sequence[Action], number: int, run: Run) -> doc.Action:
    action = first[number - 1]
    of_key = {finding.key: finding for finding in reversed(run.findings)}
    findings = [of_key[key] for key in action.findings]
    return doc.Action(
        number=number,
        do=first_sentence(action.do),
        becomes=" ".join(filter(None, (becomes(action, run), _parts(findings, run)))),
        says=" ".join(_evidence(findings, run)),
        changes=f"This changes results: {action.numerics}." if action.numerics else "",
        rules=tuple(finding.rule for finding in findings[:MOST]),
        severity=findings[0].severity,
        is_new=any(finding.new for finding in findings),
        then=_then(first[:number], run),
    )


def _evidence(findings: Sequence[Finding], run: Run) -> Iterator[str]:
    """What was measured, unless the headline says it; its line; what else that mends."""
    first, *others = findings
    yield from [_short(sentence) for sentence in sentences_of(first.says) if sentence not in headline(run)][:1]
    if lines := source_lines(first)[:1]:
        yield f"Line: `{lines[0].path}:{lines[0].line}`."
    yield from (_short(first_sentence(finding.says)) for finding in others[: MOST - 1])
    if len(findings) > MOST:
        yield f"And {count(len(findings) - MOST, 'more finding')}."


def _parts(findings: Sequence[Finding], run: Run) -> str:
    """The parts of the step that the savings come out of; empty where it is nearly one, or another recording."""
    savings = [finding.saving for finding in findings if finding.saving and not findings[0].fixes[0].records]
    most: Counter[str] = sum((Counter(dict(saving.parts)) for saving in savings), Counter())
    largest = [(pool, ends) for pool, ends in most.most_common(MOST) if ends > _LITTLE * most.total()]
    if len(largest) < 2 or (largest[0][1] >= _ONE_PART * most.total() <= _ONE_PART * _in_bar(largest[0][0], run)):  # noqa: PLR2004
        return ""
    return f"It shortens {listing([f'{pool_short(pool)} (up to {ms(ends)})' for pool, ends in largest])}."


def _in_bar(pool: str, run: Run) -> float:
    """How much of the step the bar shows of that part, in ms."""
    parts = run.accounting.parts if run.accounting else ()
    return sum(part.ms for part in parts if part.part in PARTS and pool in PARTS[part.part].pools)


def _short(sentence: str) -> str:
    """A long sentence without all but the first entry of the list at its end."""
    head, _, names = sentence.partition(": ")
    is_list = "), " in names and len(sentence) > _LONG and head.count("(") == head.count(")")
    return f"{head}: {names.partition('), ')[0]})." if is_list else sentence


def becomes(action: Action, run: Run) -> str:
    """`176 → 117-140 ms a step (20-34 % shorter).`; empty where nobody knows."""
    if action.records:
        ends = at_stake(action, run)
        per = " of each step" if run.source.steps.marked else ""
        return f"What that shows may save {interval(*ends)}{per}." if ends[1] else ""
    if action.high_ms is None or action.low_ms is None or not action.step_ms:
        return ""
    if action.high_ms <= 0:
        return "Alone this saves nothing: another rank or part of the job takes as long."
    if says_nothing(action.low_ms, action.high_ms, action.step_ms):
        return ""
    ends = (action.step_ms - action.high_ms, action.step_ms - action.low_ms)
    if action.after:
        return f"{until(action.after)}; then {_change(action.step_ms, *ends, run)}."
    low, high = action.shares
    shorter = f"at least {percent(low)}" if is_open(*ends) else percents(low, high)
    return f"{_change(action.step_ms, *ends, run)} ({shorter} shorter)."


def _then(so_far: Sequence[Action], run: Run) -> str:
    """`1 and 2 together: 176 → 97-130 ms a step.`; empty for the first that saves anything known, and for any other."""
    known = [number for number, action in enumerate(so_far, 1) if action.high_ms]
    last = so_far[-1]
    if len(known) < 2 or known[-1] != len(so_far) or last.then_low_ms is None or last.then_high_ms is None:  # noqa: PLR2004
        return ""
    change = _change(so_far[known[0] - 1].step_ms or 0.0, last.then_low_ms, last.then_high_ms, run)
    return f"{listing([str(number) for number in known])} together: {change}."


def sequence(run: Run) -> list[dict[str, float | str]]:
    """The step now and after each listed action and all before it, in words and in ms; empty where nobody knows."""
    listed = [*enumerate(run.worthwhile[:MOST], 1)]
    known = [(number, action) for number, action in listed if action.high_ms and action.then_high_ms is not None]
    now_ms = max((action.step_ms or 0.0 for _, action in known), default=0.0)
    if not now_ms:
        return []
    rows: list[dict[str, float | str]] = [{"step": f"now: {precise_ms(now_ms)}", "low_ms": now_ms, "high_ms": now_ms}]
    for at, (_, action) in enumerate(known, 1):
        low, high = action.then_low_ms or 0.0, action.then_high_ms or 0.0
        numbers = listing([str(number) for number, _ in known[:at]])
        rows.append({"step": f"after {numbers}: {_change(now_ms, low, high, run)}", "low_ms": low, "high_ms": high})
    return rows


def _change(before: float, least: float, most: float, run: Run) -> str:
    """`71 → 35-42 ms a step`; with one end where the other says nothing: nearly no change, or nearly no time left."""
    per = " a step" if run.source.steps.marked else ""
    (was, low, high), unit = same_scale(before, least, most)
    if (before - most) * WIDE <= before - least:
        after, end = low, " at best"
    elif is_open(least, most):
        after, end = f"at most {high}", ""
    else:
        after, end = low if low == high else f"{low}\N{EN DASH}{high}", ""
    return f"{was} → {after} {unit}{per}{end}"
