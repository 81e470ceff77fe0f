"""What loading takes of a process: time, CPU, waits for a core, bytes, files, and the samples that take longest.

A process counts its own calls of the loader's `fetch`. The process of the steps counts its requests for batches, too.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

from . import real_time as time
from .lines import FETCHES
from .threads import thread_work

_POOLS = ("_handle_results", "_ExecutorManagerThread")
_HELPERS = dict(dict.fromkeys(_POOLS, "receive_ns"), _feed="send_ns", _pin_memory_loop="pin_ns")
"""Threads by what they run, else by their class: multiprocessing's pickles what a worker hands over, PyTorch's receives
and pins, and those of a pool of processes unpickle what these return."""
_MOST_SLOW = 5
_MOST_PATHS = 64
_MOST_READ_S = 0.5
_MOST_BYTES, _BLOCK = 64 << 20, 1 << 20
_NOT_FILES = ("/proc/", "/sys/", "/dev/")


class Loading:
    """Sums of the calling process between `begin` and `end`, which may come several times.

    `range` marks a request in a recording: PyTorch's loader does so in PyTorch's alone.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.range: Optional[Callable[[str], Any]] = None
        self.sums: Dict[str, int] = {}
        self.by_index: Dict[int, int] = {}
        self.paths: Dict[str, None] = {}
        self._visit: Tuple[Optional[int], int] = (None, 0)
        self._hears = False
        self._before: Dict[str, int] = {}

    def begin(self) -> None:
        """Count from here."""
        if not self.is_on:
            self._before, self.is_on = _of_process(), True

    def end(self) -> None:
        """Count no more."""
        if self.is_on:
            self.is_on = False
            for name, value in _of_process().items():
                self._add(name, max(0, value - self._before.get(name, 0)))

    def fetch(self, call: Callable[[Any, Any], Any], fetcher: Any, index: Any) -> Any:
        """Load a batch: `call` gets the loader's fetcher and the indices."""
        if not self.is_on:
            return call(fetcher, index)
        if not self._hears:  # of files that are opened, which Python announces; what hears that cannot be removed
            self._hears = True
            sys.addaudithook(self._count)
        at_ns, run_ns = time.perf_counter_ns(), time.thread_time_ns()
        batch = call(fetcher, index)
        self._add("fetch_ns", time.perf_counter_ns() - at_ns)
        self._add("run_ns", time.thread_time_ns() - run_ns)
        self._add("batches", 1)
        self._add("samples", len(index) if isinstance(index, (list, tuple)) else 1)
        return batch

    def request(self, call: Callable[[Any], Any], iterator: Any) -> Any:
        """Get the next batch of an iterator of the loader."""
        if self.range is not None:
            with self.range(iterator._profile_name):
                return call(iterator)
        if not self.is_on:
            return call(iterator)
        at_ns, run_ns = time.perf_counter_ns(), time.thread_time_ns()
        batch = call(iterator)
        self._add("request_ns", time.perf_counter_ns() - at_ns)
        self._add("request_run_ns", time.thread_time_ns() - run_ns)
        self._add("requests", 1)
        return batch

    def sample(self, frame: Any, ns: int) -> None:
        """A stack was sampled: its time is of the sample that is loaded, where an index says of which.

        What counts is one visit: the samples of stacks that follow each other.
        """
        if not self.is_on:
            return
        while frame is not None and not frame.f_code.co_filename.endswith(FETCHES):
            frame = frame.f_back
        index = frame.f_locals.get("idx") if frame is not None else None
        index = index if type(index) is int else None  # others compare as the program says
        before, ns_before = self._visit
        self._visit = (index, ns + ns_before if index == before else ns)
        if index is not None:
            self.by_index[index] = max(self.by_index.get(index, 0), self._visit[1])

    def facts(self) -> Dict[str, Any]:
        """The sums, and the samples that took longest: their indices and times."""
        slow = sorted(self.by_index.items(), key=lambda each: -each[1])[:_MOST_SLOW]
        return dict(self.sums, slow=[{"index": index, "ns": ns} for index, ns in slow])

    def _add(self, name: str, value: int) -> None:
        self.sums[name] = self.sums.get(name, 0) + value

    def _count(self, event: str, arguments: Any) -> None:
        if event != "open" or not self.is_on:
            return
        try:
            path, mode, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set(mode) & set("wax+")
            is_open = isinstance(path, (str, bytes)) and isinstance(flags, int)
            if is_open and not writes and not os.fsdecode(path).startswith(_NOT_FILES):
                self._add("files", 1)
                if len(self.paths) < _MOST_PATHS:
                    self.paths[os.path.abspath(os.fsdecode(path))] = None
        except Exception:  # the program would get it: an event of its own by that name, no current folder
            pass


def read_alone(paths: Iterable[str]) -> Dict[str, int]:
    """What files give when nothing else reads them: from the disk, then from memory. It takes half a second at most."""
    sums = dict.fromkeys(("alone_files", "alone_bytes", "cold_ns", "warm_ns"), 0)
    until_s = time.monotonic() + _MOST_READ_S
    for path in paths:
        try:
            if not os.path.isfile(path):  # a pipe's reader waits, and takes what the program is to read
                continue
            with open(path, "rb", buffering=0) as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            (size, cold_ns), (_, warm_ns) = _read(path), _read(path)
        except (OSError, AttributeError):  # it is gone, or this is no Linux
            continue
        for name, value in (("alone_files", 1), ("alone_bytes", size), ("cold_ns", cold_ns), ("warm_ns", warm_ns)):
            sums[name] += value
        if time.monotonic() > until_s:
            break
    return sums


def _read(path: str) -> Tuple[int, int]:
    at_ns, size = time.perf_counter_ns(), 0
    with open(path, "rb", buffering=0) as stream:
        while size < _MOST_BYTES and (part := len(stream.read(_BLOCK))):
            size += part
    return size, time.perf_counter_ns() - at_ns


def _of_process() -> Dict[str, int]:
    """What the process has run and read so far, waited for pages on a disk, and how long its other threads were awake.

    A thread of Python that waits for a core has the interpreter's lock all the same. To read any of this gives the lock
    up, which may take milliseconds to get back: it is not for each batch.
    """
    import resource  # only Unix has it

    sums = {"cpu_ns": time.process_time_ns()}
    sums.update(faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt, threads_ns=0)
    sums.update(dict.fromkeys(_HELPERS.values(), 0))
    with suppress(OSError, ValueError, KeyError), open("/proc/self/io", encoding="ascii") as stream:
        io = dict(line.split(": ") for line in stream.read().splitlines())  # unless a container or system hides it
        sums.update(read_bytes=int(io["rchar"]))
    work = thread_work()
    for thread in threading.enumerate():
        run_ns, wait_ns = work.get(thread.native_id or 0, (0, 0))
        helps = _HELPERS.get(getattr(getattr(thread, "_target", None), "__name__", type(thread).__name__))
        if thread is threading.main_thread():
            sums.update(awake_ns=run_ns, wait_ns=wait_ns)
        elif helps:
            sums[helps] += run_ns
        else:
            sums["threads_ns"] += run_ns + wait_ns
    return sums
