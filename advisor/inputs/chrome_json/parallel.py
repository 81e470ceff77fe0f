"""Stretches of a trace's events, decoded by other processes in the order of the file."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Generic, TypeAlias, TypeVar

from advisor.inputs.chrome_json.source import BETWEEN, last_boundary
from advisor.system.processes import pool

T = TypeVar("T")
# Number of events in a list, and what becomes of them; None where the text is no list. It runs in another process
Decode: TypeAlias = Callable[[bytes], tuple[int, T] | None]
_Coming: TypeAlias = Future[tuple[int, T] | None]

_AHEAD: Final = 3  # stretches for each process: one in work, one on its way, one that waits for its turn
_LONGEST_BYTES: Final = 8 << 20  # of text in which no event seems to end: it is of another layout, or damaged


@dataclass(slots=True)
class Parallel(Generic[T]):
    """Decodes on `processes` processes, and gathers what comes of each stretch in the order of the file."""

    decode: Decode[T]
    gather: Callable[[T], None]  # gets what becomes of each stretch
    processes: int
    events: int = 0  # so far

    def rest(self, text: bytes, pieces: Iterator[bytes]) -> bytes:
        """Decode `text` and all pieces after it, as far as they are cut right; what remains of the text that was taken.

        Text is cut where one event seems to end and the next to begin. What remains is the end of the list; or,
        from the first wrong cut on, all text that was taken from `pieces`.
        """
        waiting = deque[tuple[bytes, _Coming[T]]]()
        with (
            suppress(BrokenProcessPool, OSError),  # for want of memory or of a place for files: one process needs less
            TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            pool(self.processes) as workers,
        ):
            for number, piece in enumerate(pieces):
                text += piece
                if cut := last_boundary(text):
                    stretch, file = text[:cut], Path(folder, str(number))  # a pipe takes several times as long
                    file.write_bytes(b"".join((b"[", stretch.lstrip(BETWEEN), b"]")))
                    waiting.append((stretch, workers.submit(_of_file, self.decode, file)))
                    text = text[cut:]  # not before: a broken pool refuses the stretch
                is_full = len(waiting) >= _AHEAD * self.processes
                if len(text) > _LONGEST_BYTES or (is_full and not self._gather_first(waiting)):
                    break
            while waiting and self._gather_first(waiting):
                pass
        return b"".join([*(stretch for stretch, _ in waiting), text])

    def _gather_first(self, waiting: deque[tuple[bytes, _Coming[T]]]) -> bool:
        """Gather the first stretch that waits; whether it could be decoded, and waits no longer."""
        decoded = waiting[0][1].result()
        if decoded is not None:
            waiting.popleft()
            events, columns = decoded
            self.events += events
            self.gather(columns)
        return decoded is not None


def _of_file(decode: Decode[T], file: Path) -> tuple[int, T] | None:
    """What becomes of the text in a file, which is gone then."""
    text = file.read_bytes()
    file.unlink()
    return decode(text)
