"""From bytes to typed trace events, a chunk at a time, repairing what can be repaired and saying so."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

import msgspec

from advisor.errors import ReadError
from advisor.readers.kineto.repair import BETWEEN, apart, last_boundary, repaired
from advisor.readers.kineto.source import Source
from advisor.text import count

_LONGEST_HEAD_BYTES: Final = 16 << 20  # real ones have a few kB
_PATIENCE_BYTES: Final = 8 << 20  # of text that cannot be decoded, before it is taken to be damaged

_REPAIRED: Final = "some of the file is malformed: repaired where possible"
_CUT_OFF: Final = "the file ends early or its end is damaged: read up to the last whole event"
_LAST_EVENT: Final = "Record Window End"  # what Kineto writes last: the list is whole where it is there
_LIST_OPENS = re.compile(rb'\A\s*\[|"traceEvents"\s*:\s*\[')
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # in ns since 1970: up to 2116


class Args(msgspec.Struct, gc=False):
    """The arguments that the tables need, in every spelling that PyTorch has used."""

    correlation: int | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")
    external_id_2020: int | None = msgspec.field(default=None, name="external id")
    stream: int | str | None = None
    device: int | None = None
    bytes: int | str | None = None
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    registers: int | None = msgspec.field(default=None, name="registers per thread")
    shared_bytes: int | None = msgspec.field(default=None, name="shared memory")
    occupancy_percent: float | None = msgspec.field(default=None, name="est. achieved occupancy %")
    blocks_per_sm: float | None = msgspec.field(default=None, name="blocks per SM")
    graph: int | None = msgspec.field(default=None, name="graph id")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    stack: str | None = msgspec.field(default=None, name="Call stack")
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    wait_on_stream: int | None = None
    device_type: int | None = msgspec.field(default=None, name="Device Type")
    device_id: int | None = msgspec.field(default=None, name="Device Id")
    size: int | None = msgspec.field(default=None, name="Bytes")
    address: int | None = msgspec.field(default=None, name="Addr")
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: int | None = msgspec.field(default=None, name="Total Reserved")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    dtype: str | None = None
    elements_in: int | None = msgspec.field(default=None, name="In msg nelems")
    elements_out: int | None = msgspec.field(default=None, name="Out msg nelems")
    group: str | int | None = msgspec.field(default=None, name="Process Group Name")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    group_ranks: str | None = msgspec.field(default=None, name="Process Group Ranks")
    collective_sequence: int | None = msgspec.field(default=None, name="Seq")
    source_rank: int | None = msgspec.field(default=None, name="Src Rank")
    target_rank: int | None = msgspec.field(default=None, name="Dst Rank")


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`; times in microseconds as the file has them."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


class Device(msgspec.Struct):
    """One entry of `deviceProperties`."""

    id: Int32
    name: str | None = None
    totalGlobalMem: Int64 | None = None  # noqa: N815 - the file's spelling
    computeMajor: Int32 | None = None  # noqa: N815
    computeMinor: Int32 | None = None  # noqa: N815
    numSms: Int32 | None = None  # noqa: N815
    maxThreadsPerMultiprocessor: Int32 | None = None  # noqa: N815


class Distributed(msgspec.Struct):
    """`distributedInfo`; each part may be absent."""

    rank: Int32 | None = None
    world_size: Int32 | None = None
    backend: str | None = None


class Header(msgspec.Struct):
    """What is kept of a trace's top level. Job names, hosts and environments found there are not."""

    schemaVersion: int | None = None  # noqa: N815 - the file's spelling
    deviceProperties: list[Device] = msgspec.field(default_factory=list)  # noqa: N815
    distributedInfo: Distributed | None = None  # noqa: N815
    baseTimeNanoseconds: Clock | None = None  # noqa: N815


class _Document(Header):
    traceEvents: list[Event] = msgspec.field(default_factory=list)  # noqa: N815


