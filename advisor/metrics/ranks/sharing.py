"""Devices that one process feeds in turn or one at a time, and devices and CPUs that several ranks share."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.cpu_waits import CpuWaits, pooled
from advisor.analysis.device.view import spans
from advisor.analysis.job.job import Job
from advisor.analysis.job.rank import Rank
from advisor.metrics.metric import lacking, of_jobs
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY

_ENOUGH_STEPS: Final = 3
_SEVERAL: Final = 2  # devices of a process
_FIRSTS: Final = ("first_ns", "called_ns")  # when a device's first kernel of a step starts, and was called for


class _Stagger(NamedTuple):
    """How far apart one process starts its devices in a step, the order in which it does, and what that costs."""

    ms: float = 0.0
    order_share: float = 0.0
    order: Sequence[str] = ()
    alike_share: float = 1.0
    gains_ms: tuple[float, float] = (0.0, 0.0)


def _stagger(job: Job) -> _Stagger | Missing:
    process = _largest_process(job.ranks[i] for i in job.members)
    if len(process) < _SEVERAL:
        return _Stagger()
    used = pl.concat([rank.steps.filter("used").with_columns(device=pl.lit(i)) for i, rank in enumerate(process)])
    shared, called = (used.filter(pl.col(first).count().over("step") == len(process)) for first in _FIRSTS)
    if shared["step"].n_unique() < _ENOUGH_STEPS:
        return Missing("few_shared_steps", needed=_ENOUGH_STEPS)
    known = shared.join(called.select("step"), on="step", how="semi").sort("device", "step")
    steps = known["step"].unique().to_list()
    if len(steps) < _ENOUGH_STEPS:
        return Missing("first_launch_not_recorded")
    apart = pl.min_horizontal(pl.col(first).max() - pl.col(first).min() for first in _FIRSTS)
    late_ms, step_ms = known.select(apart.over("step").mean() / 1e6, pl.mean("dur_ns") / 1e6).row(0)
    gains = _gains(job, process, steps, step_ms)
    # How regularly the devices start in one order, and that order.
    times = known["first_ns"].to_numpy().reshape(len(process), -1)
    usual = np.argsort(times.argsort(axis=0).argsort(axis=0).mean(axis=1), kind="stable")
    in_order = [times[a] <= times[b] for i, a in enumerate(usual) for b in usual[i + 1 :]]
    order = [f"GPU {process[i].device}" for i in usual]
    return _Stagger(late_ms, float(np.mean(in_order)), order, _common_kernel_share(process), gains)


def _largest_process(ranks: Iterable[Rank]) -> Sequence[Rank]:
    """The devices of the process that has most of these; empty where none has any."""
    by_worker = defaultdict[int, list[Rank]](list)
    for rank in ranks:
        if rank.device is not None:
            by_worker[rank.worker].append(rank)
    return max(by_worker.values(), key=len, default=[])


def _common_kernel_share(process: Sequence[Rank]) -> float:
    """How much of the kernels that any of the devices runs all of them run, as often."""
    kernel = ["name", "grid", "block"]
    each = [rank.kernels.select(*kernel, per_step=pl.col("number") / rank.steps["used"].sum()) for rank in process]
    numbers = pl.concat(each).group_by(kernel).agg(pl.len(), least=pl.min("per_step"), most=pl.max("per_step"))
    least = numbers.filter(pl.col("len") == len(process))["least"].sum()
    return float(least) / float(numbers["most"].sum()) if numbers.height else 1.0


def _gains(job: Job, process: Sequence[Rank], steps: Sequence[int], step_ms: float) -> tuple[float, float]:
    """By how much the step gets shorter once each device is fed by itself: low and high, in ms."""
    positions = [job.ranks.index(rank) for rank in process]
    pace = job.pace.filter(pl.col("rank").is_in(positions), pl.col("step").is_in(list(steps)))
    work = (pl.col("work_ns") + pl.col("input_ns")).mean() / 1e6
    needed = pace.group_by("rank").agg(most=work, least=work + pl.mean("transfer_ns") / 1e6)
    if not needed.height:
        return 0.0, 0.0
    most, least = (step_ms - float(needed[name].to_numpy().max()) for name in ("most", "least"))
    return max(0.0, least), max(0.0, most)


measure = of_jobs(__name__).parts_of(_stagger)
measure("launch_stagger_ms", lambda stagger: stagger.ms).says(
    "How long after the first device of a process its last one starts to work in a step, because the host feeds it "
    "no sooner.",
    "mean over steps of the least of (last - first start of the first kernel on each of the process's devices) and "
    "(last - first call that launches it): what was launched and still waits is not waiting for the host; 0 where "
    "every process feeds one device",
    "the gpu_private case of TensorFlow's GPU performance guide, seen from the devices' side",
)
measure("launch_order_share", lambda stagger: stagger.order_share).says(
    "How regularly the devices start in the same order.",
    "pairs of devices and steps in which the one starts first that usually does / all of them",
)
measure("launch_order", lambda stagger: [{"name": gpu} for gpu in stagger.order], unit="names").says(
    "The devices in the order in which they usually start.", "by their mean place"
)
measure("launch_alike_share", lambda stagger: stagger.alike_share).says(
    "How alike the work of a process's devices is: 1 where they are replicas, less where one has another part of "
    "the model and needs what the other makes.",
    "sum of the least / sum of the largest number of calls per step on a device, over kernels (name, grid, block)",
)
measure.saving("stagger", lambda stagger: stagger.gains_ms).says("a process per device")

_Place: TypeAlias = tuple[object, int | None]


def _guests(job: Job) -> Mapping[_Place, list[Rank]] | Missing:
    """The ranks that work on a device of another one, by where that is."""
    if len(job.members) == 1:
        return Missing("one_rank")
    homes = [job.ranks[i] for i in job.members]
    ranks: dict[_Place, list[Rank]] = {}
    for rank in (job.ranks[i] for i in job.guests):
        if any(home.worker != rank.worker and _place(home) == _place(rank) for home in homes):
            ranks.setdefault(_place(rank), []).append(rank)
    return ranks


def _place(rank: Rank) -> _Place:
    """Its host and device."""
    return rank.facts.get("host"), rank.device


def _most_guest_ms(guests: Mapping[_Place, list[Rank]]) -> float:
    working = ([rank.steps["work_ns"].to_numpy() for rank in there if rank.steps.height] for there in guests.values())
    return max((sum(float(of.mean()) / 1e6 for of in there) for there in working), default=0.0)


of_guests = of_jobs(__name__).parts_of(_guests)
of_guests(
    "guest_workers", lambda guests: len({rank.worker for there in guests.values() for rank in there}), unit="count"
).says(
    "Processes that work on another rank's GPU beside their own.",
    "workers that meet the other ranks on one device and run something on another, which is another worker's",
)
of_guests(
    "guest_names",
    lambda guests: [
        {"name": f"rank {of.worker}", "what": f"on GPU {of.device}"} for at in guests.values() for of in at
    ],
).says("Who works on whose GPU.", "by the numbers of ranks and devices")
of_guests("guest_ms", _most_guest_ms).says(
    "Kernel time per step of processes on another rank's GPU, on the GPU that has most of it.",
    "sum over guests of the mean time per step in kernels there; the largest over devices",
)


_MICRO_BATCHES: Final = 4  # what GPipe advises per stage
_PART: Final = 0.5  # of that: smaller kernels fill the device less


class _Turns(NamedTuple):
    """How far the devices of a process take turns, and what pipelining them saves of a step."""

    devices: int = 1
    alone_share: float = 0.0
    least_share: float = 0.0
    gains_ms: tuple[float, float] = (0.0, 0.0)


def _turns(job: Job) -> _Turns:
    """Of the process with most devices that work."""
    process = _largest_process(rank for rank in (job.ranks[i] for i in job.members) if rank.work.total)
    if len(process) < _SEVERAL:
        return _Turns()
    steps = process[0].steps.filter("used")
    steps_ns, windows = int(steps["dur_ns"].sum()), spans(steps)
    if not steps_ns:
        return _Turns()
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
    return _Turns(len(works), alone, float(spent.min()) / step_ms, (least_ms, most_ms))


of_turns = of_jobs(__name__).parts_of(_turns)
of_turns("serial_devices", lambda turns: turns.devices, unit="count").says(
    "Devices of one process that work in the steps, of the process with most.", "devices with kernels in its steps"
)
of_turns("serial_share", lambda turns: turns.alone_share).says(
    "How far these devices take turns: part of the time in which any of them computes that only one does.",
    "1 - time with kernels on two or more / time with kernels on any, in the used steps of the first",
)
of_turns("serial_least_share", lambda turns: turns.least_share).says(
    "Part of the step in which the device of them computes that computes least.", "its kernel time / step time"
)
of_turns.saving("serial", lambda turns: turns.gains_ms).says("pipelining micro-batches through the devices")


_NONE = CpuWaits(0, 0, 0.0)


def _waits(job: Job) -> CpuWaits:
    """Those of the host whose ranks wait for the largest share; ranks whose host is unknown count as one."""
    hosts: dict[object, list[int]] = {}
    for i in job.members:
        hosts.setdefault(job.ranks[i].facts.get("host"), []).append(i)
    several = [positions for positions in hosts.values() if len(positions) > 1]
    waits_of_hosts = (pooled([job.ranks[i].workless for i in positions]) for positions in several)
    return max(filter(None, waits_of_hosts), key=lambda waits: waits.least_share, default=_NONE)


def _most_ms(job: Job) -> float:
    """The step of the rank that takes longest by itself, less what the devices need: 0 where no host waits."""
    if not job.once(_waits).waits:
        return 0.0
    needed = pl.col("work_ns") + pl.col("input_ns") + pl.col("transfer_ns")
    means = job.pace.group_by("rank").agg(pl.mean("own_ns", "dur_ns"), needed=needed.mean())
    step_ns = means.sort("own_ns", "rank")["dur_ns"][-1]
    return float(max(0.0, step_ns - means["needed"].to_numpy().max())) / 1e6


_SOURCE = "as run_delay_share and its limits"
of_hosts = of_jobs(__name__, unknown=lacking(one_rank=lambda job: len(job.members) == 1)).parts_of(_waits)
of_hosts("host_delay_share", lambda waits: waits.least_share).says(
    "Part of their time in which the launching threads of one host waited for a CPU, at least.",
    "run_delay_share of the ops without work of all ranks of a host together; the largest over hosts with several "
    "ranks, where ranks whose host is unknown count as one; 0 where there are too few waits",
    _SOURCE,
)
of_hosts("host_waiting_views", lambda waits: waits.waits, unit="count").says(
    "Ops without work on one host that took so long that their thread cannot have had a CPU.",
    "waiting_views of all ranks of that host together; 0 where there are too few",
    _SOURCE,
)
of_jobs(__name__, unknown=lambda job: job.missing)("host_delay_most_ms", _most_ms).says(
    "What a CPU for each rank saves at most: the devices always have work.",
    "mean step of the rank that takes longest by itself - the largest mean over ranks of (kernels + waiting for input "
    "+ exposed transfers without waiting for ranks), at least 0; 0 where no host waits",
)
