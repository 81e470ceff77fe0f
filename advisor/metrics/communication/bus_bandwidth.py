"""What moving data between the ranks costs the job, against what the links and the sizes of the messages allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.collectives import LARGE_BYTES, devices_of, gain_ms, gpu_of, traffic
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import expected, startup_ns, wired_in_pairs
from advisor.metrics.metric import Metric, Value, measures_jobs, tabulates_jobs
from advisor.model.missing import Missing
from advisor.text import percent
from advisor.vocabulary import POINT_TO_POINT

_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 8 * _MIB
_BUCKET_BYTES: Final = 25 * _MIB  # DistributedDataParallel's default
_IN_TRAINING: Final = 0.75  # of the bandwidth that a collective reaches alone
_SURELY_FAST: Final = 0.8  # of the expected bandwidth: reached with some waiting in it, the link is not slow
_BACKWARD: Final = 2 / 3  # of the kernels' time: two products for each one of the forward pass
_MOSTLY: Final = 0.9
_ENOUGH_CALLS: Final = 3
_REDUCTIONS: Final = ["all_reduce", "reduce_scatter"]
_NO_SIZES: Final = Missing("no_collective_sizes")
_NONE: Final = Missing("no_collective_on_device")
_NO_STEPS: Final = Missing("no_common_step")

_TRANSFER: Final = (
    "transfer: from the last arrival to the end, of the member for which that is shortest; where not all members were"
    " recorded, the shortest of the calls that are alike, which is an upper bound"
)
_BANDWIDTH: Final = "nccl-tests, doc/PERFORMANCE.md"
_GAIN: Final = "in every step: longest own_step of all ranks, less the longest that is left once each rank has saved"
_LARGE: Final = "calls of 4 MiB and more for which a time is expected"


@measures_jobs(
    Metric(
        "bus_bandwidth_gbs",
        "number",
        "Bus bandwidth of the collectives in GB/s; at least that where not all ranks are recorded.",
        f"sum of bytes x bus factor / sum of transfers, over {_LARGE}; of those of any size where there is none; "
        + _TRANSFER,
        _BANDWIDTH,
    ),
    Metric(
        "expected_bus_bandwidth_gbs",
        "number",
        "Bus bandwidth in GB/s that the links allow for messages of these sizes.",
        f"sum of bytes x bus factor / sum of expected times, over {_LARGE}",
        "a measured curve where the hardware table has one for the group, else NCCL's tuning model (tuning.cc)",
    ),
    Metric(
        "link_reached_share",
        "share",
        "How much of the bandwidth that the links allow the large collectives reach.",
        f"sum of expected times / sum of transfers, over {_LARGE}; where waiting cannot be told from the transfer only"
        f" if that is {percent(_SURELY_FAST)} nevertheless",
        _BANDWIDTH,
    ),
    Metric(
        "expected_basis",
        "text",
        "What the expected times rest on.",
        "measured curve or model, by the larger part of the expected time",
    ),
    Metric(
        "measured_transfer_ms",
        "ms",
        "Time per step in which data moves, hidden or not, in collectives for which a time is expected.",
        f"sum over calls of the transfer / ranks / steps; {_TRANSFER}",
        "TraceLens: the shortest member waits for nobody",
    ),
    Metric(
        "expected_transfer_ms",
        "ms",
        "Time per step that these collectives should take.",
        "sum of the measured curve's times where there is one, else of the model's / ranks / steps",
        "NCCL src/graph/tuning.cc; curves as named in the hardware table",
    ),
    Metric(
        "guide_transfer_ms",
        "ms",
        "The least that the all-reduces can take per step: a quick check.",
        "sum over all_reduce of bytes / link bandwidth in one direction / ranks / steps",
        "tensorflow.org/guide/gpu_performance_analysis: parameters x 4 bytes / bandwidth",
    ),
    Metric(
        "model_transfer_ms",
        "ms",
        "The same time per step by NCCL's tuning model.",
        "sum of latency + bytes / bandwidth of the quickest ring protocol / ranks / steps",
        "NCCL src/graph/tuning.cc",
    ),
    Metric(
        "curve_transfer_ms",
        "ms",
        "The same time per step read off a measured curve.",
        "sum of the times interpolated on the curve of the hardware table / ranks / steps",
        "curves as named in the hardware table",
    ),
    Metric(
        "transfer_told_share",
        "share",
        "Part of the time in collectives for which waiting can be told from the transfer.",
        "time in calls that all their members were recorded and matched of, or half of them where the times follow"
        " the sizes all through the step / time in collectives",
    ),
)
def bandwidths(job: Job) -> Mapping[str, Value]:
    """Bandwidths and times, measured and expected."""
    calls = job.once(traffic)
    if not calls.height:
        return dict.fromkeys(_BANDWIDTHS, _none(job))
    known = calls.filter(pl.col("expected_ns").is_not_null(), pl.col("transfer_ns") > 0)
    why = _untold(calls)
    return {
        **_reached(job, calls),
        "expected_basis": _mostly(known, "basis") or why,
        "measured_transfer_ms": _per_step(job, known, "transfer_ns", why),
        "expected_transfer_ms": _per_step(job, known, "expected_ns", why),
        "guide_transfer_ms": _per_step(job, known.filter(pl.col("guide_ns").is_not_null()), "guide_ns", why),
        "model_transfer_ms": _per_step(job, known.filter(pl.col("model_ns").is_not_null()), "model_ns", why),
        "curve_transfer_ms": _per_step(
            job,
            known.filter(pl.col("curve_ns").is_not_null()),
            "curve_ns",
            Missing("no_measured_curve"),
        ),
        "transfer_told_share": _share(calls.filter("told"), calls, "dur_ns"),
    }


_BANDWIDTHS: Final = (
    *("bus_bandwidth_gbs", "expected_bus_bandwidth_gbs", "link_reached_share", "expected_basis"),
    *("measured_transfer_ms", "expected_transfer_ms", "guide_transfer_ms", "model_transfer_ms", "curve_transfer_ms"),
    "transfer_told_share",
)


@measures_jobs(
    Metric(
        "exposed_transfer_ms",
        "ms",
        "What the job's step would get shorter by if no transfer were seen; waiting for late ranks not counted.",
        f"of the part of every transfer that no kernel covers, {_GAIN}; {_TRANSFER}",
    ),
    Metric(
        "hideable_transfer_ms",
        "ms",
        "How much of that the backward pass could hide.",
        "the same, of at most 2/3 of the kernels' time (the backward pass computes two products for each one of the"
        " forward pass) less what hides communication already; nothing where no backward pass ran",
        "PyTorch Distributed (VLDB 2020): gradients are reduced while the rest of the backward pass computes",
    ),
    Metric(
        "hideable_least_ms",
        "ms",
        "The same, of transfers that are surely no waiting.",
        "as hideable_transfer_ms, of the calls that transfer_told_share counts",
    ),
    Metric(
        "slow_transfer_ms",
        "ms",
        "What the job's step would get shorter by at most if the large collectives took the expected time.",
        f"of min(exposed transfers of the step, sum of transfer - expected time) over {_LARGE}, {_GAIN}; a call that"
        " is hidden counts too, since it holds up those queued after it",
        "ByteDance straggler study (OSDI 2025): only what is exposed counts",
    ),
    Metric(
        "slow_transfer_least_ms",
        "ms",
        "The same at least: with three quarters of the expected bandwidth, and what each call itself exposes.",
        f"of min(exposed, transfer - expected time / 0.75), call by call, {_GAIN}; pauses of at most 5 us between"
        " kernels, which come without transfers too, do not count as exposed",
        "Daydream (USENIX ATC 2020): NCCL inside training took 34 % longer than alone",
    ),
)
def exposures(job: Job) -> Mapping[str, Value]:
    """What of the transfers the step is longer for."""
    calls = job.once(traffic)
    names = ("exposed_transfer_ms", "hideable_transfer_ms", "hideable_least_ms")
    slow = ("slow_transfer_ms", "slow_transfer_least_ms")
    if not calls.height:
        return _nothing(job, (*names, *slow))
    exposed = calls.with_columns(saved_ns="exposed_ns")
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null())
    told = {
        "slow_transfer_ms": gain_ms(job, _shorter(exposed, large, 1.0)),
        "slow_transfer_least_ms": gain_ms(job, large.with_columns(saved_ns=_at_most_awaited(_longer(_IN_TRAINING)))),
    }
    return {
        names[0]: gain_ms(job, exposed),
        names[1]: gain_ms(job, _hideable(job, calls, exposed)),
        names[2]: gain_ms(job, _hideable(job, calls, exposed.filter("told"))),
        **(told if large.height else dict.fromkeys(slow, _untold(calls))),
    }


def _longer(part: float) -> pl.Expr:
    """By how much a transfer exceeds its expected time, at that part of the expected bandwidth."""
    return pl.col("transfer_ns") - pl.col("expected_ns") / part


def _shorter(exposed: pl.DataFrame, large: pl.DataFrame, part: float) -> pl.DataFrame:
    """Per rank and step, what shorter transfers save at most: one that is hidden holds up those queued after it."""
    key = ["rank", "step"]
    queued = large.group_by(key).agg(longer_ns=_longer(part).clip(0).cast(pl.Int64).sum())
    seen = exposed.group_by(key).agg(pl.sum("exposed_ns"))
    return queued.join(seen, on=key).select(*key, saved_ns=pl.min_horizontal("longer_ns", "exposed_ns"))


@measures_jobs(
    Metric(
        "small_reductions_per_step",
        "number",
        "Reductions of less than 8 MiB per step.",
        "number of all_reduce and reduce_scatter below 8 MiB / ranks / steps",
        "TraceLens and ml-engineering: below some MiB the start-up counts for more than the link",
    ),
    Metric(
        "small_reduction_share",
        "share",
        "Part of the reduced bytes that they carry.",
        "bytes in reductions below 8 MiB / bytes in reductions",
    ),
    Metric(
        "merge_gain_ms",
        "ms",
        "What the job's step would get shorter by if small reductions were joined to buckets of 25 MiB.",
        "of min(exposed, transfers - time of whole buckets of 25 MiB at the bandwidth that is expected, or reached if"
        f" that is less) over the small reductions of each group and step, {_GAIN}; where only"
        " the number of links between the GPUs is not known: the start-ups alone that fewer calls save, as far as the"
        " last bucket, with nothing left to hide behind, leaves them exposed",
        "DistributedDataParallel's default bucket_cap_mb",
    ),
)
def small_messages(job: Job) -> Mapping[str, Value]:
    """What many small reductions cost, against few large ones."""
    names = ("small_reductions_per_step", "small_reduction_share", "merge_gain_ms")
    calls = job.once(traffic)
    if not calls.height:
        return _nothing(job, names)
    reductions = calls.filter(pl.col("op").is_in(_REDUCTIONS))
    if reductions["bytes"].null_count():
        return dict.fromkeys(names, _NO_SIZES)
    small = reductions.filter(pl.col("bytes") < _SMALL_BYTES)
    total = int(reductions["bytes"].sum())
    return {
        names[0]: small.height / len(job.ranks) / len(job.steps),
        names[1]: float(small["bytes"].sum()) / total if total else 0.0,
        names[2]: _merge_gain(job, calls, small),
    }


@measures_jobs(
    Metric(
        "buffer_broadcasts_per_step",
        "number",
        "Broadcasts per step with which DistributedDataParallel makes the module's buffers equal.",
        "number of broadcasts launched in DistributedDataParallel.forward / ranks / steps",
    ),
    Metric(
        "buffer_broadcast_ms",
        "ms",
        "What the job's step would get shorter by without them; waiting for late ranks not counted.",
        f"of the part of their transfers that no kernel covers, {_GAIN}",
    ),
    Metric(
        "cross_node_share",
        "share",
        "Part of the transfers' time in groups that span nodes.",
        "transfers of groups whose ranks lie on several hosts / transfers; ranks fill hosts of as many GPUs as the"
        " recording shows",
    ),
    Metric(
        "cross_node_ms",
        "ms",
        "What the job's step would get shorter by if transfers between nodes took no time.",
        f"of the part of these transfers that no kernel covers, {_GAIN}",
    ),
    Metric(
        "cross_node_halved_ms",
        "ms",
        "What it would get shorter by if 32-bit numbers crossed nodes as 16 bits.",
        f"of min(exposed, half the transfer) of those in Float, {_GAIN}",
        "torch.distributed.algorithms.ddp_comm_hooks: bf16_compress_hook",
    ),
    Metric(
        "slowest_pair",
        "text",
        "The two ranks with the slowest link between them.",
        "among groups of two, and ranks of which one sends what the other receives, with three calls of 4 MiB and more:"
        " those with the least bytes x bus factor / transfer",
    ),
    Metric(
        "slowest_pair_share",
        "share",
        "Bandwidth of that link against the typical one.",
        "its bandwidth / the median over pairs",
    ),
)
def whereabouts(job: Job) -> Mapping[str, Value]:
    """Broadcasts of buffers, groups that span nodes, and links between pairs."""
    calls = job.once(traffic)
    if not calls.height:
        names = ("buffer_broadcasts_per_step", "buffer_broadcast_ms", "cross_node_ms", "cross_node_halved_ms")
        return _nothing(job, (*names, "cross_node_share")) | dict.fromkeys(
            ("slowest_pair", "slowest_pair_share"), _none(job)
        )
    return {**_broadcasts(job, calls), **_across(job, calls), **_pairs(calls)}


@tabulates_jobs("collective")
def collective_table(job: Job) -> pl.DataFrame:
    """A row per op, group size, bytes and dtype, the most time first.

    Columns: op, group_size, bytes, dtype, calls (of all ranks), transfer_us (median), exact (waiting could be told
    from every transfer; else they are upper bounds), algorithm_gbs and bus_gbs (at the median), expected_us and its
    basis, exposed_ms (per rank and step).
    """
    calls = job.once(traffic)
    steps = max(1, len(job.ranks) * len(job.steps))
    rows = calls.group_by("op", "group_size", "bytes", "dtype").agg(
        calls=pl.len(),
        transfer_us=pl.median("transfer_ns") / 1e3,
        exact=pl.col("exact").all(),
        bus_factor=pl.first("bus_factor"),
        expected_us=pl.first("expected_ns") / 1e3,
        basis=pl.first("basis"),
        exposed_ms=pl.sum("exposed_ns") / 1e6 / steps,
        total_ns=pl.sum("transfer_ns"),
    )
    speed = pl.when((pl.col("bytes") > 0) & (pl.col("transfer_us") > 0)).then(
        pl.col("bytes") / (pl.col("transfer_us") * 1e3)
    )
    return rows.sort("total_ns", "op", "bytes", descending=[True, False, False]).select(
        *("op", "group_size", "bytes", "dtype", "calls", "transfer_us", "exact"),
        algorithm_gbs=speed,
        bus_gbs=speed * pl.col("bus_factor"),
        expected_us="expected_us",
        basis="basis",
        exposed_ms="exposed_ms",
    )


def _nothing(job: Job, names: tuple[str, ...]) -> dict[str, Value]:
    """Zero where there is a step and no collective in it."""
    return dict.fromkeys(names, 0.0 if job.steps else _NO_STEPS)


def _none(job: Job) -> Missing:
    """Why there is no collective to measure."""
    return _NONE if job.steps else _NO_STEPS


def _untold(calls: pl.DataFrame) -> Missing:
    """Why no time is expected of the collectives: the reason that the most time rests on."""
    if calls["bytes"].null_count() == calls.height:
        return _NO_SIZES
    why = _mostly(calls, "why")
    return Missing.decoded(why) if why else Missing("no_collective_large_enough")


def _mostly(calls: pl.DataFrame, column: str) -> str | None:
    found = calls.filter(pl.col(column).is_not_null()).group_by(column).agg(pl.sum("dur_ns"))
    return str(found.sort("dur_ns", column)[column][-1]) if found.height else None


def _share(part: pl.DataFrame, whole: pl.DataFrame, column: str) -> float | None:
    total = float(whole[column].sum())
    return float(part[column].sum()) / total if total else None


def _per_step(job: Job, calls: pl.DataFrame, column: str, why: Missing) -> Value:
    return float(calls[column].sum()) / 1e6 / len(job.ranks) / len(job.steps) if calls.height else why


def _reached(job: Job, calls: pl.DataFrame) -> dict[str, Value]:
    names = ("bus_bandwidth_gbs", "expected_bus_bandwidth_gbs", "link_reached_share")
    moved = pl.col("bytes") * pl.col("bus_factor")
    sized = calls.filter(moved > 0, pl.col("transfer_ns") > 0).with_columns(moved=moved)
    if not sized.height:
        return dict.fromkeys(names, _untold(calls))
    large = sized.filter(pl.col("bytes") >= LARGE_BYTES)
    known = large.filter(pl.col("expected_ns").is_not_null())
    shown = next(some for some in (known, large, sized) if some.height)
    found: dict[str, Value] = {names[0]: float(shown["moved"].sum()) / float(shown["transfer_ns"].sum())}
    if not known.height:
        why = _untold(large) if large.height else Missing("no_large_collective")
        return found | dict.fromkeys(names[1:], why)
    found[names[1]] = float(known["moved"].sum()) / float(known["expected_ns"].sum())
    share = float(known["expected_ns"].sum()) / float(known["transfer_ns"].sum())
    told = (_share(known.filter("told"), known, "dur_ns") or 0.0) >= _MOSTLY
    here, all_ = len(job.ranks), job.world_size or "an unknown number of"
    waits = Missing("transfer_and_waiting", here=here, world=all_, share=share)
    return found | {names[2]: share if told or share >= _SURELY_FAST else waits}


def _at_most_exposed(longer: pl.Expr) -> pl.Expr:
    return pl.min_horizontal(pl.col("exposed_ns"), longer.clip(0).cast(pl.Int64))


def _at_most_awaited(longer: pl.Expr) -> pl.Expr:
    return pl.min_horizontal(pl.col("awaited_ns"), longer.clip(0).cast(pl.Int64))


def _hideable(job: Job, calls: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Per rank and step, the exposed time for which there is computation left to hide it behind."""
    training = [position for position, rank in enumerate(job.ranks) if rank.trains is not False]
    exposed = exposed.filter(pl.col("rank").is_in(training))
    key = ["rank", "step"]
    hidden = calls.group_by(key).agg(hidden_ns=(pl.col("transfer_ns") - pl.col("exposed_ns")).sum())
    open_ = job.pace.join(hidden, on=key, how="left").select(
        *key, room_ns=(pl.col("work_ns") * _BACKWARD - pl.col("hidden_ns").fill_null(0)).clip(0).cast(pl.Int64)
    )
    seen = exposed.group_by(key).agg(pl.sum("exposed_ns"))
    return seen.join(open_, on=key).select(*key, saved_ns=pl.min_horizontal("exposed_ns", "room_ns"))


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
        return _startups(job, joined) if _wired_in_pairs(job, joined) else _untold(small)
    # A link that is slow stays slow: what large messages reach of the expected bandwidth, joined ones will too.
    joined = joined.with_columns(needed_ns=best["expected_ns"] * pl.col("buckets") / _pace_of_large(calls))
    saved = joined.with_columns(saved_ns=_at_most_exposed(pl.col("transfer_ns") - pl.col("needed_ns")))
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
    seen_ns = pl.col("exposed_ns") - last_ns
    return gain_ms(job, joined.with_columns(saved_ns=pl.min_horizontal(seen_ns, fewer_ns).clip(0).cast(pl.Int64)))


