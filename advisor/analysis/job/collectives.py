"""What the collectives of a job cost: how long data moves, what of it nothing hides, and how long it should take.

Also of logs that were written without a profiler: all calls, and who arrived last in those with times. There no clocks
are compared. Members of a collective leave it together, so the one that is in it for the shortest time arrived last,
and the others waited for as much longer as they were in it (TraceLens measures transfers so).
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.communication import MOST_BYTES
from advisor.analysis.job import network
from advisor.analysis.job.job import Job
from advisor.inputs.hardware import Gpu
from advisor.model.clause import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT
from advisor.vocabulary.limits import QUEUED_GAP_NS

LARGE_BYTES: Final = 4 << 20  # from here on the link counts for more than the start-up
# What passes activations on: they are needed in either pass, and their sizes may differ from step to step
EXCHANGES: Final = ["all_to_all", *POINT_TO_POINT, "send_recv"]
_PLACES: Final = 3  # large collectives in a step; fewer do not show whether the times follow the sizes
_SPREAD: Final = 0.2  # of the median: between the tenth and the last tenth of times over expected times
_LENGTH: Final = pl.col("end_ns") - pl.col("start_ns")


def gpu_of(job: Job) -> Gpu | None:
    """The GPU that all ranks use; None where they differ or it is not known."""
    known = {rank.gpu.id if rank.gpu else None for rank in job.ranks}
    return job.ranks[0].gpu if len(known) == 1 else None


def devices_of(job: Job) -> int | None:
    """How many devices each host has; None where it is not known, or the ranks differ."""
    known = {rank.visible for rank in job.ranks}
    return known.pop() if len(known) == 1 else None


def why_none(job: Job) -> Missing | None:
    """Why the job has no collectives to measure; None where it has any."""
    if job.once(traffic).height:
        return None
    return Missing("no_collective_on_device" if job.steps else "no_common_step")


def why_unexpected(calls: pl.DataFrame) -> Missing:
    """Why no time is expected of these calls: the reason that the most time rests on."""
    if calls["bytes"].null_count() == calls.height:
        return Missing("no_collective_sizes")
    why = prevailing(calls, "why")
    return Missing.decoded(why) if why else Missing("no_collective_large_enough")


def prevailing(calls: pl.DataFrame, column: str) -> str | None:
    """The value of the column that the most of the calls' time rests on; None where the column is empty."""
    times = calls.filter(pl.col(column).is_not_null()).group_by(column).agg(pl.sum("dur_ns"))
    return str(times.sort("dur_ns", column)[column][-1]) if times.height else None


def share_of(part: pl.DataFrame, calls: pl.DataFrame, column: str) -> float | None:
    """What a part of the calls has of their sum of a column; None where that is 0."""
    total = float(calls[column].sum())
    return float(part[column].sum()) / total if total else None


def traffic(job: Job) -> pl.DataFrame:
    """The device's collectives in the examined steps, a row per rank and call.

    Columns:
        rank, step, op, group_size, bytes, dtype, of_buffers, dur_ns, instance.
        transfer_ns: time in which data moves: from the last arrival to the end, of the member for which that is
            shortest. Where not all members were recorded, the shortest of the calls that are alike (op, group and
            bytes; without sizes, place in the step): no less was needed, and some of it may still be waiting. 0 of a
            barrier, which moves nothing.
        exact: whether it is the first of these.
        told: whether it is the transfer: exact, or at least half of the members were recorded and the times follow the
            sizes all through the step, as a link's do. Waiting for a rank that is missing does not: how late it is
            depends on what it computes in between.
        exposed_ns: the part of the transfer, at the end of the call, that no kernel of the rank covers.
        awaited_ns: the same without the pauses of at most 5 us between kernels, which are there without transfers too.
        bus_factor, spans_nodes, peers (the group's ranks), ends (the ranks that take part), and what
            `advisor.analysis.job.network.expected` tells: expected_ns, basis, why.
    """
    calls = job.calls.filter(~pl.col("on_host"), pl.col("step").is_in(job.examined))
    calls = _with_transfer(calls, job.world_size)
    moved = pl.min_horizontal("transfer_ns", "dur_ns")
    last = calls.select("rank", start_ns=pl.col("end_ns") - moved, moved=moved)
    calls = calls.with_columns(
        exposed_ns=moved - job.covered_ns(last, "moved"),
        awaited_ns=moved - job.covered_ns(last, "moved", QUEUED_GAP_NS),
    )
    devices = devices_of(job)
    placed = network.placement(calls["ranks"], calls["group_size"], devices).rename({"ranks": "peers"})
    pair = pl.when(pl.col("op").is_in(POINT_TO_POINT)).then(pl.concat_list("worker", "peer").list.sort())
    calls = calls.hstack(placed).with_columns(ends=pl.coalesce(pair, "peers")).drop("ranks", "group", "worker", "peer")
    expected = network.expected(calls, gpu_of(job), devices)
    calls = calls.hstack(expected).with_columns(
        bus_factor=network.bus_factor(pl.col("op"), pl.col("group_size").cast(pl.Int64))
    )
    follows = pl.lit(_follow_sizes(calls))
    return calls.with_columns(told=pl.col("exact") | (pl.col("mostly") & follows)).drop("mostly", "met_ns")


def gain_ms(job: Job, saved: pl.DataFrame) -> float:
    """What the job's step gets shorter by when each rank's own part of it does, in ms on average of examined steps.

    In every step the rank that takes longest by itself sets the pace. `saved` has rank, step and `saved_ns` of exposed
    communication, any number of rows for each.
    """
    by_step = saved.group_by("rank", "step").agg(pl.sum("saved_ns"))
    pace = job.pace.filter(pl.col("step").is_in(job.examined))
    saved = pace.join(by_step, on=["rank", "step"], how="left").with_columns(
        # What overlaps other collectives is exposed once.
        saved_ns=pl.min_horizontal(pl.col("saved_ns").fill_null(0), pl.col("transfer_ns") + pl.col("wait_ns"))
    )
    paces = saved.group_by("step").agg(now=pl.max("own_ns"), then=(pl.col("own_ns") - pl.col("saved_ns")).max())
    return float((paces["now"] - paces["then"]).sum()) / 1e6 / len(job.examined)


