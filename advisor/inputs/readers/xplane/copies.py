"""A copy of an XPlane profile, or of the trace viewer's copy of one, without secrets."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from advisor.errors import ReadError
from advisor.inputs.chrome_json import copies
from advisor.inputs.readers.xplane.viewer import READ_ARGS, VIEWER
from advisor.inputs.readers.xplane.wire import PADDING, Buffer, MalformedError
from advisor.secrets import hints, is_of_owner, is_of_secret, is_secret, masked, masked_in_sight, naming
from advisor.system.file_size import most_bytes, too_large

_MEMORY_PER_BYTE: Final = 3.0  # the file, its padded copy and its clean one
Fields: TypeAlias = Mapping[int, Any]
"""Of a message: the fields that are texts, bytes, numbers, or messages with texts inside (their own fields)."""
Span: TypeAlias = tuple[int, int]  # where a text begins and ends
_TEXT, _RAW, _NUMBER, _UNKNOWN = "text", "raw", "number", "unknown"
_ID, _STR, _BLOB, _REF = 1, 5, 6, 7  # of a stat
_STAT: Final[Fields] = {2: _NUMBER, _STR: _TEXT, _BLOB: _RAW}
_NAMES_OF_STATS, _NAME, _VALUE = 5, 2, 2  # of a plane; in its entries
_PLANE: Final[Fields] = {
    2: _TEXT,
    3: {2: _TEXT, 11: _TEXT, 4: {4: _STAT}},
    4: {2: {2: _TEXT, 3: _RAW, 4: _TEXT, 5: _STAT, 6: _NUMBER}},
    _NAMES_OF_STATS: {2: {2: _TEXT, 3: _RAW}},
    6: _STAT,
}
_PLANES, _HOST_NAMES = 1, 4
_SPACE: Final[Fields] = {_PLANES: _PLANE, 2: _TEXT, 3: _TEXT, _HOST_NAMES: _TEXT}  # openxla/xprof, xplane.proto


def clean_copy(path: Path, target: Path, max_bytes: int | None) -> list[str]:
    """Write the copy; the names of the fields that it lacks, of the trace viewer's copy alone.

    The bytes are the same ones, with the texts in them masked in place; fields that no reader knows, in messages with
    something to mask, keep their length alone.
    """
    if not path.name.lower().endswith(".pb"):
        return copies.clean_copy(path, target, max_bytes, VIEWER, READ_ARGS)
    if path.stat().st_size > (most := max_bytes or most_bytes(_MEMORY_PER_BYTE)):
        raise too_large(str(path), most)
    data = path.read_bytes()
    clean, buffer = bytearray(data), Buffer(data + PADDING)
    try:
        private = list(_private(buffer))
        owned = [(f.value, f.end) for f in buffer.walk(0, buffer.size) if f.number == _HOST_NAMES and f.end >= 0]
        owned += [text for name, text in private if is_of_owner(name)]
        owners = [data[start:end] for start, end in owned]
        more = naming(owners)
        for start, end, kind in _texts(buffer, 0, buffer.size, _SPACE, hints(data, owners)):
            clean[start:end] = _MASKS[kind](data[start:end], more)
    except MalformedError:
        raise ReadError(copies.DAMAGED, path) from None
    secret = [(start, end) for name, (start, end) in private if is_secret(name, data[start:end])]
    for start, end in (*owned, *secret):
        clean[start:end] = b"x" * (end - start)
    target.write_bytes(clean)
    return []


def _nothing(text: bytes, _: object) -> bytes:
    """As many bytes that say nothing, as a text or as a message: field 15, which no message has, is 0."""
    size = len(text)
    odd = b"\x78\x80\x00" if size & 1 and size > 1 else b"\x00" * (size & 1)
    return odd + b"\x78\x00" * ((size - len(odd)) // 2)


_MASKS: Final[Mapping[str, Callable[[bytes, list[re.Pattern[bytes]]], bytes]]] = {
    _TEXT: masked_in_sight,
    _RAW: masked,
    _UNKNOWN: _nothing,
}


def _private(buffer: Buffer) -> Iterator[tuple[bytes, Span]]:
    """The stats that are called like a secret, a user or a host: their names, and where their texts lie."""
    for number, start, end in buffer.walk(0, buffer.size):
        if number == _PLANES and end >= 0:
            names = dict(_names_of_stats(buffer, start, end))
            words = {key: bytes(buffer.data[begin:stop]) for key, (begin, stop) in names.items()}
            chosen = {key for key, word in words.items() if is_of_owner(word) or is_of_secret(word)}
            stats = _stats(buffer, start, end, _PLANE, names) if chosen else ()
            yield from ((words[key], text) for key, text in stats if key in chosen)


def _names_of_stats(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, Span]]:
    for number, begin, stop in buffer.walk(start, end):
        entry = _spans(buffer, begin, stop) if number == _NAMES_OF_STATS else {}
        stat = _spans(buffer, *entry[_VALUE]) if _VALUE in entry else {}
        if _NAME in stat and stat[_NAME][1] >= 0:
            yield stat[_ID][0], stat[_NAME]


def _stats(
    buffer: Buffer, start: int, end: int, fields: Fields, names: Mapping[int, Span]
) -> Iterator[tuple[int, Span]]:
    """The number of each stat below a message that has a text, and where that lies; it may be another stat's name."""
    for number, begin, stop in buffer.walk(start, end):
        kind = fields.get(number)
        if kind is _STAT:
            stat = _spans(buffer, begin, stop)
            texts = [stat.get(_STR), stat.get(_BLOB), names.get(stat[_REF][0]) if _REF in stat else None]
            yield from ((stat[_ID][0], text) for text in texts if text and text[1] >= 0)
        elif isinstance(kind, Mapping):
            yield from _stats(buffer, begin, stop, kind, names)


def _spans(buffer: Buffer, start: int, end: int) -> dict[int, Span]:
    """The last field of each number in a message: begin and end, or a number and -1; an id that is not there is 0."""
    return {_ID: (0, -1)} | {number: (begin, stop) for number, begin, stop in buffer.walk(start, end)}


def _texts(buffer: Buffer, start: int, end: int, fields: Fields, hits: Sequence[Span]) -> Iterator[tuple[*Span, str]]:
    """Where the texts of a message lie that one of `hits`, ascending, reaches into; and those of unknown fields.

    Begin and end, and what kind of field it is.
    """
    for number, begin, stop in buffer.walk(start, end):
        at, kind = bisect_right(hits, begin, key=itemgetter(1)), _NUMBER if stop < 0 else fields.get(number, _UNKNOWN)
        if kind == _UNKNOWN:
            yield begin, stop, kind
        elif kind != _NUMBER and at < len(hits) and hits[at][0] < stop:
            if isinstance(kind, str):
                yield begin, stop, kind
            else:
                yield from _texts(buffer, begin, stop, kind, hits)
