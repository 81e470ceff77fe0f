"""One comment per pull request: made once, edited in place, left alone when nothing changed. Knows no host.

Its Markdown pings nobody, starts nothing, and is cut where that breaks nothing.
"""

import base64
import binascii
import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias

from markdown_it import MarkdownIt
from pydantic import Field, ValidationError

from advisor.errors import UsageError
from advisor.model.reason import Frozen
from advisor.pull_request.host import Gone, HostError, Note, Unreachable
from advisor.render.markdown import details, escape
from advisor.text import count, shortened

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
    for number, line in enumerate(lines):
        if number not in code:
            parts = enumerate(_URL.split(_QUICK_ACTION.sub(rf"\1{_APART}/", line)))
            calm = (_TICKET.sub(_APART, part if at % 2 else _CALLS.sub(_APART, part)) for at, part in parts)
            lines[number] = "".join(calm)
    return "".join(lines)


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


if TYPE_CHECKING:
    from advisor.pull_request.client import Repository

Outcome: TypeAlias = Literal["created", "updated", "unchanged"]

_MARKER: Final = re.compile(r"<!-- gpu-advisor ([\w.-]+) ([\w=-]*) -->", re.ASCII)
MOST: Final = 4_000  # characters of a comment: what is read in the review of a change; the link leads to the rest
_MOST_EARLIER: Final = 10
_EARLIER: Final = 3  # verdicts before the last one
_LONGEST_VERDICT: Final = 160
_ATTEMPTS: Final = 3
_MOST_NOTES: Final = 20_000
_SHORT_COMMIT: Final = 8


class Entry(Frozen):
    """A verdict, the commit it was about, and the day it was given."""

    verdict: Annotated[str, Field(max_length=_LONGEST_VERDICT)]
    commit: Annotated[str, Field(max_length=64)] | None
    day: dt.date


class _State(Frozen):
    """What a comment remembers, hidden in its first line."""

    fingerprint: str
    now: Entry
    earlier: Annotated[tuple[Entry, ...], Field(max_length=_MOST_EARLIER)] = ()


@dataclass(frozen=True)
class Draft:
    """What is to be said."""

    verdict: str
    markdown: Callable[[int], str]  # draws the report within so many characters
    commit: str | None = None
    link: str | None = None
    key: str = "default"  # tells several comments on one pull request apart

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]{1,60}", self.key, re.ASCII):
            raise UsageError(f"--key {self.key!r}: use up to 60 letters, digits, dots, dashes and underscores")

    def fingerprint(self, most: int) -> str:
        """The same for the same text about the same commit, whatever run made it."""
        text = f"{self.commit}\n{self.key}\n{self.markdown(most)}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]

    def body(self, most: int, today: dt.date, before: str | None = None) -> str:
        """The comment within `most` characters: marker, report, link, earlier verdicts, out of its text `before`."""
        now = Entry(verdict=shortened(self.verdict, _LONGEST_VERDICT), commit=self.commit, day=today)
        earlier = tuple[Entry, ...]()  # newest first; a second verdict on one commit replaces the first
        if state := _state(before, self.key):
            is_same = self.commit is not None and state.now.commit == self.commit
            earlier = (*(() if is_same else (state.now,)), *state.earlier)[:_EARLIER]
        state = _State(fingerprint=self.fingerprint(most), now=now, earlier=earlier)
        head = f"<!-- gpu-advisor {self.key} {base64.urlsafe_b64encode(state.model_dump_json().encode()).decode()} -->"
        commit = f"Commit <code>{escape(self.commit[:_SHORT_COMMIT])}</code>" if self.commit else ""
        if self.link and not re.fullmatch(r"https?://[^\s<>\\\ud800-\udfff]{1,1000}", self.link):
            raise UsageError(f"--link {self.link!r}: no web address")
        link = f"[Full report](<{self.link}>)" if self.link else ""
        foot = "\n\n".join(filter(None, (" · ".join(filter(None, (commit, link))), _history(earlier))))
        room = most - len(head) - len(foot) - len("\n\n\n\n")
        text = fitted(defused(self.markdown(room)[: room + 1]), room)  # one more character tells that it was longer
        return f"{head}\n{text.rstrip()}\n\n{foot}".rstrip() + "\n"


def post(thread: "Repository", draft: Draft, today: dt.date) -> tuple[Outcome, Note]:
    """Say it in the one comment that is ours.

    Ours has the marker and the token's own author. Two jobs that both find none both make one: each then looks again,
    the oldest stays and takes what the younger said.
    """
    me, note, most = thread.me(), None, min(thread.most, MOST)
    for _ in range(_ATTEMPTS):
        notes = _ours(thread, me, draft.key)
        if not notes:
            note = thread.create(draft.body(most, today))
            notes = _ours(thread, me, draft.key) or [note]
        first, *rest = notes
        state = _state(first.body, draft.key)
        says_so = state is not None and state.fingerprint == draft.fingerprint(most)
        try:
            for extra in rest:
                with suppress(Gone):  # the job that made it was quicker
                    thread.delete(extra)
            if not says_so:
                thread.edit(first, draft.body(most, today, first.body))
        except Gone:
            continue
        return ("created" if note and note.id == first.id else "unchanged" if says_so else "updated"), first
    raise Unreachable("the comment was deleted each time it was about to be edited; run this again")


def _ours(thread: "Repository", me: str, key: str) -> list[Note]:
    ours = []
    for number, note in enumerate(thread.notes()):
        if number >= _MOST_NOTES:
            raise HostError(f"the pull request has more than {_MOST_NOTES:,} comments; post to another one")
        if note.author == me and _hidden(note.body, key) is not None:
            ours.append(note)
    return sorted(ours, key=lambda note: note.id)


def _hidden(body: str, key: str) -> str | None:
    """What stands in the marker of a comment under this key; None where it has no such marker."""
    marker = _MARKER.match(body)
    return marker[2] if marker and marker[1] == key else None


def _state(body: str | None, key: str) -> _State | None:
    """What a comment remembers; None where it is another's, or was written by hand."""
    if (hidden := _hidden(body or "", key)) is None:
        return None
    try:
        return _State.model_validate_json(base64.urlsafe_b64decode(hidden))
    except (binascii.Error, ValidationError):
        return None


def _history(earlier: Sequence[Entry]) -> str:
    if not earlier:
        return ""
    lines = (
        f"- {entry.day.isoformat()}"
        + (f" · <code>{escape(entry.commit[:_SHORT_COMMIT])}</code>" if entry.commit else "")
        + f" · {escape(entry.verdict)}"
        for entry in earlier
    )
    return details(f"Earlier verdicts ({count(len(earlier), 'commit')})", "\n".join(lines))
