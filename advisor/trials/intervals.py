"""The interval of a ratio of step times, from neighbours that were timed with and without a patch."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from advisor.comparing.significance import stats
from advisor.model.trials import Gain

Ladder: TypeAlias = tuple[int, ...]
"""After how many pairs the interval is looked at, and the trial may end."""

BLOCKS: Final[Ladder] = (6, 12, 24, 48, 96, 192)
PROCESSES: Final[Ladder] = (4, 8, 16)

LEAST_PAIRS: Final = 3
"""With two pairs the interval spans everything."""

_LEVEL: Final = 0.95
_TRIMMED: Final = 0.1  # of the log ratios at either end: a hiccup of the machine is no effect of a patch


def gain(log_ratios: Sequence[float], ladder: Ladder, within: float) -> tuple[Gain | None, bool]:
    """The ratio with its interval at the first look at which that was narrow enough, else of all pairs.

    It is None with fewer than three pairs. The second value is whether its half-width is `within`.
    """
    looks = [pairs for pairs in ladder if pairs <= len(log_ratios)]
    for look, pairs in enumerate(looks, 1):
        early = interval(log_ratios[:pairs], look)
        if early and early.half_width <= within:
            return early, True
    last = interval(log_ratios, len(looks) + (len(log_ratios) not in looks))
    return last, last is not None and last.half_width <= within


def interval(log_ratios: Sequence[float], look: int) -> Gain | None:
    """The ratio with its t interval; None with fewer than three pairs.

    The interval is Tukey's and McLaughlin's of a trimmed mean (Sankhya A 25, 1963): a tenth is cut at either end, and
    the variance is the winsorised one. Whoever stops when the interval is narrow enough looks several times: look k has
    the level 1 - 0.05 / (k (k + 1)), and all looks together have 95 % (union bound: these shares of 0.05 add up to it).
    """
    values = np.sort(np.asarray(log_ratios, np.float64))
    if len(values) < LEAST_PAIRS:
        return None
    cut = int(_TRIMMED * len(values))
    inner = values[cut : len(values) - cut]
    deviation = np.clip(values, inner[0], inner[-1]).std(ddof=1)
    error = deviation / ((1 - 2 * cut / len(values)) * np.sqrt(len(values)))
    margin = stats().t.ppf(1 - (1 - _LEVEL) / (look * (look + 1)) / 2, len(inner) - 1) * error
    low, middle, high = (float(np.exp(inner.mean() + side * margin)) for side in (-1, 0, 1))
    return Gain(ratio=middle, low=low, high=high, pairs=len(values))
