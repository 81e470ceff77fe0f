"""One comment per pull request: made once, edited in place, left alone when nothing changed. Knows no host."""

import base64
import binascii
import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from advisor.errors import UsageError
from advisor.model.frozen import Frozen
from advisor.pull_request.host import Gone, HostError, Note, Unreachable
from advisor.pull_request.markdown import defused, fitted
from advisor.render.markdown import details, escape
from advisor.text import count, shortened

if TYPE_CHECKING:
    from advisor.pull_request.client import Repository

Outcome: TypeAlias = Literal["created", "updated", "unchanged"]

_MARKER: Final = re.compile(r"<!-- gpu-advisor ([\w.-]+) ([\w=-]*) -->", re.ASCII)
_KEY: Final = re.compile(r"[\w.-]{1,60}", re.ASCII)
MOST: Final = 4_000
"""Characters of a comment: what is read in the review of a change; the link leads to the rest."""

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
    """What is to be said.

    `markdown` draws the report within so many characters. `key` tells several comments on one pull request apart.
    """

    verdict: str
    markdown: Callable[[int], str]
    commit: str | None = None
    link: str | None = None
    key: str = "default"

    def __post_init__(self) -> None:
        """Keep keys to what can stand in the marker."""
        if not _KEY.fullmatch(self.key):
            raise UsageError(f"--key {self.key!r}: use up to 60 letters, digits, dots, dashes and underscores")

    def fingerprint(self, most: int) -> str:
        """The same for the same text about the same commit, whatever run made it."""
        text = f"{self.commit}\n{self.key}\n{self.markdown(most)}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]

    def body(self, most: int, today: dt.date, before: str | None = None) -> str:
        """The comment within `most` characters: marker, report, link, earlier verdicts, out of its text `before`."""
        now = Entry(verdict=shortened(self.verdict, _LONGEST_VERDICT), commit=self.commit, day=today)
        earlier = _earlier(_state(before, self.key), now)
        state = _State(fingerprint=self.fingerprint(most), now=now, earlier=earlier)
        head = f"<!-- gpu-advisor {self.key} {base64.urlsafe_b64encode(state.model_dump_json().encode()).decode()} -->"
        foot = "\n\n".join(filter(None, (self._about(), _history(earlier))))
        room = most - len(head) - len(foot) - len("\n\n\n\n")
        text = fitted(defused(self.markdown(room)[: room + 1]), room)  # one more character tells that it was longer
        return f"{head}\n{text.rstrip()}\n\n{foot}".rstrip() + "\n"

    def _about(self) -> str:
        """The line that says what commit this is about and where the whole report is."""
        commit = f"Commit <code>{escape(self.commit[:_SHORT_COMMIT])}</code>" if self.commit else ""
        link = f"[Full report](<{_url(self.link)}>)" if self.link else ""
        return " · ".join(filter(None, (commit, link)))


def post(thread: "Repository", draft: Draft, today: dt.date) -> tuple[Outcome, Note]:
    """Say it in the one comment that is ours.

    Ours has the marker and the token's own author. Two jobs that both find none both make one: each then looks again,
    the oldest stays and takes what the younger said.
    """
    me, note = thread.me(), None
    for _ in range(_ATTEMPTS):
        notes = _ours(thread, me, draft.key)
        if not notes:
            note = thread.create(draft.body(_most(thread), today))
            notes = _ours(thread, me, draft.key) or [note]
        first, *rest = notes
        try:
            for extra in rest:
                with suppress(Gone):  # the job that made it was quicker
                    thread.delete(extra)
            outcome = _say(thread, first, draft, today)
        except Gone:
            continue
        return ("created" if note and note.id == first.id else outcome), first
    raise Unreachable("the comment was deleted each time it was about to be edited; run this again")


def _say(thread: "Repository", note: Note, draft: Draft, today: dt.date) -> Outcome:
    state = _state(note.body, draft.key)
    if state and state.fingerprint == draft.fingerprint(_most(thread)):
        return "unchanged"
    thread.edit(note, draft.body(_most(thread), today, note.body))
    return "updated"


def _most(thread: "Repository") -> int:
    return min(thread.most, MOST)


def _ours(thread: "Repository", me: str, key: str) -> list[Note]:
    """Our comments, oldest first."""
    ours = (note for note in _all(thread) if note.author == me and _hidden(note.body, key) is not None)
    return sorted(ours, key=lambda note: note.id)


def _all(thread: "Repository") -> Iterator[Note]:
    for number, note in enumerate(thread.notes()):
        if number >= _MOST_NOTES:
            raise HostError(f"the pull request has more than {_MOST_NOTES:,} comments; post to another one")
        yield note


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


def _earlier(state: _State | None, now: Entry) -> tuple[Entry, ...]:
    """The verdicts before `now`, newest first; a second verdict on one commit replaces the first."""
    if state is None:
        return ()
    same = now.commit is not None and state.now.commit == now.commit
    return (*(() if same else (state.now,)), *state.earlier)[:_EARLIER]


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


def _url(link: str) -> str:
    if not re.fullmatch(r"https?://[^\s<>\\]{1,1000}", link):
        raise UsageError(f"--link {link!r}: no web address")
    return link
