"""Processes of this program: little spent on garbage, pools that share the cores, an end that leaves nothing behind.

Libraries in other languages are kept from standard error: what went wrong is the exception that they raise.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

LOCAL: Final = "local"  # the engine of this machine, by its name: see `engines`, which takes long to import
_SIGNALLED: Final = 128  # what shells add to the number of the signal that ended a program
_OBJECTS: Final = 1_000_000  # looked for garbage after every 700, as by default, start-up takes a fifth longer


def spare_garbage() -> None:
    """Have Python look for garbage rarely, and not at the end: to go through all objects then is a sixth of a check."""
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)


INHERITED: Final[dict[str, Any]] = {"umask": -1}  # what a user's program gets in place of ours, as `Popen` takes it


def own_files() -> None:
    """From here on, what we write is its owner's to read and to remove, whatever umask we were started with."""
    INHERITED["umask"] = os.umask(0o077)
    os.umask(INHERITED["umask"] & 0o077)


def pool(processes: int) -> ProcessPoolExecutor:
    """New processes, each with its share of the cores for polars; each ends when its parent is gone."""
    import multiprocessing  # noqa: PLC0415 - a check of one file starts no process
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as above

    class Pool(ProcessPoolExecutor):  # it starts processes that leave Ctrl-C to us: they would print a traceback
        def submit(self, *task: Any, **options: Any) -> Future[Any]:  # noqa: ANN401 - as its own
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by what it starts
            try:
                return super().submit(*task, **options)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # A forked process would inherit polars' locks, but not the threads that hold them.
    context = multiprocessing.get_context("spawn")
    sys.warnoptions[:] = dict.fromkeys([*sys.warnoptions, "ignore:resource_tracker:UserWarning"])  # as it clears up
    threads = max(1, (os.cpu_count() or 1) // processes)
    return Pool(processes, context, initializer=_begin, initargs=(threads,))


def _begin(threads: int) -> None:
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # read when polars' threads first start
    spare_garbage()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process  # noqa: PLC0415 - a check of one file starts no process

    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


@contextmanager
def unwound() -> Iterator[None]:
    """In it, a signal that ends programs lets this one clear up first, unless it is handled or ignored already."""
    ending = (signal.SIGTERM, signal.SIGHUP) if current_thread() is main_thread() else ()
    unhandled = [number for number in ending if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, lambda number, _: sys.exit(_SIGNALLED + number))
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


_STDERR: Final = 2
_lock = Lock()
_muted: list[int] = []  # where standard error really leads, once per call that wants it quiet


@contextmanager
def without_stderr() -> Iterator[None]:
    """Whatever writes to the descriptor of standard error meanwhile writes nowhere; with ADVISOR_DEBUG=1, as ever."""
    if os.environ.get("ADVISOR_DEBUG"):
        yield
        return
    with _lock:
        _muted.append(_muted[0] if _muted else os.dup(_STDERR))
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        with _lock:
            real = _muted.pop()
            if not _muted:
                os.dup2(real, _STDERR)
                os.close(real)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """In it, a panic of a library in Rust, as over a damaged file, is an OSError, and prints nothing."""
    try:
        with without_stderr():
            yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # each library has its own class of that name
            raise
        raise OSError(limit if (limit := os.strerror(errno.EMFILE)) in str(error) else "a damaged file") from error
