"""The rank that does most by itself: whether it is late for good, by how much, and with what."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import (
    ALONE,
    SOURCE,
    TYPICAL,
    OwnSteps,
    own_steps,
    persistent,
    typical,
    unknown_split,
)
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures_jobs
from advisor.metrics.rank_identity import Identity
from advisor.model.arrays import Floats

_MORE_KERNELS: Final = 0.05  # more kernels than the typical rank: fewer are not named
_BY_CHANCE: Final = 2  # standard errors: of two ranks that are late in turn one is late more often

LATE_RANK = Identity.of("late_rank", "The rank that does most by itself.", f"largest mean alone time; {ALONE}")
LATE_RANK_STEPS = Metric(
    "late_rank_steps",
    "In how many of the common steps the late rank is the latest.",
    "largest alone time",
    unit="count",
)
LATE_RANK_MS = Metric(
    "late_rank_ms",
    "By how much the latest rank is usually late; 0 where it may be the latest by chance.",
    f"median over steps of (its alone time - typical alone time in the step), if the mean of its alone time - that"
    f" of the typical other rank is more than {_BY_CHANCE} standard errors; {TYPICAL}",
    SOURCE,
)
LATE_RANK_SHARE = Metric(
    "late_rank_share",
    "Part of the step by which the latest rank is usually late.",
    "late_rank_ms / mean step",
    SOURCE,
)
LATE_RANK_LEAST_MS = Metric(
    "late_rank_least_ms",
    "By how much the latest rank is later than the next latest.",
    "mean step without waiting - the next largest of another rank, 0 to persistent_skew_ms",
)
LATE_RANK_UNEVEN_MS = Metric(
    "late_rank_uneven_ms",
    "By how much the latest rank is later than all ranks would be if they did equal parts of what they do now.",
    f"its mean alone time - the mean of all ranks'; {ALONE}",
)
LATE_RANK_HOST_MS = Metric(
    "late_rank_host_ms",
    "How much more the latest rank has of what is neither kernels (without a device: ops) nor waiting for input.",
    "its mean alone time - time in kernels (without a device: in ops) - waiting for input, beyond the typical rank's, "
    "at least 0",
)
LATE_RANK_CAUSES = Metric(
    "late_rank_causes",
    "What the latest rank has more of than the typical one.",
    "its mean time in kernels, waiting for input and the rest, and its number of kernels, beyond the typical ones",
    unit="text",
)
LATE_RANK_KERNELS_RATIO = Metric(
    "late_rank_kernels_ratio",
    "How many times as many kernels the latest rank runs as the typical rank.",
    "mean number of kernels per step / typical mean",
)


@measures_jobs(
    *(*LATE_RANK, LATE_RANK_STEPS, LATE_RANK_MS, LATE_RANK_SHARE, LATE_RANK_LEAST_MS),
    *(LATE_RANK_UNEVEN_MS, LATE_RANK_HOST_MS, LATE_RANK_CAUSES, LATE_RANK_KERNELS_RATIO),
)
def late_rank(job: Job) -> Values:
    """Whose the loss is, and in what."""
    if why := unknown_split(job):
        return why
    steps = job.once(own_steps)
    return {**LATE_RANK.values(job, job.members[steps.latest]), **_late(steps)}


def _late(steps: OwnSteps) -> dict[Metric, Value]:
    late, alone = steps.latest, steps.alone
    late_ms = max(0.0, float(np.median(alone[late] - typical(alone)))) if _lasts(steps) else 0.0
    beyond = {part: _beyond_typical(cells, late) for part, cells in steps.parts.items()}
    kernels = steps.kernels.mean(axis=1)
    usual = float(typical(kernels))
    return {
        LATE_RANK_STEPS: int((alone.argmax(axis=0) == late).sum()),
        LATE_RANK_MS: late_ms,
        LATE_RANK_SHARE: steps.share(late_ms),
        LATE_RANK_LEAST_MS: _ahead_of_next(steps),
        LATE_RANK_UNEVEN_MS: float(alone[late].mean() - alone.mean()),
        LATE_RANK_HOST_MS: max(0.0, beyond["other"]),
        LATE_RANK_CAUSES: steps.words(beyond) + _more_kernels(float(kernels[late]), usual),
        LATE_RANK_KERNELS_RATIO: float(kernels[late]) / usual if usual else None,
    }


def _beyond_typical(cells: Floats, row: int) -> float:
    """By how much one rank's mean exceeds the typical one."""
    means = cells.mean(axis=1)
    return float(means[row] - typical(means))


def _ahead_of_next(steps: OwnSteps) -> float:
    """By how much the latest rank is later than the next latest."""
    own, late = steps.own.mean(axis=1), steps.latest
    return float(np.clip(own[late] - np.delete(own, late).max(), 0, persistent(steps.alone)))


def _lasts(steps: OwnSteps) -> bool:
    """Whether the latest rank is later than the others over the steps by more than steps differ among themselves."""
    behind = steps.alone[steps.latest] - typical(np.delete(steps.alone, steps.latest, axis=0))
    return bool(behind.mean() > _BY_CHANCE * behind.std(ddof=1) / np.sqrt(len(behind)))


def _more_kernels(kernels: float, usual: float) -> str:
    if not usual or kernels <= (1 + _MORE_KERNELS) * usual:
        return ""
    return f"; it runs {kernels:.0f} kernels, others {usual:.0f}"
