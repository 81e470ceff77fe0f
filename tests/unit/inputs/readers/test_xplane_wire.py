from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.readers.xplane.wire import PADDING, Buffer
from tests.strategies_xplane import field, message, varint

Told = tuple[int, object]

numbers = st.integers(0, 2**64 - 1) | st.integers(0, 300) | st.sampled_from([0, 127, 128, 2**56 - 1, 2**56, 2**63])
values = numbers | st.floats(allow_nan=False) | st.binary(max_size=200)
told = st.lists(st.lists(st.tuples(st.integers(1, 40), values), max_size=6), max_size=20)


def placed(messages: list[bytes]) -> tuple[Buffer, np.ndarray, np.ndarray]:
    """The messages one after the other, with a byte of something else between, and where each stands."""
    lengths = np.array([len(m) for m in messages], np.int64)
    starts = np.cumsum(lengths + 1) - lengths if len(messages) else np.empty(0, np.int64)
    return Buffer(b"".join(b"\xff" + m for m in messages) + PADDING), starts, starts + lengths


def expected(value: object) -> tuple[int, bytes | None]:
    """The column of numbers and the bytes that a value makes."""
    if isinstance(value, bytes):
        return -1, value
    return (struct.unpack("<Q", struct.pack("<d", value))[0] if isinstance(value, float) else int(str(value))), None


@given(told)
def test_columns_hold_what_was_encoded(made: list[list[Told]]):
    buffer, starts, ends = placed([message(*fields) for fields in made])
    found, broken = buffer.all_fields(starts, ends)
    assert list(broken) == []
    rows: dict[int, list[tuple[int, tuple[int, bytes | None]]]] = {i: [] for i in range(len(made))}
    for owner, number, value, length in zip(*(column.tolist() for column in found), strict=True):
        of_bytes = (-1, bytes(buffer.data[value : value + length])) if length >= 0 else (value, None)
        rows[owner].append((number, of_bytes))
    assert rows == {i: [(number, expected(value)) for number, value in fields] for i, fields in enumerate(made)}


@given(told)
def test_a_long_message_is_split_into_the_list_but_for_empty_ones_and_the_rest(made: list[list[Told]]):
    fields = [one for some in made for one in some]
    buffer, (start,), (end,) = placed([message(*fields)])
    found = buffer.split(int(start), int(end), 4)
    listed = [value for number, value in fields if number == 4 and isinstance(value, bytes) and value]
    assert [bytes(buffer.data[a:b]) for a, b in zip(found.starts, found.ends, strict=True)] == listed
    others = [number for number, value in fields if number != 4 or not isinstance(value, bytes)]
    assert [one.number for one in found.fields] == others
    assert found.complete
    head = buffer.head(int(start), int(end), 4)
    assert head == found.fields[: len(head)]


def test_negative_numbers_take_ten_bytes():
    buffer, starts, ends = placed([field(2, -1), field(2, -(2**63)), field(2, 5)])
    found, _ = buffer.all_fields(starts, ends)
    assert found.value.view(np.int64).tolist() == [-1, -(2**63), 5]


@pytest.mark.parametrize(
    "broken",
    [
        field(4, b"abc")[:-1],  # longer than its message
        b"\x08" + b"\xff" * 11,  # a number without an end
        b"\x08",  # a tag without a value
        b"\x0b\x00",  # a group
        b"\x0f\x00",  # no wire type
        b"\x09\x01\x02",  # a double of two bytes
        b"\x22" + varint(2**63),
        b"\x22" + varint(2**64 - 1),
    ],
)
def test_malformed_messages_are_told_and_the_others_are_whole(broken: bytes):
    buffer, starts, ends = placed([field(1, 7), field(3, 9) + broken, field(1, 8)])
    found, rows = buffer.all_fields(starts, ends)
    assert rows.tolist() == [1]
    assert sorted(zip(found.owner.tolist(), found.value.tolist(), strict=True)) == [(0, 7), (1, 9), (2, 8)]
    split = buffer.split(int(starts[1]), int(ends[1]), 4)
    assert not split.complete
    assert [one.value for one in split.fields] == [9]
    assert len(split.starts) == 0


def test_more_fields_than_any_message_has():
    buffer, starts, ends = placed([field(1, 7) * 5_000])
    assert buffer.all_fields(starts, ends)[1].tolist() == [0]
