"""The rank that does most by itself: whether it is late for good, by how much, and with what."""

from collections.abc import Callable
from typing import Final

import numpy as np

from advisor.analysis.job.groups import outstanding, words
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
from advisor.metrics.metric import Value, of_jobs
from advisor.model.arrays import Floats
from advisor.model.missing import Missing

_MORE_KERNELS: Final = 0.05  # more kernels than the typical rank: fewer are not named
_BY_CHANCE: Final = 2  # standard errors: of two ranks that are late in turn one is late more often


def _beyond_typical(cells: Floats, row: int) -> float:
    """By how much one rank's mean exceeds the typical one."""
    means = cells.mean(axis=1)
    return float(means[row] - typical(means))


def _late(steps: OwnSteps) -> list[int]:
    """Rows of the ranks that are late: of the latest one, and of those that are nearer to it than to the typical one.

    Where they are more than half of the ranks, they are typical.
    """
    alone = steps.alone.mean(axis=1)
    rows: list[int] = outstanding(alone, float(typical(alone))).tolist()
    return rows if len(rows) <= len(alone) // 2 else [steps.latest]


def _ahead_of_next(steps: OwnSteps) -> float:
    """By how much the latest rank is later than the next latest that is not late with it."""
    own = steps.own.mean(axis=1)
    return float(np.clip(own[steps.latest] - np.delete(own, _late(steps)).max(), 0, persistent(steps.alone)))


def _lasts(steps: OwnSteps) -> bool:
    """Whether the latest rank is later than the others over the steps by more than steps differ among themselves."""
    behind = steps.alone[steps.latest] - typical(np.delete(steps.alone, steps.latest, axis=0))
    return bool(behind.mean() > _BY_CHANCE * behind.std(ddof=1) / np.sqrt(len(behind)))


def _late_ms(steps: OwnSteps) -> float:
    return max(0.0, float(np.median(steps.alone[steps.latest] - typical(steps.alone)))) if _lasts(steps) else 0.0


def _beyond(steps: OwnSteps) -> dict[str, float]:
    return {part: _beyond_typical(cells, steps.latest) for part, cells in steps.parts.items()}


def _kernels(steps: OwnSteps) -> tuple[float, float]:
    """How many the latest rank runs per step, and the typical one."""
    kernels = steps.kernels.mean(axis=1)
    return float(kernels[steps.latest]), float(typical(kernels))


def _causes(steps: OwnSteps) -> str:
    kernels, usual = _kernels(steps)
    more = f"; it runs {kernels:.0f} kernels, others {usual:.0f}" if kernels > (1 + _MORE_KERNELS) * usual > 0 else ""
    return steps.words(_beyond(steps)) + more


def _kernels_ratio(steps: OwnSteps) -> Value:
    kernels, usual = _kernels(steps)
    return kernels / usual if usual else None


def _late_of(job: Job) -> list[int]:
    """Positions of the late ranks."""
    return [job.members[row] for row in _late(job.once(own_steps))]


def _late_alone(job: Job) -> int | Missing:
    """The number of the late rank."""
    late = _late_of(job)
    return job.ranks[late[0]].worker if len(late) == 1 else Missing("several_late_ranks")


def _of_steps(value: Callable[[OwnSteps], Value]) -> Callable[[Job], Value]:
    return lambda job: value(job.once(own_steps))


measure = of_jobs(__name__, unknown=unknown_split)
measure("late_rank", lambda job: job.ranks[job.members[job.once(own_steps).latest]].worker, unit="rank").says(
    "The rank that does most by itself.", f"largest mean alone time; {ALONE}"
)
measure("late_rank_alone", _late_alone, unit="rank").says(
    "The late rank; unknown where several are late together.", "late_rank, if late_ranks is one"
)
measure("late_ranks", lambda job: words(job, _late_of(job)), unit="text").says(
    "The ranks that are late together, and the host or process group that they alone have.",
    "ranks whose mean alone time is nearer to the largest than to the typical one, if at most half of all",
)
measure(
    "late_rank_steps",
    _of_steps(lambda steps: int(np.isin(steps.alone.argmax(axis=0), _late(steps)).sum())),
    unit="count",
).says("In how many of the common steps one of the late ranks is the latest.", "largest alone time")
measure("late_rank_ms", _of_steps(_late_ms)).says(
    "By how much the latest rank is usually late; 0 where it may be the latest by chance.",
    f"median over steps of (its alone time - typical alone time in the step), if the mean of its alone time - that"
    f" of the typical other rank is more than {_BY_CHANCE} standard errors; {TYPICAL}",
    SOURCE,
)
measure("late_rank_share", _of_steps(lambda steps: steps.share(_late_ms(steps)))).says(
    "Part of the step by which the latest rank is usually late.", "late_rank_ms / mean step", SOURCE
)
measure("late_rank_least_ms", _of_steps(_ahead_of_next)).says(
    "By how much the latest rank is later than the next latest that is not late with it.",
    "mean step without waiting - the largest of a rank not in late_ranks, 0 to persistent_skew_ms",
)
measure(
    "late_rank_uneven_ms", _of_steps(lambda steps: float(steps.alone[steps.latest].mean() - steps.alone.mean()))
).says(
    "By how much the latest rank is later than all ranks would be if they did equal parts of what they do now.",
    f"its mean alone time - the mean of all ranks'; {ALONE}",
)
measure("late_rank_host_ms", _of_steps(lambda steps: max(0.0, _beyond(steps)["other"]))).says(
    "How much more the latest rank has of what is neither kernels (without a device: ops) nor waiting for input.",
    "its mean alone time - time in kernels (without a device: in ops) - waiting for input, beyond the typical rank's, "
    "at least 0",
)
measure("late_rank_causes", _of_steps(_causes), unit="text").says(
    "What the latest rank has more of than the typical one.",
    "its mean time in kernels, waiting for input and the rest, and its number of kernels, beyond the typical ones",
)
measure("late_rank_kernels_ratio", _of_steps(_kernels_ratio)).says(
    "How many times as many kernels the latest rank runs as the typical rank.",
    "mean number of kernels per step / typical mean",
)
