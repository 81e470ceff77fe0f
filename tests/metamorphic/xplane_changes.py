"""The same of a recording of TensorFlow's or JAX's profiler: its planes, taken apart and put together again."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

sys.path.append(str(Path(__file__).parents[2] / "fixtures" / "make"))

from simulator import xplane as xspace
from simulator.styles import FEWEST_STEPS

from advisor.inputs.readers import xplane
from advisor.inputs.readers.xplane.device import DERIVED_LINES
from advisor.inputs.readers.xplane.names import GPU_PLANE
from advisor.model.profile import Profile

Space: TypeAlias = bytes
"""A file's bytes."""

_Value: TypeAlias = int | bytes
_Field: TypeAlias = tuple[int, int, _Value]  # number, kind on the wire, value

# Field numbers of xplane.proto: of a space, a plane, a line, an event, a name, and kinds of values.
_PLANES, _LINES, _NAMES, _STAT_NAMES = 1, 3, 4, 5
_ID, _NAME, _TIMESTAMP, _EVENTS, _DISPLAY_NAME = 1, 2, 3, 4, 11
_WHAT, _OFFSET, _LENGTH, _STATS, _LABEL = 1, 2, 3, 4, 4
_WHOLE, _SIZED = 0, 2
_FIXED: Final = {1: 8, 5: 4}
_STEP: Final = "step_num"
_CALL: Final = "correlation_id"
_GROUPED: Final = {"group_id", "step_name"}
_FRAMES: Final = re.compile(r"^\$")
_MS: Final = 1_000_000
_PS: Final = 1000


@dataclass
class _Event:
    """An event: its name, start in ps since the line's, length, the names of its stats, and everything as fields."""

    name: str
    start: int
    length: int
    stats: dict[str, bytes]
    rest: list[_Field]

    @property
    def call(self) -> int:
        """What joins a call with what it launched; 0 where nothing does."""
        values = [value for n, _, value in _fields(self.stats.get(_CALL, b"")) if n != _ID]
        return next((value for value in values if isinstance(value, int)), 0)


@dataclass
class _Line:
    number: int
    name: str
    at_ns: int
    events: list[_Event]
    rest: list[_Field] = field(default_factory=list)


@dataclass
class _Plane:
    """A plane with the names of its events by id, as one may rename them."""

    name: str
    lines: list[_Line]
    names: dict[int, bytes]
    rest: list[_Field]

    @property
    def is_device(self) -> bool:
        return GPU_PLANE.match(self.name) is not None

    @property
    def active(self) -> list[_Line]:
        """The lines that do not repeat others."""
        return [line for line in self.lines if not DERIVED_LINES.match(line.name)]


# ------------------------------------------------------------------------------------------- protobuf's wire format


