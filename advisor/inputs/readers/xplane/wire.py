"""Protobuf's wire format, decoded in columns: one numpy row per field of many messages, without an object for any.

A message is a list of fields, each a tag (number and wire type) and a value: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.model.intervals import Ints, Mask

Words: TypeAlias = npt.NDArray[np.uint64]
Tags: TypeAlias = npt.NDArray[np.integer]

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

PADDING: Final = b"\0" * 16  # so that a word can be loaded at the last byte
_MOST_FIELDS: Final = 1024  # of one message in a column; real events have up to 30
_BLOCK: Final = 1 << 15  # messages decoded together: their columns stay in the processor's cache
_LONGEST_VARINT: Final = 10
_MORE: Final = 0x80  # set in each byte of a varint but the last

_u = np.uint64
_EVERY_MORE: Final = _u(0x8080808080808080)
# Eight groups of 7 bits move together in three steps: (bits that stay, bits that move, by how much).
_PACKING: Final = [
    (_u(0x007F007F007F007F), _u(0x7F007F007F007F00), _u(1)),
    (_u(0x00003FFF00003FFF), _u(0x3FFF00003FFF0000), _u(2)),
    (_u(0x000000000FFFFFFF), _u(0x0FFFFFFF00000000), _u(4)),
]


class MalformedError(ValueError):
    """Bytes that are no field of a message."""


class Field(NamedTuple):
    """A field of one message: a varint's value with end -1, or where its bytes start and end."""

    number: int
    value: int
    end: int


class Message(NamedTuple):
    """One message."""

    fields: list[Field]  # in order, apart from those of the long list
    starts: Ints  # of those, without empty ones, which say nothing
    ends: Ints
    complete: bool  # False: the rest is malformed or missing


class Fields(NamedTuple):
    """Fields of many messages, a row each; a message's keep their order, but those of others may stand in between."""

    owner: Ints  # row of the message
    number: Tags
    value: Words  # a varint, a fixed-size value's bits, or where bytes start
    length: Ints  # of bytes; -1 for numbers

    def put(self, number: int, column: Words) -> None:
        """Set the rows of a column to the values that messages have under this number; the last one counts."""
        chosen = self.number == number
        column[self.owner[chosen]] = self.value[chosen]

    def messages(self, number: int) -> Fields:
        """The fields of this number that hold bytes, as a message or text must."""
        return self.where((self.number == number) & (self.length >= 0))

    def where(self, chosen: Mask) -> Fields:
        """The fields chosen by a mask."""
        return Fields(self.owner[chosen], self.number[chosen], self.value[chosen], self.length[chosen])

    @property
    def start(self) -> Ints:
        """Where bytes start."""
        return self.value.view(np.int64)

    @property
    def end(self) -> Ints:
        """Where bytes end."""
        return self.value.view(np.int64) + self.length


