"""Processes of this program: how they spend little on garbage, and pools of them that share the cores."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_OBJECTS: Final = 1_000_000  # looked for garbage after every 700, as by default, start-up takes a fifth longer


def spare_garbage() -> None:
    """Have Python look for garbage rarely, and not at the end: to go through all objects then is a sixth of a check."""
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)


def pool(processes: int, also: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """New processes, each with its share of the cores for polars; each calls `also` before its first task."""
    import multiprocessing  # noqa: PLC0415 - a check of one file starts no process
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as above

    # A forked process would inherit polars' locks, but not the threads that hold them.
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // processes)
    return ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(threads, also))


def _begin(threads: int, also: Callable[[], object] | None) -> None:
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # read when polars' threads first start
    spare_garbage()
    if also:
        also()
