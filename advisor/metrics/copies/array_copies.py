"""Arrays that a JAX program on a CPU copies in its steps: NumPy's copies, and those that make an array of JAX."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.places import places
from advisor.analysis.device.time_by_name import by_place, in_words
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import Union

# NumPy's functions with Python's calls recorded; what JAX and PjRt call the way onto the device, on any thread.
_COPIES: Final = (
    r"^\$<unknown> copy\b|^\$numpy (?:copy|ascontiguousarray)\b"
    r"|^(?:Batched)?DevicePut(?:WithSharding)?\b|^H2D Dispatch\b|BufferFromHostBuffer"
)

ARRAY_COPY_SHARE = Metric(
    "array_copy_share",
    "Part of the step in which arrays are copied on the host, or into arrays of JAX on a CPU, and no program runs.",
    "union of numpy's copy and ascontiguousarray, DevicePut and H2D Dispatch on all threads outside compilation and "
    "programs on XLA's threads / step time; 0 with a device, whose copies are recorded",
    "PjRt's client for the CPU copies large arrays on threads, under H2D Dispatch",
    where=lambda view: places(view, view.host_like(_COPIES)),
)
ARRAY_COPY_CALLS = Metric(
    "array_copy_calls",
    "What copies the arrays, and where the program calls it, as far as that was recorded.",
    "the three of these ranges with the most time",
    unit="text",
)


@measures(ARRAY_COPY_SHARE, ARRAY_COPY_CALLS, framework="jax")
def array_copies(view: DeviceView) -> Values:
    """Copies of arrays in the steps of JAX without a device."""
    if view.device is not None:
        return {ARRAY_COPY_SHARE: 0.0, ARRAY_COPY_CALLS: ""}
    steps = Union.of(view.starts, view.ends)
    rows = view.host_like(_COPIES)
    copying = (spans(rows) & steps) - (view.host_spans("compile") | view.once(executed))
    start = rows["start_ns"].to_numpy()
    spent = pl.Series(copying.within(start, start + rows["dur_ns"].to_numpy()), dtype=pl.Int64)
    calls = by_place(view, rows.select("id", "name", self_ns=spent)).sort("self_ns", "name", descending=[True, False])
    return {ARRAY_COPY_SHARE: copying.total / view.total_ns, ARRAY_COPY_CALLS: in_words(view, calls)}
