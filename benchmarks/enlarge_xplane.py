"""Makes a large XPlane profile by repeating a small one: the same job, recorded for more steps."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_GAP_PS = 10**9
# What links events, and what it grows by from copy to copy: none has another's.
_STRIDES = {b"group_id": 1_000, **dict.fromkeys([b"correlation_id", b"_p", b"_c"], 1_000_000)}
# Field numbers of xplane.proto (openxla/xla): of a space, a plane, a line, an event, a stat, an entry of a map.
_PLANES = 1
_LINES, _STAT_NAMES = 3, 5
_TIMESTAMP_NS, _EVENTS = 3, 4
_OFFSET_PS, _DURATION_PS, _STATS = 2, 3, 4
_STAT, _UNSIGNED, _SIGNED = 1, 3, 4
_KEY, _VALUE, _NAME = 1, 2, 2
_WHOLE, _SIZED = 0, 2  # kinds of values on the wire
_FIXED = {1: 8, 5: 4}  # and their lengths in bytes
_SEVEN_BITS = 0x7F


class Field(NamedTuple):
    """A field of a message: its number, its value (a whole number or bytes), and all its bytes."""

    number: int
    value: int | bytes
    raw: bytes


class Event(NamedTuple):
    """An event with what copies change apart from the rest: its start, and (stat, id, stride) of its links."""

    rest: bytes
    offset_ps: int
    links: list[tuple[int, int, int]]


def enlarge(short: Path, long: Path, size_bytes: int) -> None:
    """Write `long`, of about `size_bytes`: every copy later in time and with its own links."""
    planes = [field for field in fields(short.read_bytes()) if field.number == _PLANES]
    split = [_split(bytes_of(plane)) for plane in planes]
    events = [event for _, lines in split for _, _, events in lines for event in events]
    began = min(at for _, lines in split for _, at, events in lines if events)
    ends = (
        at + e.offset_ps + _number(fields(e.rest), _DURATION_PS)
        for _, lines in split
        for _, at, events in lines
        for e in events
    )
    span_ps = max(ends) - began + _GAP_PS
    copied = sum(len(event.rest) + 16 for event in events)
    copies = max(1, round((size_bytes - short.stat().st_size) / copied) + 1)
    unfinished = long.with_suffix(".part")
    with unfinished.open("wb") as out:
        for rest, lines in split:
            written = [
                wrapped(_LINES, head + b"".join(_copy(e, k, span_ps) for k in range(copies) for e in events))
                for head, _, events in lines
            ]
            out.write(wrapped(_PLANES, rest + b"".join(written)))
    unfinished.rename(long)


def _split(plane: bytes) -> tuple[bytes, list[tuple[bytes, int, list[Event]]]]:
    """A plane without its lines; and each line's own fields, its start in ps, and its events."""
    parts = list(fields(plane))
    strides = dict(filter(None, (_stride(bytes_of(part)) for part in parts if part.number == _STAT_NAMES)))
    lines = []
    for part in parts:
        if part.number == _LINES:
            inner = list(fields(bytes_of(part)))
            began_ns = _number(inner, _TIMESTAMP_NS)
            events = [_event(bytes_of(f), strides) for f in inner if f.number == _EVENTS]
            lines.append((b"".join(f.raw for f in inner if f.number != _EVENTS), began_ns * 1000, events))
    return b"".join(part.raw for part in parts if part.number != _LINES), lines


def _stride(entry: bytes) -> tuple[int, int] | None:
    """The id of a stat that links events, and what a copy adds to it."""
    told = {field.number: field.value for field in fields(entry)}
    described = told.get(_VALUE, b"")
    name = next((f.value for f in fields(described) if f.number == _NAME), b"") if isinstance(described, bytes) else b""
    return (int(told[_KEY]), _STRIDES[name]) if isinstance(name, bytes) and name in _STRIDES else None


def _event(message: bytes, strides: dict[int, int]) -> Event:
    rest, offset_ps, links = [], 0, []
    for field in fields(message):
        told = {f.number: f.value for f in fields(field.value)} if field.number == _STATS else {}  # type: ignore[arg-type]  # stats are messages
        if field.number == _OFFSET_PS and isinstance(field.value, int):
            offset_ps = field.value
        elif told.get(_STAT) in strides and isinstance(number := told.get(_UNSIGNED, told.get(_SIGNED)), int):
            links.append((int(told[_STAT]), number, strides[int(told[_STAT])]))
        else:
            rest.append(field.raw)
    return Event(b"".join(rest), offset_ps, links)


def _number(message: Iterable[Field], number: int) -> int:
    return next((f.value for f in message if f.number == number and isinstance(f.value, int)), 0)


def _copy(event: Event, number: int, span_ps: int) -> bytes:
    links = b"".join(
        wrapped(_STATS, varint(_STAT << 3) + varint(stat) + varint(_SIGNED << 3) + varint(value + number * stride))
        for stat, value, stride in event.links
    )
    return wrapped(_EVENTS, event.rest + varint(_OFFSET_PS << 3) + varint(event.offset_ps + number * span_ps) + links)


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in their order (protobuf's wire format)."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint_at(message, at)
        value: int | bytes
        if tag & 7 == _WHOLE:
            value, at = _varint_at(message, at)
        else:
            size, at = _varint_at(message, at) if tag & 7 == _SIZED else (_FIXED[tag & 7], at)
            value, at = message[at : at + size], at + size
        yield Field(tag >> 3, value, message[start:at])


def _varint_at(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & _SEVEN_BITS) << shift
        at, shift = at + 1, shift + 7
        if byte <= _SEVEN_BITS:
            return value, at


def varint(value: int) -> bytes:
    """A whole number from zero on, as protobuf writes it."""
    written = bytearray()
    while value > _SEVEN_BITS:
        written.append(value & _SEVEN_BITS | _SEVEN_BITS + 1)
        value >>= 7
    return bytes([*written, value])


def wrapped(number: int, message: bytes) -> bytes:
    """A field that holds a message."""
    return varint(number << 3 | _SIZED) + varint(len(message)) + message


def bytes_of(field: Field) -> bytes:
    """The value of a field that holds a message or text."""
    return field.value if isinstance(field.value, bytes) else b""
