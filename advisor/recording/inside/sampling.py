"""Samples of Python's stacks: where the main thread of a process is, about a hundred times per second.

A thread that looks at the others sees only those that give up the interpreter's lock. A timer's signal reaches the main
thread itself: the interpreter calls its handler between two instructions, so after a call into C that was under way.

That may be too late to see what the main thread waits for: the handler runs behind the next call, of a wait for a lock
(`with lock:`), of an iterator or an operator that is a later line. A second thread looks earlier, unless the main
thread keeps the interpreter's lock; then no other place is better known.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import threading
import types
from _thread import allocate_lock, get_ident, start_new_thread  # those of now: gevent replaces them
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

from . import real_time as time
from .clock import RunDelay
from .lines import Stack, is_of_recorder, is_own, together
from .threads import Threads, stacks_of, stacks_of_threads
from .timers import SignalTimer, WakeTimer
from .wrapping import wrap

MEAN_NS = 10_000_000  # between two samples, on average
ENOUGH = 500  # samples of which a line of a tenth has between 7 and 13 % in nineteen cases of twenty
_LEAST_NS = 100_000
_STEPS_ASIDE = {
    signal: ("signal", "getsignal", "setitimer", "alarm", "pause", "set_wakeup_fd"),
    os: ("execv", "execve"),
}
_ALARM: Any = getattr(signal, "SIGALRM", None)  # Windows has none


_LATE_NS = 500_000
_AGAIN_NS = 2_500_000  # doubled with each look
_DEPTH = 60


class Lookout:
    """Looks where the calling thread is, and the others, while a signal that it expects has not been handled in time.

    Its thread sleeps until then: most signals cost it nothing. It does nothing where the system has no such timer.
    `looks` are when it looked, and where the threads were; none where the signal came in time, or nobody could look.
    `thread` is the number of its own.
    """

    def __init__(self) -> None:
        self.looks: List[Tuple[int, Dict[int, Stack]]] = []
        self.thread: Optional[int] = None
        self._timer: Optional[WakeTimer] = None
        self._late_ns = 0

    def begin(self) -> None:
        """Look after the calling thread from here."""
        is_ready = allocate_lock()
        is_ready.acquire()
        self.thread = start_new_thread(self._run, (is_ready, get_ident()))  # none of the program's threads
        is_ready.acquire()

    def expect(self, gap_ns: int) -> None:
        """A signal comes so much later than now; the one before was handled."""
        self.looks = []
        if self._timer is not None:
            self._late_ns = time.perf_counter_ns() + gap_ns + _LATE_NS
            self._timer.set(gap_ns + _LATE_NS)

    def end(self) -> None:
        """Look no more."""
        timer, self._timer, self.looks = self._timer, None, []
        if timer is not None:
            timer.close()

    def parts(self, thread: int) -> Dict[Stack, float]:
        """Where a thread was since the signal came, and for which part of that time: other calls may come before it."""
        at_ns = [at for at, _ in self.looks]
        between = [(before + after) / 2 for before, after in zip(at_ns, at_ns[1:])]
        edges = [at_ns[0] - _LATE_NS, *between, time.perf_counter_ns()] if at_ns else []
        parts: Dict[Stack, float] = {}
        for (_, stacks), begin, end in zip(self.looks, edges, edges[1:]):
            parts[stacks[thread]] = parts.get(stacks[thread], 0.0) + (end - begin) / (edges[-1] - edges[0])
        return parts

    def _run(self, is_ready: Any, thread: int) -> None:
        try:
            self._timer = timer = WakeTimer()
        except (ImportError, AttributeError, TypeError, OSError):  # no ctypes, no Linux
            return
        finally:
            is_ready.release()
        while timer.wait():
            looks, stacks, now_ns = self.looks, stacks_of_threads(_DEPTH), time.perf_counter_ns()
            if self._timer is timer and looks is self.looks and now_ns >= self._late_ns:
                if thread in stacks and not is_of_recorder(stacks[thread][0][0].co_filename):
                    looks.append((now_ns, stacks))
                self._late_ns = now_ns + (_AGAIN_NS << len(looks))
            timer.set(max(_LEAST_NS, self._late_ns - now_ns))


class Sampler:
    """Samples the calling process between `start` and `stop`, from its main thread.

    The gaps between samples are exponential, so that a sample is as likely at any instant, whatever was sampled before,
    and no rhythm of the program can fall in step with it. Each then stands for the mean gap. A call into C delays the
    handler: that time is known to be the call's, and is added. All times are without the thread's waits for a CPU, as
    those of the steps are: where such a wait fills a gap, the sample is due later. What the thread waits for is seen
    before the handler runs, where that is late, because it runs behind the next call only, and what that call takes is
    the call's.

    `visit` gets each stack's innermost frame, and the time that the sample stands for. `step` is the number of the step
    that goes on, which its owner counts; `span_ns`, how long it has sampled; `lack`, why it could not: "signal",
    which the program uses, "thread", which is not the main one, "timer", which the system lacks.
    """

    def __init__(self, visit: Callable[[Any, int], None] = lambda *_: None) -> None:
        self.visit = visit
        self.threads = Threads()
        self.step = self.samples = self.span_ns = 0
        self.lack: Optional[str] = None
        self._weights: Dict[Tuple[Stack, int], List[int]] = {}
        self._random = random.Random(0)  # noqa: S311 - the program's own generator stays as it is
        self._lookout = Lookout()
        self._timer: Optional[SignalTimer] = None
        self._run_delay: Optional[RunDelay] = None
        self._due_ns = self._since_ns = 0
        self._undo: List[Callable[[], bool]] = []

    @property
    def is_on(self) -> bool:
        """Whether it samples."""
        return bool(self._undo)

    def start(self) -> bool:
        """Begin, unless this is another thread or the program uses the signal; whether it samples now."""
        if self.is_on:
            return True
        self.lack = _lack()
        if self.lack:
            return False
        _hide_from_compiler(self._sample, self._arm, self._now_ns)
        try:
            self._timer = SignalTimer(_ALARM, self._sample)
        except (ImportError, AttributeError, OSError):  # no ctypes, no such timer
            self.lack = "timer"
            return False
        # Before the program uses the signal or its timer, or becomes another program: that would die of it.
        for owner, names in _STEPS_ASIDE.items():
            self._undo += [wrap(owner, name, functools.partial(self._step_aside, name)) for name in names]
        self.threads.begin()
        self._lookout.begin()
        self._run_delay = RunDelay()
        self._since_ns = time.perf_counter_ns()
        self._expect()
        return True

    def stop(self) -> None:
        """End, and give the signal back."""
        if not self.is_on:
            return
        while self._undo:
            self._undo.pop()()
        if self._timer is not None:
            self._timer.close()
        self.span_ns += time.perf_counter_ns() - self._since_ns
        self.threads.end()
        self._lookout.end()
        if self._run_delay is not None:
            self._run_delay.close()

    def stacks(self, long: Collection[int] = ()) -> List[Dict[str, Any]]:
        """What was sampled, by lines, and how much of it in the steps with these numbers."""
        weights = list(self._weights.items())
        return together((stack, (samples, ns, ns * (step in long))) for (stack, step), (samples, ns) in weights)

    def _now_ns(self) -> int:
        delay_ns = self._run_delay() if self._run_delay is not None else None
        return time.perf_counter_ns() - (delay_ns or 0)

    def _arm(self, gap_ns: int) -> None:
        self._lookout.expect(gap_ns)
        if self._timer is not None:
            self._timer.set(gap_ns)

    def _sample(self, _: int, frame: Any) -> None:
        try:
            self._take(frame)
        except Exception:  # whatever the program's objects raise: a sample less, and nothing for the program
            try:
                self._expect()
            except Exception:  # the program calls as deeply as Python lets it
                pass

    def _take(self, frame: Any) -> None:
        now_ns = self._now_ns()
        if not self.is_on:
            return
        if now_ns < self._due_ns:  # it waited for a CPU meanwhile
            self._arm(max(_LEAST_NS, self._due_ns - now_ns))
            return
        ns = MEAN_NS + now_ns - self._due_ns
        own, parts = get_ident(), self._lookout.parts(get_ident())
        stacks = self._lookout.looks[0][1] if parts else stacks_of_threads(_DEPTH)
        self.visit(frame, ns)
        at_first = self._lookout.looks[0][1][own] if parts else next(stacks_of(iter((frame,)), _DEPTH))
        for stack, part in (parts or {at_first: 1.0}).items():
            weight = self._weights.setdefault((stack, self.step), [0, 0])
            weight[0] += 1
            weight[1] += int(part * (ns - MEAN_NS)) + MEAN_NS * (stack is at_first)
        self.samples += 1
        self.threads.look({n: of for n, of in stacks.items() if n not in (own, self._lookout.thread)}, ns)
        self._expect()

    def _expect(self) -> None:
        gap_ns = max(_LEAST_NS, int(self._random.expovariate(1 / MEAN_NS)))
        self._due_ns = self._now_ns() + gap_ns
        self._arm(gap_ns)

    def _step_aside(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if name not in ("signal", "getsignal") or _ALARM in args[:1]:
            self.stop()
        return original(*args, **kwargs)


def _lack() -> Optional[str]:
    if _ALARM is None:
        return "timer"
    if threading.current_thread() is not threading.main_thread():
        return "thread"
    is_used = signal.getsignal(_ALARM) != signal.SIG_DFL or any(signal.getitimer(signal.ITIMER_REAL))
    if is_used or _is_at_hand():
        return "signal"
    file = signal.set_wakeup_fd(-1)  # into which the program has each signal written: it would find the sampler's there
    if file >= 0:
        signal.set_wakeup_fd(file, warn_on_full_buffer=False)  # which it was is not to be had
    return "signal" if file >= 0 else None


def _is_at_hand() -> bool:
    """Whether a module of the program has one of the functions by a name of its own, which no wrapper stands behind."""
    functions = {id(getattr(signal, name)) for name in ("signal", "setitimer", "alarm")}
    here = __name__.partition(".")[0]
    others = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] != here]
    modules = [vars(module) for module in others if isinstance(module, types.ModuleType)]
    own = [names for names in modules if isinstance(names.get("__file__"), str) and is_own(names["__file__"])]
    return any(id(value) in functions for names in own for value in list(names.values()))


def _hide_from_compiler(*functions: Callable[..., Any]) -> None:
    """Have torch.compile run these as they are, where they come between the calls of what it compiles."""
    skip: Optional[Callable[[Any], None]] = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "skip_code", None)
    for function in functions if skip else ():
        skip(getattr(function, "__code__", None) or function.__func__.__code__)  # type: ignore[misc,attr-defined]
