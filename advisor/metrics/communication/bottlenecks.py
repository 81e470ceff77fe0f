"""What of the transfers between the ranks makes the step longer, and where: small messages, nodes, a slow link."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.collectives import (
    EXCHANGES,
    LARGE_BYTES,
    devices_of,
    gain_ms,
    gpu_of,
    share_of,
    traffic,
    why_none,
    why_unexpected,
)
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import expected, startup_ns, wired_in_pairs
from advisor.metrics.metric import Value
from advisor.metrics.several import Metric, Values, measures_jobs
from advisor.model.missing import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT

_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 8 * _MIB
_BUCKET_BYTES: Final = 25 * _MIB  # DistributedDataParallel's default
_IN_TRAINING: Final = 0.75  # of the bandwidth that a collective reaches alone
_EXPOSED: Final = pl.col("exposed_ns").sum()
_EXCHANGED: Final = pl.col("exposed_ns").filter(pl.col("op").is_in(EXCHANGES)).sum() / pl.max_horizontal(_EXPOSED, 1)
_BACKWARD: Final = 2 / 3  # of the kernels' time: two products for each one of the forward pass
_ENOUGH_CALLS: Final = 3
_MOSTLY: Final = 0.9  # of the time: enough for the rest not to change the picture
_REDUCTIONS: Final = ["all_reduce", "reduce_scatter"]
_LARGE: Final = "calls of 4 MiB and more for which a time is expected"
_GAIN: Final = "in every step: longest own_step of all ranks, less the longest that is left once each rank has saved"


EXPOSED_TRANSFER_MS = Metric(
    "exposed_transfer_ms",
    "How much shorter the step would be if kernels hid every transfer; waits for late ranks do not count.",
    f"of the part of every transfer, as in measured_transfer_ms, that no kernel covers, {_GAIN}",
)
HIDEABLE_TRANSFER_MS = Metric(
    "hideable_transfer_ms",
    "How much of the exposed transfers kernels could hide: the backward pass, or another micro-batch.",
    "the same, of at most 2/3 of the kernels' time (the backward pass computes two products for each one of the"
    " forward pass), all of it as far as all-to-alls, sends and receives are exposed, less what hides communication"
    " already; nothing where no backward pass ran",
    "PyTorch Distributed (VLDB 2020): gradients are reduced while the rest of the backward pass computes",
)
HIDEABLE_LEAST_MS = Metric(
    "hideable_least_ms",
    "How much of the transfers that are surely no waiting kernels could hide.",
    "as hideable_transfer_ms, of the calls that transfer_told_share counts",
)
EXPOSED_EXCHANGE_PART = Metric(
    "exposed_exchange_part",
    "How much of the exposed transfers are all-to-alls, sends and receives, and no reduction or gather.",
    "their exposed time / exposed time of all transfers, over all ranks and steps; 0 where none is exposed",
)
SLOW_TRANSFER_MS = Metric(
    "slow_transfer_ms",
    "What the job's step would get shorter by at most if the large collectives took the expected time.",
    f"of min(exposed transfers of the step, sum of transfer - expected time) over {_LARGE}, {_GAIN}; a call that"
    " is hidden counts too, since it holds up those queued after it",
    "ByteDance straggler study (OSDI 2025): only what is exposed counts",
)
SLOW_TRANSFER_LEAST_MS = Metric(
    "slow_transfer_least_ms",
    "What the job's step would get shorter by at least if the large collectives took the expected time.",
    f"of min(exposed, transfer - expected time / 0.75), call by call, {_GAIN}; pauses of at most {{queued_gap}} between"
    " kernels, which come without transfers too, do not count as exposed",
    "Daydream (USENIX ATC 2020): NCCL inside training took 34 % longer than alone",
)
_SLOW: Final = (SLOW_TRANSFER_MS, SLOW_TRANSFER_LEAST_MS)
_EXPOSURES: Final = (
    EXPOSED_TRANSFER_MS,
    EXPOSED_EXCHANGE_PART,
    HIDEABLE_TRANSFER_MS,
    HIDEABLE_LEAST_MS,
    *_SLOW,
)


@measures_jobs(*_EXPOSURES)
def exposures(job: Job) -> Values:
    """What of the transfers the step is longer for."""
    calls = job.once(traffic)
    if not calls.height:
        return _nothing(job, _EXPOSURES)
    exposed = calls.with_columns(saved_ns="exposed_ns")
    return {
        EXPOSED_TRANSFER_MS: gain_ms(job, exposed),
        EXPOSED_EXCHANGE_PART: float(calls.select(_EXCHANGED).item()),
        HIDEABLE_TRANSFER_MS: gain_ms(job, _hideable(job, calls, exposed)),
        HIDEABLE_LEAST_MS: gain_ms(job, _hideable(job, calls, exposed.filter("told"))),
        **_slow(job, calls, exposed),
    }


def _slow(job: Job, calls: pl.DataFrame, exposed: pl.DataFrame) -> dict[Metric, Value]:
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null())
    if not large.height:
        return dict.fromkeys(_SLOW, why_unexpected(calls))
    least = large.with_columns(saved_ns=_at_most("awaited_ns", _longer(_IN_TRAINING)))
    return {
        SLOW_TRANSFER_MS: gain_ms(job, _shorter(exposed, large, 1.0)),
        SLOW_TRANSFER_LEAST_MS: gain_ms(job, least),
    }


def _longer(part: float) -> pl.Expr:
    """By how much a transfer exceeds its expected time, at that part of the expected bandwidth."""
    return pl.col("transfer_ns") - pl.col("expected_ns") / part


def _at_most(column: str, longer: pl.Expr) -> pl.Expr:
    """What is saved of the time in this column where a transfer is that much longer than it need be."""
    return pl.min_horizontal(pl.col(column), longer.clip(0).cast(pl.Int64))


def _shorter(exposed: pl.DataFrame, large: pl.DataFrame, part: float) -> pl.DataFrame:
    """Per rank and step, what shorter transfers save at most: one that is hidden holds up those queued after it."""
    key = ["rank", "step"]
    queued = large.group_by(key).agg(longer_ns=_longer(part).clip(0).cast(pl.Int64).sum())
    sums = exposed.group_by(key).agg(pl.sum("exposed_ns"))
    return queued.join(sums, on=key).select(*key, saved_ns=pl.min_horizontal("longer_ns", "exposed_ns"))


def _hideable(job: Job, calls: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Per rank and step, the exposed time for which there is computation left to hide it behind."""
    training = [position for position, rank in enumerate(job.ranks) if rank.trains is not False]
    exposed = exposed.filter(pl.col("rank").is_in(training))
    key = ["rank", "step"]
    hidden = calls.group_by(key).agg(hidden_ns=(pl.col("transfer_ns") - pl.col("exposed_ns")).sum())
    sums = exposed.group_by(key).agg(pl.sum("exposed_ns"), part=_BACKWARD + (1 - _BACKWARD) * _EXCHANGED)
    open_ = job.pace.join(hidden, on=key, how="left").with_columns(pl.col("hidden_ns").fill_null(0))
    room_ns = (pl.col("work_ns") * pl.col("part") - pl.col("hidden_ns")).clip(0).cast(pl.Int64)
    return sums.join(open_, on=key).select(*key, saved_ns=pl.min_horizontal("exposed_ns", room_ns))


