"""Whose fault a wait for a CPU is: that of other programs, or of a job with more to run than it has cores."""

from __future__ import annotations

import os
from typing import Dict, Iterator, NamedTuple, Optional

_BUSY = 0.7  # of its cores


class Work(NamedTuple):
    """What this process and its descendants have run so far, and their threads have waited for a CPU, in ns."""

    run_ns: int
    wait_ns: int


def work() -> Optional[Work]:
    """Of the threads that live now, and what children that have ended have run; None where the system does not say."""
    each = [_of_thread(thread) for process in _tree(os.getpid()) for thread in _threads(process)]
    known = [times for times in each if times]
    return Work(_ended_ns() + sum(run for run, _ in known), sum(wait for _, wait in known)) if known else None


def thread_work() -> Dict[int, Work]:
    """The same of each thread of this process, by its number of the system; empty where the system does not say."""
    each = ((int(os.path.basename(thread)), _of_thread(thread)) for thread in _threads(os.getpid()))
    return {thread: times for thread, times in each if times}


def others_part(before: Optional[Work], after: Optional[Work], cores: int, span_ns: int) -> float:
    """Part of the waits between the two, `span_ns` apart, that other programs can have caused; all where unknown.

    A job that got its cores all the time waits for itself alone. Others can have taken what it did not get, no more. A
    job that left much of its cores unused has no more to run than it has cores: several of its threads may wait for the
    same other program.
    """
    if before is None or after is None:
        return 1.0
    run_ns = after.run_ns - before.run_ns
    if run_ns < _BUSY * cores * span_ns:
        return 1.0
    others_ns = cores * span_ns - run_ns
    waited_ns = after.wait_ns - before.wait_ns
    return min(1.0, max(0, others_ns) / waited_ns) if waited_ns > 0 else 1.0


def _ended_ns() -> int:
    import resource  # only Unix has it

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(1e9 * (ended.ru_utime + ended.ru_stime))


def _tree(process: int) -> Iterator[int]:
    yield process
    for thread in _threads(process):
        for child in _read(f"{thread}/children").split():
            yield from _tree(int(child))


def _threads(process: int) -> list[str]:
    try:
        return [f"/proc/{process}/task/{thread}" for thread in os.listdir(f"/proc/{process}/task")]
    except OSError:  # it has ended, or this is no Linux
        return []


def _of_thread(thread: str) -> Optional[Work]:
    times = _read(f"{thread}/schedstat").split()
    return Work(int(times[0]), int(times[1])) if len(times) > 1 else None


def _read(file: str) -> str:
    try:
        with open(file, encoding="ascii") as stream:
            return stream.read()
    except OSError:
        return ""