class _Undecoded(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815


_events = msgspec.json.Decoder(list[Event])
_raw_events = msgspec.json.Decoder(list[msgspec.Raw])
_event = msgspec.json.Decoder(Event)
_header = msgspec.json.Decoder(Header)
_document = msgspec.json.Decoder(_Document)
_undecoded = msgspec.json.Decoder(_Undecoded)


@dataclass(slots=True)
class Trace:
    """One trace file being read: iterate `chunks()` once, then `header` and `salvaged` are complete."""

    name: str
    header: Header = field(default_factory=Header)
    salvaged: list[str] = field(default_factory=list)
    dropped: int = 0
    decoded: int = 0
    cut_off: bool = False  # the file's end is missing, and with it, perhaps, device work of its last steps

    def chunks(self, source: Source) -> Iterator[list[Event]]:
        """Events in file order, one list per stretch of text.

        Text is cut where one event seems to end and the next to begin. A wrong guess cannot be decoded, so it is
        kept and more text is added: a file laid out in some other way ends up decoded as one whole document. Where
        enough of it still cannot be decoded, it is damaged.

        Raises:
            ReadError: this is no trace, or nothing of it can be read.
        """
        pieces = iter(source)
        text, opening = self._open(pieces, source)
        pending, retry_at = bytearray(b"[" + text), 0
        for piece in pieces:
            pending += piece
            if len(pending) < retry_at:
                continue
            cut = last_boundary(pending)
            rest = bytes(pending[cut:])
            pending[cut:] = b"]"
            events = self._decode(pending) if cut else None
            if events is None and cut > _PATIENCE_BYTES:
                self._note(_REPAIRED)
                events = self._one_by_one(apart(repaired(pending[1:-1])))
            if events is None:
                pending[cut:] = rest
                retry_at = 2 * len(pending)
                continue
            self.decoded += len(events)
            yield events
            pending, retry_at = bytearray(b"[" + rest.lstrip(BETWEEN)), 0
        events = self._decode_tail(bytes(pending[1:]), opening)
        self.decoded += len(events)
        self._conclude(source)
        yield events

    def _open(self, pieces: Iterator[bytes], source: Source) -> tuple[bytes, bytes]:
        """Read up to the start of the event list: (text after it, what must precede that text to make a document)."""
        head = b""
        for text in pieces:
            head = (head + text).removeprefix(codecs.BOM_UTF8)
            if found := _LIST_OPENS.search(head):
                before = head[: found.start()]
                if before.strip():
                    self._read_header(before + b'"traceEvents":[]}')
                    return head[found.end() :], b'{"traceEvents":['
                return head[found.end() :], b"["
            if len(head) > _LONGEST_HEAD_BYTES:
                break
        raise ReadError(f"{self.name}: {source.broken if source.broken and not head else _what_is_it(head)}")

    def _read_header(self, text: bytes) -> None:
        for attempt in (text, repaired(text)):
            try:
                header = _decoded_header(attempt)
            except (ValueError, RecursionError):
                continue
            self.header = _merged(self.header, header)
            if attempt != text:
                self._note(_REPAIRED)
            return
        self.salvaged.append("the header could not be read: devices and ranks are unknown")

    def _decode(self, document: bytes | bytearray) -> list[Event] | None:
        """Events of the list `document`, one by one where some are wrong in themselves; None where it is no list."""
        try:
            return _events.decode(document)
        except (ValueError, RecursionError):
            pass
        try:
            raws = _raw_events.decode(repaired(document))
        except (ValueError, RecursionError):
            return None
        self._note(_REPAIRED)
        return self._one_by_one(raws)

    def _decode_tail(self, text: bytes, opening: bytes) -> list[Event]:
        """The last events and what follows the list; a file that ends early gives what is whole."""
        events = self._decode_end(text, opening)
        return self._salvage(text, opening) if events is None else events

    def _decode_end(self, text: bytes, opening: bytes) -> list[Event] | None:
        return self._decode(opening + text) if opening == b"[" else self._decode_document(opening + text)

    def _decode_document(self, text: bytes) -> list[Event] | None:
        """Like `_decode`, for a document: its other fields are the header's."""
        try:
            document = _document.decode(text)
        except (ValueError, RecursionError):
            return self._repair_document(repaired(text))
        self.header = _merged(self.header, document)
        return document.traceEvents

    def _repair_document(self, text: bytes) -> list[Event] | None:
        try:
            raws = _undecoded.decode(text).traceEvents
        except (ValueError, RecursionError):
            return None
        self._note(_REPAIRED)
        self._read_header(text)
        return self._one_by_one(raws)

    def _salvage(self, text: bytes, opening: bytes) -> list[Event]:
        """Every event of a broken stretch that can be decoded on its own; the one cut in two is no loss to count."""
        *pieces, last = apart(repaired(text))
        events = self._one_by_one(pieces)
        end = self._decode_end(last, opening)
        if end is None:
            end = [event] if (event := _decode_one(last)) else []
            self.cut_off = not end or end[0].name != _LAST_EVENT
            self._note(_CUT_OFF)
        else:
            self._note(_REPAIRED)
        return events + end

    def _one_by_one(self, raws: Sequence[bytes | msgspec.Raw]) -> list[Event]:
        events = [event for raw in raws if (event := _decode_one(raw)) is not None]
        self.dropped += len(raws) - len(events)
        return events

    def _note(self, what: str) -> None:
        if what not in self.salvaged:
            self.salvaged.append(what)

    def _conclude(self, source: Source) -> None:
        if source.broken:
            self.salvaged.append(source.broken)
        if self.dropped:
            self.salvaged.append(f"{count(self.dropped, 'unreadable event')} left out")
        if not self.decoded:
            why = "none of its trace events can be read" if self.dropped else "its list of trace events is empty"
            raise ReadError(f"{self.name}: {why}; record the profile again")


def _decode_one(text: bytes | msgspec.Raw) -> Event | None:
    try:
        return _event.decode(text)
    except (ValueError, RecursionError):
        return None


def _decoded_header(text: bytes | bytearray) -> Header:
    """The header; numbers of devices that are no whole ones are taken where they are equal to one, else as unknown.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return _header.decode(text)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(text)
        devices = fields.get("deviceProperties") if isinstance(fields, dict) else None
        if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
            raise
        whole = [{name: _whole(value) for name, value in device.items()} for device in devices]
        return msgspec.convert(fields | {"deviceProperties": whole}, Header)


def _whole(value: object) -> object:
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else None


def _merged(before: Header, after: Header) -> Header:
    """Top-level fields may stand on either side of the events."""
    return Header(*(getattr(after, f) or getattr(before, f) for f in Header.__struct_fields__))


def _what_is_it(text: bytes) -> str:
    if not text.strip():
        return "empty file; record the profile again"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the profile itself; run `git lfs pull`"
    if text.lstrip().startswith(b"{"):
        return 'no "traceEvents" in it: not a profile, or cut off before its events; record the profile again'
    return "not a PyTorch Profiler trace (no JSON); give the *.pt.trace.json[.gz] file"
