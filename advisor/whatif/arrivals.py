"""Arrivals: what the host waits for that comes when it does, however long the work before it took.

Batches of a loader's workers are known by name. A host that sleeps, or waits for a camera, a queue or the network, just
makes no call. But such a silence is shorter by what the work before it is longer: the host goes on when it would have.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.idle import stalls
from advisor.analysis.device.loading_stages import batch
from advisor.analysis.device.view import DeviceView
from advisor.model.arrays import Ints

_FEWEST: Final = 8  # own choice: silences from which it shows what they depend on
_SAME_PLACE: Final = 0.75  # own choice, of the steps: where the longest silence stands
_PASSED_ON: Final = 0.5  # of what the work takes longer, the period does: 1 with a host at work, 0 with one that waits
_ERRORS: Final = 3  # standard errors, for certainty


class Arrivals(NamedTuple):
    """Before which calls of queue 0 (index) the host may have to wait, and when at the earliest it goes on; in ns.

    `part` is where in the step it does wait; empty where nothing like that sets the pace. `period_ns`: the least time
    from one to the next, as far as it was counted.
    """

    part: str
    late: Ints
    comes: Ints
    period_ns: int | None = None


def arrivals(view: DeviceView, calls: pl.DataFrame, queue: Ints, free: Ints) -> Arrivals:
    """Those of the used steps; `queue` and `free` (when the host was, for it) are of each call.

    Batches of a loader's workers come no faster than the workers load, although they were there in time.
    """
    start = calls["start_ns"].to_numpy()
    late = np.flatnonzero((calls["arrives"] == "late").fill_null(value=False).to_numpy() & (start > free))
    if len(late):
        return Arrivals("input", late, start[late])
    if view.device is not None and len(late := _after_silence(view, np.flatnonzero(queue == 0), start, free)):
        return Arrivals("host_busy", late, start[late])
    period_ns = _period_ns(view)
    late = np.flatnonzero(calls["arrives"].is_not_null().to_numpy() & (period_ns > 0))
    return Arrivals("", late, np.minimum(start[late], start[late[:1]] + period_ns * np.arange(len(late))), period_ns)


def _period_ns(view: DeviceView) -> int:
    """What a loader's workers take from one batch to the next, as far as it was counted; else 0."""
    of = view.once(batch)
    return int(1e6 * max(of.load_ms / of.workers, of.hand_over_ms)) if of and of.workers else 0


def _after_silence(view: DeviceView, first: Ints, start: Ints, free: Ints) -> Ints:
    """The calls after the longest silence of each step, if the work before does not move them; else none."""
    start, free = start[first], free[first]
    bounds = np.searchsorted(start, np.append(view.steps["host_start_ns"].to_numpy(), start[-1:] + 1))
    bounds = bounds[np.append(np.diff(bounds) > 0, True)]
    longest = [int((start - free)[a:b].argmax()) for a, b in pairwise(bounds.tolist())]
    usual = max(set(longest), key=longest.count, default=0)
    late = bounds[:-1][np.array(longest, int) == usual] + usual
    idle = view.once(stalls).within(free[late], start[late])
    if len(late) < max(_FEWEST, _SAME_PLACE * len(longest)) or np.median(2 * idle - (start - free)[late]) < 0:
        return first[:0]
    work, period = (free[late][1:] - start[late][:-1]).astype(float), np.diff(start[late]).astype(float)
    if not np.ptp(work):
        return first[:0]
    (slope, _), covariance = np.polyfit(work, period, 1, cov=True)
    return first[late] if slope + _ERRORS * np.sqrt(covariance[0, 0]) < _PASSED_ON else first[:0]
