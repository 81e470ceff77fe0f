"""A document as a comment on a pull request or in a chat: GitHub's and GitLab's Markdown."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from advisor.present import document as doc
from advisor.text import count, ms, one_line, percent, plain, shortened
from advisor.vocabulary.severities import GRADES, Severity

MOST_CHARACTERS: Final = 60_000
"""GitHub refuses a comment of more than 65,536; what calls `render` may want to add a line of its own."""

_MOST_LINES: Final = 40
_MOST_ROWS: Final = 15
_MOST_FINDINGS: Final = 5
_MOST_COLUMNS: Final = 6  # a chat is narrow
_LONGEST: Final = 600  # characters of one text
_LONGEST_CODE: Final = 4000
_SMALL: Final = 0.005  # of the whole: several such parts are one line
_BAR: Final = 30  # characters of a bar of the whole
_VERDICTS: Final[dict[doc.Tone, str]] = {"bad": "🔴 ", "good": "🟢 ", "warning": "🟡 "}
# What either of the two reads as markup; underscores inside words are none.
_MARKUP: Final = re.compile(r"[\\`*\[\]|<>&~$^@#]|(?<![^\W_])_+|_+(?![^\W_])|^[-+=/]|^\d+[.)](?!\S)")
# Where a sign meets the name or number that it would make a mention, an issue, a label, a link or an emoji.
_REFERENCE: Final = re.compile(
    r'(?<=[@#!%~$^&])(?=[\w"{])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\bGH)(?=-\d)|(?<=:)(?=[\w+-]+:)', re.IGNORECASE
)
_APART: Final = "\N{ZERO WIDTH SPACE}"


def render(document: doc.Document, *, links: str | None = None, most: int = MOST_CHARACTERS, folds: bool = True) -> str:
    """The document as Markdown of at most so many characters: the last line says so where details are left out.

    `links` is the folder or URL of the reports of runs; without it nothing is linked. What is behind the leading
    sections is folded, or without `folds` left out.
    """
    blocks = [f"### {escape(document.overview)}"] if document.is_several else []
    for section in document.front:
        blocks += _section(section, links)
    for article in document.articles:
        blocks += _article(article, links, folds=folds)
    return within([*blocks, f"<sub>gpu-advisor {escape(document.version)}</sub>"], most)


def escape(text: str, most: int = _LONGEST) -> str:
    """The text on one line, as itself: it formats nothing, links nowhere, mentions nobody and ends no table's cell.

    Signs become character references, which hold in Markdown and in the HTML between it.
    """
    return _escaped(one_line(text, most))


def _escaped(line: str) -> str:
    apart = _REFERENCE.sub(_APART, line)
    return _MARKUP.sub(lambda signs: "".join(map(_reference, signs[0])), apart).replace(_APART, _reference(_APART))


def _reference(sign: str) -> str:
    return sign if sign.isdigit() else f"&#{ord(sign)};"


def prose(text: str) -> str:
    """Escaped text; its `code` spans as such."""
    spans = code_spans(one_line(text))
    return "".join(f"<code>{_escaped(part)}</code>" if code else _escaped(part) for code, part in spans)


def name(text: str, most: int = 200) -> str:
    """Escaped text as code."""
    return f"<code>{escape(text, most)}</code>"


def within(blocks: Sequence[str], most: int) -> str:
    """The blocks up to `most` characters; each is complete in itself, so that the cut breaks none."""
    cut = "Shortened: the full report is in the JSON or HTML file.\n"
    blocks_within: list[str] = []
    room = most - len(cut)
    for block in blocks:
        room -= len(block) + 2
        if room < 0:
            return "\n\n".join([*blocks_within, cut])
        blocks_within.append(block)
    return "\n\n".join(blocks_within) + "\n"


def code_spans(text: str) -> list[tuple[bool, str]]:
    """The text cut at its `code` spans; each part with whether it is code."""
    return [(number % 2 == 1, part) for number, part in enumerate(re.split(r"`([^`\n]+)`", text)) if part]


def _article(article: doc.Article, links: str | None, *, folds: bool) -> Iterator[str]:
    """The verdict, what leads, and the rest folded; where nothing leads, as much is open as a screen shows."""
    yield f"### {_VERDICTS.get(article.tone, '')}{escape(article.headline)}"
    if article.beside:
        yield prose(article.beside)
    about = " · ".join([f"**{escape(article.name, 100)}**", *(escape(fact, 200) for fact in article.facts)])
    leads = [section for section in article.sections if section.is_lead]
    if not leads:
        yield about
    for section in leads:
        yield from _section(section, links, opens=lambda _: True)
    for section in article.sections if folds or not leads else ():
        if not section.is_lead:
            yield from _section(section, links, opens=(lambda _: False) if leads else _is_on_screen)
    if leads:
        yield f"<sub>{about}</sub>"


def _is_on_screen(level: doc.Level) -> bool:
    return level in {doc.Level.BOTH, doc.Level.SPARE}


def _section(
    section: doc.Section, links: str | None, opens: Callable[[doc.Level], bool] = _is_on_screen
) -> Iterator[str]:
    """What is of a level that `opens` stands under the title, the rest is folded; the screen's own is left out."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    for block in section.blocks if section.level is not doc.Level.SCREEN else ():
        if block.level is not doc.Level.SCREEN:
            level = block.level if section.level is doc.Level.BOTH else section.level
            parts[opens(level)] += _block(block, links)
    if parts[True] and section.is_titled:
        yield f"**{escape(section.title)}**"
    yield from parts[True]
    if parts[False]:
        yield details(escape(section.title), *parts[False])


