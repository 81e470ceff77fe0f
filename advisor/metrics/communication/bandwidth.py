"""How fast data moves between the ranks, against what the links allow for messages of these sizes."""

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
from advisor.analysis.job.network import fastest_gbs
from advisor.metrics.metric import Value, of_jobs, tabulates_jobs
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
    if why := why_none(job):
        return why
    return job.once(_too_fast) if job.once(_sized).height else why_unexpected(job.once(traffic))


def _typical(job: Job) -> pl.DataFrame:
    return next(some for some in map(job.once, (_known, _large, _sized)) if some.height)


def _too_fast(job: Job) -> Missing | None:
    """Why sizes and times cannot both be right: no link moves so much in the time."""
    reached, most = _ratio(job.once(_typical), "least", "transfer_ns"), fastest_gbs(gpu_of(job))
    return Missing("faster_than_links", reached=reached, most=most) if reached > most else None


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
    calls = job.once(traffic)
    if not calls.height:
        return calls
    steps = max(1, len(job.ranks) * len(job.examined))
    rows = calls.group_by("op", "group_size", "bytes", "dtype").agg(
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
