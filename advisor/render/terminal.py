"""A document for a terminal: one screen, and with `verbose` everything behind it."""

import codecs
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypedDict

from advisor.present import document as doc
from advisor.render.page import Page, Part, Room
from advisor.text import DASH, percent, sentences_of
from advisor.vocabulary import parts
from advisor.vocabulary.severities import GRADES

_NARROW, _WIDE = 60, 110  # text wider than this is hard to read, narrower leaves no room beside the labels
_MARGIN: Final = 3
_SCREEN_LINES: Final = 25
_WITH_CODE: Final = -2  # the place, before all else, of what to do as far as its first code
_IN_FULL: Final = -1  # the place, before its sentences, of all of what to do
_TOGETHER: Final = 2.5  # the number, between those of actions, of what they save together
_MOST_EVIDENCE: Final = 3  # sentences for an action: who acts needs no more
_VISIBLE: Final = 0.01  # of a bar: a glyph nearly
_LEAST: Final = 0.0005  # what is written as 0.1 %
_COMMAND: Final = re.compile(r": `[^`]*COMMAND`")
_RECORDS: Final = re.compile(r"`(?:advisor record|nsys profile) [^`]*COMMAND`")
_HOW: Final = re.compile(r"(?:[:;,](?= )| \(|\.$|\. )(?=(?:[^`]*`[^`]*`)*[^`]*$)")  # outside of code
_BEFORE: Final = re.compile(r"\S+:\d|(?:For|If|When|Where|With)\b")  # a line, or a condition: what to do comes behind
_COMPARES: Final = re.compile(r": `advisor compare[^`]*`[^.]*")  # what shows a saving that the recording does not
_SHOWS: Final = "; the new recording shows how much"
_WHY: Final = re.compile(r"; [^()]*\)")  # behind a range: why it is wide
_BRIEF: Final = 90  # characters of what to do
_GAP: Final = 2  # columns between those of a table
_NARROWEST: Final = 22  # columns of text that wraps

_TONES: Final[dict[doc.Tone, str]] = {
    "plain": "",
    "strong": "bold",
    "quiet": "dim",
    "good": "bold green",
    "warning": "bold yellow",
    "bad": "bold red",
}


class Screen(TypedDict, total=False):
    """What standard output can show."""

    width: int
    color: bool
    unicode: bool


