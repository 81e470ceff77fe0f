"""A report for a terminal: one screen, and with `verbose` everything behind it."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, TypedDict

from advisor.model.report import Evidence, Finding, Fix, Place, Report, Run, Severity
from advisor.render import words
from advisor.render.page import Page, Part
from advisor.text import UNKNOWN, count, listing, one_line, percent, quantity, shortened

# So many findings fit one screen; so many with two lines for what they say; so many with space between them.
_MOST, _TWO_LINES, _SPACED = 5, 4, 3
_UNKNOWNS, _NOTES = 3, 3
_NARROW, _WIDE = 60, 110  # text wider than this is hard to read, narrower leaves no room beside the labels
_MARGIN: Final = 3
_DEEPEST: Final = 30  # columns that a line moves in
_NAME, _SPOTS = 120, 3  # characters of a kernel's name; places of one name

_STYLES: Final[dict[Severity, str]] = {"high": "bold red", "medium": "bold yellow", "low": "bold blue"}
_SHAPES: Final[dict[Severity, str]] = {"high": "▲", "medium": "◆", "low": "●"}
_FILLS: Final = "█▓▒░═─┄·:/"  # one for each category
_FILL_STYLES: Final = (
    "cyan",
    "magenta",
    "yellow",
    "blue",
    "green",
    "red",
    "bright_cyan",
    "bright_magenta",
    "white",
    "bright_black",
)


class _Depth(IntEnum):
    """How much of a finding is drawn: its value is the most lines of what it says."""

    ALL = 0
    SHORTEST = 1
    SHORT = 2


class Screen(TypedDict, total=False):
    """What standard output can show."""

    width: int
    color: bool
    unicode: bool


def this_screen() -> Screen:
    """What standard output can show; NO_COLOR, FORCE_COLOR and COLUMNS are heeded."""
    wanted = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return {
        "width": shutil.get_terminal_size((80, 24)).columns,
        "color": not os.environ.get("NO_COLOR") and (wanted or bool(os.environ.get("FORCE_COLOR"))),
        "unicode": codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf"),
    }


def render(report: Report, *, verbose: bool = False, width: int = 80, color: bool = False, unicode: bool = True) -> str:
    """The report as lines of text.

    Args:
        report: What to draw.
        verbose: Also evidence, reasons, every fix and place, passed rules and left-out steps.
        width: Columns of the terminal.
        color: Whether to use the terminal's colours.
        unicode: Whether more than ASCII can be shown.
    """
    page = Page(max(_NARROW, min(width, _WIDE)), color=color, unicode=unicode)
    if len(report.runs) != 1 or report.unreadable:
        page.add((words.overview(report), "bold"))
        _unreadable(page, report, verbose=verbose)
        page.gap()
    for run in report.runs:
        _run(page, run, verbose=verbose)
    return page.text()


def _unreadable(page: Page, report: Report, *, verbose: bool) -> None:
    for file in report.unreadable if verbose else report.unreadable[:_MOST]:
        page.add(f"not read: {shortened(file.path, 200)}: {file.why}", margin=_MARGIN, most=None if verbose else 2)
    if not verbose and len(report.unreadable) > _MOST:
        page.add(f"and {len(report.unreadable) - _MOST} more", margin=_MARGIN)


def _run(page: Page, run: Run, *, verbose: bool) -> None:
    shown = run.findings if verbose else run.findings[:_MOST]
    depth = _Depth.ALL if verbose else _Depth.SHORT if len(shown) <= _TWO_LINES else _Depth.SHORTEST
    _read(page, run, verbose=verbose)
    page.gap()
    page.add((run.verdict, "bold"), most=None if verbose else 3)
    page.gap()
    _breakdown(page, run)
    _headlines(page, run, verbose=verbose)
    _ranks(page, run, verbose=verbose)
    page.gap()
    for number, finding in enumerate(shown, 1):
        _finding(page, run, finding, number, depth)
        if verbose or len(shown) <= _SPACED:
            page.gap()
    if hidden := len(run.findings) - len(shown):
        page.add(f"and {hidden} more with less to win", margin=_MARGIN)
    if not verbose and len(shown) > _SPACED:
        page.gap()
    if verbose:
        _pipelines(page, run)
    _unknowns(page, run, verbose=verbose)
    if verbose:
        if order := words.ranking(run):
            page.add(order[0].upper() + order[1:])
        _other_rules(page, run)
    page.add((words.tally(run), "dim"))
    if run.findings and not verbose:
        ranked = "Ranked by gain. " if words.ranking(run) else ""
        page.add((f"{ranked}-v shows the evidence, every fix and where to look", "dim"))
    page.gap()


def _ranks(page: Page, run: Run, *, verbose: bool) -> None:
    """Lines on single GPUs, ranks unlike the others, or hosts, and one on what moves between them."""
    lines = words.each_rank(run)
    for line in lines if verbose else lines[:_NOTES]:
        page.add(line, hang=_MARGIN)
    if not verbose and len(lines) > _NOTES:
        page.add(f"and {count(len(lines) - _NOTES, 'more line')} on single ranks (-v)", margin=_MARGIN)
    if links := words.bandwidth(run):
        page.add(links, hang=_MARGIN)


def _read(page: Page, run: Run, *, verbose: bool) -> None:
    """What the numbers rest on: a line, then what was left out or saved from a broken file."""
    page.add((shortened(run.name, 60), "bold"), "  ", " · ".join(words.what_was_read(run.source)), hang=_MARGIN)
    notes = [f"left out: {which}: {why}" for which, why in words.left_out(run.source)]
    notes = [*run.source.notes, *notes, *(f"note: {note}" for note in run.source.salvaged)]
    if verbose:
        notes = [f"read from {run.source.path}", *notes]
        notes += [f"lacks {what}: {why.words}" for what, why in run.source.lacks.items()]
    for note in notes if verbose else notes[:_NOTES]:
        page.add((note, "dim"), margin=_MARGIN, hang=_MARGIN, most=None if verbose else 1)
    if not verbose and len(notes) > _NOTES:
        page.add((f"and {count(len(notes) - _NOTES, 'more note')}", "dim"), margin=_MARGIN)


def _breakdown(page: Page, run: Run) -> None:
    """The step as one bar, and what its parts are."""
    drawn = words.segments(run)
    if not drawn:
        page.add("Where the time goes: ", UNKNOWN)
        return
    kinds = [*words.CATEGORIES, *(s.category for s in drawn if s.category not in words.CATEGORIES)]
    signs = [kinds.index(s.category) for s in drawn]  # one category, one sign, whatever the run
    fills = [(_FILLS[n % len(_FILLS)], _FILL_STYLES[n % len(_FILL_STYLES)]) for n in signs]
    ends = [round(page.width * min(s.start + s.share, 1.0)) for s in drawn]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    page.add(*((fill * length, style) for (fill, style), length in zip(fills, lengths, strict=True)))
    entries = [f"{shortened(one_line(s.label), 40)} {percent(s.share)}" for s in drawn]
    for row in _rows(entries, page.width):
        page.add(*(part for n in row for part in ((fills[n][0], fills[n][1]), f" {entries[n]}   ")))


def _headlines(page: Page, run: Run, *, verbose: bool) -> None:
    """The numbers that people look for first."""
    told = words.headlines(run) if verbose or run.source.framework in words.OF_XLA else []
    if told:
        page.add((" · ".join(f"{what} {value}" for what, value in told), "dim"), most=None if verbose else 2)


def _rows(entries: Sequence[str], width: int) -> Iterator[list[int]]:
    """Numbers of the entries that stand on each line of a legend."""
    row: list[int] = []
    for number, entry in enumerate(entries):
        if row and sum(len(entries[n]) + 5 for n in row) + len(entry) + 2 > width:
            yield row
            row = []
        row.append(number)
    yield row


def _finding(page: Page, run: Run, finding: Finding, number: int, depth: _Depth) -> None:
    full = depth == _Depth.ALL
    label = f"{_SHAPES[finding.severity]} {finding.severity.upper()}"
    new = ("  NEW", "bold red") if finding.new else ""
    page.add(
        f"{number}  ", (label, _STYLES[finding.severity]), new, ("  " + finding.title, "bold"), hang=_MARGIN, most=2
    )
    if worth := _worth(finding, run, verbose=full):
        page.add((worth, "green"), margin=_MARGIN)
    page.add(finding.says, margin=_MARGIN, most=depth)
    for symptom in finding.symptoms:
        page.add(f"└ {symptom.title}: {symptom.says}", margin=_MARGIN, hang=2, most=None if full else 1)
    mine, others = words.fixes(finding, run.source.framework)
    if full:
        _reasons(page, finding)
        for fix in (*mine, *others):
            _fix(page, fix)
    elif mine:
        fits = _Depth.SHORT if len(run.findings) <= _SPACED else _Depth.SHORTEST
        page.add(f"→ {words.first_sentence(mine[0].do)}", margin=_MARGIN, hang=2, most=fits)


def _worth(finding: Finding, run: Run, *, verbose: bool) -> str:
    saving = words.saving(finding, run.source.steps)
    sure = f"{finding.confidence} confidence" if verbose or finding.confidence != "high" else None
    return ", ".join(filter(None, (saving and f"gives back {saving}", sure, words.reach(finding, run))))


def _pipelines(page: Page, run: Run) -> None:
    lines = words.pipeline_lines(run)
    if not lines:
        return
    page.add(("The input pipeline of tf.data, from what a step asks down", "bold"))
    for depth, line in lines:
        margin = min(_MARGIN + 2 * depth, _DEEPEST)
        page.add(f"└ {line}" if depth else line, margin=margin, hang=2)
    page.gap()


def _reasons(page: Page, finding: Finding) -> None:
    page.add(("Why  ", "bold"), finding.why, margin=_MARGIN, hang=5)
    if finding.saving:
        of = words.pool(finding.saving.of)
        page.add(("Saving  ", "bold"), f"out of {of}: {finding.saving.method}", margin=_MARGIN, hang=8)
    for evidence in finding.evidence:
        page.add(("Evidence  ", "bold"), *_evidence(evidence), margin=_MARGIN, hang=10)
    for group in words.alike(finding.where):
        _where(page, group)


def _where(page: Page, places: Sequence[Place]) -> None:
    """Places of one name: the name, the first few spots, and the user's lines of the first."""
    first = places[0]
    inside = f", in {shortened(first.op, _NAME)}" if first.op else ""
    page.add(("Where  ", "bold"), f"{shortened(one_line(first.name), _NAME)}{inside}", margin=_MARGIN, hang=7)
    for place in places[:_SPOTS]:
        page.add(words.spot(place), margin=_MARGIN + 7)
    if len(places) > _SPOTS:
        page.add(f"and {len(places) - _SPOTS} more", margin=_MARGIN + 7)
    if first.stack:
        page.code("\n".join(words.frames(first.stack)), margin=_MARGIN + 7)


