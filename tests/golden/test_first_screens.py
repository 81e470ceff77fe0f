"""What a first screen says of one thing agrees: no share is said in two ways, no saving is two numbers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from advisor.model.report import Report, Run
from advisor.present import document_of
from advisor.present.actions import becomes
from advisor.present.next_recording import trust
from advisor.present.verdict import beside, headline
from advisor.render import terminal
from advisor.text import DASH, percent
from tests.golden.test_figures import RECORDINGS, checked

ROUNDING = 0.0105  # of the step
ARROW = "\N{RIGHTWARDS ARROW}"
SHARE = r"(?:[<>]?\d[\d.]* %)"
OF_WHOLE = rf"({SHARE}) of (?:each step|the [\d.]+ \ws? used)"


def screen_of(report: Report) -> str:
    """The first screen in one line."""
    return " ".join(terminal.render(document_of(report)).split())


def other_shares(run: Run) -> Iterator[str]:
    """Shares of the step in the headline and beside it that neither the bar nor the first finding has."""
    known = run.accounting
    if known is None:
        return
    bar = {percent(part.share) for part in known.parts} | {percent(known.busy_share), percent(1 - known.busy_share)}
    bar |= {*re.findall(SHARE, run.findings[0].says)} if run.findings else set()
    for text in (headline(run), *beside(run)):
        yield from (
            f"{share} of each step is not in the bar" for share in re.findall(OF_WHOLE, text) if share not in bar
        )


def ranges_without_reason(run: Run) -> Iterator[str]:
    """Savings that may be less than half of what they may be, and say nowhere why or hide how little."""
    for action in run.listed:
        words = becomes(action, run)
        is_wide = action.high_ms and action.low_ms * 2 < action.high_ms and " shorter" in words
        behind = [of.saving.method for of in run.findings if of.key in action.findings and of.saving]
        reason = "; (?:wide|perhaps nothing,) because |[Ll]ow end: [^.]*, because"
        if (is_wide and not re.search(reason, " ".join([words, *behind]))) or "up to" in words:
            yield f"{action.findings}: {action.low_ms} to {action.high_ms} ms: {words}"


def promises(run: Run) -> Iterator[str]:
    """Savings of what only records again, and of a headline that does not say that they may be none."""
    yield from (
        f"{a.findings} saves"
        for a in run.listed
        if a.records and not re.match(r"Saving: (unknown until|at most .*; the new recording)|$", becomes(a, run))
    )
    if re.search(r"saves? up to (?!.*, or (?:only|nothing))|may be saved", headline(run)):
        yield headline(run)


def wrong_sums(screen: str, run: Run) -> Iterator[str]:
    """A step before and after an action, and a saving in the headline, that are not the difference as printed."""
    number, fix = r"([\d.]+)", r"(?:this|Action 1) (?:may save up to|saves)"
    saved = re.search(
        rf"{fix} {number}(?:{DASH}{number})? m?s of (?:each|the|the mean step of) {number}", headline(run)
    )
    for before, *after in re.findall(rf"{number} {ARROW} {number}(?:{DASH}{number})? m?s", screen)[:1]:
        known = {f"{float(before) - float(ms):.{len(before.partition('.')[2])}f}" for ms in after if ms}
        if saved and run.listed[0].high_ms and (saved[3] != before or not {saved[1], saved[2] or saved[1]} <= known):
            yield f"{saved[0]}: {before} to {after}"


def shares_of_two_steps(screen: str) -> Iterator[str]:
    """A sentence that all numbers below are of another step than the bar's, which those of savings never are."""
    yield from re.findall(r"The bar is of [^.]*\.", screen)


def trust_without_reason(run: Run) -> Iterator[str]:
    """A low trust that rests on what a high one rests on, and a count of what nobody can record."""
    words, _ = trust(run)
    if run.trust != "high" and re.match(r"\w+\. (?:No steps marked|[\d,]+(?: of [\d,]+)? steps?,)", words):
        yield words
    if "Not judged" in words:
        yield words


def commands_twice(screen: str) -> Iterator[str]:
    """Two actions that are one command."""
    listed = re.findall(r"(?:advisor record|nsys profile) [^`]*?COMMAND(?! Next)", screen)
    yield from {command for command in listed if listed.count(command) > 1}


def savings_below_none(run: Run) -> Iterator[str]:
    """Actions that record again for no known saving, above one that saves; the first may be what is wrong."""
    ranks = [bool(a.records and not a.expected_share) for a in run.actions if a.records or a.high_ms][1:]
    if ranks != sorted(ranks):
        yield str([action.findings for action in run.actions])


