"""Ranks that do the same work: the same kernels slower on one of them, or one that does next to nothing."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import outstanding, typical
from advisor.analysis.job.topology import lone, words
from advisor.metrics.metric import lacking, of_jobs
from advisor.model.clause import Entries, Missing

_ENOUGH_STEPS: Final = 3
_ENOUGH_SHARE: Final = 0.5  # of a rank's kernel time that must be in kernels that another rank runs too
_IDLE_SHARE: Final = 0.1  # of the typical rank's kernel time
_WORK_SHARE: Final = 0.01  # of its step: where the typical rank's kernels take less, all ranks do next to nothing
_KERNEL: Final = ("name", "grid", "block")


class _Slow(NamedTuple):
    """The ranks whose kernels are slow, the slowest first: by how much, of which part, and what that costs in ms."""

    ranks: list[int]
    ratio: float
    share: float
    gains_ms: tuple[float, float]


def _slowest(job: Job) -> _Slow:
    slowest_first = job.once(_compared).sort("ratio", "rank", descending=[True, False])
    ratios = slowest_first["ratio"].to_numpy()
    slow = slowest_first[outstanding(ratios, 1.0)]
    least, most = _gains(job, slow)
    return _Slow(slow["rank"].to_list(), max(1.0, float(ratios[0])), slow["share"][0], (min(least, most), most))


def _incomparable(job: Job) -> Missing | None:
    if job.missing:
        return job.missing
    if len(job.steps) < _ENOUGH_STEPS:
        return Missing("few_steps", needed=_ENOUGH_STEPS)
    return None if job.once(_compared).height else Missing("different_kernels")


def _compared(job: Job) -> pl.DataFrame:
    """A row per rank whose kernels others run too: rank, ratio, share."""
    rows = [job.ranks[i].kernels.with_columns(rank=pl.lit(i, pl.Int64)) for i in job.members]
    kernels = pl.concat(rows).filter(pl.col("median_ns") > 0)
    if not kernels.height:
        return pl.DataFrame(schema={"rank": pl.Int64, "ratio": pl.Float64, "share": pl.Float64})
    ratio, spent_ns = (pl.col(column).filter(pl.col("shared")) for column in ("ratio", "total_ns"))
    reached_ns = spent_ns.sort_by(ratio).cum_sum()
    ranks = (
        _against_others(kernels)
        .group_by("rank")
        .agg(
            ratio=ratio.sort().filter(2 * reached_ns >= spent_ns.sum()).first(),  # up to which half of the time lies
            share=spent_ns.sum() / pl.col("total_ns").sum(),
        )
    )
    return ranks.filter(pl.col("share") >= _ENOUGH_SHARE, pl.col("ratio").is_not_null()).sort("rank")


def _against_others(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels with `shared`, whether another rank runs them too, and `ratio` to the others' lower median."""
    # The lower median of the others: its place in the sorted row of all ranks moves up by one from this rank's on.
    place = pl.col("median_ns").rank("ordinal").over(_KERNEL).cast(pl.Int64) - 1
    middle = (pl.len().over(_KERNEL).cast(pl.Int64) - 2) // 2
    compared = kernels.with_columns(at=middle + (place <= middle), shared=pl.len().over(_KERNEL) > 1)
    others_ns = pl.col("median_ns").sort().gather("at").over(_KERNEL)
    return compared.with_columns(ratio=pl.when("shared").then(pl.col("median_ns") / others_ns))


def _gains(job: Job, slow: pl.DataFrame) -> tuple[float, float]:
    """What the job's step gets shorter by if these ranks' kernels took as long as elsewhere: low and high, in ms."""
    alone = pl.col("own_ns") - pl.col("transfer_ns")
    means = job.pace.group_by("rank").agg(pl.mean("own_ns", "work_ns"), alone_ns=alone.mean())
    means = means.join(slow, on="rank", how="left")
    saved = pl.col("work_ns") * (1 - 1 / pl.col("ratio").clip(1.0)).fill_null(0)
    low, high = ((pl.col(time).max() - (pl.col(time) - saved).max()) / 1e6 for time in ("own_ns", "alone_ns"))
    if job.matched_share is None:  # devices that wait for each other's copies: what they do beside kernels stays
        beside = (pl.col("own_ns") - pl.col("work_ns")).filter(pl.col("ratio").is_null()).max()
        low, high = (saved.max() - beside).clip(0) / 1e6, saved.max() / 1e6
    low_ms, high_ms = means.select(low=low, high=high).row(0)
    return low_ms, high_ms