def queue_costs(longer: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Per rank and step, what transfers that are `longer_ns` too long cost at most: a hidden one holds up the next."""
    queued, sums = (
        calls.group_by("rank", "step").agg(pl.sum(of)) for calls, of in ((longer, "longer_ns"), (exposed, "exposed_ns"))
    )
    return queued.join(sums, on=["rank", "step"]).with_columns(saved_ns=pl.min_horizontal("longer_ns", "exposed_ns"))


def _with_transfer(calls: pl.DataFrame, world_size: int | None) -> pl.DataFrame:
    calls = calls.with_columns(bytes=pl.when(pl.col("bytes").is_between(0, MOST_BYTES)).then("bytes"))
    paired = pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False)  # of a group of any size, two take part
    members = pl.coalesce(pl.when(paired).then(2), pl.col("group_size").cast(pl.Int64), pl.lit(world_size, pl.Int64))
    alike = ["op", "group", "ranks", "bytes", "dtype", "place"]
    place = pl.int_range(pl.len()).over("rank", "step", "op", order_by="start_ns")
    placed = calls.with_columns(dur_ns=_LENGTH, place=pl.when(pl.col("bytes").is_null()).then(place))
    varies = pl.col("bytes").is_null() & pl.col("op").is_in(EXCHANGES)
    shortest = pl.when(varies).then("dur_ns").otherwise(pl.min("dur_ns").over(alike))
    same_size = pl.col("bytes").n_unique().over("instance") == 1
    matched = pl.when("trusted").then(pl.min("transfer_ns").over("instance"))
    matches = pl.col("trusted") & same_size
    bounded = placed.with_columns(
        exact=(matches & (pl.col("met") == members)).fill_null(value=False),
        mostly=(matches & (2 * pl.col("met") >= members)).fill_null(value=False),
        matched=matched,
        shortest=shortest,
    )
    bound = pl.min_horizontal("matched", "shortest")
    moves = pl.when(pl.col("op") == "barrier").then(0)  # a barrier is nothing but waiting
    transfer = moves.otherwise(pl.when("exact").then("matched").otherwise(bound))
    return bounded.with_columns(transfer_ns=transfer).select(
        *("rank", "worker", "peer", "step", "op", "group", "ranks", "group_size", "bytes", "dtype", "of_buffers"),
        "instance",
        *("start_ns", "end_ns", "dur_ns", "transfer_ns", "exact", "mostly"),
        met_ns="matched",
    )


def _follow_sizes(calls: pl.DataFrame) -> bool:
    """Whether large collectives take as much of their expected time wherever in the step they are."""
    large = calls.filter("mostly", pl.col("bytes") >= LARGE_BYTES, pl.col("expected_ns") > 0)
    each = large.group_by("step", "instance").agg((pl.col("met_ns") / pl.col("expected_ns")).first().alias("times"))
    if each.height < _PLACES * max(1, each["step"].n_unique()):
        return False
    low, median, high = np.quantile(each["times"].to_numpy(), [0.1, 0.5, 0.9])
    return bool(high - low <= _SPREAD * median)


GROUP: Final = ["group", "ranks"]  # the columns that tell a process group
_TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")  # no member leaves earlier


def log(job: Job) -> pl.DataFrame:
    """The logged calls of all ranks, in the order of each rank's log: the columns of `collective_log`."""
    own = {rank.worker: rank.log for rank in job.ranks}  # one per process, whatever its devices
    return pl.concat([*own.values(), *job.logs]) if own else pl.DataFrame()


def timed(job: Job) -> pl.DataFrame:
    """Calls that several ranks logged the time of, and that all of them leave together.

    Columns: those of the log, `last` (worker that arrived last), `wait_ns`, `transfer_ns` (of the one that waited for
    nobody), and `moved` (bytes x bus factor).
    """
    calls = job.once(log)
    if not calls.height:
        return calls
    known = calls.filter(pl.col("op").is_in(_TOGETHER), pl.col("dur_ns") > 0)
    key = [*GROUP, "op", "sequence"]
    known = known.unique([*key, "worker"], keep="none", maintain_order=True)
    met = known.filter(pl.len().over(key) > 1)
    return met.with_columns(
        last=pl.col("worker").sort_by("dur_ns").first().over(key),
        transfer_ns=pl.min("dur_ns").over(key),
        wait_ns=pl.col("dur_ns") - pl.min("dur_ns").over(key),
        moved=pl.col("bytes") * network.bus_factor(pl.col("op"), pl.col("group_size")),
    )


def untimed(job: Job) -> Missing | None:
    """Why nobody can be said to wait in logged collectives; None where it can."""
    if job.once(timed).height:
        return None
    return Missing("no_logged_times" if job.once(log).height else "no_collective_log")


def waited_for(job: Job, workers: Collection[int]) -> float | Missing:
    """The part of the waiting in the logged collectives of these workers' groups that is for them.

    Elsewhere ranks wait for those that they made late.
    """
    if why := untimed(job):
        return why
    theirs = job.once(timed).filter(pl.col("worker").is_in(workers).any().over(GROUP))
    waits, of_them = theirs["wait_ns"].to_numpy(), theirs["last"].is_in(workers).to_numpy()
    return float(waits[of_them].sum() / waits.sum()) if waits.sum() else 0.0
