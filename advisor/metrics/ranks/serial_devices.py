"""Devices of one process of which one works at a time: parts of one model that wait for each other."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.rank import Rank
from advisor.metrics.metric import of_jobs
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS

_MICRO_BATCHES: Final = 4  # what GPipe advises per stage
_PART: Final = 0.5  # of that: smaller kernels fill the device less


class _Turns(NamedTuple):
    """How far the devices of a process take turns, and what pipelining them saves of a step."""

    devices: int = 1
    alone_share: float = 0.0
    least_share: float = 0.0
    least_ms: float = 0.0
    most_ms: float = 0.0


def _turns(job: Job) -> _Turns:
    """Of the process with most devices that work."""
    by_worker: dict[int, list[Rank]] = {}
    for rank in (job.ranks[i] for i in job.members):
        if rank.device is not None and rank.work.total:
            by_worker.setdefault(rank.worker, []).append(rank)
    process = max(by_worker.values(), key=len, default=[])
    steps = process[0].steps.filter("used") if process else None
    if len(process) < 2 or steps is None or not steps["dur_ns"].sum():  # noqa: PLR2004 - a turn takes two
        return _Turns()
    start, end = (steps.select(start=pl.col("start_ns"), end=END_NS)[name].to_numpy() for name in ("start", "end"))
    steps_ns, windows = int((end - start).sum()), Intervals.of(start, end)
    works = [rank.work & windows for rank in process]
    together, several = EMPTY, EMPTY
    for work in works:
        together, several = together | work, several | (together & work)
    spent = np.array([work.total for work in works]) / steps.height / 1e6  # ms of a step
    step_ms, longest = steps_ns / steps.height / 1e6, float(spent.max())
    most_ms = max(0.0, step_ms - longest)
    bubble = 1 + (len(works) - 1) / _MICRO_BATCHES
    least_ms = max(0.0, min(most_ms, _PART * (float(spent.sum()) - bubble * longest)))
    alone = 1 - several.total / together.total if together.total else 0.0
    return _Turns(len(works), alone, float(spent.min()) / step_ms, least_ms, most_ms)


def _of(value: Callable[[_Turns], float]) -> Callable[[Job], float]:
    return lambda job: value(job.once(_turns))


measure = of_jobs(__name__)
measure("serial_devices", _of(lambda turns: turns.devices), unit="count").says(
    "Devices of one process that work in the steps, of the process with most.", "devices with kernels in its steps"
)
measure("serial_share", _of(lambda turns: turns.alone_share)).says(
    "How far these devices take turns: part of the time in which any of them computes that only one does.",
    "1 - time with kernels on two or more / time with kernels on any, in the used steps of the first",
)
measure("serial_least_share", _of(lambda turns: turns.least_share)).says(
    "Part of the step in which the device of them computes that computes least.", "its kernel time / step time"
)
measure("serial_least_ms", _of(lambda turns: turns.least_ms)).says(
    "Step time that four micro-batches save at least if the devices pipeline them.",
    "half of (sum of the devices' kernel time - (1 + (devices - 1) / 4) x the longest), at most serial_most_ms",
    "GPipe (Huang et al., 2019): (K - 1) / (M + K - 1) of the time is a bubble of K stages with M micro-batches; half: "
    "own choice, because smaller kernels fill the device less",
)
measure("serial_most_ms", _of(lambda turns: turns.most_ms)).says(
    "Step time that pipelining the devices saves at most.", "step time - the kernel time of the device with most"
)
