"""Timers that Python's library lacks: their signal reaches one thread, which handles it or waits for it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from typing import Any, Callable, Optional

# Functions are called by PyDLL: one that waits for nothing keeps the interpreter's lock, which others may be after.
_MONOTONIC = 1
_TO_THREAD = 4  # SIGEV_THREAD_ID
_NO_STACK = 2  # SS_DISABLE
_ON_STACK = 0x08000000  # SA_ONSTACK
_STACK_BYTES = 1 << 16  # what the system stores of a thread takes 11 kB where the CPU has AMX
_SET = 128  # bytes of a set of signals
_EVENT = 64  # bytes of `struct sigevent`
_LOOK_S = 1.0  # a program that ignores the signal from here on takes it from who waits

_set_timer: Any = getattr(signal, "setitimer", None)  # the system's own: the program's name for it stops the sampler
_block: Any = getattr(signal, "pthread_sigmask", None)
_await: Any = getattr(signal, "sigtimedwait", None)


class ThreadTimer:
    """Sends a signal to the calling thread once some time has passed (`timer_create`); a forked process has none.

    It is no file, whose number a program that closes all files might give to one of its own.

    Raises:
        ImportError, AttributeError, OSError: there is none to be had.
    """

    def __init__(self, number: int) -> None:
        import ctypes

        libc = ctypes.PyDLL(None, use_errno=True)
        library = libc if hasattr(libc, "timer_create") else ctypes.PyDLL("librt.so.1", use_errno=True)
        self._spec, self._settime, self._delete = ctypes.c_long * 4, library.timer_settime, library.timer_delete
        event = ctypes.create_string_buffer(_EVENT)
        place = ctypes.sizeof(ctypes.c_void_p)  # behind a value that a handler may get
        (ctypes.c_int * 3).from_buffer(event, place)[:] = [number, _TO_THREAD, threading.get_native_id()]
        self._process, self._timer = os.getpid(), ctypes.c_void_p()
        if library.timer_create(_MONOTONIC, event, ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "timer_create")

    def set(self, ns: int) -> None:
        """Send it after this time, and not before."""
        if os.getpid() == self._process:
            self._settime(self._timer, 0, self._spec(0, 0, *divmod(ns, 1_000_000_000)), None)

    def delete(self) -> None:
        """Send no more."""
        if os.getpid() == self._process:
            self._delete(self._timer)


class WakeTimer(ThreadTimer):
    """Wakes the thread that makes it, which waits, once some time has passed."""

    def __init__(self) -> None:
        _block(signal.SIG_BLOCK, [signal.SIGALRM])  # in this thread alone
        super().__init__(signal.SIGALRM)
        self._is_over = False

    def wait(self) -> bool:
        """Until then; False once it is closed."""
        while not self._is_over and _await([signal.SIGALRM], _LOOK_S) is None:
            pass
        if self._is_over:
            self.delete()
        return not self._is_over

    def close(self) -> None:
        """Let go who waits."""
        self._is_over = True
        self.set(1)


class SignalTimer:
    """Sends a signal to the main thread, which makes it, once some time has passed; Python's `handler` is called.

    Products of matrices on a CPU (oneDNN's, which XLA calls) may move the stack pointer of their thread into a block
    of the heap. Before a handler in C is called, Linux stores the thread's registers below that pointer: over whatever
    lies before the block. So Python's handler in C gets a stack of its own (`sigaltstack`), which a thread must ask for
    itself; and no other thread may get the signal, as it may that of `setitimer`, which is sent to the process.

    Raises:
        ImportError, AttributeError, OSError: there is no such timer or stack to be had; the signal is left as it is.
    """

    def __init__(self, number: int, handler: Callable[[int, Any], None]) -> None:
        self._number, self._handler = number, handler
        self._timer: Optional[ThreadTimer] = None
        if sys.platform == "darwin":  # it has neither this timer nor these products
            self._claim()
            return
        import ctypes

        libc = ctypes.PyDLL(None, use_errno=True)
        action = ctypes.create_string_buffer(256)  # of `struct sigaction`: handler, set of signals, flags
        libc.sigaction(number, None, action)
        place = ctypes.sizeof(ctypes.c_void_p)
        if any(action.raw[:place]):  # a handler in C, which Python does not know
            raise OSError(errno.EBUSY, "sigaction")
        _own_stack(ctypes, libc)
        self._timer = ThreadTimer(number)
        self._claim()
        libc.sigaction(number, None, action)
        ctypes.c_int.from_buffer(action, place + _SET).value |= _ON_STACK  # Python before 3.10 does not
        libc.sigaction(number, action, None)

    def set(self, ns: int) -> None:
        """Send it after this time, and not before."""
        if self._timer is None:
            _set_timer(signal.ITIMER_REAL, ns / 1e9)
        else:
            self._timer.set(ns)

    def close(self) -> None:
        """Send no more, and give the signal back."""
        if self._timer is None:
            _set_timer(signal.ITIMER_REAL, 0)
        else:
            self._timer.delete()
        if threading.current_thread() is threading.main_thread() and signal.getsignal(self._number) == self._handler:
            signal.signal(self._number, signal.SIG_IGN)  # one that is still to come would end the program
            signal.signal(self._number, signal.SIG_DFL)

    def _claim(self) -> None:
        signal.signal(self._number, self._handler)
        signal.siginterrupt(self._number, False)  # calls of the system go on


def _own_stack(ctypes: Any, libc: Any) -> None:
    """Give the calling thread a stack for handlers, unless it has one; it stays, since others may use it by then."""
    stack = (ctypes.c_size_t * 3)()  # where it is, flags, bytes
    if libc.sigaltstack(None, stack) == 0 and not stack[1] & _NO_STACK:
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    stack[:] = libc.malloc(_STACK_BYTES) or 0, 0, _STACK_BYTES
    if not stack[0] or libc.sigaltstack(stack, None):
        raise OSError(ctypes.get_errno(), "sigaltstack")
