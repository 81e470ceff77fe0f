"""How fast data moves between the ranks against what the links allow, and which of it makes the step longer."""

from typing import Final

import polars as pl

from advisor.analysis.job.collectives import (
    EXCHANGES,
    LARGE_BYTES,
    devices_of,
    gain_ms,
    gpu_of,
    prevailing,
    queue_costs,
    share_of,
    traffic,
    why_none,
    why_unexpected,
)
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import expected, fastest_gbs
from advisor.metrics.metric import Value, lacking, of_jobs, tabulates_jobs
from advisor.model.clause import Missing
from advisor.text import percent

_MOSTLY: Final = 0.9  # of the time: enough for the rest not to change the picture
_TRANSFER: Final = (
    "transfer: from the last arrival to the end, of the member for which that is shortest; where not all members were"
    " recorded, the shortest of the calls that are alike, which is an upper bound"
)
_SURELY_FAST: Final = 0.8  # of the expected bandwidth: reached with some waiting in it, the link is not slow
_LARGE: Final = "calls of 4 MiB and more for which a time is expected"
_LEAST: Final = pl.col("bytes") * pl.min_horizontal("bus_factor", 1.0)
_BANDWIDTH: Final = "nccl-tests, doc/PERFORMANCE.md"


def _sized(job: Job) -> pl.DataFrame:
    """Calls that move bytes and take time, with `moved`: bytes x bus factor; `least` where a switch adds up."""
    sized = job.once(traffic).with_columns(moved=pl.col("bytes") * pl.col("bus_factor"), least=_LEAST)
    return sized.filter(pl.col("moved") > 0, pl.col("transfer_ns") > 0)


def _large(job: Job) -> pl.DataFrame:
    return job.once(_sized).filter(pl.col("bytes") >= LARGE_BYTES)


def _known(job: Job) -> pl.DataFrame:
    """The large ones for which a time is expected."""
    return job.once(_large).filter(pl.col("expected_ns").is_not_null())


def _no_size(job: Job) -> Missing | None:
    """Also why sizes and times cannot both be right: no link moves so much in the time."""
    if (why := why_none(job)) or not job.once(_sized).height:
        return why or why_unexpected(job.once(traffic))
    reached, most = _ratio(job.once(_typical), "least", "transfer_ns"), fastest_gbs(gpu_of(job))
    return Missing("faster_than_links", reached=reached, most=most) if reached > most else None


def _typical(job: Job) -> pl.DataFrame:
    return next(some for some in map(job.once, (_known, _large, _sized)) if some.height)


def _no_link(job: Job) -> Missing | None:
    if (why := job.once(_no_size)) or job.once(_known).height:
        return why
    large = job.once(_large)
    return why_unexpected(large) if large.height else Missing("no_large_collective")


def _expected_calls(job: Job) -> pl.DataFrame:
    return job.once(traffic).filter(pl.col("expected_ns").is_not_null(), pl.col("transfer_ns") > 0)


def _per_step_ms(job: Job, column: str) -> Value:
    known = job.once(_expected_calls)[column].drop_nulls()
    if not len(known):
        return why_unexpected(job.once(traffic))
    return float(known.sum()) / 1e6 / len(job.ranks) / len(job.examined)


def _slower_fabric(job: Job) -> Value:
    known, reached = job.once(_known), job.once(_link_reached)
    if isinstance(reached, Missing):
        return reached
    gpu, linked = gpu_of(job), known.filter(pl.col("link") == "nvlink", ~pl.col("spans_nodes"))
    pcie_gbs = gpu.nccl_pcie_gbs if gpu else None
    if pcie_gbs is None or linked.height < known.height:
        return "none"
    return "PCIe" if _ratio(linked, "moved", "transfer_ns") <= pcie_gbs else "none"


def _ratio(calls: pl.DataFrame, above: str, below: str) -> float:
    return float(calls[above].sum()) / float(calls[below].sum())


def _link_reached(job: Job) -> Value:
    known = job.once(_known)
    share = _ratio(known, "expected_ns", "transfer_ns")
    if share >= _SURELY_FAST or (share_of(known.filter("told"), known, "dur_ns") or 0.0) >= _MOSTLY:
        return share
    world = job.world_size or "an unknown number of"
    return Missing("transfer_and_waiting", here=len(job.ranks), world=world, share=share)


