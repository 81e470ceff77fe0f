"""Device memory: the peak, how near it is to the device's capacity, and what the allocator holds idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.memory_at_peak import alive_at_peak
from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures, tabulates
from advisor.model.missing import Missing

_MOST_POINTS: Final = 600  # more than a chart has pixels for
_XPROF: Final = "XProf's memory profile"
_OF_BFC: Final = Missing("not_this_allocator")
_NEEDS: Final = ("device_ops", "allocations", "allocations.allocated_bytes")


def _at_peak(view: DeviceView) -> pl.DataFrame:
    return _fullest(view.allocations).select(
        start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), table=pl.lit("allocations"), name=pl.lit("memory peak")
    )


@measures(
    Metric(
        "peak_memory_bytes",
        "bytes",
        "Most device memory that was held at once, over the whole recording: by tensors, on TPUs by the stack too.",
        "max of the allocator's running total of allocated bytes, and of the stack's where that is told",
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
        "peak_memory_at_ms",
        "ms",
        "When that was, from the first instant recorded.",
        "first instant of the peak - start of the first host range or device op, or the first allocation event",
        _XPROF,
        _NEEDS,
    ),
    *(
        Metric(f"{name}_memory_bytes", "bytes", f"{meaning} at the peak.", f"{how}, at the peak", _XPROF, _NEEDS)
        for name, meaning, how in (
            ("heap", "Memory that tensors hold", "allocated bytes"),
            ("stack", "Memory that the running program holds for its own, as on TPUs,", "reserved bytes; 0 on GPUs"),
            ("free", "Memory that the allocator could still give", "available bytes"),
        )
    ),
    Metric(
        "lifetime_peak_memory_bytes",
        "bytes",
        "Most device memory that tensors held at once since the process began: the recording may not hold it.",
        "max of what the allocator says of its own peak",
        _XPROF,
        _NEEDS,
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
def memory(view: DeviceView) -> Mapping[str, Value]:
    """Peaks over the whole recording: the memory must suffice for every step, used here or not."""
    held = view.reserved.filter(pl.col("allocated_bytes").is_not_null())
    if not held.height:
        return dict.fromkeys(_NAMES, Missing("no_allocation"))
    (fullest,) = _fullest(held).to_dicts()
    stack = fullest["stack_bytes"] or 0
    peak = fullest["allocated_bytes"] + stack
    reserved = int(held["reserved_bytes"].fill_null(0).to_numpy().max())
    capacity = view.facts.get("memory_bytes")
    values: dict[str, Value] = {
        "peak_memory_bytes": peak,
        "peak_memory_share": peak / capacity if capacity else Missing("memory_size_unknown"),
        "peak_memory_at_ms": (fullest["at_ns"] - _start_ns(view)) / 1e6,
        "heap_memory_bytes": fullest["allocated_bytes"],
        "stack_memory_bytes": stack,
        "free_memory_bytes": _or_untold(fullest["available_bytes"]),
        "lifetime_peak_memory_bytes": _or_untold(held["lifetime_peak_bytes"].max()),
    }
    if not reserved:
        return values
    return values | {"reserved_memory_bytes": reserved, "fragmentation": _fragmentation(held, reserved)}


def _fragmentation(held: pl.DataFrame, reserved: int) -> float | None:
    """Of what the allocator holds; of one that takes all at once, what is free and not in one piece."""
    if held["fragmentation"].count():
        in_pieces = pl.col("fragmentation") * pl.col("available_bytes") / pl.col("reserved_bytes")
        told: float | None = _fullest(held).select(in_pieces).item()
        return told
    fullest = held.filter(pl.col("reserved_bytes") == reserved).sort("at_ns", maintain_order=True).tail(1)
    return 1 - float(fullest["allocated_bytes"].item()) / reserved


def _fullest(allocations: pl.DataFrame) -> pl.DataFrame:
    """The row at which most is held, the first of equals; nothing where nothing is told."""
    held = pl.col("allocated_bytes") + pl.col("stack_bytes").fill_null(0)
    told = allocations.filter(pl.col("allocated_bytes").is_not_null())
    return told.sort(held, "at_ns", descending=[True, False]).head(1)


def _start_ns(view: DeviceView) -> int:
    times = (view.host["start_ns"], view.ops["start_ns"], view.allocations["at_ns"])
    return min(int(time.to_numpy().min()) for time in times if len(time))


def _or_untold(value: object) -> Value:
    return int(value) if isinstance(value, int) else _OF_BFC


@tabulates("memory")
def memory_curve(view: DeviceView) -> pl.DataFrame:
    """Memory over the recording: start_ns, allocated_bytes, reserved_bytes; the fullest moment of each of 600 spans."""
    held = view.allocations.filter(pl.col("allocated_bytes").is_not_null()).sort("at_ns", maintain_order=True)
    at = pl.col("at_ns")
    length = ((at.max() - at.min()) // _MOST_POINTS).clip(1)
    spans = held.group_by(((at - at.min()) // length).alias("span"), maintain_order=True)
    return spans.agg(
        start_ns=at.sort_by("allocated_bytes").last(),
        allocated_bytes=pl.max("allocated_bytes"),
        reserved_bytes=pl.max("reserved_bytes"),
    ).drop("span")


@tabulates("memory_peak")
def at_peak(view: DeviceView) -> pl.DataFrame:
    """What held the memory when it was fullest, the most first: what, op, within, blocks, bytes."""
    return alive_at_peak(view)


_NAMES: Final = (
    *("peak_memory_bytes", "peak_memory_share", "peak_memory_at_ms", "heap_memory_bytes", "stack_memory_bytes"),
    *("free_memory_bytes", "lifetime_peak_memory_bytes", "reserved_memory_bytes", "fragmentation"),
)
