"""How fast data moves between the ranks, against what the links allow for messages of these sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.job.collectives import (
    LARGE_BYTES,
    gpu_of,
    no_traffic,
    prevailing,
    share_of,
    traffic,
    why_unexpected,
)
from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value, of_jobs, tabulates_jobs
from advisor.model.missing import Missing
from advisor.text import percent

_MOSTLY: Final = 0.9  # of the time: enough for the rest not to change the picture
_TRANSFER: Final = (
    "transfer: from the last arrival to the end, of the member for which that is shortest; where not all members were"
    " recorded, the shortest of the calls that are alike, which is an upper bound"
)
_LARGE: Final = "calls of 4 MiB and more for which a time is expected"
_SURELY_FAST: Final = 0.8  # of the expected bandwidth: reached with some waiting in it, the link is not slow
_BANDWIDTH: Final = "nccl-tests, doc/PERFORMANCE.md"


class _Sized(NamedTuple):
    """Calls that moved bytes, with how many (`moved`): all, large ones, and of these such for which a time is expected."""

    calls: pl.DataFrame
    large: pl.DataFrame
    known: pl.DataFrame


def _sized(job: Job) -> _Sized:
    moved = pl.col("bytes") * pl.col("bus_factor")
    sized = job.once(traffic).filter(moved > 0, pl.col("transfer_ns") > 0).with_columns(moved=moved)
    large = sized.filter(pl.col("bytes") >= LARGE_BYTES)
    return _Sized(sized, large, _expected(large))


def _expected(calls: pl.DataFrame) -> pl.DataFrame:
    return calls.filter(pl.col("expected_ns").is_not_null(), pl.col("transfer_ns") > 0)


def _known(job: Job) -> pl.DataFrame:
    return _expected(job.once(traffic))


def _bandwidth(job: Job) -> Value:
    calls, large, known = job.once(_sized)
    typical = next((some for some in (known, large, calls) if some.height), None)
    return why_unexpected(job.once(traffic)) if typical is None else _ratio(typical, "moved", "transfer_ns")


def _unknown_link(job: Job) -> Missing | None:
    if why := no_traffic(job):
        return why
    calls, large, known = job.once(_sized)
    if known.height:
        return None
    if calls.height and not large.height:
        return Missing("no_large_collective")
    return why_unexpected(large if large.height else job.once(traffic))


def _link_reached(job: Job) -> Value:
    known = job.once(_sized).known
    share = _ratio(known, "expected_ns", "transfer_ns")
    if share >= _SURELY_FAST or (share_of(known.filter("told"), known, "dur_ns") or 0.0) >= _MOSTLY:
        return share
    world = job.world_size or "an unknown number of"
    return Missing("transfer_and_waiting", here=len(job.ranks), world=world, share=share)


def _slower_fabric(job: Job) -> Value:
    reached, known = job.once(_link_reached), job.once(_sized).known
    if isinstance(reached, Missing):
        return reached
    gpu, linked = gpu_of(job), known.filter(pl.col("link") == "nvlink", ~pl.col("spans_nodes"))
    pcie_gbs = gpu.nccl_pcie_gbs if gpu else None
    if pcie_gbs is None or linked.height < known.height:
        return "none"
    return "PCIe" if _ratio(linked, "moved", "transfer_ns") <= pcie_gbs else "none"


def _ratio(calls: pl.DataFrame, above: str, below: str) -> float:
    return float(calls[above].sum()) / float(calls[below].sum())


def _per_step(column: str) -> Callable[[Job], Value]:
    """The sum of a column in ms per rank and step, of the calls for which a time is expected."""

    def per_step(job: Job) -> Value:
        known = job.once(_known)[column].drop_nulls()
        if len(known):
            return float(known.sum()) / 1e6 / len(job.ranks) / len(job.steps)
        return Missing("no_measured_curve") if column == "curve_ns" else why_unexpected(job.once(traffic))

    return per_step


def _told_share(job: Job) -> float | None:
    calls = job.once(traffic)
    return share_of(calls.filter("told"), calls, "dur_ns")


@tabulates_jobs("collective")
def collective_table(job: Job) -> pl.DataFrame:
    """A row per op, group size, bytes and dtype, the most time first.

    Columns: op, group_size, bytes, dtype, calls (of all ranks), transfer_us (median), exact (waiting could be told
    from every transfer; else they are upper bounds), algorithm_gbs and bus_gbs (at the median), expected_us and its
    basis, exposed_ms (per rank and step).
    """
    calls = job.once(traffic)
    if not calls.height:
        return calls
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


measure = of_jobs(__name__, unknown=no_traffic)
measure(
    "bus_bandwidth_gbs",
    "Bus bandwidth of the collectives in GB/s; at least that where not all ranks are recorded.",
    f"sum of bytes x bus factor / sum of transfers, over {_LARGE}; of those of any size where there is none; "
    + _TRANSFER,
    _bandwidth,
    source=_BANDWIDTH,
)
of_link = of_jobs(__name__, unknown=_unknown_link)
of_link(
    "expected_bus_bandwidth_gbs",
    "Bus bandwidth in GB/s that the links allow for messages of these sizes.",
    f"sum of bytes x bus factor / sum of expected times, over {_LARGE}",
    lambda job: _ratio(job.once(_sized).known, "moved", "expected_ns"),
    source="a measured curve where the hardware table has one for the group, else NCCL's tuning model (tuning.cc)",
)
of_link(
    "link_reached_share",
    "How much of the bandwidth that the links allow the large collectives reach.",
    f"sum of expected times / sum of transfers, over {_LARGE}; where waiting cannot be told from the transfer only"
    f" if that is {percent(_SURELY_FAST)} nevertheless",
    lambda job: job.once(_link_reached),
    source=_BANDWIDTH,
)
of_link(
    "slower_fabric",
    "The slower way that the large collectives may take: `PCIe`, or `none`.",
    "PCIe where NVLink or xGMI joins the group on one node and bus_bandwidth_gbs is at most what NCCL expects of PCIe",
    _slower_fabric,
    source="NCCL src/graph/topo.cc; nccl-tests issue 178: a pair that fell back to PCIe",
    unit="text",
)
measure(
    "expected_basis",
    "What the expected times rest on.",
    "measured curve or model, by the larger part of the expected time",
    lambda job: prevailing(job.once(_known), "basis") or why_unexpected(job.once(traffic)),
    unit="text",
)
measure(
    "measured_transfer_ms",
    "Time per step in which data moves, hidden or not, in collectives for which a time is expected.",
    f"sum over calls of the transfer / ranks / steps; {_TRANSFER}",
    _per_step("transfer_ns"),
    source="TraceLens: the shortest member waits for nobody",
)
measure(
    "expected_transfer_ms",
    "Time per step that the links allow for the collectives for which a time is expected.",
    "sum of the measured curve's times where there is one, else of the model's / ranks / steps",
    _per_step("expected_ns"),
    source="NCCL src/graph/tuning.cc; curves as named in the hardware table",
)
measure(
    "guide_transfer_ms",
    "The least that the all-reduces can take per step: a quick check.",
    "sum over all_reduce of bytes / link bandwidth in one direction / ranks / steps",
    _per_step("guide_ns"),
    source="tensorflow.org/guide/gpu_performance_analysis: parameters x 4 bytes / bandwidth",
)
measure(
    "model_transfer_ms",
    "Time per step that NCCL's tuning model expects of the collectives.",
    "sum of latency + bytes / bandwidth of the quickest ring protocol / ranks / steps",
    _per_step("model_ns"),
    source="NCCL src/graph/tuning.cc",
)
measure(
    "curve_transfer_ms",
    "Time per step that a measured curve gives for the collectives.",
    "sum of the times interpolated on the curve of the hardware table / ranks / steps",
    _per_step("curve_ns"),
    source="curves as named in the hardware table",
)
measure(
    "transfer_told_share",
    "Part of the time in collectives for which waiting can be told from the transfer.",
    "time in calls that all their members were recorded and matched of, or half of them where the times follow"
    " the sizes all through the step / time in collectives",
    _told_share,
)
