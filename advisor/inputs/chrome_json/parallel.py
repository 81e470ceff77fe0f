"""Stretches of a trace's events, decoded by other processes in the order of the file."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final, Generic, TypeVar

from advisor.inputs.chrome_json.repair import last_boundary

T = TypeVar("T")

_AHEAD: Final = 3  # stretches for each process: one in work, one on its way, one that waits for its turn
_LONGEST_BYTES: Final = 8 << 20  # of text in which no event seems to end: it is of another layout, or damaged


@dataclass(slots=True)
class Parallel(Generic[T]):
    """Decodes on `processes` processes, and gathers what comes of each stretch in the order of the file.

    Attributes:
        decode: Number of events in a stretch of text, and what becomes of them; None where the text is no such stretch.
            It runs in another process.
        gather: Gets what becomes of each stretch.
        events: Number of events so far.
    """

    decode: Callable[[bytes], tuple[int, T] | None]
    gather: Callable[[T], None]
    processes: int
    events: int = 0

    def rest(self, text: bytes, pieces: Iterator[bytes]) -> bytes:
        """Decode `text` and all pieces after it, as far as they are cut right; what remains of the text that was taken.

        Text is cut where one event seems to end and the next to begin. What remains is the end of the list; or,
        from the first wrong cut on, all text that was taken from `pieces`.
        """
        waiting = deque[tuple[bytes, Future[tuple[int, T] | None]]]()
        with _pool(self.processes) as pool, suppress(BrokenProcessPool):  # for want of memory: one process needs less
            for piece in pieces:
                text += piece
                if cut := last_boundary(text):
                    waiting.append((text[:cut], pool.submit(self.decode, text[:cut])))
                    text = text[cut:]
                is_full = len(waiting) >= _AHEAD * self.processes
                if len(text) > _LONGEST_BYTES or (is_full and not self._gather_first(waiting)):
                    break
            while waiting and self._gather_first(waiting):
                pass
        return b"".join([*(stretch for stretch, _ in waiting), text])

    def _gather_first(self, waiting: deque[tuple[bytes, Future[tuple[int, T] | None]]]) -> bool:
        """Gather the first stretch that waits; whether it could be decoded, and waits no longer."""
        decoded = waiting[0][1].result()
        if decoded is not None:
            waiting.popleft()
            events, columns = decoded
            self.events += events
            self.gather(columns)
        return decoded is not None


def _pool(processes: int) -> Executor:
    # A forked process would inherit polars' locks, but not the threads that hold them.
    return ProcessPoolExecutor(processes, get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """A process for each core needs no threads; millions of short-lived events are no garbage to look for."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    gc.disable()
