from __future__ import annotations

import gzip
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.chrome_json.source import Source
from advisor.model.clause import Note
from tests.effort import examples

TEXT = "".join(random.Random(1).choices("abcdefghij {}[],", k=200_000)).encode()  # noqa: S311 - no secret
PACKED = gzip.compress(TEXT, mtime=0)
DAMAGED, ENDS_EARLY = Note("gzip_damaged"), Note("gzip_cut_off")


def unpacked(data: bytes, size: int = 10_000) -> tuple[bytes, str | None]:
    source = Source(io.BytesIO(data), size=size)
    return b"".join(source), source.broken


@pytest.mark.parametrize("data", [TEXT, PACKED], ids=["plain", "gzip"])
@pytest.mark.parametrize("size", [1_000, 65_536, 10_000_000])
def test_the_text_comes_whole_in_pieces_of_the_size_asked_for(data: bytes, size: int):
    pieces = list(Source(io.BytesIO(data), size=size))
    assert b"".join(pieces) == TEXT
    assert all(len(piece) <= max(2 * size, 64 << 10) for piece in pieces)


def test_a_short_text_is_read_without_a_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.inputs.chrome_json.source.ThreadPoolExecutor", None)
    for data in (b"", b"[]", gzip.compress(b"[]" * 30_000)):
        assert b"".join(Source(io.BytesIO(data))) in {data, b"[]" * 30_000}


def test_an_empty_file_has_no_text():
    assert unpacked(b"") == (b"", None)


def test_members_follow_each_other():
    assert unpacked(gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")) == (b"one two", None)


@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 512, 200_000])
def test_padding_between_and_after_members_is_no_damage(zeros: int):
    padding = bytes(zeros)
    assert unpacked(PACKED + padding + gzip.compress(b"end") + padding) == (TEXT + b"end", None)


def test_a_wrong_checksum_loses_no_text():
    wrong = PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:]
    assert unpacked(wrong) == (TEXT, DAMAGED)


def test_text_behind_a_members_wrong_checksum_is_not_trusted():
    wrong = PACKED[:-8] + bytes([PACKED[-8] ^ 1]) + PACKED[-7:]
    text, broken = unpacked(wrong + gzip.compress(b"more"))
    assert broken == DAMAGED
    assert TEXT.startswith(text)


def test_what_is_no_gzip_member_ends_the_text():
    assert unpacked(PACKED + b"#!/bin/sh\necho this is no gzip member\n") == (TEXT, DAMAGED)


@pytest.mark.parametrize("fiftieth", range(1, 50))
def test_a_truncated_file_gives_the_text_up_to_its_end(fiftieth: int):
    kept = PACKED[: len(PACKED) * fiftieth // 50]
    text, broken = unpacked(kept)
    assert broken == ENDS_EARLY
    assert TEXT.startswith(text)
    assert len(text) > 0.9 * len(TEXT) * (fiftieth - 2) / 50


def test_a_file_of_nothing_but_the_first_bytes_of_gzip_is_cut_off():
    assert unpacked(b"\x1f\x8b") == (b"", ENDS_EARLY)


@examples(0.6)
@given(st.integers(10, len(PACKED) - 1), st.integers(1, 255))
def test_damage_anywhere_is_noticed(at: int, change: int):
    damaged = PACKED[:at] + bytes([PACKED[at] ^ change]) + PACKED[at + 1 :]
    text, broken = unpacked(damaged)
    assert broken in {DAMAGED, ENDS_EARLY}
    assert len(text) < 5 * len(TEXT)


@pytest.mark.parametrize("data", [b"", TEXT, PACKED], ids=["empty", "plain", "gzip"])
def test_progress_adds_up_to_the_size_of_the_file(data: bytes):
    told: list[int] = []
    list(Source(io.BytesIO(data), size=5_000, on_read=told.append))
    assert sum(told) == len(data)


def test_a_failing_disk_is_not_hidden():
    class Failing(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(Source(Failing()))
