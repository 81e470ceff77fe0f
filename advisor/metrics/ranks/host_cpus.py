"""Hosts whose ranks share too few CPUs: each rank has too few samples to show it, all ranks of the host together do."""

import polars as pl

from advisor.analysis.device.cpu_waits import CpuWaits, pooled
from advisor.analysis.job.job import Job
from advisor.metrics.metric import of_jobs
from advisor.model.missing import Missing

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
of_hosts = of_jobs(__name__, unknown=lambda job: Missing("one_rank") if len(job.members) == 1 else None)
of_hosts("host_delay_share", lambda job: job.once(_waits).least_share).says(
    "Part of their time in which the launching threads of one host waited for a CPU, at least.",
    "run_delay_share of the ops without work of all ranks of a host together; the largest over hosts with several "
    "ranks, where ranks whose host is unknown count as one; 0 where there are too few waits",
    _SOURCE,
)
of_hosts("host_waiting_views", lambda job: job.once(_waits).waits, unit="count").says(
    "Ops without work on one host that took so long that their thread cannot have had a CPU.",
    "waiting_views of all ranks of that host together; 0 where there are too few",
    _SOURCE,
)
measure = of_jobs(__name__, unknown=lambda job: job.missing)
measure("host_delay_least_ms", lambda job: job.once(_waits).least_share * job.once(_most_ms)).says(
    "What a CPU for each rank saves at least.", "host_delay_share x host_delay_most_ms"
)
measure("host_delay_most_ms", lambda job: job.once(_most_ms)).says(
    "What a CPU for each rank saves at most: the devices always have work.",
    "mean step of the rank that takes longest by itself - the largest mean over ranks of (kernels + waiting for input "
    "+ exposed transfers without waiting for ranks), at least 0; 0 where no host waits",
)
