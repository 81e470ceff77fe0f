"""What the threads of a job run and wait for: whose fault a wait for a CPU is, and which threads of Python run."""

from __future__ import annotations

import gc
import os
import sys
import threading
from itertools import accumulate, chain, repeat, starmap, takewhile, tee
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .lines import FETCHES, Stack, is_own, together

_BUSY = 0.7  # of its cores


class Work(NamedTuple):
    """What this process and its descendants have run so far, and their threads have waited for a CPU, in ns."""

    run_ns: int
    wait_ns: int


def work() -> Optional[Work]:
    """Of the threads that live now, and what children that have ended have run; None where the system does not say."""
    each = [_of_thread(thread) for process in _tree(os.getpid()) for thread in _threads(process)]
    known = [times for times in each if times]
    if not known:
        return None
    import resource  # only Unix has it

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended_ns = int(1e9 * (ended.ru_utime + ended.ru_stime))
    return Work(ended_ns + sum(run for run, _ in known), sum(wait for _, wait in known))


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


def _tree(process: int) -> Iterator[int]:
    yield process
    for thread in _threads(process):
        for child in content(f"{thread}/children").split():
            yield from _tree(int(child))


def _threads(process: int) -> list[str]:
    try:
        return [f"/proc/{process}/task/{thread}" for thread in os.listdir(f"/proc/{process}/task")]
    except OSError:  # it has ended, or this is no Linux
        return []


def _of_thread(thread: str) -> Optional[Work]:
    times = content(f"{thread}/schedstat").split()
    return Work(int(times[0]), int(times[1])) if len(times) > 1 else None


def content(file: str) -> str:
    """What a small file of the system says; nothing where there is none."""
    try:
        with open(file, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


_ASKING = threading.Lock()


def stacks_of_threads(depth: int) -> Dict[int, Stack]:
    """The stack of each thread, by its number; of none while another thread asks.

    Before Python 3.12, what asks for them keeps a lock of the interpreter, within which garbage may be collected. The
    end of a tensor lets other threads run: one that asks as well would wait for that lock, and let no other run. So no
    garbage is collected meanwhile.

    All of it is one call in C, during which no other thread of Python runs: one that ran on would leave its functions,
    and the last who holds a frame destroys what the function held, a thread's tensors or its locks, in the wrong one.
    """
    if not _ASKING.acquire(blocking=False):
        return {}
    collects = gc.isenabled()
    gc.disable()
    try:
        return dict(zip(*_numbers_and_stacks(depth)))
    finally:
        if collects:
            gc.enable()
        _ASKING.release()


def _numbers_and_stacks(depth: int) -> Tuple[Iterator[int], Iterator[Stack]]:
    """Of the threads; the interpreter is asked when the first is read."""
    numbers, frames = tee(chain.from_iterable(map(methodcaller("items"), starmap(sys._current_frames, ((),)))))
    return map(itemgetter(0), numbers), stacks_of(map(itemgetter(1), frames), depth)


def stacks_of(frames: Iterator[Any], depth: int) -> Iterator[Stack]:
    """Of each frame the places of itself and of its callers, so many at most, and in C alone."""
    links = map(chain, zip(frames), repeat(("f_back",) * (depth - 1)))
    around = map(takewhile, repeat(bool), map(accumulate, links, repeat(getattr)))
    return map(tuple, map(map, repeat(attrgetter("f_code", "f_lasti")), around))


_NOTHING = Work(0, 0)
_LEAST = 0.02  # of the time: a thread that runs for less keeps nobody waiting
_MOST_STACKS = 64  # of a thread
_OF_TENSORFLOW = 0
_EVERY = 8  # looks: what a thread has run is read from time to time, because it may end before anybody asks


class Threads:
    """The threads of the calling process between `begin` and `end`, which may come several times."""

    def __init__(self) -> None:
        self._before: Dict[int, Work] = {}
        self._sums: Dict[int, Work] = {}
        self._weights: Dict[int, Dict[Stack, Tuple[int, int]]] = {}
        self._last: Dict[int, Work] = {}
        self._looks = 0
        self._unnamed: Set[Optional[int]] = set()

    def begin(self) -> None:
        """Look from here."""
        self._before = thread_work()

    def look(self, stacks: Dict[int, Stack], ns: int) -> None:
        """Where the other threads of Python are, for so long; in a signal's handler, which takes no lock.

        Of TensorFlow's, which make batches, the whole stack counts; of others what a line calls.
        """
        self._looks += 1
        known = getattr(threading, "_active", {})
        for ident, stack in stacks.items():
            own = next((at for at, (code, _) in enumerate(stack) if is_own(code.co_filename)), None)
            makes_batch = any(code.co_filename.endswith(FETCHES[1]) for code, _ in stack)
            thread = _OF_TENSORFLOW if makes_batch else getattr(known.get(ident), "native_id", None)
            if thread is None or own is None:
                continue
            weights = self._weights.setdefault(thread, {})
            samples, ns_before = weights.get(stack := stack if makes_batch else stack[: own + 1], (0, 0))
            weights[stack] = (samples + 1, ns_before + ns)
            if self._looks % _EVERY == 0:
                self._last[thread] = _of_thread(f"/proc/{os.getpid()}/task/{thread}") or _NOTHING

    def end(self) -> None:
        """Look no more."""
        for thread, work in {**self._last, **thread_work()}.items():
            before, total = self._before.get(thread, _NOTHING), self._sums.get(thread, _NOTHING)
            self._sums[thread] = Work(*(a + b - c for a, b, c in zip(total, work, before)))
            self._unnamed |= {thread} if _name_of(thread) == _name_of(os.getpid()) else set()
        self._before, self._last = {}, {}

    def block(self, span_ns: int) -> Dict[str, Any]:
        """What the main thread ran and waited for a core, and the other threads of Python that ran for 2 % or more.

        `unnamed_ns`: what threads ran that are not Python's and have the name of the process, as those of libraries
        such as OpenBLAS do, and `all_ns` what all ran. XLA's pools have names; TensorFlow's and PyTorch's have none.
        """
        others: List[Dict[str, Any]] = []
        for thread, weights in self._weights.items():
            run_ns = self._sums.get(thread, _NOTHING).run_ns
            if run_ns >= _LEAST * span_ns:
                others.append({"run_ns": run_ns, "stacks": together(weights.items())[:_MOST_STACKS]})
        work = self._sums.get(threading.main_thread().native_id or 0)
        batches = together(self._weights.get(_OF_TENSORFLOW, {}).items())
        facts = {"main": None if work is None else work._asdict(), "others": others, "batches": batches}
        if {"tensorflow", "torch"} & {*sys.modules}:
            return facts
        native = self._unnamed - {each.native_id for each in threading.enumerate()} - {*self._weights}
        ran = {thread: work.run_ns for thread, work in self._sums.items()}
        return {**facts, "unnamed_ns": sum(ran[of] for of in native if of), "all_ns": sum(ran.values())}


def _name_of(thread: int) -> str:
    return content(f"/proc/{os.getpid()}/task/{thread}/comm")
