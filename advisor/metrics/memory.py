"""Device memory: the peak, how near it is to the device's capacity, and what the allocator holds idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.alive import alive_at_peak
from advisor.lens import Lane
from advisor.metrics.registry import Metric, Missing, Value, measures, tabulates

_MOST_POINTS: Final = 600  # more than a chart has pixels for
_NEEDS: Final = ("device_ops", "allocations", "allocations.allocated_bytes")


def _at_peak(lane: Lane) -> pl.DataFrame:
    peak = lane.allocations.sort("allocated_bytes", "at_ns", descending=[True, False], nulls_last=True).head(1)
    return peak.select(
        start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), table=pl.lit("allocations"), name=pl.lit("memory peak")
    )


@measures(
    Metric(
        "peak_memory_bytes",
        "bytes",
        "Most device memory that tensors held at once, over the whole recording.",
        "max of the allocator's running total of allocated bytes",
        "torch-tb-profiler's Peak Memory Usage",
        _NEEDS,
        _at_peak,
    ),
    Metric(
        "peak_memory_share",
        "share",
        "That peak as a part of the device's memory.",
        "peak_memory_bytes / device memory",
        "torch-tb-profiler",
        (*_NEEDS, "devices"),
        _at_peak,
    ),
    Metric(
        "reserved_memory_bytes",
        "bytes",
        "Most device memory that the caching allocator held.",
        "max of the allocator's running total of reserved bytes; of TensorFlow and JAX, which take it all at once, "
        "allocated + available",
        needs=_NEEDS,
    ),
    Metric(
        "fragmentation",
        "share",
        "Part of the reserved memory that no tensor used when most was reserved; where the allocator takes all memory "
        "at once, the part that was free, but in pieces, when most was allocated.",
        "1 - allocated / reserved, at the moment of most reserved bytes (the last of equals); of TensorFlow and JAX "
        "free memory outside its largest piece / reserved, at the peak",
        "the ratio of TensorFlow's and JAX's allocators is that of XProf's memory profile",
        needs=_NEEDS,
    ),
)
def memory(lane: Lane) -> Mapping[str, Value]:
    """Peaks over the whole recording: the memory must suffice for every step, used here or not."""
    held = lane.reserved.filter(pl.col("allocated_bytes").is_not_null())
    if not held.height:
        return dict.fromkeys(_NAMES, Missing("no allocation on this device was recorded"))
    peak = int(held["allocated_bytes"].to_numpy().max())
    reserved = int(held["reserved_bytes"].fill_null(0).to_numpy().max())
    capacity = lane.facts.get("memory_bytes")
    values: dict[str, Value] = {
        "peak_memory_bytes": peak,
        "peak_memory_share": peak / capacity if capacity else Missing("the device's memory size is not known"),
    }
    if not reserved:
        return values
    return values | {"reserved_memory_bytes": reserved, "fragmentation": _fragmentation(held, reserved)}


def _fragmentation(held: pl.DataFrame, reserved: int) -> float | None:
    """Of what the allocator holds; of one that takes all at once, what is free and not in one piece."""
    if held["fragmentation"].count():
        in_pieces = pl.col("fragmentation") * pl.col("available_bytes") / pl.col("reserved_bytes")
        peak = held.sort("allocated_bytes", "at_ns", descending=[True, False], nulls_last=True).head(1)
        told: float | None = peak.select(in_pieces).item()
        return told
    fullest = held.filter(pl.col("reserved_bytes") == reserved).sort("at_ns", maintain_order=True).tail(1)
    return 1 - float(fullest["allocated_bytes"].item()) / reserved


@tabulates("memory")
def memory_curve(lane: Lane) -> pl.DataFrame:
    """Memory over the recording: start_ns, allocated_bytes, reserved_bytes; the fullest moment of each of 600 spans."""
    held = lane.allocations.filter(pl.col("allocated_bytes").is_not_null()).sort("at_ns", maintain_order=True)
    at = pl.col("at_ns")
    length = ((at.max() - at.min()) // _MOST_POINTS).clip(1)
    spans = held.group_by(((at - at.min()) // length).alias("span"), maintain_order=True)
    return spans.agg(
        start_ns=at.sort_by("allocated_bytes").last(),
        allocated_bytes=pl.max("allocated_bytes"),
        reserved_bytes=pl.max("reserved_bytes"),
    ).drop("span")


@tabulates("memory_peak")
def at_peak(lane: Lane) -> pl.DataFrame:
    """What held the memory when it was fullest, the most first: what, op, within, blocks, bytes."""
    return alive_at_peak(lane)


_NAMES: Final = ("peak_memory_bytes", "peak_memory_share", "reserved_memory_bytes", "fragmentation")