def this_screen() -> Screen:
    """What standard output can show; NO_COLOR, FORCE_COLOR and COLUMNS are heeded."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return {
        "width": shutil.get_terminal_size((80, 24)).columns,
        "color": not os.environ.get("NO_COLOR") and (is_terminal or bool(os.environ.get("FORCE_COLOR"))),
        "unicode": codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf"),
    }


def render(
    document: doc.Document, *, verbose: bool = False, width: int = 80, color: bool = False, unicode: bool = True
) -> str:
    """The document as lines of text of that width; with `verbose` also what is behind the one screen."""
    draw = partial(_page_of, document, max(_NARROW, min(width, _WIDE)), color=color, unicode=unicode)
    if verbose:
        return draw(Room()).text()

    def fits(room: Room) -> bool:
        return draw(room).height <= _SCREEN_LINES

    room = Room(is_verbose=False, is_tight=True, is_full=True)
    sections = (section for of in document.articles if document.first in {"", of.id} for section in of.sections)
    listed = (block.actions for section in sections for block in section.blocks if isinstance(block, doc.Actions))
    lengths = {of.number: (max(1, len(sentences_of(of.says))), len(_sentences(of))) for of in chain(*listed)}
    every = sorted(
        ((of, at) for of in lengths for at in range(_WITH_CODE, lengths[of][1] + 1)), key=lambda e: (sum(e), e)
    )
    for is_evidence in (True, False):  # that of all actions, then what else there is room for
        for number, at in (each for each in every if (each[1] < lengths[each[0]][0]) == is_evidence):
            is_apart = at in {_WITH_CODE, _IN_FULL, lengths[number][1]}
            follows = is_apart or (number, at - 1) in room.sentences  # it may rest on that
            fuller = room._replace(sentences=room.sentences | {(number, at)})
            room = fuller if follows and fits(fuller) else room
        looser = (room._replace(is_tight=is_tight, is_full=False) for is_tight in (False, True))
        room = next(filter(fits, looser), room)
    return draw(room).text()


def _page_of(document: doc.Document, width: int, room: Room, *, color: bool, unicode: bool) -> Page:
    page = Page(width, room, color=color, unicode=unicode)
    if document.is_several:
        page.add((document.overview, "bold"))
    for section in document.front:
        _section(page, section)
    for article in document.articles:
        if page.verbose or document.first in {"", article.id}:
            _article(page, article)
    return page


def _sentences(action: doc.Action) -> list[str]:
    """What stands there if there is room, the most important first: how to do it where no saving needs evidence."""
    says = sentences_of(action.says)
    foremost = [*says, *action.rest] if action.most else [*action.rest, *says]
    return [*foremost, *action.more[: max(_MOST_EVIDENCE - len(says), 0)]]


def _article(page: Page, article: doc.Article) -> None:
    page.add((article.headline, _TONES[article.tone]))
    if article.beside:
        page.add(article.beside)
    page.add((article.name, "bold"), *(f" · {fact}" for fact in article.facts), margin=_MARGIN)
    for section in article.sections:
        _section(page, section)
    page.gap()


def _section(page: Page, section: doc.Section) -> None:
    room = {"verbose": page.verbose, "has_room": not page.room.is_full}
    blocks = [b for b in section.blocks if doc.on_screen(b.level, **room) and type(b) in _DRAWS]
    if not blocks or not doc.on_screen(section.level, verbose=page.verbose):
        return
    if section.is_titled or section.level is doc.Level.BEHIND:
        page.gap()
        page.add((section.title, "bold"))
    elif not all(block.level is doc.Level.SCREEN for block in blocks):
        page.gap()
    for before, block in zip([None, *blocks], blocks, strict=False):
        if not (isinstance(before, doc.Bars) and isinstance(block, doc.Text) and page.joined(block.text)):
            _block(page, block)


def _block(page: Page, block: doc.Block, margin: int = 0) -> None:
    _DRAWS[type(block)](page, block, margin)


def _text(page: Page, block: doc.Text, margin: int) -> None:
    label = block.label and f"{block.label}{' ' if block.label.endswith(':') else '  '}"
    page.add((label, "bold"), (block.text, _TONES[block.tone]), margin=margin, hang=5 if margin else 0)


def _lines(page: Page, block: doc.Lines, margin: int) -> None:
    for line in block.lines:
        page.add((line, _TONES[block.tone]), margin=margin + _MARGIN, hang=_MARGIN)


def _pairs(page: Page, block: doc.Pairs, margin: int) -> None:
    if block.title:
        page.add((block.title, "bold"), margin=margin)
    for pair in block.pairs:
        page.add(*_pair(pair), margin=margin + _MARGIN, hang=_MARGIN)


def _pair(pair: doc.Pair) -> Iterator[Part]:
    """`codes name: text`, or of a number `codes 33 % (text): name`; what is empty is left out."""
    codes = ", ".join(pair.codes)
    if pair.value:
        yield (codes or pair.name, "cyan")
        yield (f" {pair.value}", "bold")
        yield f" ({pair.text})" if pair.text else ""
        yield f": {pair.name}" if codes else ""
        return
    names = " ".join(filter(None, (pair.name, codes)))
    yield (names, "cyan" if pair.codes else "bold")
    yield f": {pair.text}" if names and pair.text else pair.text


def _figures(page: Page, block: doc.Figures, margin: int) -> None:
    for sentence in block.says:
        page.add(sentence, margin=margin + _MARGIN, hang=_MARGIN)
    if not block.says and block.group is None:
        parts = (" ".join(filter(None, (figure.name, figure.value, figure.beside))) for figure in block.figures)
        page.add((" · ".join(parts), "dim"), margin=margin)


def _bars(page: Page, block: doc.Bars, _margin: int) -> None:
    if not block.bars:
        page.add(block.none)
        return
    if len(block.bars) == 1 and all(segment.ms is None for segment in block.bars[0].segments) and block.legend:
        page.add(block.bars[0].name)
    label = 2 + max(len(bar.name) for bar in block.bars) if len(block.bars) > 1 else 0
    for bar in block.bars:
        beside = "  ".join(filter(None, (bar.value, bar.beside)))
        room = page.width - label - (len(beside) + 2 if beside else 0)
        page.add((f"{bar.name:{label}}" if label else "", "bold"), *_bar(bar, room), f"  {beside}" if beside else "")
    if block.legend:
        _legend(page, block.bars[-1].segments)


def _bar(bar: doc.Bar, width: int) -> Iterator[Part]:
    """The segments as glyphs, then blank those that the legend sums up as others."""
    start, share = 0, 0.0
    for segment in sorted(bar.segments, key=lambda of: of.share < _VISIBLE):
        share += segment.share
        end = max(start, round(width * min(share, 1.0)))
        glyph, style = look(segment.part) if segment.share >= _VISIBLE else (" ", "")
        yield (glyph * (end - start), style)
        start = end


def look(part: str) -> tuple[str, str]:
    """The glyph and the style of a part of the step."""
    form = parts.look(part)
    return form.glyph, form.colour.style


def _legend(page: Page, segments: Sequence[doc.Segment]) -> None:
    """The segments that are long enough to be seen, and the rest as one."""
    visible = [segment for segment in segments if segment.share >= _VISIBLE or len(segments) == 1]
    rest = sum(segment.share for segment in segments) - sum(segment.share for segment in visible)
    entries = [f"{segment.label} {segment.value}" for segment in visible]
    rows = [*_rows(entries, page.width)]
    for row in rows:
        parts = [((glyph, style), f" {entries[n]}   ") for n in row for glyph, style in [look(visible[n].part)]]
        others = [f"rest {percent(rest)}"] if row is rows[-1] and rest >= _LEAST else []
        page.add(*(part for pair in parts for part in pair), *others)


def _rows(entries: Sequence[str], width: int) -> Iterator[list[int]]:
    row: list[int] = []
    for number, entry in enumerate(entries):
        if row and sum(len(entries[n]) + 5 for n in row) + len(entry) + 2 > width:
            yield row
            row = []
        row.append(number)
    yield row


def _table(page: Page, block: doc.Table, margin: int) -> None:
    """Columns as wide as their cells, where there is no room some left out and text wrapped; else rows as lines."""
    rows = block.rows if page.verbose or not block.few else block.rows[: block.few]
    if not rows:
        page.add(block.none, margin=margin)
        return
    columns = zip(block.heads, zip(*(row.cells for row in rows), strict=True), strict=True)
    widths = [max(len(head.text), *(len(cell.text) for cell in cells)) for head, cells in columns]
    if chosen := _columns(block.heads, widths, page.width - margin - _MARGIN):
        page.table(
            [(block.heads[at].text, block.heads[at].is_number) for at in chosen],
            ([[*_sign(row, at), *_cell(row, row.cells[at])] for at in chosen] for row in rows),
            margin=margin + _MARGIN,
        )
    else:
        for row in rows:
            _row_in_lines(page, block, row, margin + _MARGIN)
    if more := len(block.rows) - len(rows) + block.left_out:
        page.add(block.more.format(rows=f"{more:,}"), margin=margin + _MARGIN)


def _columns(heads: Sequence[doc.Head], widths: Sequence[int], room: int) -> list[int]:
    """The columns that there is room for if text wraps: those of the highest rank go first, the others never."""
    least = [width if head.is_number else min(width, _NARROWEST) for head, width in zip(heads, widths, strict=True)]
    chosen = list(range(len(heads)))
    while sum(least[at] for at in chosen) + _GAP * len(chosen) > room:
        if not heads[last := max(chosen, key=lambda at: heads[at].rank)].rank:
            return []
        chosen.remove(last)
    return chosen


def _row_in_lines(page: Page, block: doc.Table, row: doc.Row, margin: int) -> None:
    """The first cell, and below it the others behind their heads, but for those that say nothing."""
    page.add(*_sign(row, 0), (row.cells[0].text, _TONES[row.tone] or "cyan"), margin=margin, hang=_MARGIN)
    others = []
    for head, cell in zip(block.heads, row.cells, strict=True):
        name, _, unit = head.text.partition(", ")
        text = cell.text.removesuffix(".").removesuffix(unit).strip()
        if cell.text not in {"", "0", DASH}:  # the unit follows the number: `saves 0.26 GPU-h`
            others.append(f"{name.lower()} {text} {unit}".strip())
    page.add(", ".join(others[1:]), margin=margin + _MARGIN, hang=_MARGIN)


def _sign(row: doc.Row, column: int) -> list[Part]:
    return [look(row.part), " "] if row.part and not column else []


def _cell(row: doc.Row, cell: doc.Cell) -> list[Part]:
    return [(cell.text, _TONES[row.tone]), (f"  {cell.beside}" if cell.beside else "", "dim")]


def _fold(page: Page, block: doc.Fold, margin: int) -> None:
    page.add((block.title, "bold"), margin=margin + _MARGIN)
    for inner in block.blocks:
        if not isinstance(inner, doc.Text):  # the names of many rules: their number is enough
            _block(page, inner, margin + _MARGIN)


def _findings(page: Page, block: doc.Findings, _margin: int) -> None:
    for finding in block.findings:
        page.gap()
        _finding(page, finding)


def _finding(page: Page, finding: doc.Finding) -> None:
    grade = GRADES[finding.severity]
    new = ("  NEW", "bold red") if finding.is_new else ""
    rule = (f"  [{finding.rule}]", "cyan")
    severity = (f"{grade.mark} {grade.word.upper()}", grade.style)
    page.add(f"{finding.number}  ", severity, new, (f"  {finding.title}", "bold"), rule, hang=_MARGIN)
    rest = f"({', '.join(finding.beside)})" if finding.beside else ""
    if worth := "  ".join(filter(None, (finding.saving.sentence if finding.saving else "", rest))):
        page.add((worth, "green"), margin=_MARGIN)
    page.add(finding.says, margin=_MARGIN)
    for symptom in finding.symptoms:
        says = f": {symptom.says}" if symptom.says else ""
        page.add(f"└ {symptom.title}{says}", (f"  [{symptom.rule}]", "cyan"), margin=_MARGIN, hang=2)
    for reason in finding.reasons:
        _block(page, reason, _MARGIN)
    for fix in (*finding.fixes, *finding.other_fixes):
        label = f"Fix ({fix.framework})  " if fix.framework else "Fix  "
        page.add((label, "bold"), fix.do, margin=_MARGIN, hang=5)
        for code in filter(None, (fix.code, fix.link)):
            page.code(code, margin=_MARGIN + 5)


def _actions(page: Page, block: doc.Actions, _margin: int) -> None:
    """What to do, what that changes, why, and the code of the fix: of each what there is room for."""
    page.gap()
    chosen = page.room.sentences
    for action in block.actions:
        new, do = ("NEW ", "bold red") if action.is_new else "", action.do.removesuffix(".")
        worth, rules = f"{action.becomes} {action.changes}".strip(), (f"[{', '.join(action.rules)}]", "cyan")
        every = enumerate(_sentences(action))
        texts = [sentence for at, sentence in every if page.verbose or (action.number, at) in chosen]
        rest = "".join(f" {sentence}" for sentence in texts if sentence in action.rest)
        why = " ".join(sentence for sentence in texts if sentence not in action.rest)
        is_full = page.verbose or (action.number, _IN_FULL) in chosen
        if is_full or _RECORDS.search(do):
            page.add(f"{action.number}  ", new, (action.do, "bold"), rest, hang=_MARGIN)
            worth = worth if is_full or action.number == 1 else worth.replace(_SHOWS, "")
            if worth or action.rules:
                page.add(
                    (f"{worth} " if worth else "", "green"), rules if action.rules and is_full else "", margin=_MARGIN
                )
        else:
            has_room = (action.number, _WITH_CODE) in chosen
            most, worth = (_BRIEF, worth) if has_room else (0, _COMPARES.sub("", action.becomes))
            do = f"{_in_brief(_COMMAND.sub('', do), most)}. "
            page.add(f"{action.number}  ", new, (do, "bold"), (_WHY.sub(")", worth), "green"), hang=_MARGIN)
        if why:
            page.add(why, margin=_MARGIN)
        fits = all(2 * _MARGIN + len(line) <= page.width for line in action.code.split("\n"))
        if (action.number, len(_sentences(action))) in chosen and action.code and fits:
            page.code(action.code, margin=2 * _MARGIN)
    if (page.verbose or (_TOGETHER, 0) in chosen) and (together := block.together()):
        page.add((together, "green"), margin=_MARGIN)
    page.gap()


def _in_brief(do: str, most: int) -> str:
    """To its first code, of so many characters at most, else its first clause; both behind a line or a condition."""
    ends = [*(clause.start() for clause in _HOW.finditer(do)), len(do)]
    start = ends.pop(0) if _BEFORE.match(do) and ends[1:] else 0
    clauses = (do[:end] for end in ends if end <= most and "`" in do[start:end])
    return next((to for to in clauses if to.count("(") == to.count(")")), do[: ends[0]])


_DRAWS: Final[dict[type, Callable[[Page, Any, int], None]]] = {
    doc.Text: _text,
    doc.Lines: _lines,
    doc.Pairs: _pairs,
    doc.Figures: _figures,
    doc.Code: lambda page, block, margin: page.code(block.text, margin=margin + 2 * _MARGIN),
    doc.Bars: _bars,
    doc.Table: _table,
    doc.Fold: _fold,
    doc.Findings: _findings,
    doc.Actions: _actions,
}