of_slow = of_jobs(__name__, unknown=_incomparable)
slow = of_slow.parts_of(_slowest)
of_slow("slow_kernels_rank", lambda job: lone(job, job.once(_slowest).ranks), unit="rank").says(
    "The rank on which the same kernels take longer; unknown where they do on several.", "slow_kernels_ranks, if one"
)
of_slow("slow_kernels_ranks", lambda job: words(job, sorted(job.once(_slowest).ranks)), unit="text").says(
    "The ranks on which the same kernels take longer, and the host or process group that they alone have.",
    "ranks whose slow_kernels_ratio is nearer to the largest than to 1",
)
slow("slow_kernels_ratio", lambda slow: slow.ratio).says(
    "How many times as long the same kernels take on the slowest rank as on the other ranks.",
    "median, weighted by time, over kernels of one name, grid and block of (median duration on the rank / lower "
    "median of those on the other ranks); the largest over ranks; at least half of a rank's kernel time compared",
    "NVRx compares kernels so to find stragglers; PRISM (arXiv 2510.15596) on how far GPUs of one type differ",
)
slow("slow_kernels_share", lambda slow: slow.share).says(
    "Part of the slowest rank's time in kernels that could be compared with the other ranks'.",
    "time in kernels that another rank runs too / time in kernels",
)
slow.saving("slow_kernels", lambda slow: slow.gains_ms).says("kernels that take as long on the slow GPUs as elsewhere")


def _idle_names(job: Job) -> Entries:
    unused = _unused(job)
    beside = [{"name": "devices that no process uses", "count": float(unused)}] if unused else []
    return [*({"name": rank} for rank in job.once(_idle) or ()), *beside]


def _idle(job: Job) -> list[str] | None:
    """Names of the ranks that do next to nothing; None where all of them do."""
    recorded = {i: job.ranks[i].steps for i in job.members if job.ranks[i].steps.height}
    work = {i: int(steps["work_ns"].sum()) / max(1, int(steps["dur_ns"].sum())) for i, steps in recorded.items()}
    busy = np.array([*filter(None, work.values())])
    usual = float(typical(busy)) if len(busy) else 0.0
    return None if usual < _WORK_SHARE else [job.names[i] for i, of in work.items() if of < _IDLE_SHARE * usual]


def _unused(job: Job) -> int:
    """Devices that the processes of one host see and leave alone."""
    if job.apart or (job.world_size and job.world_size > len(job.members)):
        return 0
    visible: dict[object, int] = {}
    used: dict[object, set[int]] = {}
    for rank in job.ranks:
        if rank.device is not None and rank.visible:
            host = rank.facts.get("host")
            visible[host] = max(visible.get(host, 0), rank.visible)
            used.setdefault(host, set()).update((rank.device, *rank.used))
    return max((max(0, visible[host] - len(used[host])) for host in visible), default=0)


idle = of_jobs(
    __name__,
    unknown=lacking(
        one_rank=lambda job: len(job.members) == 1, no_kernels_on_ranks=lambda job: job.once(_idle) is None
    ),
)
idle("idle_ranks", lambda job: len(job.once(_idle) or ()), unit="count").says(
    "Ranks whose GPU does next to nothing.",
    "ranks whose time in kernels, as a part of their steps, is below a tenth of the typical rank's (the lower median "
    "of those that run any)",
)
idle("idle_devices", lambda job: len(job.once(_idle) or ()) + _unused(job), unit="count").says(
    "GPUs of the job's hosts that do next to nothing.",
    "idle_ranks + where every rank was recorded the devices that a process sees and none of its host uses, the "
    "most over hosts; devices are told apart by their number, so that hosts without a name count as one",
)
idle("idle_names", _idle_names).says(
    "Which of the job's GPUs do next to nothing.", "names of the idle ranks, number of the unused devices"
)
