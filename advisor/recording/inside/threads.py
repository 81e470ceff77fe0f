"""What the threads of a process run while its stacks are sampled, and where those of Python are at each sample.

A thread that wants the interpreter's lock sleeps until another gives it up: its stack does not show that, its CPU time
does.
"""

from __future__ import annotations

import sys
import threading
from types import CodeType
from typing import Any, Callable, Dict, List, Tuple

from .contention import Work, thread_work

Place = Tuple[CodeType, int]
_NOTHING = Work(0, 0)
_LEAST = 0.02  # of the time: a thread that runs for less keeps nobody waiting
_DEPTH = 30


class Threads:
    """The threads of the calling process between `begin` and `end`, which may come several times.

    Args:
        is_own: Whether a file is of the program.
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self.is_own = is_own
        self._before: Dict[int, Work] = {}
        self._sums: Dict[int, Work] = {}
        self._places: Dict[int, Dict[Place, int]] = {}

    def begin(self) -> None:
        """Look from here."""
        self._before = thread_work()

    def look(self) -> None:
        """Where the other threads of Python are; in a signal's handler, which takes no lock."""
        frames = sys._current_frames()
        if len(frames) == 1:
            return
        for thread, frame in frames.items():
            self._places.setdefault(thread, {})
            at: Any = frame
            depth = _DEPTH
            while at is not None and depth and not self.is_own(at.f_code.co_filename):
                at, depth = at.f_back, depth - 1
            if at is not None and depth:
                place = (at.f_code, at.f_lasti)
                self._places[thread][place] = self._places[thread].get(place, 0) + 1

    def end(self) -> None:
        """Look no more."""
        for thread, work in thread_work().items():
            before, total = self._before.get(thread, _NOTHING), self._sums.get(thread, _NOTHING)
            self._sums[thread] = Work(*(a + b - c for a, b, c in zip(total, work, before)))
        self._before = {}

    def block(self, span_ns: int, described: Callable[[Place], Dict[str, Any]]) -> Dict[str, Any]:
        """What the main thread ran and waited for a core, and the other threads of Python that ran for 2 % or more."""
        main = threading.main_thread()
        others: List[Dict[str, Any]] = []
        for thread in threading.enumerate():
            run_ns = self._sums.get(thread.native_id or 0, _NOTHING).run_ns
            places = self._places.get(thread.ident or 0)
            if thread is not main and places and run_ns >= _LEAST * span_ns:
                place = max(places, key=lambda each: places[each])
                others.append(dict(described(place), run_ns=run_ns))
        work = self._sums.get(main.native_id or 0)
        return {"main": None if work is None else work._asdict(), "others": others}