def _pace_of_large(calls: pl.DataFrame) -> float:
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null(), pl.col("told"))
    reached = float(large["expected_ns"].sum()) / float(large["transfer_ns"].sum()) if large.height else 1.0
    return min(1.0, reached)


def _broadcasts(job: Job, calls: pl.DataFrame) -> dict[str, Value]:
    all_ = calls.filter(pl.col("op") == "broadcast")
    if all_["of_buffers"].null_count():
        why = Missing("broadcast_launch_not_recorded")
        return {"buffer_broadcasts_per_step": why, "buffer_broadcast_ms": why}
    found = all_.filter("of_buffers").with_columns(saved_ns="exposed_ns")
    return {
        "buffer_broadcasts_per_step": found.height / len(job.ranks) / len(job.steps),
        "buffer_broadcast_ms": gain_ms(job, found),
    }


def _across(job: Job, calls: pl.DataFrame) -> dict[str, Value]:
    names = ("cross_node_share", "cross_node_ms", "cross_node_halved_ms")
    told = calls.filter(pl.col("spans_nodes").is_not_null())
    if (_share(told, calls, "transfer_ns") or 0.0) < _MOSTLY:
        return dict.fromkeys(names, Missing("groups_not_recorded"))
    across = told.filter("spans_nodes").with_columns(saved_ns="exposed_ns")
    wide = across.filter(pl.col("dtype") == "Float")
    halved = wide.with_columns(saved_ns=_at_most_exposed(pl.col("transfer_ns") / 2))
    return {
        names[0]: _share(across, calls, "transfer_ns"),
        names[1]: gain_ms(job, across),
        names[2]: gain_ms(job, halved),
    }


def _pairs(calls: pl.DataFrame) -> dict[str, Value]:
    names = ("slowest_pair", "slowest_pair_share")
    matched = pl.col("exact") | ~pl.col("op").is_in(POINT_TO_POINT)
    between = calls.filter(
        matched,
        pl.col("ends").list.len() == 2,  # noqa: PLR2004 - a pair
        pl.col("bytes") >= LARGE_BYTES,
        pl.col("transfer_ns") > 0,
    )
    moved = pl.col("bytes") * pl.col("bus_factor")
    speeds = between.group_by("ends").agg(pl.len(), gbs=moved.sum() / pl.sum("transfer_ns"))
    speeds = speeds.filter(pl.col("len") >= _ENOUGH_CALLS, pl.col("gbs").is_not_null()).sort("gbs", "ends")
    if speeds.height <= 1:
        return dict.fromkeys(
            names,
            Missing("no_pairs_of_known_size"),
        )
    slowest = speeds.row(0, named=True)
    typical = float(np.median(speeds["gbs"].to_numpy()))
    return {names[0]: "ranks {} and {}".format(*slowest["ends"]), names[1]: slowest["gbs"] / typical}