SMALL_REDUCTIONS_PER_STEP = Metric(
    "small_reductions_per_step",
    "Reductions of less than 8 MiB per step.",
    "number of all_reduce and reduce_scatter below 8 MiB / ranks / steps",
    "TraceLens and ml-engineering: below some MiB the start-up counts for more than the link",
)
SMALL_REDUCTION_SHARE = Metric(
    "small_reduction_share",
    "Part of the reduced bytes that reductions of less than 8 MiB move.",
    "bytes in reductions below 8 MiB / bytes in reductions",
)
MERGE_GAIN_MS = Metric(
    "merge_gain_ms",
    "What the job's step would get shorter by if small reductions were joined to buckets of 25 MiB.",
    "of min(exposed, transfers - time of whole buckets of 25 MiB at the bandwidth that is expected, or reached if"
    f" that is less) over the small reductions of each group and step, {_GAIN}; where only"
    " the number of links between the GPUs is not known: the start-ups alone that fewer calls save, as far as the"
    " last bucket, with nothing left to hide behind, leaves them exposed",
    "DistributedDataParallel's default bucket_cap_mb",
)
_SMALL: Final = (SMALL_REDUCTIONS_PER_STEP, SMALL_REDUCTION_SHARE, MERGE_GAIN_MS)


@measures_jobs(*_SMALL)
def small_messages(job: Job) -> Values:
    """What many small reductions cost, against few large ones."""
    calls = job.once(traffic)
    if not calls.height:
        return _nothing(job, _SMALL)
    reductions = calls.filter(pl.col("op").is_in(_REDUCTIONS))
    if reductions["bytes"].null_count():
        return Missing("no_collective_sizes")
    small = reductions.filter(pl.col("bytes") < _SMALL_BYTES)
    return {
        SMALL_REDUCTIONS_PER_STEP: small.height / len(job.ranks) / len(job.steps),
        SMALL_REDUCTION_SHARE: share_of(small, reductions, "bytes") or 0.0,
        MERGE_GAIN_MS: _merge_gain(job, calls, small),
    }


