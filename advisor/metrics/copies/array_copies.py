"""Arrays that a JAX program on a CPU copies in its steps: NumPy's copies, and those that make an array of JAX."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.places import places
from advisor.analysis.device.time_by_name import by_place, in_words
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals

# NumPy's functions with Python's calls recorded; what JAX and PjRt call the way onto the device, on any thread.
_COPIES: Final = (
    r"^\$<unknown> copy\b|^\$numpy (?:copy|ascontiguousarray)\b"
    r"|^(?:Batched)?DevicePut(?:WithSharding)?\b|^H2D Dispatch\b|BufferFromHostBuffer"
)


def _copies(view: DeviceView) -> pl.DataFrame:
    """None with a device: its copies are recorded."""
    rows = view.host_like(_COPIES)
    return rows if view.device is None else rows.clear()


def _copying(view: DeviceView) -> Intervals:
    """When arrays are copied in the steps, and nothing compiles or runs a program."""
    working = view.host_spans("compile") | view.once(executed)
    return (spans(view.once(_copies)) & Intervals.of(view.starts, view.ends)) - working


def _calls(view: DeviceView) -> str:
    rows = view.once(_copies)
    start = rows["start_ns"].to_numpy()
    spent = pl.Series(view.once(_copying).within(start, start + rows["dur_ns"].to_numpy()), dtype=pl.Int64)
    calls = by_place(view, rows.select("id", "name", self_ns=spent)).sort("self_ns", "name", descending=[True, False])
    return in_words(view, calls)


measure = of_devices(__name__, framework="jax")

measure(
    "array_copy_share",
    lambda view: view.once(_copying).total / view.total_ns,
    where=lambda view: places(view, view.once(_copies)),
).says(
    "Part of the step in which arrays are copied on the host, or into arrays of JAX on a CPU, and no program runs.",
    "union of numpy's copy and ascontiguousarray, DevicePut and H2D Dispatch on all threads outside compilation and "
    "programs on XLA's threads / step time; 0 with a device, whose copies are recorded",
    "PjRt's client for the CPU copies large arrays on threads, under H2D Dispatch",
)
measure("array_copy_calls", _calls, unit="text").says(
    "What copies the arrays, and where the program calls it, as far as that was recorded.",
    "the three of these ranges with the most time",
)