def _evidence(evidence: Evidence) -> Iterator[Part]:
    limit = "" if evidence.limit is None else f" (limit {quantity(evidence.limit, evidence.unit)})"
    yield f"{evidence.metric} {quantity(evidence.value, evidence.unit)}{limit}: "
    yield (evidence.meaning, "dim")


def _fix(page: Page, fix: Fix) -> None:
    page.add((f"Fix ({fix.framework})  ", "bold"), fix.do, margin=_MARGIN, hang=5)
    if fix.code:
        page.code(fix.code, margin=_MARGIN + 5)
    if link := words.web_link(fix.link):
        page.code(link, margin=_MARGIN + 5)


def _unknowns(page: Page, run: Run, *, verbose: bool) -> None:
    """What could not be told, and why."""
    if not run.not_evaluable:
        return
    page.add(("Could not tell", "bold"))
    reasons = words.unknowns(run.not_evaluable)
    for why, rules in reasons if verbose else reasons[:_UNKNOWNS]:
        named = rules if verbose or len(rules) <= _UNKNOWNS else [*rules[:2], f"{len(rules) - 2} more"]
        page.add(f"{listing(named)}: {why}", margin=_MARGIN, hang=_MARGIN, most=None if verbose else 2)
    if not verbose and len(reasons) > _UNKNOWNS:
        page.add(f"and for {count(len(reasons) - _UNKNOWNS, 'other reason')}", margin=_MARGIN)


def _other_rules(page: Page, run: Run) -> None:
    for rule in run.suppressed:
        until = f", until {rule.until}" if rule.until else ""
        page.add(f"suppressed: {rule.rule} ({rule.severity}): {rule.reason}{until}", hang=_MARGIN)
    if run.passed:
        page.add(f"found nothing: {', '.join(run.passed)}", hang=_MARGIN)
    if run.not_applicable:
        page.add(f"not applicable here: {', '.join(run.not_applicable)}", hang=_MARGIN)
