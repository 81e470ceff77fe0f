"""What the main thread waits for when a timer's signal finds it within a call: Python's own handler comes too late.

It runs behind the next call: of a wait for a lock (`with lock:`), of an iterator or an operator that is a later line. A
second thread looks earlier, unless the main thread keeps the interpreter's lock; then no other place is better known.
"""

from __future__ import annotations

import _thread
import threading
from typing import Any, Optional

from . import real_time as time
from .lines import Stack, is_of_recorder
from .threads import frames_of_threads
from .timers import FileTimer

_LATE_NS = 500_000
_DEPTH = 60


def stack_of(frame: Any) -> Stack:
    """A frame and those that called it, the innermost first."""
    stack, depth = [], _DEPTH
    while frame is not None and depth:
        stack.append((frame.f_code, frame.f_lasti))
        frame, depth = frame.f_back, depth - 1
    return tuple(stack)


class Lookout:
    """Looks where the calling thread is when a signal that it expects has not been handled in time.

    Its thread sleeps until then: most signals cost it nothing. It does nothing where the system has no such timer.

    Attributes:
        stack: Where the thread was; None where the signal came in time, or nobody could look.
        thread: The number of its own thread.
    """

    def __init__(self) -> None:
        self.stack: Optional[Stack] = None
        self.thread: Optional[int] = None
        self._timer: Optional[FileTimer] = None
        self._late_ns = 0

    def begin(self) -> None:
        """Look after the calling thread from here."""
        try:
            self._timer = FileTimer()
        except (ImportError, AttributeError, OSError):  # no ctypes, no Linux, no more files
            return
        watched = (self._timer, threading.get_ident())
        self.thread = _thread.start_new_thread(self._look, watched)  # none of the program's threads

    def expect(self, gap_ns: int) -> None:
        """A signal comes so much later than now; the one before was handled."""
        self.stack = None
        if self._timer is not None:
            self._late_ns = time.perf_counter_ns() + gap_ns + _LATE_NS
            self._timer.set(gap_ns + _LATE_NS)

    def end(self) -> None:
        """Look no more."""
        timer, self._timer, self.stack = self._timer, None, None
        if timer is not None:
            timer.close()

    def _look(self, timer: FileTimer, thread: int) -> None:
        while timer.wait():
            with frames_of_threads() as frames:
                frame = frames.get(thread)
                frames.clear()  # what others leave meanwhile would end here, and not in their threads
                is_late = self._timer is timer and self.stack is None and time.perf_counter_ns() >= self._late_ns
                if is_late and frame is not None and not is_of_recorder(frame.f_code.co_filename):
                    self.stack = stack_of(frame)