def busy_with_the_unknown(screen: str, run: Run) -> Iterator[str]:
    """A sum of busy time where a finding says that the recording lacks what looks busy."""
    lacking = {part.part for part in run.accounting.parts if part.is_useful} if run.accounting else set()
    if any(of.loss in lacking for of in run.findings) and re.search(r"Busy [<>\d]", screen):
        yield "busy"


def impossible_sequences(run: Run) -> Iterator[str]:
    """Steps after several actions that are nothing, shorter at worst than at best, or longer than after fewer."""
    then_ms = (run.length_ms or math.inf, run.length_ms or math.inf)
    for action in run.actions:
        if action.then_low_ms is None or action.then_high_ms is None:
            continue
        if not (0 < action.then_low_ms <= action.then_high_ms) or action.then_low_ms > then_ms[0]:
            yield f"{action.findings}: {action.then_low_ms} to {action.then_high_ms} ms after {then_ms}"
        then_ms = (action.then_low_ms, action.then_high_ms)


def two_ways_to_record(screen: str) -> Iterator[str]:
    """Commands or calls that record again, where they are not one."""
    ways = re.findall(
        r"advisor record [^`]*?COMMAND|nsys profile [^`]*?COMMAND|torch\.profiler\.schedule\(|`nsys profile [^`]*`",
        screen,
    )
    if len(set(ways)) > 1:
        yield f"two ways to record: {ways}"


def unrelated_starts(screen: str, run: Run) -> Iterator[str]:
    """Start-up in the bar and beside it, without a word on how the two relate."""
    in_bar = (
        any(part.part == "start_up" and part.share >= ROUNDING for part in run.accounting.parts)
        if run.accounting
        else False
    )
    outside = re.search(r"left out: [^.]*start-up|recorded \([^)]*\) are start-up", screen)
    if in_bar and outside and not re.search(r"start-up (?:in the bar|too|amid other work)", screen):
        yield "two start-ups"


def two_culprits(screen: str) -> Iterator[str]:
    """A rank that works longest, and another that the others wait for, as if both were the one."""
    ranks = (
        re.search(r"numbers of (rank \d+), which works longest", screen),
        re.search(r"wait longest for (rank \d+)", screen),
    )
    if all(ranks) and ranks[0][1] != ranks[1][1]:
        yield f"{ranks[0][1]} and {ranks[1][1]}"


def hidden_savings(screen: str, run: Run) -> Iterator[str]:
    """A saving of a listed action that is not told; what it adds up from, and why it is wide, may stand behind it."""
    for action in (each for each in run.listed if each.high_ms):
        if re.split("; (?:wide|perhaps|at most|the last)", becomes(action, run))[0] not in screen:
            yield f"{action.findings}: {action.high_ms} ms"


def said_twice(screen: str) -> Iterator[str]:
    """Seven words in a row that stand twice, in whatever sentences."""
    words = re.findall(r"[\w%.-]+", re.sub(r"`[^`]*`|\([^)]*\)|--\S+.*?COMMAND|This changes results", "", screen))
    runs = Counter(" ".join(words[at : at + 7]) for at in range(len(words) - 6))
    yield from (run for run, times in runs.items() if times > 1)


def jargon(screen: str) -> Iterator[str]:
    """Words that no glossary explains to a beginner, or of how a saving is computed."""
    yield from re.findall(
        r"is measured, |may add|At best it|peak FLOPs|no device|\((?:medium|low) confidence\)", screen
    )


def complaints(report: Report) -> Iterator[str]:
    screen = screen_of(report)
    for run in report.runs[:1]:
        yield from (f"share: {of}" for of in other_shares(run))
        yield from (f"start-up: {of}" for of in unrelated_starts(screen, run))
        yield from (f"sequence: {of}" for of in impossible_sequences(run))
        for of_run in (ranges_without_reason, promises, trust_without_reason, savings_below_none):
            yield from (f"{of_run.__name__}: {of}" for of in of_run(run))
        for of_both in (wrong_sums, busy_with_the_unknown, hidden_savings):
            yield from (f"{of_both.__name__}: {of}" for of in of_both(screen, run))
    for kind in (commands_twice, two_ways_to_record, said_twice, shares_of_two_steps, two_culprits, jargon):
        yield from (f"{kind.__name__}: {of}" for of in kind(screen))


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_first_screen_says_one_thing_in_one_way(recording):
    assert list(complaints(checked(recording))) == []
