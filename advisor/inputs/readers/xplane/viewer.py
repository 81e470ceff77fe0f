"""The trace viewer's copy of a profile (`*.trace.json.gz`), written again as the planes that it was made from.

TensorFlow and JAX write it beside the XPlane, or instead of it, for Chrome's trace viewer. It has the same planes,
lines, events and stats, but at most a million events, and without the devices' descriptions, allocations, and what
handed work from one thread to another. Of stats it keeps no types: what looks like a whole number is written as
number and as text, and each table takes what it needs.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from advisor.errors import ReadError
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Form, Trace
from advisor.inputs.readers.xplane.device import OF_OPS, OF_STEPS
from advisor.inputs.readers.xplane.host import OF_RANGES
from advisor.inputs.readers.xplane.plane import Plane
from advisor.inputs.readers.xplane.space import Space
from advisor.inputs.readers.xplane.wire import PADDING, Buffer
from advisor.model.clause import Missing, Note

_COPY: Final = Missing("viewer_copy")
LACKS: Final = {"devices": _COPY, "allocations": _COPY}  # what is always absent of such a copy, and why
_STATS: Final = frozenset(OF_RANGES | OF_OPS | OF_STEPS | {"flow"})
READ_ARGS: Final = _STATS | {"long_name"}  # the names in `args` that are read of events
_EVENTS: Final = ("X", "i", "I")  # with a length, and without
_DIGITS: Final = 19
_LATEST_US: Final = 1e12
_UNTIMED: Final = 1 << 63  # what the planes' reader takes for no time
_OUT, _IN = 2, 1  # the low bits of a flow: it leaves this event, or comes to it
_SEVEN_BITS: Final = 0x7F
_BYTES: Final = [bytes([value]) for value in range(256)]
_FLOW: Final = 1  # the kind of hand-over that flows are written as

Encoded: TypeAlias = bytes


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`; times in microseconds from the profile's start."""

    ph: str | None = None
    name: str | None = None
    pid: int | None = None
    tid: int | None = None
    ts: float | None = None
    dur: float | None = None
    args: dict[str, Any] | None = None


class Metadata(msgspec.Struct):
    """What tells these files from other Chrome traces."""

    ticks: bool | None = msgspec.field(default=None, name="highres-ticks")


class Header(msgspec.Struct):
    """What is kept of the fields around the events."""

    metadata: Metadata | None = None


VIEWER: Final = Form(Event, Header, what="a trace viewer's copy of a profile (no JSON); give the *.xplane.pb")
"""The form of these files."""


class Viewed(Space):
    """The same of such a file, with a plane per process."""

    def planes(self) -> Iterator[Plane]:
        """As of a `Space`."""
        trace, planes = Trace(self.name, VIEWER, self.max_bytes), defaultdict[int, _Plane](_Plane)
        for events in trace.chunks(Source(self.stream, on_read=self.on_read)):
            for event in events:
                if event.pid is not None:
                    planes[event.pid].add(event)
        if trace.cut_off:
            raise ReadError("cut off, and with it whole threads, which would pass for idle; copy it again", self.name)
        self.salvaged += [Note("viewers_copy"), *trace.salvaged]
        for plane in planes.values():
            yield Plane(Buffer(plane.written() + PADDING))


@dataclass(slots=True)
class _Plane:
    """A process, as far as it was read; names of events and stats are numbered as they come."""

    name: str = ""
    threads: dict[int, str] = field(default_factory=dict)
    lines: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    names: dict[tuple[str, str], int] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    encoded: dict[tuple[str, str], Encoded] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        args = event.args or {}
        if event.ph == "M" and isinstance(name := args.get("name"), str):
            if event.name == "process_name":
                self.name = name
            elif event.name == "thread_name":
                self.threads[event.tid or 0] = name
        elif event.ph in _EVENTS and event.name is not None:
            names = _text(args.get("long_name")) or event.name, event.name
            number = self.names.setdefault(names, len(self.names) + 1)
            stats = b"".join([self._stat(key, value) for key, value in args.items() if key in _STATS])
            body = _varint_field(1, number) + _varint_field(2, _ps(event.ts)) + _varint_field(3, _ps(event.dur or 0))
            self.lines[event.tid or 0] += _field(4, body + stats)

    def _stat(self, key: str, value: object) -> Encoded:
        """A stat as it stands in an event; a flow as the hand-over that it was."""
        text = _text(value)
        if text is None:
            return b""
        if (known := self.encoded.get((key, text))) is None:
            number = int(text) if text.lstrip("-").isdecimal() and len(text) <= _DIGITS else None
            if key == "flow" and number is not None:
                known = b"".join(
                    self._written(kind, _varint_field(4, _FLOW)) + self._written(flow, _varint_field(4, number >> 2))
                    for side, kind, flow in ((_OUT, "_pt", "_p"), (_IN, "_ct", "_c"))
                    if number & side
                )
            else:
                as_number = b"" if number is None else self._written(key, _varint_field(4, number))
                known = as_number + self._written(key, _field(5, text.encode("utf-8", "replace")))
            self.encoded[key, text] = known
        return known

    def _written(self, key: str, value: Encoded) -> Encoded:
        return _field(4, _varint_field(1, self.stats.setdefault(key, len(self.stats) + 1)) + value)

    def written(self) -> Encoded:
        """The message of the plane, its lines first."""
        parts = [_field(2, self.name.encode("utf-8", "replace"))]
        for thread, events in self.lines.items():
            label = _field(2, self.threads.get(thread, "").encode("utf-8", "replace"))
            parts.append(_field(3, _varint_field(1, thread) + label + events))
        parts += [_entry(4, number, texts) for texts, number in self.names.items()]
        parts += [_entry(5, number, (key,)) for key, number in self.stats.items()]
        return b"".join(parts)


def _entry(number: int, id_: int, texts: Sequence[str]) -> Encoded:
    """An entry of a plane's table of names: the name, and the one to show."""
    pairs = zip((2, 4), texts, strict=False)
    body = b"".join(_field(place, text.encode("utf-8", "replace")) for place, text in pairs)
    return _field(number, _varint_field(1, id_) + _field(2, _varint_field(1, id_) + body))


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ps(us: float | None) -> int:
    """Picoseconds; what no clock shows stays so."""
    return round(us * 1e6) if us is not None and math.isfinite(us) and abs(us) < _LATEST_US else _UNTIMED


def _varint(value: int) -> Encoded:
    if 0 <= value <= _SEVEN_BITS:
        return _BYTES[value]
    value &= (1 << 64) - 1
    written = b""
    while value > _SEVEN_BITS:
        written += _BYTES[value & _SEVEN_BITS | 0x80]
        value >>= 7
    return written + _BYTES[value]


def _varint_field(number: int, value: int) -> Encoded:
    return _varint(number << 3) + _varint(value)


def _field(number: int, data: bytes | bytearray) -> Encoded:
    return _varint(number << 3 | 2) + _varint(len(data)) + data
