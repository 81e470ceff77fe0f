"""Keeps libraries in other languages from standard error: what went wrong is the exception that they raise."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STDERR: Final = 2
_lock = threading.Lock()
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
        raise OSError("a damaged file") from error
