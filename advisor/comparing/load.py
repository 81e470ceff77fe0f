"""What other programs took of the cores while the steps of both sides were timed, and whether that leaves a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from advisor.comparing.steps import SEVERAL
from advisor.model.reason import Reason
from advisor.model.remarks import remark
from advisor.model.report import Run

_BUSY: Final = 0.2  # of a step: so much waiting changes the pace of the work between the waits too
_QUIET: Final = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What a step of each run waited for a CPU because of other programs, of both sides.

    `base` and `head` have a pair per run: what a step waited, in ms, and what it took without.
    """

    base: Sequence[tuple[float, float]]
    head: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, base: Sequence[Run], head: Sequence[Run]) -> Load | None:
        """None where a recorder did not note the waits, or the steps are a device's, which runs on meanwhile."""
        steps = [[run.source.steps for run in runs] for runs in (base, head)]
        on_device = any(run.source.devices for run in (*base, *head))
        if on_device or any(step.unprofiled_delay_ms is None for side in steps for step in side):
            return None
        return cls(*([(of.unprofiled_delay_ms or 0.0, of.unprofiled_ms or 0.0) for of in side] for side in steps))

    @property
    def is_quiet(self) -> bool:
        """Whether hardly any step waited."""
        return self._most <= _QUIET

    @property
    def obstacle(self) -> Reason | None:
        """Why there is no verdict: a step without its waits still varies by a third from one busy run to the next.

        Three runs of each side show by how much.
        """
        if self._most < _BUSY or min(len(self.base), len(self.head)) >= SEVERAL:
            return None
        waits = {side: fmean(wait for wait, _ in runs) for side, runs in (("base", self.base), ("head", self.head))}
        return remark("busy_sides", runs=SEVERAL, **waits)

    @property
    def _most(self) -> float:
        """The largest part of a step, waits included, that one of the runs waited."""
        return max(wait / (wait + step) if wait else 0.0 for wait, step in (*self.base, *self.head))