def _merge_gain(job: Job, calls: pl.DataFrame, small: pl.DataFrame) -> Value:
    if not small.height:
        return 0.0
    case = ["op", "group_size", "spans_nodes", "nodes"]
    joined = small.group_by("rank", "step", *case).agg(
        pl.sum("bytes"), pl.sum("transfer_ns"), pl.sum("exposed_ns"), pl.sum("expected_ns"), calls=pl.len()
    )
    joined = joined.with_columns(buckets=(pl.col("bytes") / _BUCKET_BYTES).ceil().clip(1))
    each = joined.select(*case, bytes=(pl.col("bytes") / pl.col("buckets")).cast(pl.Int64))
    best = expected(each, gpu_of(job), devices_of(job))
    if best["expected_ns"].null_count():
        return _startups(job, joined) if _wired_in_pairs(job, joined) else why_unexpected(small)
    # A link that is slow stays slow: what large messages reach of the expected bandwidth, joined ones will too.
    joined = joined.with_columns(needed_ns=best["expected_ns"] * pl.col("buckets") / _pace_of_large(calls))
    saved = joined.with_columns(saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") - pl.col("needed_ns")))
    return gain_ms(job, saved)


def _wired_in_pairs(job: Job, joined: pl.DataFrame) -> bool:
    """Whether all that is not known of the groups is how many links join their ranks."""
    known = joined["spans_nodes"].null_count() == 0 and not joined["spans_nodes"].any()
    sizes = joined["group_size"].unique().to_list()
    return known and all(size and wired_in_pairs(gpu_of(job), size, devices_of(job)) for size in sizes)


def _startups(job: Job, joined: pl.DataFrame) -> float:
    """The gain where the links' bandwidth is not known: the start-ups alone, which fewer calls pay less often.

    The last bucket is reduced when nothing is left to compute: that long stays exposed.
    """
    less = pl.col("calls").cast(pl.Int64) - pl.col("buckets").cast(pl.Int64)
    fewer_ns = less * startup_ns(pl.col("op"), pl.col("group_size").cast(pl.Int64))
    last_ns = (pl.col("transfer_ns") - fewer_ns).clip(0) / pl.col("buckets")
    spared_ns = pl.col("exposed_ns") - last_ns
    return gain_ms(job, joined.with_columns(saved_ns=pl.min_horizontal(spared_ns, fewer_ns).clip(0).cast(pl.Int64)))


def _pace_of_large(calls: pl.DataFrame) -> float:
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null(), pl.col("told"))
    reached = float(large["expected_ns"].sum()) / float(large["transfer_ns"].sum()) if large.height else 1.0
    return min(1.0, reached)


BUFFER_BROADCASTS_PER_STEP = Metric(
    "buffer_broadcasts_per_step",
    "Broadcasts per step with which DistributedDataParallel makes the module's buffers equal.",
    "number of broadcasts launched in DistributedDataParallel.forward / ranks / steps",
)
BUFFER_BROADCAST_MS = Metric(
    "buffer_broadcast_ms",
    "What the job's step would get shorter by without broadcasts of buffers; waiting for late ranks not counted.",
    f"of the part of their transfers that no kernel covers, {_GAIN}",
)
CROSS_NODE_SHARE = Metric(
    "cross_node_share",
    "Part of the transfers' time in groups that span nodes.",
    "transfers of groups whose ranks lie on several hosts / transfers; ranks fill hosts of as many GPUs as the"
    " recording shows",
)
CROSS_NODE_MS = Metric(
    "cross_node_ms",
    "What the job's step would get shorter by if transfers between nodes took no time.",
    f"of the part of these transfers that no kernel covers, {_GAIN}",
)
CROSS_NODE_HALVED_MS = Metric(
    "cross_node_halved_ms",
    "What the job's step would get shorter by if 32-bit numbers crossed nodes as 16 bits.",
    f"of min(exposed, half the transfer) of those in Float, {_GAIN}",
    "torch.distributed.algorithms.ddp_comm_hooks: bf16_compress_hook",
)
SLOWEST_PAIR = Metric(
    "slowest_pair",
    "The two ranks with the slowest link between them.",
    "among groups of two, and ranks of which one sends what the other receives, with three calls of 4 MiB and more:"
    " those with the least bytes x bus factor / transfer",
    unit="text",
)
SLOWEST_PAIR_SHARE = Metric(
    "slowest_pair_share",
    "Bandwidth of the slowest link between two ranks against the typical one.",
    "its bandwidth / the median over pairs",
)
_BROADCASTS: Final = (BUFFER_BROADCASTS_PER_STEP, BUFFER_BROADCAST_MS)
_ACROSS: Final = (CROSS_NODE_SHARE, CROSS_NODE_MS, CROSS_NODE_HALVED_MS)
_PAIR: Final = (SLOWEST_PAIR, SLOWEST_PAIR_SHARE)