class Buffer:
    """Bytes to decode messages from; `data` must end in PADDING."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.size = len(data) - len(PADDING)
        self._bytes = np.frombuffer(data, np.uint8)
        self._words: Words = np.ndarray((self.size + 8,), "<u8", buffer=data, strides=(1,))  # one at every byte

    def split(self, start: int, end: int, many: int) -> Message:
        """The fields of one message that has a long list of them under the number `many`, up to the first malformed.

        Each field of a message begins where the one before it ends: the one thing that cannot be done in columns.
        """
        data, at, listed = self.data, start, many << 3 | BYTES
        fields, tags = list[Field](), array("q")
        note = tags.append
        try:
            while at < end:
                if data[at] == listed:
                    size, more = data[at + 1], data[at + 2]
                    if size < _MORE:
                        note(at)
                        at += size + 2
                    elif more < _MORE:  # spelt out: it is as frequent as the case before
                        note(at)
                        at += size + (more << 7) - _MORE + 3
                    else:
                        size, after = self._varint(at + 1, end)
                        note(at)
                        at = after + min(size, self.size)  # no more than there is, and than an array holds
                else:
                    field, at = self._field(at, end)
                    fields.append(field)
        except MalformedError:
            at = end + 1
        starts, ends = np.empty(len(tags), np.int64), np.empty(len(tags), np.int64)
        for some in (slice(at, at + _BLOCK) for at in range(0, len(tags), _BLOCK)):
            sizes, starts[some] = self.varints(np.array(tags[some], np.int64) + 1)
            ends[some] = starts[some] + np.minimum(sizes, _u(self.size)).view(np.int64)
        places = (starts < ends) & (ends <= end)
        return Message(fields, starts[places], ends[places], complete=at == end)

    def head(self, start: int, end: int, many: int) -> list[Field]:
        """The fields of a message in front of its long list, or all that are whole where it has none."""
        fields = list[Field]()
        with suppress(MalformedError):
            fields.extend(self.walk(start, end, many))
        return fields

    def walk(self, start: int, end: int, many: int | None = None) -> Iterator[Field]:
        """The fields of a message, up to its long list if it has one; a MalformedError where it is not whole."""
        stop = None if many is None else many << 3 | BYTES
        while start < end and self.data[start] != stop:
            field, start = self._field(start, end)
            yield field

    def _field(self, at: int, end: int) -> tuple[Field, int]:
        tag, at = self._varint(at, end)
        kind = tag & 7
        if kind == VARINT:
            value, at = self._varint(at, end)
            return Field(tag >> 3, value, -1), at
        if kind == BYTES:
            size, at = self._varint(at, end)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind, end)
        if size > end - at:
            raise MalformedError
        return Field(tag >> 3, at, at + size), at + size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        if at < end and (byte := self.data[at]) < _MORE:
            return byte, at + 1
        value = 0
        for shift, byte in enumerate(self.data[at : min(end, at + _LONGEST_VARINT)]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < _MORE:
                return value & (2**64 - 1), at + shift + 1
        raise MalformedError

    def text(self, start: int, end: int) -> str:
        """A string of the file; what is no UTF-8 is replaced."""
        return self.data[start:end].decode("utf-8", "replace")

    def texts(self, starts: Ints, ends: Ints) -> pl.Series:
        """Strings of the file, as `text` gives them."""
        data = memoryview(self.data)
        spelt = [data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        try:
            return pl.Series(spelt, dtype=pl.Binary).cast(pl.String)
        except pl.exceptions.ComputeError:  # some are no UTF-8
            return pl.Series([text.decode("utf-8", "replace") for text in spelt], dtype=pl.String)

    def fields(self, starts: Ints, ends: Ints) -> Iterator[tuple[Fields, Ints]]:
        """All fields of many messages, block by block, each with the rows of its messages that are malformed."""
        for at in range(0, len(starts), _BLOCK):
            fields, broken = self._block(starts[at : at + _BLOCK], ends[at : at + _BLOCK])
            yield fields._replace(owner=fields.owner + at), broken + at

    def all_fields(self, starts: Ints, ends: Ints) -> tuple[Fields, Ints]:
        """As `fields`, in one."""
        blocks = list(self.fields(starts, ends)) or [(_NOTHING, _NONE)]
        columns = zip(*(fields for fields, _ in blocks), strict=True)
        return Fields(*map(np.concatenate, columns)), np.concatenate([broken for _, broken in blocks])

    def _block(self, starts: Ints, ends: Ints) -> tuple[Fields, Ints]:
        """Takes one field of every message at a time, until all are at their end."""
        rows, at, end = np.arange(len(starts)), starts, ends
        parts, broken = [_NOTHING], [_NONE]
        for _ in range(_MOST_FIELDS):
            unfinished = at < end
            if not unfinished.all():
                rows, at, end = rows[unfinished], at[unfinished], end[unfinished]
            if not len(rows):
                break
            some, at = self._next(rows, at)
            good = (at <= end) & (at > 0)
            if not good.all():
                broken.append(rows[~good])
                rows, at, end, some = rows[good], at[good], end[good], some.where(good)
            parts.append(some)
        broken.append(rows)  # with more fields than any message has
        return Fields(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate(broken)

    def _next(self, rows: Ints, at: Ints) -> tuple[Fields, Ints]:
        """The field at each place and where the next one is: 0 where this is none."""
        tag: Tags = self._bytes[at]
        tag, at = (tag, at + 1) if tag.max() < _MORE else self.varints(at)  # of fields up to 15 they are one byte each
        kind = tag & 7
        value, after = self.varints(at)
        length = np.full(len(at), -1)
        if (is_bytes := kind == BYTES).any():
            room = np.minimum(value, _u(self.size + 1)).view(np.int64)  # a size beyond the file stays beyond
            length[is_bytes] = room[is_bytes]
            value = np.where(is_bytes, after.view(_u), value)
            after = np.where(is_bytes, after + room, after)
        if (is_fixed := (kind == FIXED64) | (kind == FIXED32)).any():
            wide = kind[is_fixed] == FIXED64
            word = self._words[at[is_fixed].clip(max=self.size)]
            value[is_fixed] = np.where(wide, word, word & _u(0xFFFFFFFF))
            after[is_fixed] = at[is_fixed] + np.where(wide, 8, 4)
        after[(kind != VARINT) & ~is_bytes & ~is_fixed] = 0
        return Fields(rows, tag >> 3, value, length), after

    def varints(self, at: Ints) -> tuple[Words, Ints]:
        """The number at each place and where it ends: beyond the buffer where it has no end."""
        at = np.minimum(at, self.size)
        word = self._words[at]
        last = ~word & _EVERY_MORE
        last &= ~last + _u(1)  # the lowest: the top bit of the last byte
        below = last - _u(1)  # all ones where eight bytes hold no last one
        length = (np.bitwise_count(below) + 1) >> 3
        word &= below
        for stays, moves, by in _PACKING:
            word = (word & stays) | ((word & moves) >> by)
        after = at + length
        if (is_long := last == 0).any():
            # Nine or ten bytes, of which eight are in `word`: negative numbers, hashes and addresses.
            at = at[is_long] + 8
            ninth, tenth = self._bytes[at], self._bytes[np.minimum(at + 1, self.size)]
            two = ninth >= _MORE
            high = np.where(two, (tenth & 1).astype(_u) << _u(63), _u(0))
            word[is_long] |= (ninth & 0x7F).astype(_u) << _u(56) | high
            after[is_long] = np.where(two, np.where(tenth < _MORE, at + 2, self.size + _LONGEST_VARINT), at + 1)
        return word, after


_NONE: Final[Ints] = np.empty(0, np.int64)
_NOTHING: Final = Fields(_NONE, _NONE, np.empty(0, np.uint64), _NONE)
