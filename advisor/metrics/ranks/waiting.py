"""How long each rank waits for others and for whom, by collectives or a pipeline; ranks slow at the same work."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import outstanding, typical
from advisor.analysis.job.topology import lone, node_names, pipelines, words
from advisor.metrics.metric import Value, lacking, of_jobs, of_ranks, tabulates_jobs
from advisor.model.clause import Entries, Missing

_SOURCE: Final = "wait = latest start - own start, transfer = the rest, as TraceLens and ByteDance's study have it"
_AWAITED_LEAST: Final = 0.5  # of all waiting
_OUTLIER: Final = 1.1  # times the typical rank's work
_RULE: Final = "over the steps that every rank uses; only time that no kernel of the rank's own covers"
_TRANSFER: Final = pl.col("transfer_ns")
_OWN: Final = pl.col("own_ns")


def _mean_ms(column: pl.Expr, *, all_steps: bool = False) -> Callable[[Job, int], Value]:
    """The rank's mean over the common steps, or over all that every rank recorded whole."""

    def means(job: Job) -> dict[int, float]:
        pace = job.whole_pace if all_steps else job.pace
        return dict(pace.group_by("rank").agg(column.mean() / 1e6).rows())

    return lambda job, position: _apart(job, position) or job.once(means).get(position)


def _apart(job: Job, position: int) -> Missing | None:
    code = "guest_device" if position in job.guests else "other_steps" if position in job.apart else None
    return job.missing or (Missing(code) if code else None)


_own_ms: Final = _mean_ms(_OWN)


def _excess_ms(job: Job, position: int) -> Value:
    own = _own_ms(job, position)
    return own - job.once(_typical_own_ms) if isinstance(own, float) else own


def _typical_own_ms(job: Job) -> float:
    return float(typical(job.pace.group_by("rank").agg(pl.mean("own_ns"))["own_ns"].to_numpy())) / 1e6


def _awaited_ms(job: Job, position: int) -> Value:
    """Steps that were long because another rank was late are no fault of this one."""
    if not job.ranks[position].steps["used"].any():
        return None
    if job.missing or position not in job.members or not job.whole_steps:
        return 0.0
    used = job.ranks[position].steps.filter("used")["step"]
    outliers = job.whole_pace.filter(pl.col("rank") == position, ~pl.col("step").is_in(used.implode()))
    return float(outliers["wait_ns"].sum()) / 1e6 / len(job.whole_steps)


rank = of_ranks(__name__)
rank("wait_ms", _mean_ms(pl.col("wait_ns"))).says(
    "Time per step in which the rank waits for a later one.", _RULE, _SOURCE
)
rank("own_step_ms", _own_ms).says(
    "What the step takes this rank by itself: the slowest rank's sets the job's pace.",
    "mean of the common steps - wait_ms",
    _SOURCE,
)
rank("own_whole_step_ms", _mean_ms(_OWN, all_steps=True)).says(
    "What the step takes this rank by itself, the uneven steps included, which savings count too.",
    "mean over all steps that every rank recorded whole of (step - exposed waiting)",
    _SOURCE,
)
rank("alone_whole_step_ms", _mean_ms(_OWN - _TRANSFER, all_steps=True)).says(
    "What the step takes this rank without exposed collectives, the uneven steps included.",
    "mean over the same steps of (step - time in collectives that no kernel of the rank's own covers)",
    _SOURCE,
)
rank("own_step_excess_ms", _excess_ms).says(
    "By how much longer the step takes this rank by itself than the typical rank.",
    "own_step_ms - its lower median over the ranks: of two, that of the one that does less",
    _SOURCE,
)
rank("outlier_awaited_ms", _awaited_ms).says(
    "What waiting for later ranks in the steps left out as uneven adds to the mean step.",
    "sum over those steps of exposed waiting / steps that every rank recorded whole; 0 if it is unknown",
    _SOURCE,
)


@tabulates_jobs("pace")
def paces(job: Job) -> pl.DataFrame:
    """A row per rank and common step, where there are several ranks.

    Columns: rank (position), name, node (its number or its host's name, null where all are on one or it is unknown),
    step, step_ms, own_ms, wait_ms; the last two null where waiting cannot be told.
    """
    names, nodes = pl.Series(job.names, dtype=pl.String), pl.Series(node_names(job), dtype=pl.String)
    known = pl.lit(len(job.ranks) > 1 and job.missing is None)
    rows = job.pace if len(job.ranks) > 1 else job.pace.clear()
    return rows.select(
        rank="rank",
        name=names.gather(rows["rank"]),
        node=nodes.gather(rows["rank"]),
        step="step",
        step_ms=pl.col("dur_ns") / 1e6,
        own_ms=pl.when(known).then(pl.col("own_ns") / 1e6),
        wait_ms=pl.when(known).then(pl.col("wait_ns") / 1e6),
    )