def _fields(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _WHOLE:
            number, at = _varint(message, at)
            yield tag >> 3, kind, number
            continue
        size, at = _varint(message, at) if kind == _SIZED else (_FIXED[kind], at)
        yield tag >> 3, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _message(fields: list[_Field]) -> bytes:
    return b"".join(map(_written, fields))


def _written(of: _Field) -> bytes:
    number, kind, value = of
    tag = _digits(number << 3 | kind)
    if isinstance(value, int):
        return tag + _digits(value)
    return tag + (_digits(len(value)) if kind == _SIZED else b"") + value


def _digits(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _first(fields: list[_Field], number: int) -> _Value | None:
    return next((value for n, _, value in fields if n == number), None)


def _int(fields: list[_Field], number: int) -> int:
    value = _first(fields, number)
    return value if isinstance(value, int) else 0


def _text(fields: list[_Field], number: int) -> str:
    value = _first(fields, number)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _several(fields: list[_Field], number: int) -> list[bytes]:
    return [value for n, _, value in fields if n == number and isinstance(value, bytes)]


def _others(fields: list[_Field], *numbers: int) -> list[_Field]:
    return [each for each in fields if each[0] not in numbers]


# --------------------------------------------------------------------------------------------- a space and its parts


def _planes(space: Space) -> list[_Plane | _Field]:
    """The planes, and whatever else a space has, in order."""
    return [
        _plane(value) if n == _PLANES and isinstance(value, bytes) else (n, k, value) for n, k, value in _fields(space)
    ]


def _plane(data: bytes) -> _Plane:
    fields = [*_fields(data)]
    names, stats = (dict(_entries(fields, number)) for number in (_NAMES, _STAT_NAMES))
    texts = {number: _text([*_fields(name)], _NAME) for number, name in names.items()}
    of_stats = {number: _text([*_fields(name)], _NAME) for number, name in stats.items()}
    lines = [_line([*_fields(line)], texts, of_stats) for line in _several(fields, _LINES)]
    return _Plane(_text(fields, _NAME), lines, names, _others(fields, _LINES, _NAMES))


def _entries(fields: list[_Field], number: int) -> Iterator[tuple[int, bytes]]:
    for entry in _several(fields, number):
        inner = [*_fields(entry)]
        value = _first(inner, 2)
        yield _int(inner, 1), value if isinstance(value, bytes) else b""


def _line(fields: list[_Field], names: dict[int, str], stats: dict[int, str]) -> _Line:
    events = [_event([*_fields(event)], names, stats) for event in _several(fields, _EVENTS)]
    name = _text(fields, _DISPLAY_NAME) or _text(fields, _NAME)
    rest = _others(fields, _ID, _NAME, _TIMESTAMP, _EVENTS, _DISPLAY_NAME)
    return _Line(_int(fields, _ID), name, _int(fields, _TIMESTAMP), events, rest)


def _event(fields: list[_Field], names: dict[int, str], stats: dict[int, str]) -> _Event:
    of_event = {stats.get(_int([*_fields(stat)], 1), ""): stat for stat in _several(fields, _STATS)}
    rest = _others(fields, _OFFSET, _LENGTH, _STATS)
    return _Event(names.get(_int(fields, _WHAT), ""), _int(fields, _OFFSET), _int(fields, _LENGTH), of_event, rest)


def _space(parts: list[_Plane | _Field]) -> Space:
    return _message([(_PLANES, _SIZED, _of_plane(each)) if isinstance(each, _Plane) else each for each in parts])


def _of_plane(plane: _Plane) -> bytes:
    names = [_message([(1, _WHOLE, number), (2, _SIZED, name)]) for number, name in plane.names.items()]
    lines = [(_LINES, _SIZED, _of_line(line)) for line in plane.lines]
    return _message([*plane.rest, *lines, *((_NAMES, _SIZED, name) for name in names)])


def _of_line(line: _Line) -> bytes:
    head: list[_Field] = [
        (_ID, _WHOLE, line.number),
        (_NAME, _SIZED, line.name.encode()),
        (_TIMESTAMP, _WHOLE, line.at_ns),
    ]
    return _message([*head, *line.rest, *((_EVENTS, _SIZED, _of_event(event)) for event in line.events)])


def _of_event(event: _Event) -> bytes:
    times: list[_Field] = [(_OFFSET, _WHOLE, event.start), (_LENGTH, _WHOLE, event.length)]
    return _message([*event.rest, *times, *((_STATS, _SIZED, stat) for stat in event.stats.values())])


# ------------------------------------------------------------------------------------------------------- the changes

_OnPlane: TypeAlias = Callable[[_Plane], object]


def _each(change: _OnPlane, *, of_devices: bool | None = None) -> Callable[[Space], Space | None]:
    """The space with this done to each plane, to those of devices or to the others; None where it changes nothing."""

    def changed(space: Space) -> Space | None:
        parts = _planes(space)
        before = _space(parts)
        for plane in parts:
            if isinstance(plane, _Plane) and of_devices in {None, plane.is_device}:
                change(plane)
        after = _space(parts)
        return None if after == before else after

    return changed


def _permute(plane: _Plane) -> None:
    for line in plane.active:
        if plane.is_device:
            line.number = 900_001 - line.number
            line.name = re.sub(r"(?<=Stream #)\d+", lambda number: str(900_001 - int(number[0])), line.name)
        elif line.events:
            line.number += 1445


def _later(plane: _Plane) -> None:
    for line in plane.lines:
        line.at_ns += 300 * _MS


def _fork(plane: _Plane) -> None:
    def forked(name: bytes) -> bytes:
        return _message(
            [(n, k, _in_fork(v) if n in {_NAME, _LABEL} and isinstance(v, bytes) else v) for n, k, v in _fields(name)]
        )

    plane.names = {number: forked(name) for number, name in plane.names.items()}


def _in_fork(name: bytes) -> bytes:
    return re.sub(rb"^(void )?(?=\w+::)", rb"\1acme::", name)


def _resize(plane: _Plane, part: float) -> None:
    for line in plane.active:
        marks = [event for event in line.events if _STEP in event.stats]
        for mark, after in zip(marks, [*marks[1:], None], strict=False):
            room = after.start - mark.start if after else mark.length
            wide = max(mark.length, min(room, round(mark.length * part)))
            mark.length = round(mark.length * part) if part < 1 else wide


def _scaled(factor: float) -> Callable[[Space], Space | None]:
    def change(space: Space) -> Space | None:
        lines = [line for plane in _planes(space) if isinstance(plane, _Plane) for line in plane.lines if line.events]
        return _each(partial(_stretch, factor=factor, zero=min(line.at_ns for line in lines)))(space)

    return change


def _stretch(plane: _Plane, factor: float, zero: int) -> None:
    for line in plane.lines:
        line.at_ns = zero + round((line.at_ns - zero) * factor) if line.events else line.at_ns
        for event in line.events:
            event.start, event.length = round(event.start * factor), round(event.length * factor)


def _unmark(plane: _Plane) -> None:
    """No steps: neither ranges with a number, nor what the profiler made of them."""
    plane.lines = [line for line in plane.lines if line.name != "Steps"]
    for line in plane.lines:
        line.events = [event for event in line.events if _STEP not in event.stats]
        for event in line.events:
            event.stats = {name: stat for name, stat in event.stats.items() if name not in _GROUPED}


def _without_frames(plane: _Plane) -> None:
    for line in plane.lines:
        line.events = [event for event in line.events if not _FRAMES.match(event.name)]


def _without_stat(plane: _Plane, stats: set[str]) -> None:
    for event in (event for line in plane.lines for event in line.events):
        event.stats = {name: stat for name, stat in event.stats.items() if name not in stats}


_Spans: TypeAlias = list[tuple[str, int, int]]
"""Name, start and end in ps since the epoch of the space."""


def _with_spans(space: Space, spans: _Spans, thread: int | None = None) -> Space | None:
    """With these events on the host's thread that has most events, or on one of their own.

    All of the space is later by as much as the first of them lies before its line begins.
    """
    parts = _planes(space)
    hosts = [each for each in parts if isinstance(each, _Plane) and not each.is_device]
    lines = [(len(line.events), plane, line) for plane in hosts for line in plane.active if line.events]
    if not lines:
        return None
    _, plane, line = max(lines, key=lambda each: each[0])
    if thread is not None:
        line = _Line(thread, f"python/{thread}", line.at_ns, [])
        plane.lines.append(line)
    sooner = max(0, line.at_ns * _PS - min(start for _, start, _ in spans))
    later_ns = -(-sooner // _PS)
    for each in (each for part in parts if isinstance(part, _Plane) for each in part.lines):
        each.at_ns += later_ns
    line.at_ns -= later_ns
    for event in line.events:
        event.start += later_ns * _PS
    known = max(plane.names, default=0)
    for number, name in enumerate(dict.fromkeys(name for name, _, _ in spans), known + 1):
        plane.names[number] = _message([(1, _WHOLE, number), (_NAME, _SIZED, name.encode())])
    ids = {_text([*_fields(name)], _NAME): number for number, name in plane.names.items() if number > known}
    zero = line.at_ns * _PS - later_ns * _PS
    line.events += [
        _Event(name, start - zero, end - start, {}, [(_WHAT, _WHOLE, ids[name])]) for name, start, end in spans
    ]
    line.events.sort(key=lambda event: (event.start, -event.length))
    return _space(parts)


def _bounds(space: Space) -> tuple[int, int]:
    """When the first event begins and the last one ends, in ps."""
    planes = [plane for plane in _planes(space) if isinstance(plane, _Plane)]
    spans = [
        (line.at_ns * _PS + event.start, line.at_ns * _PS + event.start + event.length)
        for plane in planes
        for line in plane.lines
        for event in line.events
    ]
    return min(start for start, _ in spans), max(end for _, end in spans)


def _start_up(space: Space) -> Space | None:
    """10 s in front, in which CUDA starts."""
    first, _ = _bounds(space)
    return _with_spans(space, [("cuInit", first - 10_200 * _MS * _PS, first - 200 * _MS * _PS)])


def _teardown(space: Space) -> Space | None:
    """5 s behind, in which memory is freed."""
    _, last = _bounds(space)
    second = 1000 * _MS * _PS
    return _with_spans(space, [("cuMemFree", last + n * second, last + (n + 1) * second) for n in range(5)])


def _beside(space: Space) -> Space | None:
    """A second thread with ranges, whose names count layers or are a loader's, all over the recording."""
    first, last = _bounds(space)
    part = (last - first) // 20
    names = (f"layer {n}" if n % 2 else f"[DALI][Executor] RunCPU {n}" for n in range(20))
    spans = [(name, first + n * part, first + n * part + part * 9 // 10) for n, name in enumerate(names)]
    return _with_spans(space, spans, thread=4242)


def _layers(space: Space) -> Space | None:
    """Four ranges in each step, which are called steps of layers; None where hardly any step repeats."""
    marks = _starts(space)
    if len(marks) < FEWEST_STEPS:
        return None
    spans = [
        (f"layer_step {n}", start + n * (end - start) // 4 + 1, start + (n + 1) * (end - start) // 4 - 1)
        for start, end in marks
        for n in range(4)
    ]
    return _with_spans(space, spans)


def _starts(space: Space) -> list[tuple[int, int]]:
    """Start and end of each step on the host, in ps."""
    hosts = [plane for plane in _planes(space) if isinstance(plane, _Plane) and not plane.is_device]
    marks = [
        (line.at_ns * _PS + event.start, line.at_ns * _PS + event.start + event.length)
        for plane in hosts
        for line in plane.active
        for event in line.events
        if _STEP in event.stats
    ]
    return sorted(marks)


def _cut(space: Space) -> Space | None:
    """The recording begins amid the second step and ends amid the last but one; None where too few would remain."""
    marks = _starts(space)
    if len(marks) < FEWEST_STEPS + 3:
        return None
    keep = partial(_keep, begin=sum(marks[1]) // 2, end=sum(marks[-2]) // 2, calls=_calls(space))
    return _each(keep)(space)


def _calls(space: Space) -> dict[int, int]:
    """When each call with a number began, in ps."""
    hosts = [plane for plane in _planes(space) if isinstance(plane, _Plane) and not plane.is_device]
    lines = [line for plane in hosts for line in plane.active]
    return {event.call: line.at_ns * _PS + event.start for line in lines for event in line.events if event.call}


def _keep(plane: _Plane, begin: int, end: int, calls: dict[int, int]) -> None:
    """What begins in that time; a device op goes with the call that launched it."""
    for line in plane.lines:
        at = [calls.get(event.call, line.at_ns * _PS + event.start) for event in line.events]
        line.events = [event for event, ps in zip(line.events, at, strict=True) if begin <= ps < end]


def load(path: Path) -> Space:
    """The bytes of a file; of a Kineto document, what JAX's profiler would have recorded of the same run."""
    if path.name.endswith(".pb"):
        return path.read_bytes()
    from tests.metamorphic import kineto_changes  # noqa: PLC0415 - a document is one of its

    return xspace.write(kineto_changes.load(path), "jax")


def read(space: Space) -> Profile:
    """Its profile."""
    return xplane.read(io.BytesIO(space), "plugins/profile/run/host.xplane.pb")


KEPT: Final[dict[str, Callable[[Space], Space | None]]] = {
    "other numbers of threads and streams": _each(_permute),
    "the device's clock 300 ms ahead": _each(_later, of_devices=True),
    "the device's clock 300 ms behind": _each(_later, of_devices=False),
    "kernels in another namespace": _each(_fork, of_devices=True),
    "narrower marks": _each(partial(_resize, part=0.9), of_devices=False),
    "wider marks": _each(partial(_resize, part=1.5), of_devices=False),
    "10 s of start-up in front": _start_up,
    "5 s of teardown behind": _teardown,
    "ranges on another thread": _beside,
    "layers called steps": _layers,
    "times x 0.95": _scaled(0.95),
    "times x 1.05": _scaled(1.05),
}
"""Changes under which a verdict stays what it is."""

WITHHELD: Final[dict[str, Callable[[Space], Space | None]]] = {
    "no annotations": _each(_unmark),
    "no shapes": _each(partial(_without_stat, stats={"shape"})),
    "no stacks": _each(_without_frames, of_devices=False),
    "no sizes": _each(partial(_without_stat, stats={"memcpy_details", "bytes_accessed"})),
    "no links": _each(partial(_without_stat, stats={_CALL})),
    "cut steps": _cut,
}
"""Changes that take something away: a verdict stays, or is withheld with the reason."""
