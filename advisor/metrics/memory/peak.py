"""Device memory: the peak, how near it is to the device's capacity, and what the allocator holds idle."""

from typing import Any, Final

import polars as pl

from advisor.analysis.device.memory_at_peak import blocks_at_peak
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, of_devices, tabulates
from advisor.model.missing import Missing

_MOST_POINTS: Final = 600  # more than a chart has pixels for


def _totals(view: DeviceView) -> pl.DataFrame:
    """Rows of the whole recording with the allocator's running total: memory must suffice for steps left out, too."""
    return view.reserved.filter(pl.col("allocated_bytes").is_not_null())


def _fullest(view: DeviceView) -> pl.DataFrame:
    """The row of them at which most is held, the first of equals."""
    in_use = pl.col("allocated_bytes") + pl.col("stack_bytes").fill_null(0)
    return view.once(_totals).sort(in_use, "at_ns", descending=[True, False]).head(1)


def _at_peak(view: DeviceView, column: str) -> Any:  # noqa: ANN401 - of any column
    return view.once(_fullest)[column].item()


def _peak_bytes(view: DeviceView) -> int:
    return int(_at_peak(view, "allocated_bytes")) + (_at_peak(view, "stack_bytes") or 0)


def _peak_share(view: DeviceView) -> Value:
    capacity = view.facts.get("memory_bytes")
    return _peak_bytes(view) / capacity if capacity else Missing("memory_size_unknown")


def _reserved_bytes(view: DeviceView) -> int | None:
    return int(view.once(_totals)["reserved_bytes"].fill_null(0).to_numpy().max()) or None


def _fragmentation(view: DeviceView) -> float | None:
    """Of what the allocator holds; of one that takes all at once, what is free and not in one piece."""
    totals, reserved = view.once(_totals), view.once(_reserved_bytes)
    if not reserved:
        return None
    if totals["fragmentation"].count():
        in_pieces = pl.col("fragmentation") * pl.col("available_bytes") / pl.col("reserved_bytes")
        share: float | None = view.once(_fullest).select(in_pieces).item()
        return share
    fullest = totals.filter(pl.col("reserved_bytes") == reserved).sort("at_ns", maintain_order=True).tail(1)
    return 1 - float(fullest["allocated_bytes"].item()) / reserved


def _unknown(view: DeviceView) -> Missing | None:
    return None if view.once(_totals).height else Missing("no_allocation")


def _place(view: DeviceView) -> pl.DataFrame:
    return view.once(_fullest).select(
        start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), table=pl.lit("allocations"), name=pl.lit("memory peak")
    )


measure = of_devices(
    __name__, needs=("device_ops", "allocations", "allocations.allocated_bytes"), needs_steps=False, unknown=_unknown
)

measure("peak_memory_bytes", _peak_bytes, where=_place).says(
    "Most device memory that was held at once, over the whole recording: by tensors, on TPUs by the stack too.",
    "max of the allocator's running total of allocated bytes, and of the stack's where that is told",
    "torch-tb-profiler's Peak Memory Usage",
)
measure("peak_memory_share", _peak_share, needs=("devices",), where=_place).says(
    "Most device memory that was held at once as a part of the device's memory.",
    "peak_memory_bytes / device memory",
    "torch-tb-profiler",
)
measure("reserved_memory_bytes", _reserved_bytes).says(
    "Most device memory that the caching allocator held.",
    "max of the allocator's running total of reserved bytes; of TensorFlow and JAX, which take it all at once, "
    "allocated + available",
)
measure("fragmentation", _fragmentation, unit="share").says(
    "Part of the reserved memory that no tensor used when most was reserved; where the allocator takes all memory "
    "at once, the part that was free, but in pieces, when most was allocated.",
    "1 - allocated / reserved, at the moment of most reserved bytes (the last of equals); of TensorFlow and JAX "
    "free memory outside its largest piece / reserved, at the peak",
    "the ratio of TensorFlow's and JAX's allocators is that of XProf's memory profile",
)


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