@tabulates_jobs("collective")
def collective_table(job: Job) -> pl.DataFrame:
    """A row per op, group size, bytes and dtype, the most time first.

    Columns: op, group_size, bytes, dtype, calls (of all ranks), transfer_us (median), exact (waiting could be told
    from every transfer; else they are upper bounds), algorithm_gbs and bus_gbs (at the median), expected_us and its
    basis, quick_us (bytes x bus factor / bandwidth of the link, which leaves out what each hop takes), exposed_ms (per
    rank and step). No speed where no link is so fast: then sizes or times are wrong.
    """
    steps = max(1, len(job.ranks) * len(job.examined))
    rows = (
        job.once(traffic)
        .group_by("op", "group_size", "bytes", "dtype")
        .agg(
            calls=pl.len(),
            transfer_us=pl.median("transfer_ns") / 1e3,
            exact=pl.col("exact").all(),
            bus_factor=pl.first("bus_factor"),
            expected_us=pl.first("expected_ns") / 1e3,
            basis=pl.first("basis"),
            link_gbs=pl.first("link_gbs"),
            exposed_ms=pl.sum("exposed_ns") / 1e6 / steps,
            total_ns=pl.sum("transfer_ns"),
        )
    )
    moved_ns = pl.col("transfer_us") * 1e3
    is_possible = (pl.col("bytes") > 0) & (moved_ns > 0) & (_LEAST / moved_ns <= fastest_gbs(gpu_of(job)))
    speed = pl.when(is_possible).then(pl.col("bytes") / moved_ns)
    return rows.sort("total_ns", "op", "bytes", descending=[True, False, False]).select(
        *("op", "group_size", "bytes", "dtype", "calls", "transfer_us", "exact"),
        algorithm_gbs=speed,
        bus_gbs=speed * pl.col("bus_factor"),
        expected_us="expected_us",
        basis="basis",
        quick_us=pl.col("bytes") * pl.col("bus_factor") / (pl.col("link_gbs") * 1e3),
        exposed_ms="exposed_ms",
    )


measure = of_jobs(__name__, unknown=why_none)
of_links = of_jobs(__name__, unknown=_no_link)
of_sizes = of_jobs(__name__, unknown=_no_size)
of_sizes("bus_bandwidth_gbs", lambda job: _ratio(job.once(_typical), "moved", "transfer_ns")).says(
    "Bus bandwidth of the collectives in GB/s; at least that where not all ranks are recorded.",
    f"sum of bytes x bus factor / sum of transfers, over {_LARGE}; of those of any size where there is none; "
    + _TRANSFER,
    _BANDWIDTH,
)
of_links("expected_bus_bandwidth_gbs", lambda job: _ratio(job.once(_known), "moved", "expected_ns")).says(
    "Bus bandwidth in GB/s that the links allow for messages of these sizes.",
    f"sum of bytes x bus factor / sum of expected times, over {_LARGE}",
    "a measured curve where the hardware table has one for the group, else NCCL's tuning model (tuning.cc)",
)
of_links("link_reached_share", _link_reached).says(
    "How much of the bandwidth that the links allow the large collectives reach.",
    f"sum of expected times / sum of transfers, over {_LARGE}; where waiting cannot be told from the transfer only"
    f" if that is {percent(_SURELY_FAST)} nevertheless",
    _BANDWIDTH,
)
of_links("slower_fabric", _slower_fabric, unit="text").says(
    "The slower way that the large collectives may take: `PCIe`, or `none`.",
    "PCIe where NVLink or xGMI joins the group on one node and bus_bandwidth_gbs is at most what NCCL expects of PCIe",
    "NCCL src/graph/topo.cc; nccl-tests issue 178: a pair that fell back to PCIe",
)
measure(
    "expected_basis",
    lambda job: prevailing(job.once(_expected_calls), "basis") or why_unexpected(job.once(traffic)),
    unit="text",
).says("What the expected times rest on.", "measured curve or model, by the larger part of the expected time")
measure("measured_transfer_ms", lambda job: _per_step_ms(job, "transfer_ns")).says(
    "Time per step in which data moves, hidden or not, in collectives for which a time is expected.",
    f"sum over calls of the transfer / ranks / steps; {_TRANSFER}",
    "TraceLens: the shortest member waits for nobody",
)
measure("expected_transfer_ms", lambda job: _per_step_ms(job, "expected_ns")).says(
    "Time per step that the links allow for the collectives for which a time is expected.",
    "sum of the measured curve's times where there is one, else of the model's / ranks / steps",
    "NCCL src/graph/tuning.cc; curves as named in the hardware table",
)
measure(
    "transfer_told_share", lambda job: share_of(job.once(traffic).filter("told"), job.once(traffic), "dur_ns")
).says(
    "Part of the time in collectives for which waiting can be told from the transfer.",
    "time in calls that all their members were recorded and matched of, or half of them where the times follow"
    " the sizes all through the step / time in collectives",
)