def _block(block: doc.Block, links: str | None) -> Iterator[str]:
    if draw := _DRAWS.get(type(block)):
        text = draw(block, links)
        yield from ([text] if isinstance(text, str) else text)


def _text(block: doc.Text, _links: str | None) -> str:
    label = f"**{escape(block.label)}** " if block.label else ""
    words = prose(block.text)
    marks = {"plain": "{}", "quiet": "<sub>{}</sub>"}
    return label + marks.get(block.tone, "**{}**").format(words)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _pairs(block: doc.Pairs, _links: str | None) -> Iterator[str]:
    if block.title:
        yield f"**{escape(block.title)}**"
    yield _list(map(_pair, block.pairs[: _MOST_LINES + 10]))


def _pair(pair: doc.Pair) -> str:
    codes = ", ".join(map(name, pair.codes))
    if pair.value:
        limits = f" ({prose(pair.text)})" if pair.text else ""
        meaning = " ".join(
            filter(None, (codes and prose(pair.name), pair.formula and f"= {name(pair.formula, _LONGEST)}"))
        )
        return f"{codes or prose(pair.name)} **{escape(pair.value)}**{limits}{f': {meaning}' if meaning else ''}"
    names = " ".join(filter(None, (pair.name and f"**{escape(pair.name)}**", codes)))
    return f"{names}: {prose(pair.text)}" if names and pair.text else names or prose(pair.text)


def _figures(block: doc.Figures, _links: str | None) -> Iterator[str]:
    if block.says:
        yield _list(map(prose, block.says))
    elif block.group is None:
        parts = (" ".join(filter(None, (f.name, f.value, f.beside))) for f in block.figures)
        yield escape(f"{', '.join(parts)}")


def _bars(block: doc.Bars, _links: str | None) -> Iterator[str]:
    """What stands beside each of several bars; the parts of the last, each with its length in block characters."""
    if not block.bars:
        yield escape(block.none)
    elif block.legend:
        weeks = [f"{bar.name}  {bar.value}, {bar.beside}" for bar in block.bars] if len(block.bars) > 1 else []
        segments = block.bars[-1].segments
        small = [of for of in segments if of.share < _SMALL]
        if len(small) > 1:
            share, small_ms = sum(of.share for of in small), sum(of.ms or 0.0 for of in small)
            others = doc.Segment("", share, small_ms, "rest", percent(share), ms(small_ms) if small_ms else "")
            segments = (*(of for of in segments if of not in small), others)
        yield _fenced("\n".join([*weeks, *map(_part, segments)]))


def _part(segment: doc.Segment) -> str:
    bar = "█" * round(_BAR * min(max(segment.share, 0.0), 1.0))
    return f"{bar:{_BAR}} {segment.value:>6} {segment.time:>7}  {one_line(segment.label, 60)}"


