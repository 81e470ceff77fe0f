"""From bytes to typed trace events, a chunk at a time, repairing what can be repaired and saying so."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from advisor.errors import ReadError
from advisor.inputs.chrome_json.source import BETWEEN, Source, apart, last_boundary, repaired
from advisor.model.clause import Note
from advisor.system.file_size import too_large

if TYPE_CHECKING:
    from advisor.inputs.chrome_json.parallel import Parallel

_LONGEST_HEAD_BYTES: Final = 16 << 20  # real ones have a few kB
_PATIENCE_BYTES: Final = 8 << 20  # of text that cannot be decoded, before it is taken to be damaged

_MOST_UNDECODED_BYTES: Final = 256 << 20
_LONGEST_STRING_BYTES: Final = 64 << 20
_MOST_UNDECODED_VALUES: Final = 4 << 20  # a value of two bytes takes a hundred once it is decoded

_AGAIN: Final = "copy or record the profile again"
_REPAIRED: Final = Note("malformed")


class _AnyEvent(Protocol):
    name: str | None


E = TypeVar("E", bound=_AnyEvent)
H = TypeVar("H", bound=msgspec.Struct)
_T = TypeVar("_T")
_Decode: TypeAlias = Callable[[bytes | bytearray], _T]


class Form(Generic[E, H]):
    """How one profiler's events and the fields around them are decoded; `what` such a file is called, and how it ends.

    `last` is the name of the event that the profiler writes last: the list is whole where it is there. `lenient`
    decodes the header where that takes more than its type; a ValueError where it cannot be read.
    """

    def __init__(
        self, event: type[E], header: type[H], what: str, last: str | None = None, lenient: _Decode[H] | None = None
    ) -> None:
        events: object = msgspec.field(default_factory=list)
        document = msgspec.defstruct("Document", [("traceEvents", list[event], events)], bases=(header,))  # type: ignore[valid-type]  # a type made of what is given
        self.events, self.event = msgspec.json.Decoder(list[event]), msgspec.json.Decoder(event)  # type: ignore[valid-type]
        self.document: msgspec.json.Decoder[Any] = msgspec.json.Decoder(document)
        self.header: _Decode[H] = lenient or msgspec.json.Decoder(header).decode
        self.empty, self.last, self.what = header, last, what


class _Undecoded(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 - the file's spelling


_Fields: TypeAlias = dict[str, msgspec.Raw]
_raw_events = msgspec.json.Decoder(list[msgspec.Raw])
_undecoded = msgspec.json.Decoder(_Undecoded)


@dataclass(slots=True)
class Trace(Generic[E, H]):
    """One trace file being read: iterate `chunks()` once, then `header` and `salvaged` are complete."""

    name: str
    form: Form[E, H]
    max_bytes: int | None = None
    header: H = field(init=False)
    salvaged: list[Note] = field(default_factory=list)
    dropped: int = 0
    odd: int = 0  # values in `args` of another type than they should be
    decoded: int = 0
    cut_off: bool = False  # the file's end is missing, and with it, perhaps, device work of its last steps

    def __post_init__(self) -> None:
        self.header = self.form.empty()

    def chunks(self, source: Source, parallel: Parallel[Any] | None = None) -> Iterator[list[E]]:
        """Events in file order, one list per stretch of text; after those that `parallel` gathers, where it is given.

        Text is cut where one event seems to end and the next to begin. A wrong guess cannot be decoded, so it is kept
        and more text is added: a file laid out in some other way ends up decoded as one whole document. Where enough of
        it still cannot be decoded, it is damaged. A ReadError where this is no trace, or nothing of it can be read.
        """
        pieces = self.limited(source)
        text, opening = self._open(pieces, source)
        if parallel:
            text = parallel.rest(text, pieces).lstrip(BETWEEN)
            self.decoded += parallel.events
        pending, retry_at, values = bytearray(b"[" + text), 0, text.count(b",")
        for piece in pieces:
            pending += piece
            values += piece.count(b",")
            self._bound(pending, values)
            if len(pending) < retry_at:
                continue
            cut = last_boundary(pending)
            rest = bytes(pending[cut:])
            pending[cut:] = b"]"
            events = self._decode(pending) if cut else None
            if events is None and cut > _PATIENCE_BYTES:
                self._note(_REPAIRED)
                events = self._event_by_event(apart(repaired(pending[1:-1])))
            if events is None:
                pending[cut:] = rest
                retry_at = 2 * len(pending)
                continue
            self.decoded += len(events)
            yield events
            pending, retry_at, values = bytearray(b"[" + rest.lstrip(BETWEEN)), 0, rest.count(b",")
        text = bytes(pending[1:])
        if (events := self._decode_end(text, opening)) is None:
            events = self._salvage(text, opening)
        self.decoded += len(events)
        self._conclude(source)
        yield events

    def limited(self, source: Source) -> Iterator[bytes]:
        """The pieces of the source; a ReadError where they are larger than the file may be."""
        size = 0
        for piece in source:
            size += len(piece)
            if self.max_bytes is not None and size > self.max_bytes:
                raise too_large(self.name, self.max_bytes)
            yield piece

    def _bound(self, pending: bytearray, values: int) -> None:
        """Raises ReadError where text goes on and on without being events: it is held until it can be decoded."""
        if len(pending) > _MOST_UNDECODED_BYTES:
            raise ReadError(f"{_MOST_UNDECODED_BYTES >> 20} MiB on end are no trace events; {_AGAIN}", self.name)
        if values > _MOST_UNDECODED_VALUES:
            raise ReadError(f"{_MOST_UNDECODED_VALUES >> 20} million values are no trace events; {_AGAIN}", self.name)
        if len(pending) > _LONGEST_STRING_BYTES and pending.rfind(b'"', len(pending) - _LONGEST_STRING_BYTES) < 0:
            raise ReadError(f"over {_LONGEST_STRING_BYTES >> 20} MiB of one text or of nothing; {_AGAIN}", self.name)

    def _open(self, pieces: Iterator[bytes], source: Source) -> tuple[bytes, bytes]:
        """Read up to the start of the event list: (text after it, what must precede that text to make a document)."""
        head = b""
        for text in pieces:
            head = (head + text).removeprefix(codecs.BOM_UTF8)
            if list_start := re.search(rb'\A\s*\[|"traceEvents"\s*:\s*\[', head):
                before = head[: list_start.start()]
                if before.strip():
                    self._read_header(before + b'"traceEvents":[]}')
                    return head[list_start.end() :], b'{"traceEvents":['
                return head[list_start.end() :], b"["
            if len(head) > _LONGEST_HEAD_BYTES:
                break
        why = f"not {self.form.what}"
        if source.broken and not head:
            why = source.broken.words
        elif not head.strip():
            why = "empty file; record the profile again"
        elif head.startswith(b"version https://git-lfs"):
            why = "a Git LFS pointer, not the profile itself; run `git lfs pull`"
        elif head.lstrip().startswith(b"{"):
            why = 'no "traceEvents" in it: not a profile, or cut off before its events; record the profile again'
        raise ReadError(why, self.name)

    def _read_header(self, text: bytes) -> None:
        for attempt in (text, repaired(text)):
            if (header := _sound(self.form.header, attempt)) is not None:
                self.header = _merged(self.header, header)
                if attempt != text:
                    self._note(_REPAIRED)
                return
        self.salvaged.append(Note("no_header"))

    def _decode(self, document: bytes | bytearray) -> list[E] | None:
        """Events of the list `document`, one by one where some are wrong in themselves; None where it is no list."""
        if (events := _sound(self.form.events.decode, document)) is not None:
            return events
        if (raws := _sound(_raw_events.decode, repaired(document))) is None:
            return None
        self._note(_REPAIRED)
        return self._event_by_event(raws)

    def _decode_end(self, text: bytes, opening: bytes) -> list[E] | None:
        """The last events and what follows the list; None where the file ends early or is broken."""
        if opening == b"[":
            return self._decode(opening + text)
        if (document := _sound(self.form.document.decode, opening + text)) is not None:
            self.header = _merged(self.header, document)  # its other fields are the header's
            events: list[E] = document.traceEvents
            return events
        text = repaired(opening + text)
        if (undecoded := _sound(_undecoded.decode, text)) is None:
            return None
        self._note(_REPAIRED)
        self._read_header(text)
        return self._event_by_event(undecoded.traceEvents)

    def _salvage(self, text: bytes, opening: bytes) -> list[E]:
        """Every event of a broken stretch that can be decoded on its own; the one cut in two is no loss to count."""
        *pieces, last = apart(repaired(text))
        events = self._event_by_event(pieces)
        end = self._decode_end(last, opening)
        if end is None:
            end = [event] if (event := self._decode_event(last)) else []
            self.cut_off = not end or end[0].name != self.form.last
            self._note(Note("ends_early"))
        else:
            self._note(_REPAIRED)
        return events + end

    def _event_by_event(self, raws: Sequence[bytes | msgspec.Raw]) -> list[E]:
        objects = (raw for raw in raws if bytes(memoryview(raw)[:1]) not in b'"-0123456789[fnt')
        events = [event for raw in objects if (event := self._decode_event(raw)) is not None]
        self.dropped += len(raws) - len(events)
        return events

    def _note(self, what: Note) -> None:
        if what not in self.salvaged:
            self.salvaged.append(what)

    def _conclude(self, source: Source) -> None:
        if source.broken:  # says more than that the end is missing
            self.salvaged[:] = [*(note for note in self.salvaged if note.code != "ends_early"), source.broken]
        if self.dropped:
            self.salvaged.append(Note("unreadable_events", events=self.dropped))
        if self.odd:
            self.salvaged.append(Note("odd_values", values=self.odd))
        if not self.decoded:
            is_empty = not self.dropped and not self.cut_off
            why = "its list of trace events is empty" if is_empty else "none of its trace events can be read"
            raise ReadError(f"{why}; record the profile again", self.name)

    def _decode_event(self, text: bytes | msgspec.Raw) -> E | None:
        """The event; of its `args` those that are of the type that they should be."""
        decode = self.form.event.decode
        return _sound(decode, text) or _sound(lambda odd: decode(self._with_sound_args(odd)), text)

    def _with_sound_args(self, text: bytes | msgspec.Raw) -> bytes:
        fields = msgspec.json.decode(text, type=_Fields)
        args = msgspec.json.decode(fields["args"], type=_Fields) if "args" in fields else {}
        alone = {name: msgspec.json.encode({"args": {name: value}}) for name, value in args.items()}
        sound = {name: args[name] for name, event in alone.items() if _sound(self.form.event.decode, event)}
        self.odd += len(args) - len(sound)
        return msgspec.json.encode(fields | {"args": sound})


def _sound(decode: Callable[[Any], _T], text: bytes | bytearray | msgspec.Raw) -> _T | None:
    """What is in the text; None where it is broken."""
    with suppress(ValueError, RecursionError):
        return decode(text)
    return None


def _merged(before: H, after: H) -> H:
    """Top-level fields may stand on either side of the events."""
    return type(before)(*(getattr(after, f) or getattr(before, f) for f in before.__struct_fields__))
