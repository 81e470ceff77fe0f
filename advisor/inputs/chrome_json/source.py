"""A file's decompressed text in pieces, where its events begin and end, and what of broken JSON can be mended."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import IO, Final

from isal import isal_zlib
from isal.igzip_lib import IsalError

from advisor.model.clause import Note

PIECE_BYTES: Final = 4 << 20  # larger pieces cost page faults, smaller ones frames
_READ_BYTES: Final = 64 << 10  # compressed; what is lost in front of a damaged spot
_TRAILER_BYTES: Final = 8  # checksum and length: fed apart, so that a wrong checksum loses no text
_GZIP_WINDOW: Final = 31
_PADDING: Final = b"\0"  # legal between and after gzip members


class Source:
    """Iterates over the text of `stream`, gzipped or not, inflated on another thread, one piece ahead of the reader.

    `on_read` gets the number of bytes taken from the file each time.
    """

    def __init__(
        self, stream: IO[bytes], size: int = PIECE_BYTES, on_read: Callable[[int], object] = lambda _: None
    ) -> None:
        self.broken: Note | None = None  # afterwards: that its end is missing
        self._stream, self._size, self._on_read = stream, size, on_read

    def __iter__(self) -> Iterator[bytes]:
        """Pieces of about `size` bytes; the last may be shorter."""
        pieces = self._pieces()
        yield (first := next(pieces))
        if len(first) < _READ_BYTES:  # there is no more, most likely
            yield from pieces
            return
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(next, pieces, None)
            while (piece := coming.result()) is not None:
                coming = ahead.submit(next, pieces, None)
                yield piece

    def _pieces(self) -> Iterator[bytes]:
        first = self._read(_READ_BYTES)
        if not first.startswith(b"\x1f\x8b"):
            yield first
            yield from iter(partial(self._read, self._size), b"")
            return
        pending = list[bytes]()
        for piece in self._inflate(first):
            pending.append(piece)
            if sum(map(len, pending)) >= self._size:
                yield b"".join(pending)
                pending.clear()
        yield b"".join(pending)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._on_read(len(data))
        return data

    def _inflate(self, first: bytes) -> Iterator[bytes]:
        """Text of all gzip members; stops with `broken` set where the data is damaged or ends early."""
        inflate, inside = isal_zlib.decompressobj(_GZIP_WINDOW), False
        for block in self._compressed(first):
            rest, more = block if inside else block.lstrip(_PADDING), False
            while rest or more:
                try:
                    text = inflate.decompress(rest, self._size)
                except (IsalError, EOFError):  # type: ignore[misc]  # the stub gives it no base
                    self.broken = Note("gzip_damaged")
                    return
                yield text
                rest, inside = inflate.unconsumed_tail, not inflate.eof
                more = inside and len(text) == self._size  # held back inside the library
                if inflate.eof:
                    rest = inflate.unused_data.lstrip(_PADDING)
                    inflate = isal_zlib.decompressobj(_GZIP_WINDOW)
        if inside:
            self.broken = Note("gzip_cut_off")

    def _compressed(self, tail: bytes) -> Iterator[bytes]:
        while block := self._read(_READ_BYTES):
            tail += block
            yield tail[:-_TRAILER_BYTES]
            tail = tail[-_TRAILER_BYTES:]
        yield tail[:-_TRAILER_BYTES]
        yield tail[-_TRAILER_BYTES:]


BETWEEN: Final = b" \t\r\n,"  # what may stand between two events

_BOUNDARY = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args)")')
# Possessive throughout: linear on hostile text.
_JSON_RUN = re.compile(
    rb"""
    ( (?: [NIin,-]{16,}+                             # that many on end are no JSON, whatever is made of them
        | "[^"\\\x00-\x1f]*+" | "(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+" | [^",NIin-]++
        | -(?![NIin]) | ,(?!\s*+[\]}]) | null )++ )  # all is well
    | "(?:[^"\\]++|\\.)*+"?                          # a string with control characters, or without an end
    | ,                                              # in front of a closing bracket
    | -?\b(?:NaN|Infinity|inf|nan)\b
    """,
    re.DOTALL | re.VERBOSE,
)
# An escaped backslash or a pair of surrogates, which are well; or a surrogate alone, which no text can hold.
_SURROGATE = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def last_boundary(text: bytes | bytearray) -> int:
    """Where the last event but one seems to end; 0 where no such place is found."""
    reach = 64 << 10
    while True:
        start = max(0, len(text) - reach)
        ends = [match.end() for match in _BOUNDARY.finditer(text, start)]
        if ends:
            return ends[-1]
        if not start:
            return 0
        reach *= 4


def apart(text: bytes) -> list[bytes]:
    """Text cut at every place where one event seems to end and the next to begin."""
    cuts = [match.end() for match in _BOUNDARY.finditer(text)]
    return [text[a:b].strip(BETWEEN) for a, b in pairwise([0, *cuts, len(text)])]


def repaired(text: bytes | bytearray) -> bytes:
    """The same text as valid JSON where only encoding, control characters, NaN or trailing commas were wrong."""
    text = _SURROGATE.sub(lambda match: match[1] or rb"\ufffd", text.decode("utf-8", "replace").encode())
    return _JSON_RUN.sub(_repair_run, text)


def _repair_run(match: re.Match[bytes]) -> bytes:
    run = match[0]
    if match[1] is not None:
        return run
    if run.startswith(b'"'):
        return re.sub(rb"[\x00-\x1f]", b" ", run)
    return b"" if run == b"," else b"null"
