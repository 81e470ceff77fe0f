"""The phases of a recording: time before, warm up, profile, settle, time after, sample stacks, export."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any, Dict, List, Optional

from .clock import Lap, Times, evened, long_steps, thinned
from .job import software
from .profilers import Profiler
from .source import call_at
from .stacks import Stacks

_YOUNG = 0  # a generation that is collected in microseconds, thousands of times


class Collections:
    """Marks each collection but the youngest objects' between `begin` and `end`; those that the program asks for apart.

    Their names are those by which readers know them.
    """

    def __init__(self, profiler: Profiler) -> None:
        self.profiler = profiler
        self.ranges: List[Any] = []

    def begin(self) -> None:
        """Mark from here."""
        gc.callbacks.append(self._called)

    def end(self) -> None:
        """Mark no more."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: Dict[str, int]) -> None:
        if info["generation"] == _YOUNG:
            return
        if phase == "start":
            caller = sys._getframe(1)
            is_called = (call_at(caller.f_code, caller.f_lasti) or "").endswith("collect")
            self.ranges.append(self.profiler.range("gc.collect" if is_called else "Python GC"))
            self.ranges[-1].__enter__()
        elif self.ranges:
            self.ranges.pop().__exit__(None, None, None)


_WARM_UP = 2
_SETTLE = 2
_PROFILER_MS = 1000  # to start and to write: one to two seconds on two cores
_LEAST = 3  # steps that a median rests on where the program ends early
FORMAT = 1


class Steps:
    """What is done with the steps of a program, from the last skipped one on."""

    def __init__(self, profiler: Profiler) -> None:
        self.profiler, self.phase, self.thread = profiler, "start", threading.get_ident()
        self.path: Optional[str] = None  # of the recording, once it is written
        self.lap: Optional[Lap] = None
        self.typical_ms: Optional[float] = None  # what a step takes without the profiler, where that is known
        self.work_ms = 0.0  # as `Times` has it

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase == "over"

    def step(self, result: object = None) -> None:
        """A step ended; `result` is what its last call gave."""

    def finish(self) -> None:
        """The program ends."""

    def abandon(self) -> None:
        """Leave without a result."""

    def forget(self) -> None:
        """This is a forked process: the recording is its parent's."""

    def rest(self) -> Optional[Dict[str, Any]]:
        """What a step takes and how many more are needed, once that is known."""
        return None

    def block(self, ended: str) -> Optional[Dict[str, Any]]:
        """What to keep of it."""
        return None

    def _begin(self, phase: str, result: object) -> None:
        self.profiler.settle(result)
        self.phase, self.lap = phase, Lap(self.profiler.clock())


