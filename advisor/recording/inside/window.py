"""Runs a function on the main thread from another one, without a signal."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Callable

_PAUSE_S = 0.01

_running: list[Any] = []
"""Functions that the interpreter is yet to call: it holds no reference itself."""


def in_main_thread(call: Callable[[], None]) -> threading.Event:
    """Have the main thread run `call` between two of its instructions: profilers record the thread that starts them.

    Returns:
        What is set once `call` has returned.
    """
    import ctypes

    done = threading.Event()
    while _is_importing():
        time.sleep(_PAUSE_S)

    def pending(_: object) -> int:
        call()
        done.set()
        return 0

    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    _running.append(function)
    ctypes.pythonapi.Py_AddPendingCall(function, None)
    return done


def _is_importing() -> bool:
    """Whether the main thread imports a module: another import would find it half done."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