@tabulates_jobs("wait")
def who_waits(job: Job) -> pl.DataFrame:
    """A row per pair of ranks: waiting, awaited (positions), waiting_name, awaited_name, wait_ms per step."""
    waits, names = job.waits.clear() if job.missing else job.waits, pl.Series(job.names)
    return waits.select(
        waiting="rank",
        awaited="last",
        waiting_name=names.gather(waits["rank"]),
        awaited_name=names.gather(waits["last"]),
        wait_ms=pl.col("wait_ns") / 1e6 / len(job.steps),
    )


def _share_of_all(column: str) -> Callable[[Job], Value]:
    return lambda job: _ratio(job.once(_by_rank)[column].mean(), job.once(_by_rank)["dur_ns"].mean())


def _by_rank(job: Job) -> pl.DataFrame:
    """Mean waiting of each rank, the one that waits most first."""
    by_rank = job.pace.group_by("rank", maintain_order=True).agg(pl.mean("wait_ns", "paired_ns", "dur_ns"))
    return by_rank.sort("wait_ns", descending=True, maintain_order=True)


def _pipeline_wait_share(job: Job) -> Value:
    if not job.missing:
        return _share_of_all("paired_ns")(job)
    sends = job.calls.filter(pl.col("staged") | pl.col("op").is_null()).height
    return job.missing if sends else 0.0


def _awaited(job: Job) -> int | Missing:
    """The rank that the others mostly wait for."""
    by_rank = job.waits.group_by("last").agg(pl.sum("wait_ns")).sort("wait_ns", "last", descending=[True, False])
    spent = by_rank["wait_ns"].to_numpy()
    is_clear = spent.sum() and spent[0] >= _AWAITED_LEAST * spent.sum()
    return by_rank["last"][0] if is_clear else Missing("no_rank_awaited_most")


def _ratio(part: object, total: object) -> Value:
    return part / total if isinstance(part, float) and isinstance(total, float) and total else None


measure = of_jobs(
    __name__,
    unknown=lambda job: job.missing or (Missing("no_shared_collective") if job.matched_share is None else None),
)
measure("waiting_share", _share_of_all("wait_ns")).says(
    "Part of all ranks' time that passes waiting for later ranks.",
    "mean over ranks and common steps of exposed waiting / mean step",
    "wait = latest start - own start, as TraceLens and ByteDance's study have it",
)
measure.rank("waiting_most", lambda job: job.once(_by_rank)["rank"][0]).says(
    "The rank that waits longest for others.", "largest mean exposed waiting"
)
measure("waiting_most_share", lambda job: _ratio(*job.once(_by_rank).select("wait_ns", "dur_ns").row(0))).says(
    "Part of its time that this rank waits.", "mean exposed waiting / mean step"
)
of_jobs(__name__)("pipeline_wait_share", _pipeline_wait_share).says(
    "Part of all ranks' time that passes waiting for another rank to send or receive: the bubbles of a pipeline.",
    "the same of exposed waiting in sends and receives that go around no ring; 0 where there are none",
)
measure.rank("awaited_most", _awaited).says(
    "The rank that the others mostly wait for.",
    "largest sum of exposed waiting for it, if that is half of the sum for all or more",
)


_SCHEDULES: Final = "GPipe (NeurIPS 2019) and Megatron-LM (SC 2021): bubbles of (stages - 1) / micro-batches"


def _messages_of(job: Job) -> pl.DataFrame:
    return job.calls.filter("staged", pl.col("step").is_in(job.steps))


def _unknown(job: Job) -> Missing | None:
    return job.missing if job.once(_messages_of).height else Missing("no_point_to_point")


def _unknown_schedule(job: Job) -> Missing | None:
    peers = job.once(_messages_of)["peer"].count()
    return _unknown(job) or (None if peers else Missing("peers_not_recorded"))


class _Schedule(NamedTuple):
    """A pipeline's mean step and waiting in ms, its stages, and messages from one to the next."""

    step_ms: float
    wait_ms: float
    stages: int
    messages: float


def _schedule(job: Job) -> _Schedule:
    calls = job.once(_messages_of).drop_nulls("peer").group_by("rank", "peer", "op").len()["len"]
    stages = int(np.median([len(chain) for chain in job.once(pipelines)]))
    messages = float(np.median(calls.to_numpy())) / len(job.steps)
    return _Schedule(_pace_ms(job, "dur_ns"), _pace_ms(job, "paired_ns"), stages, messages)


