"""Blocks of steps, timed with the patches on and off in turn."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional

from .clock import Lap
from .notes import Notes
from .patches import Patch
from .phases import Steps
from .profilers import Profiler

_ABBA = (False, True, True, False)
FIRST = 1  # steps of each block that are not timed: what is switched settles in them


class Plan:
    """What to time.

    Attributes:
        arm: `on` or `off` for the whole run; `turns` for blocks in the order ABBA.
        blocks: How many at most.
        steps: Timed steps of one.
        limit: File in which the launcher writes after how many blocks to end.
    """

    def __init__(self, config: Dict[str, Any]) -> None:
        self.arm: str = config["arm"]
        self.numbers, self.steps = int(config["blocks"]), int(config["steps"])
        self.limit: str = config["limit"]

    def is_on(self, block: int) -> bool:
        """Whether the patches are on in this block."""
        return _ABBA[block % len(_ABBA)] if self.arm == "turns" else self.arm == "on"

    def is_over(self, blocks: int) -> bool:
        """Whether so many blocks are all; only whole pairs are."""
        return blocks >= self.numbers or (blocks % 2 == 0 and blocks >= self._limit())

    def _limit(self) -> int:
        try:
            with open(self.limit, encoding="utf-8") as stream:
                return int(stream.read())
        except (OSError, ValueError):
            return self.numbers


class Blocks(Steps):
    """Advances by one at each end of a step; notes the time of each block."""

    def __init__(
        self, profiler: Profiler, plan: Plan, patches: List[Patch], notes: Notes, ahead: Callable[[], int]
    ) -> None:
        super().__init__()
        self.profiler, self.plan, self.patches, self.notes, self.ahead = profiler, plan, patches, notes, ahead
        self.phase = "start"
        self.number, self._untimed = 0, 0
        self.lap: Optional[Lap] = None

    def step(self, result: object = None) -> None:
        """A step ended; `result` is what its last call gave."""
        if self.phase == "start":
            self._open()
        elif self.lap is None:
            self._untimed -= 1
            if self._untimed == 0:
                self._begin(result)
        elif self.lap.steps + 1 == self.plan.steps:
            self._close(self.lap, result)
        else:
            self.lap.add()

    def finish(self) -> None:
        """The program ends: a block that is not complete does not count."""
        if self.lap:
            self.lap.close()
        self.phase = "over"

    abandon = finish

    def _open(self) -> None:
        for patch in self.patches:
            patch.switch(self.plan.is_on(self.number))
        self.phase, self._untimed = "block", FIRST + self.ahead()

    def _begin(self, result: object) -> None:
        self.profiler.settle(result)
        self.lap = Lap(self.profiler.clock())

    def _close(self, lap: Lap, result: object) -> None:
        self.profiler.settle(result)
        lap.add()
        steps_ms, run_delay_ms = lap.steps_ms()
        self.lap = None
        self.notes.add(
            "block",
            number=self.number,
            on=self.plan.is_on(self.number),
            step_ms=sum(steps_ms) / len(steps_ms),
            run_delay_ms=run_delay_ms,
            rank=os.environ.get("RANK"),
        )
        self.number += 1
        if self.plan.is_over(self.number):
            self.phase = "over"
        else:
            self._open()