def _fenced(text: str) -> str:
    """A fenced block; the fence is longer than any in the text."""
    text = shortened(plain(text).rstrip(), _LONGEST_CODE)
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"


def _table(block: doc.Table, links: str | None) -> Iterator[str]:
    if not block.rows:
        yield from ([escape(block.none)] if block.none else [])
        return
    most = min(filter(None, (block.few, _MOST_ROWS)))
    # The columns that there is room for: those of the highest rank go first.
    ranked = sorted((head.rank, at) for at, head in enumerate(block.heads) if head.rank)
    out = {at for _, at in ranked[::-1][: max(0, len(block.heads) - _MOST_COLUMNS)]}
    columns = [at for at in range(len(block.heads)) if at not in out]
    rows = [[_cell(row.cells[at], row, links) for at in columns] for row in block.rows[:most]]
    yield table([escape(block.heads[at].text) for at in columns], rows)
    if more := max(0, len(block.rows) - most) + block.left_out:
        yield escape(block.more.format(rows=f"{more:,}"))


def _cell(cell: doc.Cell, row: doc.Row, links: str | None) -> str:
    text = name(cell.text) if cell.is_code else _inside(cell.text)
    if cell.beside:
        text += f" <sub>{_inside(cell.beside)}</sub>"
    if links and cell.run:
        text = f"[{text}](<{links}/{cell.run}.html>)"
    return f"**{text}**" if text and "strong" in {cell.tone, row.tone} else text


def _inside(text: str) -> str:
    """Text inside a line: what acts at the start of one does not act there."""
    return prose(f"a {text}")[2:]


def _actions(block: doc.Actions, _links: str | None) -> Iterator[str]:
    lines = []
    for of in block.actions:
        new = " **new**" if of.is_new else ""
        words = [prose(text) for text in (of.becomes, of.changes, of.says) if text] + [*map(name, of.rules)]
        lines.append(f"**{of.number}** {graded(of.severity)}{new} **{_inside(of.do)}** {' '.join(words)}")
    yield _list(lines)
    if together := block.together():
        yield prose(together)


def _findings(block: doc.Findings, links: str | None) -> Iterator[str]:
    for finding in block.findings[:_MOST_FINDINGS]:
        saved = f", saves {_inside(finding.saving.time)}" if finding.saving else ""
        new = " <b>new</b>" if finding.is_new else ""
        summary = f"{finding.number}. {graded(finding.severity)}{new} {_inside(finding.title)}{saved}"
        yield details(summary, *_finding(finding, links))
    if more := len(block.findings[_MOST_FINDINGS:]):
        yield f"and {count(more, 'more finding')}"


def graded(severity: Severity) -> str:
    """A severity with its sign, on one line however narrow its cell."""
    grade = GRADES[severity]
    return f"{grade.mark}&nbsp;{grade.word}"


def _finding(finding: doc.Finding, links: str | None) -> Iterator[str]:
    yield prose(finding.says)
    if finding.symptoms:
        words = ((of, f": {prose(of.says)}" if of.says else "") for of in finding.symptoms)
        yield _list(f"**{escape(of.title, 200)}** {name(of.rule)}{says}" for of, says in words)
    for fix in (*finding.fixes, *finding.other_fixes):
        label = f"Fix ({escape(fix.framework, 40)})" if fix.framework else "Fix"
        yield f"**{label}** {prose(fix.do)}{f' [Documentation](<{fix.link}>)' if fix.link else ''}"
        if fix.code:
            yield _fenced(fix.code)
    for reason in finding.reasons:
        yield from _block(reason, links)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def details(summary: str, *blocks: str) -> str:
    """A folded part; the empty lines make its inside Markdown again."""
    return "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])


_DRAWS: Final[dict[type, Callable[[Any, str | None], str | Iterable[str]]]] = {
    doc.Text: _text,
    doc.Lines: lambda block, _: _list(map(prose, block.lines)),
    doc.Pairs: _pairs,
    doc.Figures: _figures,
    doc.Code: lambda block, _: _fenced(block.text),
    doc.Bars: _bars,
    doc.Table: _table,
    doc.Fold: lambda of, links: details(
        escape(of.title), *(part for each in of.blocks for part in _block(each, links))
    ),
    doc.Findings: _findings,
    doc.Actions: _actions,
}
