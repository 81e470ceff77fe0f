"""What a recorded program pays per step outside the profiled phase: the target is 5 us of CPU time."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Final

from advisor.recording.inside.hook import Hook
from advisor.recording.inside.notes import Notes
from advisor.recording.inside.profilers import Profiler

_STEPS: Final = 100_000
_TARGET_US: Final = 5.0


def main() -> int:
    """Print the cost while skipping and after the recording; 1 where one misses the target."""
    costs = {phase: _cost_us(is_over=phase == "after") for phase in ("skipping", "after")}
    for phase, cost_us in costs.items():
        print(f"counting a step, {phase}: {cost_us:.2f} us of CPU time")
    return int(max(costs.values()) > _TARGET_US)


def _cost_us(*, is_over: bool) -> float:
    hook = Hook({"skip": 10 * _STEPS, "active": 10, "logdir": ""}, Notes())
    hook.is_over = is_over
    tick = partial(hook._tick, Profiler)  # noqa: SLF001 - what the hooks of the frameworks call
    start = time.thread_time_ns()
    for _ in range(_STEPS):
        tick("optimizer", 1, "Adam", None)
    return (time.thread_time_ns() - start) / _STEPS / 1e3


if __name__ == "__main__":
    sys.exit(main())