class Phases(Steps):
    """Advances by one at each end of a step, from the last skipped one on.

    `phase` is `start`, then `before`, `warm`, `active`, `settle`, `after`, `sample`, `over`.
    """

    def __init__(
        self, profiler: Profiler, active: int, marker: str | None, skipped: int = 0, stacks: Stacks | None = None
    ) -> None:
        super().__init__(profiler)
        self.active, self.marker = active, marker
        self.stacks, self.collections = stacks or Stacks(samples=False), Collections(profiler)
        self.before = self.profiled = self.after = self.sampled = Times()
        self.steps = skipped  # number of the step that goes on, from 0: the program's own, those skipped included
        self._left_over = 0

    def step(self, result: object = None) -> None:
        self.steps += 1
        getattr(self, "_" + self.phase)(result)

    def open_window(self) -> None:
        """Record from here until `finish`, without steps."""
        self.profiler.prepare()
        self.profiler.start()
        self.phase = "window"

    def finish(self) -> None:
        """Write what there is: the program ends."""
        if self.phase == "active":
            self._stop(cut=True)
        elif self.phase == "after" and self.lap and self.lap.steps >= _LEAST:
            self.after = self._close()
        if self.phase in ("settle", "after", "sample"):
            self._export("complete" if self.after.step_ms else "early")
        elif self.phase == "window":
            self._stop()
            self._export("window")
        self.abandon()

    def abandon(self) -> None:
        """Leave without a recording."""
        self.stacks.pause()
        self.collections.end()
        if self.phase in ("warm", "active", "window"):
            self.profiler.stop(cut=True)
        self.phase = "over"

    def forget(self) -> None:
        self.stacks.forget()
        self.collections.end()
        self.profiler.forget()

    def rest(self) -> dict[str, Any] | None:
        if self.phase != "warm" or self._left_over < _WARM_UP:  # it is known once
            return None
        steps, step_ms = self._left_over + _SETTLE + 2 * self.active, self.before.step_ms or 0.0
        delay_ms = self.before.run_delay_ms or 0.0
        sampling_ms = self.stacks.lacking_ms(1 + delay_ms / step_ms if step_ms else 1) - self.active * step_ms
        return {
            "step_ms": self.before.step_ms,
            "steps": steps,
            "more_ms": _PROFILER_MS + steps * delay_ms + max(0, sampling_ms),
        }

    def _is_lap_over(self, result: object) -> bool:
        lap = self.lap
        if lap is None:
            return False
        if lap.steps + 1 == self.active:
            self.profiler.end_mark()  # the other steps do not wait for their results here
            lap.sent()
            self.profiler.settle(result)
        lap.add()
        return lap.steps == self.active

    def _close(self) -> Times:
        lap, self.lap = self.lap, None
        return lap.close() if lap and lap.steps else Times()

    def _start(self, result: object) -> None:
        self.stacks.resume()  # first: it looks through all modules, which is of no step
        self._begin("before", result)

    def _before(self, result: object) -> None:
        self.stacks.end_step()
        if self._is_lap_over(result):
            self.stacks.pause()
            self.before = self._close()
            self.profiler.prepare()
            self.phase, self._left_over = "warm", _WARM_UP

    def _warm(self, result: object) -> None:
        self._left_over -= 1
        if self._left_over == 0:
            self.profiler.start()
            self.collections.begin()
            self.profiler.mark(self.steps)
            self._begin("active", result)
        else:
            self.profiler.warmed()

    def _active(self, result: object) -> None:
        if self._is_lap_over(result):
            self._stop()
        else:
            self.profiler.mark(self.steps)

    def _stop(self, *, cut: bool = False) -> None:
        self.profiled = self._close()  # first: the waits while the profiler stops are of no step
        self.collections.end()
        self.profiler.stop(cut=cut)
        self.phase, self._left_over = "settle", _SETTLE

    def _settle(self, result: object) -> None:
        self._left_over -= 1
        if self._left_over == 0:
            self.stacks.resume()  # first: it looks through all modules, which is of no step
            self._begin("after", result)

    def _after(self, result: object) -> None:
        self.stacks.end_step()
        if self._is_lap_over(result):
            self.after = self._close()
            self.phase, self.lap = "sample", Lap()
            self.stacks.limit()
            if self.stacks.is_over:
                self._export("complete")

    def _sample(self, result: object) -> None:
        self.stacks.end_step()
        if self.lap:
            self.lap.add()
        if self.stacks.is_over:
            self._export("complete")

    def _export(self, ended: str) -> None:
        self.stacks.pause()
        self.typical_ms, self.work_ms = self.before.step_ms, max(self.before.work_ms, self.after.work_ms)
        if self.phase == "sample":
            self.sampled = Times(evened(self._close().steps_ms, self.work_ms))
        self.phase = "over"
        self.path = self.profiler.export(self.block(ended))

    def block(self, ended: str) -> dict[str, Any]:
        """What the trace tells of the recording: no argument, no host, of the environment a closed list."""
        waits = [t.run_delay_ms for t in (self.before, self.after) if t.run_delay_ms is not None]
        laps = [times.steps_ms for times in (self.before, self.after, self.sampled)]
        long, excess_ms = long_steps(laps)
        steps = max(1, sum(map(len, laps)))
        return {
            "format": FORMAT,
            "unprofiled": {
                "before_ms": self.before.step_ms,
                "after_ms": self.after.step_ms,
                "before_steps_ms": self.before.steps_ms,
                "after_steps_ms": self.after.steps_ms,
                "run_delay_ms": sum(waits) / len(waits) if waits else None,
                "long_ms": excess_ms / steps,
                "long_part": len(long) / steps,
            },
            "profiled": {
                name: getattr(self.profiled, name) for name in ("step_ms", "run_delay_ms", "own_delay_ms", "cpu_ms")
            },
            "pace": {
                "step": self.steps - len(self.sampled.steps_ms),
                "size": len(self.sampled.steps_ms),
                "steps_ms": thinned(self.sampled.steps_ms),
            },
            "stacks": self.stacks.block(long),
            "marker": self.marker,
            "job": self.profiler.job(),
            "software": software(),
            "ended": ended,
        }
