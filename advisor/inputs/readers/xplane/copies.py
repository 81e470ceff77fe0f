"""A copy of an XPlane profile, or of the trace viewer's copy of one, without secrets."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from advisor.errors import ReadError
from advisor.inputs.chrome_json import copies
from advisor.inputs.readers.xplane.viewer import READ_ARGS, VIEWER
from advisor.inputs.readers.xplane.wire import PADDING, Buffer, MalformedError
from advisor.inputs.secrets import hints, masked, naming

_DAMAGED: Final = "damaged or cut short, so that it cannot be copied in part; record it again, or do not pass it on"

Fields: TypeAlias = Mapping[int, Any]
"""Of a message: the fields that are texts (True), messages with texts inside (their own fields), or neither (None)."""

_STAT: Final[Fields] = {2: None, 5: True, 6: True}
_METADATA: Final = {2: True, 3: True, 4: True, 5: _STAT, 6: None}
_PLANE: Final[Fields] = {
    2: True,
    3: {2: True, 11: True, 4: {4: _STAT}},
    4: {2: _METADATA},
    5: {2: {2: True, 3: True}},
    6: _STAT,
}
_SPACE: Final[Fields] = {1: _PLANE, 2: True, 3: True, 4: True}  # openxla/xprof, xplane.proto
_HOST_NAMES: Final = 4


def clean_copy(path: Path, target: Path) -> list[str]:
    """Write the copy; the names of the fields that it lacks, of the trace viewer's copy alone.

    The bytes are the same ones, with the texts in them masked in place; fields that no reader knows, in messages with
    something to mask, keep their length alone.
    """
    if not path.name.lower().endswith(".pb"):
        return copies.clean_copy(path, target, VIEWER, READ_ARGS)
    data = path.read_bytes()
    clean, buffer = bytearray(data), Buffer(data + PADDING)
    try:
        spans = [(f.value, f.end) for f in buffer.walk(0, buffer.size) if f.number == _HOST_NAMES]
        hosts = [data[start:end] for start, end in spans]
        more = naming(hosts)
        for start, end, is_known in _texts(buffer, 0, buffer.size, _SPACE, hints(data, hosts)):
            if is_known:
                clean[start:end] = masked(data[start:end], more)
            else:
                clean[start:end] = _nothing(end - start)
        for start, end in spans:
            clean[start:end] = b"x" * (end - start)
    except MalformedError:
        raise ReadError(_DAMAGED, path) from None
    target.write_bytes(clean)
    return []


def _nothing(size: int) -> bytes:
    """So many bytes that say nothing, as a text or as a message: field 15, which no message has, is 0."""
    odd = b"\x78\x80\x00" if size & 1 and size > 1 else b"\x00" * (size & 1)
    return odd + b"\x78\x00" * ((size - len(odd)) // 2)


def _texts(
    buffer: Buffer, start: int, end: int, fields: Fields, hits: Sequence[int]
) -> Iterator[tuple[int, int, bool]]:
    """Where the texts of a message lie that have one of `hits`, ascending, inside; and those of unknown fields.

    Begin and end, and whether the field is known.
    """
    for number, begin, stop in buffer.walk(start, end):
        at, kind = bisect_left(hits, begin), None if stop < 0 else fields.get(number, False)
        if kind is False:
            yield begin, stop, False
        elif kind is not None and at < len(hits) and hits[at] < stop:
            if kind is True:
                yield begin, stop, True
            else:
                yield from _texts(buffer, begin, stop, kind, hits)