_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 8 * _MIB
_BUCKET_BYTES: Final = 25 * _MIB  # DistributedDataParallel's default
_IN_TRAINING: Final = 0.75  # of the bandwidth that a collective reaches alone
_EXPOSED: Final = pl.col("exposed_ns").sum()
_EXCHANGED: Final = pl.col("exposed_ns").filter(pl.col("op").is_in(EXCHANGES)).sum() / pl.max_horizontal(_EXPOSED, 1)
_BACKWARD: Final = 2 / 3  # of the kernels' time: two products for each one of the forward pass
_GAIN: Final = "in every step: longest own_step of all ranks, less the longest that is left once each rank has saved"


def _no_call(job: Job) -> Missing | None:
    return None if job.steps else why_none(job)


def _with_calls(job: Job) -> Job | None:
    """The job; None without a collective, of which all numbers are 0."""
    return job if job.once(traffic).height else None


def _exposed(job: Job) -> pl.DataFrame:
    return job.once(traffic).with_columns(saved_ns="exposed_ns")


def _slow_ms(job: Job) -> tuple[float, float] | Missing:
    """At least what is exposed; at most also what is hidden, since it holds up the calls queued after it."""
    calls = job.once(traffic)
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null())
    if not large.height:
        return why_unexpected(calls) if calls.height else (0.0, 0.0)
    exposed = large.with_columns(saved_ns=_at_most("awaited_ns", _longer(_IN_TRAINING)))
    longer = large.with_columns(longer_ns=_longer(1.0).clip(0).cast(pl.Int64))
    return gain_ms(job, exposed), gain_ms(job, queue_costs(longer, calls))


def _longer(part: float) -> pl.Expr:
    """By how much a transfer exceeds its expected time, at that part of the expected bandwidth."""
    return pl.col("transfer_ns") - pl.col("expected_ns") / part


def _at_most(column: str, longer: pl.Expr) -> pl.Expr:
    """What is saved of the time in this column where a transfer is that much longer than it need be."""
    return pl.min_horizontal(pl.col(column), longer.clip(0).cast(pl.Int64))


def _hidden_ms(job: Job) -> tuple[float, float]:
    """At least of what is surely no waiting."""
    if not job.once(traffic).height:
        return 0.0, 0.0
    exposed = _exposed(job)
    least, most = (gain_ms(job, _hideable(job, calls)) for calls in (exposed.filter("told"), exposed))
    return least, most


def _hideable(job: Job, exposed: pl.DataFrame) -> pl.DataFrame:
    """Per rank and step, the exposed time for which there is computation left to hide it behind."""
    calls = job.once(traffic)
    training = [position for position, rank in enumerate(job.ranks) if rank.trains is not False]
    exposed = exposed.filter(pl.col("rank").is_in(training))
    key = ["rank", "step"]
    hidden = calls.group_by(key).agg(hidden_ns=(pl.col("transfer_ns") - pl.col("exposed_ns")).sum())
    sums = exposed.group_by(key).agg(pl.sum("exposed_ns"), part=_BACKWARD + (1 - _BACKWARD) * _EXCHANGED)
    open_ = job.pace.join(hidden, on=key, how="left").with_columns(pl.col("hidden_ns").fill_null(0))
    room_ns = (pl.col("work_ns") * pl.col("part") - pl.col("hidden_ns")).clip(0).cast(pl.Int64)
    return sums.join(open_, on=key).select(*key, saved_ns=pl.min_horizontal("exposed_ns", room_ns))


def _reductions(job: Job) -> pl.DataFrame:
    return job.once(traffic).filter(pl.col("op").is_in(["all_reduce", "reduce_scatter"]))


def _small(job: Job) -> pl.DataFrame:
    return _reductions(job).filter(pl.col("bytes") < _SMALL_BYTES)


