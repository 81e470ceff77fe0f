"""An XSpace file as its planes, one in memory at a time, and what of a broken one can be said or saved."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final

from advisor.errors import ReadError
from advisor.inputs.readers.xplane.plane import Plane
from advisor.inputs.readers.xplane.wire import PADDING, Buffer
from advisor.model.clause import Note
from advisor.system.file_size import too_large
from advisor.text import one_line

_PIECE_BYTES: Final = 4 << 20
_PLANE, _ERROR, _WARNING = 1, 2, 3
_FIELD_NUMBERS: Final = range(1, 16)  # that a later version of the format might use
_REPLACED_SHARE: Final = 1 / 200  # of the bytes; names hold none, lengths and numbers that became text hold many
_MOST_NOTES: Final = 3
_LONGEST_NOTE: Final = 300
_BYTES: Final = 2
_LONGEST_VARINT: Final = 10


@dataclass(slots=True)
class Space:
    """One file being read: iterate `planes()` once, then `salvaged` is complete."""

    name: str
    stream: IO[bytes]
    on_read: Callable[[int], object]
    max_bytes: int | None = None
    salvaged: list[Note] = field(default_factory=list)
    _read_bytes: int = 0

    def planes(self) -> Iterator[Plane]:
        """The whole planes of the file, in its order; a ReadError where nothing of it can be read."""
        complete, notes = 0, 0
        while (tag := self._varint()) is not None:
            field_number, kind = tag >> 3, tag & 7
            size = self._varint() if kind == _BYTES else None
            if field_number not in _FIELD_NUMBERS or size is None:
                self._give_up(b"", complete)
                return
            if not size and field_number == _PLANE:
                complete += 1
                continue
            data = self._take(size)
            if len(data) < size:
                self._give_up(data, complete)
                return
            if field_number == _PLANE:
                data += PADDING
                plane = Plane(Buffer(data))
                if not plane.complete:
                    self._give_up(data, complete)
                    return
                complete += 1
                yield plane
                del plane, data
            elif field_number in {_ERROR, _WARNING} and notes < _MOST_NOTES:
                notes += 1
                message = one_line(data[: 4 * _LONGEST_NOTE].decode("utf-8", "replace"), _LONGEST_NOTE)
                self.salvaged.append(Note("profiler_message", message=message))
        if not complete:
            raise ReadError(f"{'empty' if not self._read_bytes else 'no plane in it'}; record it again", self.name)

    def _give_up(self, data: bytes | bytearray, complete: int) -> None:
        """At a field that is not whole: the file ends in it, or its bytes are not what was written."""
        data = bytes(data[: 4 * _PIECE_BYTES])
        if data.count("\N{REPLACEMENT CHARACTER}".encode()) > _REPLACED_SHARE * (len(data) + 1):
            why = Note("bytes_changed")
        elif not self.stream.read(1):
            why = Note("cut_off", bytes=self._read_bytes)
        else:
            why = Note("damaged", byte=self._read_bytes)
        if not complete:
            how = " as binary" if why.code == "bytes_changed" else ""
            raise ReadError(f"{why.words}; copy it again{how}, or record it again", self.name)
        self.salvaged.append(why)

    def _varint(self) -> int | None:
        """The next number of the stream; None at its end or where there is none."""
        value = 0
        for shift in range(_LONGEST_VARINT):
            byte = self.stream.read(1)
            if not byte:
                return None
            self._read_bytes += 1
            value |= (byte[0] & 0x7F) << 7 * shift
            if byte[0] < 0x80:  # noqa: PLR2004 - the last byte of a varint
                return value
        return None

    def _take(self, size: int) -> bytearray:
        """So many bytes; fewer where the stream ends."""
        data = bytearray()
        while len(data) < size:
            piece = self.stream.read(min(size - len(data), _PIECE_BYTES))
            if not piece:
                break
            data += piece
            self._read_bytes += len(piece)
            if self.max_bytes is not None and self._read_bytes > self.max_bytes:
                raise too_large(self.name, self.max_bytes)
            self.on_read(len(piece))
        return data
