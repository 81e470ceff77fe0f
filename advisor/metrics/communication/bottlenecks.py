"""What of the transfers between the ranks makes the step longer, and where: small messages, nodes, a slow link."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor.analysis.job.collectives import (
    EXCHANGES,
    LARGE_BYTES,
    devices_of,
    gain_ms,
    gpu_of,
    queue_costs,
    share_of,
    traffic,
    why_none,
    why_unexpected,
)
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import expected
from advisor.metrics.metric import Value, of_jobs
from advisor.model.clause import Missing

_MIB: Final = 1 << 20
_SMALL_BYTES: Final = 8 * _MIB
_BUCKET_BYTES: Final = 25 * _MIB  # DistributedDataParallel's default
_IN_TRAINING: Final = 0.75  # of the bandwidth that a collective reaches alone
_EXPOSED: Final = pl.col("exposed_ns").sum()
_EXCHANGED: Final = pl.col("exposed_ns").filter(pl.col("op").is_in(EXCHANGES)).sum() / pl.max_horizontal(_EXPOSED, 1)
_BACKWARD: Final = 2 / 3  # of the kernels' time: two products for each one of the forward pass
_MOSTLY: Final = 0.9  # of the time: enough for the rest not to change the picture
_REDUCTIONS: Final = ["all_reduce", "reduce_scatter"]
_GAIN: Final = "in every step: longest own_step of all ranks, less the longest that is left once each rank has saved"


def _no_call(job: Job) -> Missing | None:
    return None if job.steps else why_none(job)


def _of_calls(value: Callable[[Job], Value]) -> Callable[[Job], Value]:
    """The value; 0 where there is a step and no collective in it."""
    return lambda job: value(job) if job.once(traffic).height else 0.0


def _exposed(job: Job) -> pl.DataFrame:
    return job.once(traffic).with_columns(saved_ns="exposed_ns")


def _slow_ms(job: Job) -> tuple[float, float] | Missing:
    """At least what is exposed; at most also what is hidden, since it holds up the calls queued after it."""
    calls = job.once(traffic)
    if not calls.height:
        return 0.0, 0.0
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null())
    if not large.height:
        return why_unexpected(calls)
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
    return job.once(traffic).filter(pl.col("op").is_in(_REDUCTIONS))


def _small(job: Job) -> pl.DataFrame:
    return _reductions(job).filter(pl.col("bytes") < _SMALL_BYTES)


def _no_sizes(job: Job) -> Missing | None:
    if not job.once(traffic).height:
        return job.once(_no_call)
    return Missing("no_collective_sizes") if _reductions(job)["bytes"].null_count() else None


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
    joined = joined.with_columns(needed_ns=best["expected_ns"] * pl.col("buckets") / _pace_of_large(job.once(traffic)))
    saved = joined.with_columns(saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") - pl.col("needed_ns")))
    return gain_ms(job, saved)


def _pace_of_large(calls: pl.DataFrame) -> float:
    large = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns").is_not_null(), pl.col("told"))
    reached = float(large["expected_ns"].sum()) / float(large["transfer_ns"].sum()) if large.height else 1.0
    return min(1.0, reached)


def _no_broadcasts(job: Job) -> Missing | None:
    if not job.once(traffic).height:
        return job.once(_no_call)
    broadcasts = job.once(traffic).filter(pl.col("op") == "broadcast")
    return Missing("broadcast_launch_not_recorded") if broadcasts["of_buffers"].null_count() else None


def _of_buffers(job: Job) -> pl.DataFrame:
    return _exposed(job).filter(pl.col("op") == "broadcast").filter("of_buffers")


def _no_places(job: Job) -> Missing | None:
    calls = job.once(traffic)
    if not calls.height:
        return job.once(_no_call)
    placed = calls.filter(pl.col("spans_nodes").is_not_null())
    return None if (share_of(placed, calls, "transfer_ns") or 0.0) >= _MOSTLY else Missing("groups_not_recorded")


def _across(job: Job) -> pl.DataFrame:
    return _exposed(job).filter("spans_nodes")


def _halved_ms(job: Job) -> float:
    halved = _across(job).filter(pl.col("dtype") == "Float")
    return gain_ms(job, halved.with_columns(saved_ns=_at_most("exposed_ns", pl.col("transfer_ns") / 2)))


def _per_step(job: Job, calls: pl.DataFrame) -> float:
    return calls.height / len(job.ranks) / len(job.examined)


measure = of_jobs(__name__, unknown=_no_call)
of_reductions = of_jobs(__name__, unknown=_no_sizes)
of_broadcasts = of_jobs(__name__, unknown=_no_broadcasts)
of_nodes = of_jobs(__name__, unknown=_no_places)

measure("exposed_transfer_ms", _of_calls(lambda job: gain_ms(job, _exposed(job)))).says(
    "How much shorter the step would be if kernels hid every transfer; waits for late ranks do not count.",
    f"of the part of every transfer, as in measured_transfer_ms, that no kernel covers, {_GAIN}",
)
measure("exposed_exchange_part", _of_calls(lambda job: float(job.once(traffic).select(_EXCHANGED).item()))).says(
    "How much of the exposed transfers are all-to-alls, sends and receives, and no reduction or gather.",
    "their exposed time / exposed time of all transfers, over all ranks and steps; 0 where none is exposed",
)
measure.saving("hideable", _hidden_ms).says("hiding exposed transfers behind the backward pass or another micro-batch")
measure.saving("slow_transfer", _slow_ms).says("the expected time for each large collective")
of_reductions("small_reductions_per_step", _of_calls(lambda job: _per_step(job, _small(job)))).says(
    "Reductions of less than 8 MiB per step.",
    "number of all_reduce and reduce_scatter below 8 MiB / ranks / steps",
    "TraceLens and ml-engineering: below some MiB the start-up counts for more than the link",
)
of_reductions(
    "small_reduction_share", _of_calls(lambda job: share_of(_small(job), _reductions(job), "bytes") or 0.0)
).says(
    "Part of the reduced bytes that reductions of less than 8 MiB move.",
    "bytes in reductions below 8 MiB / bytes in reductions",
)
of_reductions("merge_gain_ms", _of_calls(_merge_gain)).says(
    "What the job's step would get shorter by if small reductions were joined to buckets of 25 MiB."
)
of_broadcasts("buffer_broadcasts_per_step", _of_calls(lambda job: _per_step(job, _of_buffers(job)))).says(
    "Broadcasts per step with which DistributedDataParallel makes the module's buffers equal.",
    "number of broadcasts launched in DistributedDataParallel.forward / ranks / steps",
)
of_broadcasts("buffer_broadcast_ms", _of_calls(lambda job: gain_ms(job, _of_buffers(job)))).says(
    "What the job's step would get shorter by without broadcasts of buffers; waiting for late ranks not counted.",
    f"of the part of their transfers that no kernel covers, {_GAIN}",
)
of_nodes("cross_node_share", _of_calls(lambda job: share_of(_across(job), job.once(traffic), "transfer_ns"))).says(
    "Part of the transfers' time in groups that span nodes.",
    "transfers of groups whose ranks lie on several hosts / transfers; ranks fill hosts of as many GPUs as the"
    " recording shows",
)
of_nodes("cross_node_ms", _of_calls(lambda job: gain_ms(job, _across(job)))).says(
    "What the job's step would get shorter by if transfers between nodes took no time.",
    f"of the part of these transfers that no kernel covers, {_GAIN}",
)
of_nodes("cross_node_halved_ms", _of_calls(_halved_ms)).says(
    "What the job's step would get shorter by if 32-bit numbers crossed nodes as 16 bits.",
    f"of min(exposed, half the transfer) of those in Float, {_GAIN}",
    "torch.distributed.algorithms.ddp_comm_hooks: bf16_compress_hook",
)
