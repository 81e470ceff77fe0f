"""Markdown made fit for a comment: it pings nobody, starts nothing, and is cut where that breaks nothing."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from markdown_it import MarkdownIt

_CUT: Final = "Shortened to what fits here; the full report has the rest."
_APART: Final = "\N{ZERO WIDTH SPACE}"
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")  # a parser's lines, not Python's
_URL: Final = re.compile(r"(https?://[^\s<>]+)")
# What an address leads to: the issue, or the like, would say that it was mentioned here.
_TICKET: Final = re.compile(r"(?<=/)(?=(?:issues|epics|pull|discussions|merge_requests|work_items)/\d)", re.IGNORECASE)
# A mention, issue, merge request, label, milestone, snippet, epic, hidden text; not the inside of `&#64;` or `&amp;`.
_CALLS: Final = re.compile(
    r'(?<=@)(?=\w)|(?<=#)(?<!&#)(?=\w)|(?<=[!%~$])(?=[\w"])|(?<=&)(?=\d)|(?<=\bGH)(?=-\d)|(?<=<!)(?=--)', re.IGNORECASE
)
_QUICK_ACTION: Final = re.compile(r"^([\s>*+-]*)/(?=\w)")  # GitLab does what such a line says
_UNFINISHED: Final = re.compile(r"(&[#\w]*|<[^<>]*)$")
_TAG: Final = re.compile(r"<(/?)details\b", re.IGNORECASE)
_CLOSING: Final = 100  # characters kept free for the ends of what is open at a cut


class _Fence(NamedTuple):
    """A code block: its lines, how it was opened, whether it ends, and whether it stands in a list or quotation."""

    lines: range
    markup: str
    ended: bool
    nested: bool


def defused(markdown: str) -> str:
    """The Markdown with an invisible space in whatever would call people, issues or quick actions; code as it is."""
    lines = _LINE.findall(markdown)
    code = {number for fence in _fences(lines) for number in fence.lines}
    return "".join(line if number in code else "".join(_calm(line)) for number, line in enumerate(lines))


def _calm(line: str) -> Iterator[str]:
    for at, part in enumerate(_URL.split(_QUICK_ACTION.sub(rf"\1{_APART}/", line))):
        yield _TICKET.sub(_APART, part if at % 2 else _CALLS.sub(_APART, part))


def fitted(markdown: str, most: int) -> str:
    """The Markdown within `most` characters, with every code block and folded part closed.

    It is cut between blocks, if that leaves half of the room; else after a line, or at last after a word.
    """
    if len(markdown) <= most and len(closed := _closed(markdown)) <= most:
        return closed
    lines = _LINE.findall(markdown[:most])
    room = most - len(_CUT) - _CLOSING
    ends = [0, *accumulate(map(len, lines))]
    fitting = sum(end <= room for end in ends) - 1
    between = [n + 1 for n, depth in enumerate(_depths(lines)) if n < fitting and not depth and not lines[n].strip()]
    if between and ends[between[-1]] >= room / 2:
        fitting = between[-1]
    text = "".join(lines[:fitting])
    if len(text) < room / 2:  # one line is as long as a book
        text += _UNFINISHED.sub("", lines[fitting][: room - len(text)].rpartition(" ")[0])
    return f"{_closed(text).rstrip()}\n\n{_CUT}\n"


def _closed(markdown: str) -> str:
    """The Markdown with what is open at its end closed; a code block in a list is rather left out."""
    lines = _LINE.findall(markdown)
    for fence in _fences(lines)[-1:]:
        if not fence.ended and fence.nested:
            lines = lines[: fence.lines.start]
        elif not fence.ended:
            lines = [*lines[:-1], lines[-1].rstrip("\n") + "\n", f"{fence.markup}\n"]
    depth = ([0, *_depths(lines)])[-1]
    return "".join(lines) + "\n\n</details>" * depth


def _depths(lines: Sequence[str]) -> Iterator[int]:
    """How many folded parts and code blocks are open after each line."""
    fences = _fences(lines)
    code = {number for fence in fences for number in fence.lines}
    inside = {number for fence in fences for number in fence.lines[:-1]}
    depth = 0
    for number, line in enumerate(lines):
        for end in () if number in code else _TAG.findall(line):
            depth = max(0, depth - 1 if end else depth + 1)
        yield depth + (number in inside)


def _fences(lines: Sequence[str]) -> list[_Fence]:
    """The fenced code blocks, as a parser sees them: what stands in raw HTML is none."""
    fences = []
    for token in MarkdownIt("commonmark").parse("".join(lines)):
        if token.type == "fence" and token.map:
            first, end = token.map
            last = lines[min(end, len(lines)) - 1].strip(" >\n")
            ended = end - first > 1 and last.startswith(token.markup) and not last.strip(token.markup[0])
            fences.append(_Fence(range(first, end), token.markup, ended, nested=token.level > 0))
    return fences
