"""How fast data moves between the ranks, against what the links allow for messages of these sizes."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.job.collectives import (
    LARGE_BYTES,
    gpu_of,
    prevailing,
    share_of,
    traffic,
    why_none,
    why_unexpected,
)
from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value, tabulates_jobs
from advisor.metrics.several import Metric, Values, measures_jobs
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


BUS_BANDWIDTH_GBS = Metric(
    "bus_bandwidth_gbs",
    "Bus bandwidth of the collectives in GB/s; at least that where not all ranks are recorded.",
    f"sum of bytes x bus factor / sum of transfers, over {_LARGE}; of those of any size where there is none; "
    + _TRANSFER,
    _BANDWIDTH,
)
EXPECTED_BUS_BANDWIDTH_GBS = Metric(
    "expected_bus_bandwidth_gbs",
    "Bus bandwidth in GB/s that the links allow for messages of these sizes.",
    f"sum of bytes x bus factor / sum of expected times, over {_LARGE}",
    "a measured curve where the hardware table has one for the group, else NCCL's tuning model (tuning.cc)",
)
LINK_REACHED_SHARE = Metric(
    "link_reached_share",
    "How much of the bandwidth that the links allow the large collectives reach.",
    f"sum of expected times / sum of transfers, over {_LARGE}; where waiting cannot be told from the transfer only"
    f" if that is {percent(_SURELY_FAST)} nevertheless",
    _BANDWIDTH,
)
SLOWER_FABRIC = Metric(
    "slower_fabric",
    "The slower way that the large collectives may take: `PCIe`, or `none`.",
    "PCIe where NVLink or xGMI joins the group on one node and bus_bandwidth_gbs is at most what NCCL expects of PCIe",
    "NCCL src/graph/topo.cc; nccl-tests issue 178: a pair that fell back to PCIe",
    unit="text",
)
EXPECTED_BASIS = Metric(
    "expected_basis",
    "What the expected times rest on.",
    "measured curve or model, by the larger part of the expected time",
    unit="text",
)
MEASURED_TRANSFER_MS = Metric(
    "measured_transfer_ms",
    "Time per step in which data moves, hidden or not, in collectives for which a time is expected.",
    f"sum over calls of the transfer / ranks / steps; {_TRANSFER}",
    "TraceLens: the shortest member waits for nobody",
)
EXPECTED_TRANSFER_MS = Metric(
    "expected_transfer_ms",
    "Time per step that the links allow for the collectives for which a time is expected.",
    "sum of the measured curve's times where there is one, else of the model's / ranks / steps",
    "NCCL src/graph/tuning.cc; curves as named in the hardware table",
)
GUIDE_TRANSFER_MS = Metric(
    "guide_transfer_ms",
    "The least that the all-reduces can take per step: a quick check.",
    "sum over all_reduce of bytes / link bandwidth in one direction / ranks / steps",
    "tensorflow.org/guide/gpu_performance_analysis: parameters x 4 bytes / bandwidth",
)
MODEL_TRANSFER_MS = Metric(
    "model_transfer_ms",
    "Time per step that NCCL's tuning model expects of the collectives.",
    "sum of latency + bytes / bandwidth of the quickest ring protocol / ranks / steps",
    "NCCL src/graph/tuning.cc",
)
CURVE_TRANSFER_MS = Metric(
    "curve_transfer_ms",
    "Time per step that a measured curve gives for the collectives.",
    "sum of the times interpolated on the curve of the hardware table / ranks / steps",
    "curves as named in the hardware table",
)
TRANSFER_TOLD_SHARE = Metric(
    "transfer_told_share",
    "Part of the time in collectives for which waiting can be told from the transfer.",
    "time in calls that all their members were recorded and matched of, or half of them where the times follow"
    " the sizes all through the step / time in collectives",
)
_TIMES: Final = {MEASURED_TRANSFER_MS: "transfer_ns", EXPECTED_TRANSFER_MS: "expected_ns"}
_CHECKS: Final = {GUIDE_TRANSFER_MS: "guide_ns", MODEL_TRANSFER_MS: "model_ns", CURVE_TRANSFER_MS: "curve_ns"}
_OF_LINK: Final = (EXPECTED_BUS_BANDWIDTH_GBS, LINK_REACHED_SHARE, SLOWER_FABRIC)
_REACHED: Final = (BUS_BANDWIDTH_GBS, *_OF_LINK)


@measures_jobs(*_REACHED, EXPECTED_BASIS, *_TIMES, *_CHECKS, TRANSFER_TOLD_SHARE)
def bandwidths(job: Job) -> Values:
    """Bandwidths and times, measured and expected."""
    calls = job.once(traffic)
    if not calls.height:
        return why_none(job)
    known = calls.filter(pl.col("expected_ns").is_not_null(), pl.col("transfer_ns") > 0)
    why = why_unexpected(calls)
    return {
        **_reached(job, calls),
        EXPECTED_BASIS: prevailing(known, "basis") or why,
        **{metric: _per_step(job, known, column, why) for metric, column in (_TIMES | _CHECKS).items()},
        TRANSFER_TOLD_SHARE: share_of(calls.filter("told"), calls, "dur_ns"),
    }


def _per_step(job: Job, calls: pl.DataFrame, column: str, why: Missing) -> Value:
    known = calls[column].drop_nulls()
    if not len(known):
        return Missing("no_measured_curve") if column == "curve_ns" else why
    return float(known.sum()) / 1e6 / len(job.ranks) / len(job.steps)


def _reached(job: Job, calls: pl.DataFrame) -> dict[Metric, Value]:
    moved = pl.col("bytes") * pl.col("bus_factor")
    sized = calls.filter(moved > 0, pl.col("transfer_ns") > 0).with_columns(moved=moved)
    if not sized.height:
        return dict.fromkeys(_REACHED, why_unexpected(calls))
    large = sized.filter(pl.col("bytes") >= LARGE_BYTES)
    known = large.filter(pl.col("expected_ns").is_not_null())
    typical = next(some for some in (known, large, sized) if some.height)
    bandwidth: dict[Metric, Value] = {BUS_BANDWIDTH_GBS: _ratio(typical, "moved", "transfer_ns")}
    if not known.height:
        why = why_unexpected(large) if large.height else Missing("no_large_collective")
        return bandwidth | dict.fromkeys(_OF_LINK, why)
    reached = _link_reached(job, known)
    return bandwidth | {
        EXPECTED_BUS_BANDWIDTH_GBS: _ratio(known, "moved", "expected_ns"),
        LINK_REACHED_SHARE: reached,
        SLOWER_FABRIC: reached if isinstance(reached, Missing) else _slower_fabric(job, known),
    }


def _slower_fabric(job: Job, known: pl.DataFrame) -> str:
    gpu, linked = gpu_of(job), known.filter(pl.col("link") == "nvlink", ~pl.col("spans_nodes"))
    pcie_gbs = gpu.nccl_pcie_gbs if gpu else None
    if pcie_gbs is None or linked.height < known.height:
        return "none"
    return "PCIe" if _ratio(linked, "moved", "transfer_ns") <= pcie_gbs else "none"


def _ratio(calls: pl.DataFrame, above: str, below: str) -> float:
    return float(calls[above].sum()) / float(calls[below].sum())


def _link_reached(job: Job, known: pl.DataFrame) -> Value:
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