@measures_jobs(*_BROADCASTS, *_ACROSS, *_PAIR)
def whereabouts(job: Job) -> Values:
    """Broadcasts of buffers, groups that span nodes, and links between pairs."""
    calls = job.once(traffic)
    if not calls.height:
        return _nothing(job, (*_BROADCASTS, *_ACROSS)) | dict.fromkeys(_PAIR, why_none(job))
    return {**_broadcasts(job, calls), **_across(job, calls), **_pairs(calls)}


def _broadcasts(job: Job, calls: pl.DataFrame) -> dict[Metric, Value]:
    broadcasts = calls.filter(pl.col("op") == "broadcast")
    if broadcasts["of_buffers"].null_count():
        return dict.fromkeys(_BROADCASTS, Missing("broadcast_launch_not_recorded"))
    of_buffers = broadcasts.filter("of_buffers").with_columns(saved_ns="exposed_ns")
    return {
        BUFFER_BROADCASTS_PER_STEP: of_buffers.height / len(job.ranks) / len(job.steps),
        BUFFER_BROADCAST_MS: gain_ms(job, of_buffers),
    }


def _across(job: Job, calls: pl.DataFrame) -> dict[Metric, Value]:
    placed = calls.filter(pl.col("spans_nodes").is_not_null())
    if (share_of(placed, calls, "transfer_ns") or 0.0) < _MOSTLY:
        return dict.fromkeys(_ACROSS, Missing("groups_not_recorded"))
    across = placed.filter("spans_nodes").with_columns(saved_ns="exposed_ns")
    halved = across.filter(pl.col("dtype") == "Float").with_columns(
        saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") / 2)
    )
    return {
        CROSS_NODE_SHARE: share_of(across, calls, "transfer_ns"),
        CROSS_NODE_MS: gain_ms(job, across),
        CROSS_NODE_HALVED_MS: gain_ms(job, halved),
    }


def _pairs(calls: pl.DataFrame) -> dict[Metric, Value]:
    speeds = _speeds_of_pairs(calls)
    if speeds.height <= 1:
        return dict.fromkeys(_PAIR, Missing("no_pairs_of_known_size"))
    slowest = speeds.row(0, named=True)
    typical = float(np.median(speeds["gbs"].to_numpy()))
    return {SLOWEST_PAIR: "ranks {} and {}".format(*slowest["ends"]), SLOWEST_PAIR_SHARE: slowest["gbs"] / typical}


def _speeds_of_pairs(calls: pl.DataFrame) -> pl.DataFrame:
    """The pairs of ranks with enough large calls between them, and their bus bandwidth; the slowest first."""
    matched = pl.col("exact") | ~pl.col("op").is_in(POINT_TO_POINT)
    between = calls.filter(
        matched,
        pl.col("ends").list.len() == 2,  # noqa: PLR2004 - a pair
        pl.col("bytes") >= LARGE_BYTES,
        pl.col("transfer_ns") > 0,
    )
    moved = pl.col("bytes") * pl.col("bus_factor")
    speeds = between.group_by("ends").agg(pl.len(), gbs=moved.sum() / pl.sum("transfer_ns"))
    return speeds.filter(pl.col("len") >= _ENOUGH_CALLS, pl.col("gbs").is_not_null()).sort("gbs", "ends")


def _nothing(job: Job, metrics: Iterable[Metric]) -> dict[Metric, Value]:
    """Zero where there is a step and no collective in it."""
    return dict.fromkeys(metrics, 0.0 if job.steps else why_none(job))