def _busiest(job: Job) -> str:
    """The ranks with most work, where that is a tenth more than the typical rank's."""
    work = job.pace.group_by("rank").agg((pl.col("work_ns") + pl.col("ops_ns")).mean()).sort("rank")
    times = work["work_ns"].to_numpy()
    usual = float(typical(times))
    if times.max() < _OUTLIER * usual:
        return ""
    return words(job, work["rank"].gather(outstanding(times, usual)).to_list())


def _pace_ms(job: Job, column: str) -> float:
    return float(job.pace[column].to_numpy().mean()) / 1e6


of_jobs(__name__, unknown=_unknown)("pipeline_wait_ms", lambda job: _pace_ms(job, "paired_ns")).says(
    "Time per step that ranks wait for another rank to send or receive.",
    "mean over ranks and common steps of exposed waiting in sends and receives",
)
of_pipelines = of_jobs(__name__, unknown=_unknown_schedule)
of_schedule = of_pipelines.parts_of(_schedule)
of_schedule("pipeline_stages", lambda schedule: schedule.stages, unit="count").says(
    "Stages of the pipeline.",
    "ranks that are joined by sends and receives; the median where there are several pipelines",
)
of_schedule("micro_batches", lambda schedule: schedule.messages).says(
    "Messages per step from one stage to the next: micro-batches, times the chunks that a rank holds.",
    "sends (or receives) per rank, peer and common step; the median over ranks and peers",
)
of_schedule(
    "schedule_bubble_ms", lambda of: min(of.wait_ms, (of.step_ms - of.wait_ms) * (of.stages - 1) / of.messages)
).says(
    "How much of the waiting the schedule accounts for, had all stages equal work.",
    "(mean step - pipeline_wait_ms) x (pipeline_stages - 1) / micro_batches, at most pipeline_wait_ms",
    _SCHEDULES,
)
of_schedule("pipeline_work_ms", lambda schedule: schedule.step_ms - schedule.wait_ms).says(
    "Time per step that a rank of the pipeline is not waiting: what smaller micro-batches make less efficient.",
    "mean step - pipeline_wait_ms",
)
of_pipelines("busiest_ranks", _busiest, unit="text").says(
    "The ranks that compute longest per step, and the stage that they alone are; empty where all compute as long.",
    "ranks whose mean time in kernels (without a device: in ops) is nearer to the largest than to the typical one, if"
    " the largest is a tenth above that; typical = the lower median over ranks",
)


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
    """With what the job's step gets shorter by if these ranks' kernels took as long as elsewhere: low and high."""
    slowest_first = job.once(_compared).sort("ratio", "rank", descending=[True, False])
    ratios = slowest_first["ratio"].to_numpy()
    slow = slowest_first[outstanding(ratios, 1.0)]
    alone = pl.col("own_ns") - pl.col("transfer_ns")
    means = job.pace.group_by("rank").agg(pl.mean("own_ns", "work_ns"), alone_ns=alone.mean())
    means = means.join(slow, on="rank", how="left")
    saved = pl.col("work_ns") * (1 - 1 / pl.col("ratio").clip(1.0)).fill_null(0)
    low, high = ((pl.col(time).max() - (pl.col(time) - saved).max()) / 1e6 for time in ("own_ns", "alone_ns"))
    if job.matched_share is None:  # devices that wait for each other's copies: what they do beside kernels stays
        beside = (pl.col("own_ns") - pl.col("work_ns")).filter(pl.col("ratio").is_null()).max()
        low, high = (saved.max() - beside).clip(0) / 1e6, saved.max() / 1e6
    least, most = means.select(low=low, high=high).row(0)
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
    # The lower median of the others: its place in the sorted row of all ranks moves up by one from this rank's on.
    place = pl.col("median_ns").rank("ordinal").over(_KERNEL).cast(pl.Int64) - 1
    middle = (pl.len().over(_KERNEL).cast(pl.Int64) - 2) // 2
    kernels = kernels.with_columns(at=middle + (place <= middle), shared=pl.len().over(_KERNEL) > 1)
    others_ns = pl.col("median_ns").sort().gather("at").over(_KERNEL)
    kernels = kernels.with_columns(ratio=pl.when("shared").then(pl.col("median_ns") / others_ns))
    ratio, spent_ns = (pl.col(column).filter(pl.col("shared")) for column in ("ratio", "total_ns"))
    reached_ns = spent_ns.sort_by(ratio).cum_sum()
    ranks = kernels.group_by("rank").agg(
        ratio=ratio.sort().filter(2 * reached_ns >= spent_ns.sum()).first(),  # up to which half of the time lies
        share=spent_ns.sum() / pl.col("total_ns").sum(),
    )
    return ranks.filter(pl.col("share") >= _ENOUGH_SHARE, pl.col("ratio").is_not_null()).sort("rank")


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
