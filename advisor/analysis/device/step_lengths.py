"""Steps of two lengths, as where every other step updates the weights: their mean is the length of none."""

from typing import Final

import numpy as np

from advisor.model.arrays import Ints

_LEAST_STEPS: Final = 2  # of a length: one alone is an outlier, or the first
_LEAST_GAP: Final = 0.1  # of the shorter steps, as for outliers


def two_lengths(durations_ns: Ints) -> tuple[Ints, Ints]:
    """The shorter and the longer steps, in ascending order; two empty arrays where the steps are of one length.

    The gap between the two is wider than both are by themselves, and a tenth of the longest of the shorter ones.
    """
    ordered = np.sort(durations_ns)
    nothing = ordered[:0], ordered[:0]
    if len(ordered) < 2 * _LEAST_STEPS:
        return nothing
    at = int(np.argmax(np.diff(ordered))) + 1
    short, long = ordered[:at], ordered[at:]
    gap = int(long[0] - short[-1])
    is_wide = gap > max(np.ptp(short) + np.ptp(long), _LEAST_GAP * short[-1])
    return (short, long) if is_wide and min(len(short), len(long)) >= _LEAST_STEPS else nothing
