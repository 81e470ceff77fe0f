"""Steps after the recording: how many take much longer than the timed ones, as those with a checkpoint or a test do."""

from __future__ import annotations

import time
from typing import Any, Dict

from .clock import RunDelay

_LONG = 5  # times the typical step


class Tail:
    """Counts the steps that end after the recording, and those that are long without their waits for a CPU.

    Attributes:
        step_ms: The typical step.
        number: Steps that ended so far.
    """

    def __init__(self, step_ms: float, number: int) -> None:
        self.step_ms, self.number = step_ms, number
        self.steps, self.long, self.first = 0, 0, 0
        self.all_ms = self.long_ms = 0.0
        self.run_delay = RunDelay()
        self.at_ns, self.waited_ns = self._now()

    def step(self) -> None:
        """A step ended."""
        at_ns, waited_ns = self._now()
        step_ms = (at_ns - self.at_ns - (waited_ns - self.waited_ns)) / 1e6
        self.at_ns, self.waited_ns = at_ns, waited_ns
        self.steps += 1
        self.all_ms += step_ms
        if step_ms > _LONG * self.step_ms:
            self.first = self.first or self.number + self.steps
            self.long += 1
            self.long_ms += step_ms

    def facts(self) -> Dict[str, Any]:
        """What came of it; `first` is the number of the first long step."""
        return {name: getattr(self, name) for name in ("steps", "long", "first", "all_ms", "long_ms", "step_ms")}

    def _now(self) -> tuple[int, int]:
        return time.perf_counter_ns(), self.run_delay() or 0
