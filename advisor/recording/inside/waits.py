"""What the main thread waits for when a timer's signal finds it within a call: Python's own handler comes too late.

It runs behind the next call: of a wait for a lock (`with lock:`), of an iterator or an operator that is a later line. A
second thread looks earlier, unless the main thread keeps the interpreter's lock; then no other place is better known.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, start_new_thread  # those of now: gevent replaces them
from typing import Any, Optional

from . import real_time as time
from .lines import Stack, is_of_recorder
from .threads import stacks_of, stacks_of_threads
from .timers import WakeTimer

_LATE_NS = 500_000
_DEPTH = 60


def stack_of(frame: Any) -> Stack:
    """A frame and those that called it, the innermost first."""
    return next(stacks_of(iter((frame,)), _DEPTH))


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
        self._timer: Optional[WakeTimer] = None
        self._late_ns = 0

    def begin(self) -> None:
        """Look after the calling thread from here."""
        is_ready = allocate_lock()
        is_ready.acquire()
        self.thread = start_new_thread(self._run, (is_ready, get_ident()))  # none of the program's threads
        is_ready.acquire()

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

    def _run(self, is_ready: Any, thread: int) -> None:
        try:
            self._timer = timer = WakeTimer()
        except (ImportError, AttributeError, TypeError, OSError):  # no ctypes, no Linux
            return
        finally:
            is_ready.release()
        while timer.wait():
            stack = stacks_of_threads(_DEPTH, thread).get(thread)
            is_late = self._timer is timer and self.stack is None and time.perf_counter_ns() >= self._late_ns
            if is_late and stack and not is_of_recorder(stack[0][0].co_filename):
                self.stack = stack
