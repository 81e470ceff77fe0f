r"""Signals while a program runs: what is sent to us is the program's to handle, and we stop where it stops.

They are held back rather than handled, because only a signal that is waited for says who sent it: what the terminal
sends (Ctrl-Z, Ctrl-\) has reached the program already, which is in our group. macOS does not say it. There the program
gets these twice: one signal too many does less harm than one too few. But of SIGINT two may break off what the first
makes a program write: a witness in our group, whom it ends, tells whether it was sent to all, as Ctrl-C is, or to us.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, TypeAlias

PASSED_ON: Final = frozenset(
    {
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP),
    }
)
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
FOR_PROGRAMS: Final = PASSED_ON - ENDING - {signal.SIGTSTP}
SIGNALLED: Final = 128  # what shells add to the number of the signal that ended a program
Handler: TypeAlias = Callable[[int, FrameType | None], object]

_AWAITED: Final = PASSED_ON | {signal.SIGINT, signal.SIGCHLD}
_HANDLED: Final = (signal.SIGINT, signal.SIGWINCH, signal.SIGCONT)
_PAUSE_S: Final = 0.05
_WITNESS: Final = """import signal as of, sys
of.signal(of.SIGINT, of.SIG_DFL)
of.pthread_sigmask(of.SIG_UNBLOCK, {of.SIGINT})
sys.stdin.read()"""
_DEATH_S: Final = 0.25  # it takes a millisecond, and 20 of one that has just begun
_begun: list[list[int]] = []  # what came meanwhile
_witnesses: list[subprocess.Popen[bytes]] = []


def _disregard(*_: object) -> None:
    pass


@contextmanager
def holding() -> Iterator[None]:
    """In it, signals wait for `attend`.

    The handlers do nothing. Unlike a signal that is ignored, they are not inherited; and macOS forgets one that waits
    if it would be ignored. That of SIGCHLD stays: another thread may be about to call it, and Python misses it.
    """
    signal.signal(signal.SIGCHLD, _disregard)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    ours = _HANDLED if signal.getsignal(signal.SIGINT) != signal.SIG_IGN else _HANDLED[1:]  # of a shell's `&`
    with handling(dict.fromkeys(ours, _disregard)):
        _witnesses.append(_witness())
        try:
            yield
        finally:
            while _arrived(0):
                pass  # sent to a program that is no more
            _witnesses[-1].kill()  # it may have been stopped
            _witnesses.pop().communicate()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """In it, these handle signals."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupting() -> Iterator[None]:
    """In it, a signal that asks a process to end is KeyboardInterrupt with its number: all is ended in order.

    What is for a program alone does nothing while none runs. What `nohup` or a shell's `&` ignores stays ignored.
    """

    def interrupt(number: int, _: object) -> None:
        if not _begun:
            raise KeyboardInterrupt(number)
        _begun[-1].append(number)

    handlers = dict.fromkeys(FOR_PROGRAMS, _disregard) | dict.fromkeys((signal.SIGINT, *ENDING), interrupt)
    with handling({number: handlers[number] for number in handlers if signal.getsignal(number) != signal.SIG_IGN}):
        yield


@contextmanager
def undivided() -> Iterator[None]:
    """In it, such a signal waits for the end: a process that was begun, and that nobody knows yet, nobody would end."""
    _begun.append([])
    try:
        yield
    finally:
        numbers = _begun.pop()
    if numbers:
        raise KeyboardInterrupt(numbers[0])


def released() -> None:
    """What the program's process does before it becomes the program: a mask is inherited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)


def attend(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a signal and do what it asks for; whether that many seconds went by without one."""
    arrived = _arrived(seconds)
    if arrived is None:
        return True
    number, is_sent = arrived
    if number == signal.SIGCHLD:
        with suppress(ChildProcessError):  # it ended
            # Whether it has just stopped. Where it has ended, this is what takes its exit code: macOS has no `waitid`.
            pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
            if pid and not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
            was_continued = signal.SIGCONT in signal.sigpending()  # as whoever stops and continues all of us does
            if pid != 0 and os.WIFSTOPPED(status) and not was_continued:
                # Stop, so that the shell gets its terminal back; where no shell could continue us, the kernel does not.
                signal.raise_signal(signal.SIGTSTP)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    elif number == signal.SIGINT:
        try:
            _witnesses[-1].wait(_DEATH_S)
            _witnesses[-1] = _witness()
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    elif is_sent:
        process.send_signal(number)
    return False


def _witness() -> subprocess.Popen[bytes]:
    """A process in our group that SIGINT ends, or our end; it inherits the mask for other signals."""
    command = [sys.executable, "-ISc", _WITNESS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - our own


def _arrived(seconds: float) -> tuple[int, bool] | None:
    """The next signal, and whether a process sent it, as far as the system says; None where none comes in that time.

    Python's own wait with a time limit answers with any number once it was stopped for longer than that; with none it
    does not stop. What waits for the process may go to another of its threads before we take it.
    """
    end = time.monotonic() + seconds
    while True:
        waiting = signal.sigpending() & _AWAITED
        if waiting and not hasattr(signal, "sigtimedwait"):
            return signal.sigwait(waiting), True
        if waiting and (arrived := signal.sigtimedwait(waiting, 0)):
            return arrived.si_signo, arrived.si_code <= 0
        if time.monotonic() >= end:
            return None
        time.sleep(_PAUSE_S)
