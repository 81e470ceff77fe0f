"""Device memory: the peak, how near it is to the device's capacity, and what the allocator holds idle."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.memory_at_peak import blocks_at_peak
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, tabulates
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

_MOST_POINTS: Final = 600  # more than a chart has pixels for
_XPROF: Final = "XProf's memory profile"


def _at_peak(view: DeviceView) -> pl.DataFrame:
    return _fullest(view.allocations).select(
        start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), table=pl.lit("allocations"), name=pl.lit("memory peak")
    )


PEAK_MEMORY_BYTES = Metric(
    "peak_memory_bytes",
    "Most device memory that was held at once, over the whole recording: by tensors, on TPUs by the stack too.",
    "max of the allocator's running total of allocated bytes, and of the stack's where that is told",
    "torch-tb-profiler's Peak Memory Usage",
    where=_at_peak,
)
PEAK_MEMORY_SHARE = Metric(
    "peak_memory_share",
    "Most device memory that was held at once as a part of the device's memory.",
    "peak_memory_bytes / device memory",
    "torch-tb-profiler",
    ("devices",),
    _at_peak,
)
HEAP_MEMORY_BYTES = Metric(
    "heap_memory_bytes",
    "Memory that tensors hold at the peak.",
    "allocated bytes, at the peak",
    _XPROF,
)
STACK_MEMORY_BYTES = Metric(
    "stack_memory_bytes",
    "Memory that the running program holds for its own, as on TPUs, at the peak.",
    "reserved bytes; 0 on GPUs, at the peak",
    _XPROF,
)
FREE_MEMORY_BYTES = Metric(
    "free_memory_bytes",
    "Memory that the allocator could still give at the peak.",
    "available bytes, at the peak",
    _XPROF,
)
LIFETIME_PEAK_MEMORY_BYTES = Metric(
    "lifetime_peak_memory_bytes",
    "Most device memory that tensors held at once since the process began: the recording may not hold it.",
    "max of what the allocator says of its own peak",
    _XPROF,
)
RESERVED_MEMORY_BYTES = Metric(
    "reserved_memory_bytes",
    "Most device memory that the caching allocator held.",
    "max of the allocator's running total of reserved bytes; of TensorFlow and JAX, which take it all at once, "
    "allocated + available",
)
FRAGMENTATION = Metric(
    "fragmentation",
    "Part of the reserved memory that no tensor used when most was reserved; where the allocator takes all memory "
    "at once, the part that was free, but in pieces, when most was allocated.",
    "1 - allocated / reserved, at the moment of most reserved bytes (the last of equals); of TensorFlow and JAX "
    "free memory outside its largest piece / reserved, at the peak",
    "the ratio of TensorFlow's and JAX's allocators is that of XProf's memory profile",
    unit="share",
)


@measures(
    PEAK_MEMORY_BYTES,
    PEAK_MEMORY_SHARE,
    HEAP_MEMORY_BYTES,
    STACK_MEMORY_BYTES,
    FREE_MEMORY_BYTES,
    LIFETIME_PEAK_MEMORY_BYTES,
    RESERVED_MEMORY_BYTES,
    FRAGMENTATION,
    needs=("device_ops", "allocations", "allocations.allocated_bytes"),
    needs_steps=False,
)
def memory(view: DeviceView) -> Values:
    """Peaks over the whole recording: the memory must suffice for every step, used here or not."""
    totals = view.reserved.filter(pl.col("allocated_bytes").is_not_null())
    if not totals.height:
        return Missing("no_allocation")
    return {**_at_fullest(view, totals), **_reserved(totals)}


def _at_fullest(view: DeviceView, totals: pl.DataFrame) -> dict[Metric, Value]:
    (fullest,) = _fullest(totals).to_dicts()
    stack = fullest["stack_bytes"] or 0
    peak = fullest["allocated_bytes"] + stack
    capacity = view.facts.get("memory_bytes")
    return {
        PEAK_MEMORY_BYTES: peak,
        PEAK_MEMORY_SHARE: peak / capacity if capacity else Missing("memory_size_unknown"),
        HEAP_MEMORY_BYTES: fullest["allocated_bytes"],
        STACK_MEMORY_BYTES: stack,
        FREE_MEMORY_BYTES: _or_missing(fullest["available_bytes"]),
        LIFETIME_PEAK_MEMORY_BYTES: _or_missing(totals["lifetime_peak_bytes"].max()),
    }


def _reserved(totals: pl.DataFrame) -> dict[Metric, Value]:
    reserved = int(totals["reserved_bytes"].fill_null(0).to_numpy().max())
    if not reserved:
        return {}
    return {RESERVED_MEMORY_BYTES: reserved, FRAGMENTATION: _fragmentation(totals, reserved)}


def _fragmentation(totals: pl.DataFrame, reserved: int) -> float | None:
    """Of what the allocator holds; of one that takes all at once, what is free and not in one piece."""
    if totals["fragmentation"].count():
        in_pieces = pl.col("fragmentation") * pl.col("available_bytes") / pl.col("reserved_bytes")
        share: float | None = _fullest(totals).select(in_pieces).item()
        return share
    fullest = totals.filter(pl.col("reserved_bytes") == reserved).sort("at_ns", maintain_order=True).tail(1)
    return 1 - float(fullest["allocated_bytes"].item()) / reserved


def _fullest(allocations: pl.DataFrame) -> pl.DataFrame:
    """The row at which most is held, the first of equals; none where no row has a total."""
    in_use = pl.col("allocated_bytes") + pl.col("stack_bytes").fill_null(0)
    totals = allocations.filter(pl.col("allocated_bytes").is_not_null())
    return totals.sort(in_use, "at_ns", descending=[True, False]).head(1)


def _or_missing(value: object) -> Value:
    return int(value) if isinstance(value, int) else Missing("not_this_allocator")


@tabulates("memory")
def memory_curve(view: DeviceView) -> pl.DataFrame:
    """Memory over the recording: start_ns, allocated_bytes, reserved_bytes; the fullest moment of each of 600 spans."""
    events = view.allocations.select("at_ns", "allocated_bytes", "reserved_bytes")
    totals = events.drop_nulls("allocated_bytes").sort("at_ns", maintain_order=True)
    at = pl.col("at_ns")
    length = ((at.max() - at.min()) // _MOST_POINTS).clip(1)
    spans = totals.group_by(((at - at.min()) // length).alias("span"), maintain_order=True)
    return spans.agg(
        start_ns=at.sort_by("allocated_bytes").last(),
        allocated_bytes=pl.max("allocated_bytes"),
        reserved_bytes=pl.max("reserved_bytes"),
    ).drop("span")


@tabulates("memory_peak")
def at_peak(view: DeviceView) -> pl.DataFrame:
    """What held the memory when it was fullest, the most first: what, op, within, blocks, bytes."""
    return blocks_at_peak(view)
