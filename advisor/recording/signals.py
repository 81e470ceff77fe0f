r"""Signals while a program runs: what is sent to us is the program's to handle, and we stop where it stops.

They are held back rather than handled, because only a signal that is waited for says who sent it: what the terminal
sends (Ctrl-Z, Ctrl-\) has reached the program already, which is in our group.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PASSED_ON: Final = frozenset(
    {
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP),
    }
)
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_AWAITED: Final = PASSED_ON | {signal.SIGCHLD}


@contextmanager
def holding() -> Iterator[None]:
    """In it, signals wait for `attend`; Ctrl-C is for the program alone, which the terminal sends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    interrupt = signal.signal(signal.SIGINT, lambda *_: None)  # unlike one that is ignored, it is not inherited
    try:
        yield
    finally:
        while signal.sigtimedwait(_AWAITED, 0):
            pass  # sent to a program that is no more
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, interrupt)


@contextmanager
def interrupting() -> Iterator[None]:
    """In it, signals that ask a process to end are KeyboardInterrupt: what was begun is ended in order."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def released() -> None:
    """What the program's process does before it becomes the program: a mask is inherited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)


def attend(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a signal and do what it asks for; whether that many seconds went by without one."""
    arrived = signal.sigtimedwait(_AWAITED, seconds)
    if arrived is None:
        return True
    if arrived.si_signo == signal.SIGCHLD:
        with suppress(ChildProcessError):  # it ended
            if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG):
                _stop()
    elif arrived.si_code <= 0:  # a process sent it
        process.send_signal(arrived.si_signo)
    return False


def _stop() -> None:
    """Stop, so that the shell gets its terminal back; where no shell could continue us, the kernel does not."""
    signal.raise_signal(signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