def _merge_gain(job: Job) -> Value:
    small = _small(job)
    case = ["op", "group_size", "spans_nodes", "nodes"]
    joined = small.group_by("rank", "step", *case).agg(pl.sum("bytes", "transfer_ns", "exposed_ns", "expected_ns"))
    joined = joined.with_columns(buckets=(pl.col("bytes") / _BUCKET_BYTES).ceil().clip(1))
    each = joined.select(*case, bytes=(pl.col("bytes") / pl.col("buckets")).cast(pl.Int64))
    best = expected(each, gpu_of(job), devices_of(job))
    if best["expected_ns"].null_count():
        return why_unexpected(small)
    # A link that is slow stays slow: what large messages reach of the expected bandwidth, joined ones will too.
    large = job.once(_known).filter("told")
    pace = min(1.0, _ratio(large, "expected_ns", "transfer_ns")) if large.height else 1.0
    joined = joined.with_columns(needed_ns=best["expected_ns"] * pl.col("buckets") / pace)
    saved = joined.with_columns(saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") - pl.col("needed_ns")))
    return gain_ms(job, saved)


def _broadcasts(job: Job) -> pl.DataFrame:
    return _exposed(job).filter(pl.col("op") == "broadcast")


def _of_buffers(job: Job) -> pl.DataFrame:
    return _broadcasts(job).filter("of_buffers")


def _lack_places(job: Job) -> bool:
    calls = job.once(traffic)
    placed = calls.filter(pl.col("spans_nodes").is_not_null())
    return calls.height > 0 and (share_of(placed, calls, "transfer_ns") or 0.0) < _MOSTLY


def _across(job: Job) -> pl.DataFrame:
    return _exposed(job).filter("spans_nodes")


def _halved_ms(job: Job) -> float:
    halved = _across(job).filter(pl.col("dtype") == "Float")
    return gain_ms(job, halved.with_columns(saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") / 2)))


def _per_step(job: Job, calls: pl.DataFrame) -> float:
    return calls.height / len(job.ranks) / len(job.examined)


of_calls = of_jobs(__name__, unknown=_no_call)
of_exposed = of_calls.parts_of(_with_calls, without=0.0)
of_reductions = of_jobs(
    __name__, unknown=lacking(_no_call, no_collective_sizes=lambda job: _reductions(job)["bytes"].null_count())
).parts_of(_with_calls, without=0.0)
of_broadcasts = of_jobs(
    __name__,
    unknown=lacking(_no_call, broadcast_launch_not_recorded=lambda job: _broadcasts(job)["of_buffers"].null_count()),
).parts_of(_with_calls, without=0.0)
of_nodes = of_jobs(__name__, unknown=lacking(_no_call, groups_not_recorded=_lack_places)).parts_of(
    _with_calls, without=0.0
)

of_exposed("exposed_transfer_ms", lambda job: gain_ms(job, _exposed(job))).says(
    "How much shorter the step would be if kernels hid every transfer; waits for late ranks do not count.",
    f"of the part of every transfer, as in measured_transfer_ms, that no kernel covers, {_GAIN}",
)
of_exposed("exposed_exchange_part", lambda job: float(job.once(traffic).select(_EXCHANGED).item())).says(
    "How much of the exposed transfers are all-to-alls, sends and receives, and no reduction or gather.",
    "their exposed time / exposed time of all transfers, over all ranks and steps; 0 where none is exposed",
)
of_calls.saving("hideable", _hidden_ms).says("hiding exposed transfers behind the backward pass or another micro-batch")
of_calls.saving("slow_transfer", _slow_ms).says("the expected time for each large collective")
of_reductions("small_reductions_per_step", lambda job: _per_step(job, _small(job))).says(
    "Reductions of less than 8 MiB per step.",
    "number of all_reduce and reduce_scatter below 8 MiB / ranks / steps",
    "TraceLens and ml-engineering: below some MiB the start-up counts for more than the link",
)
of_reductions("small_reduction_share", lambda job: share_of(_small(job), _reductions(job), "bytes") or 0.0).says(
    "Part of the reduced bytes that reductions of less than 8 MiB move.",
    "bytes in reductions below 8 MiB / bytes in reductions",
)
of_reductions("merge_gain_ms", _merge_gain).says(
    "What the job's step would get shorter by if small reductions were joined to buckets of 25 MiB."
)
of_broadcasts("buffer_broadcasts_per_step", lambda job: _per_step(job, _of_buffers(job))).says(
    "Broadcasts per step with which DistributedDataParallel makes the module's buffers equal.",
    "number of broadcasts launched in DistributedDataParallel.forward / ranks / steps",
)
of_broadcasts("buffer_broadcast_ms", lambda job: gain_ms(job, _of_buffers(job))).says(
    "What the job's step would get shorter by without broadcasts of buffers; waiting for late ranks not counted.",
    f"of the part of their transfers that no kernel covers, {_GAIN}",
)
of_nodes("cross_node_share", lambda job: share_of(_across(job), job.once(traffic), "transfer_ns") or 0.0).says(
    "Part of the transfers' time in groups that span nodes.",
    "transfers of groups whose ranks lie on several hosts / transfers; ranks fill hosts of as many GPUs as the"
    " recording shows",
)
of_nodes("cross_node_ms", lambda job: gain_ms(job, _across(job))).says(
    "What the job's step would get shorter by if transfers between nodes took no time.",
    f"of the part of these transfers that no kernel covers, {_GAIN}",
)
of_nodes("cross_node_halved_ms", _halved_ms).says(
    "What the job's step would get shorter by if 32-bit numbers crossed nodes as 16 bits.",
    f"of min(exposed, half the transfer) of those in Float, {_GAIN}",
    "torch.distributed.algorithms.ddp_comm_hooks: bf16_compress_hook",
)
