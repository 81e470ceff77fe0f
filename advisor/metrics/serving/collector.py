"""Pauses of Python's garbage collector while requests wait."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Metric, Values, measures


def _collections(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "gc")


GC_PAUSE_MS = Metric(
    "gc_pause_ms",
    "The longest time that the device idles in one garbage collection.",
    "longest idle time in one collection of Python's inside the complete steps, uneven ones too",
    where=lambda view: places(view, _collections(view)),
)
GC_PAUSES_MS = Metric(
    "gc_pauses_ms",
    "Time per step that the device idles in garbage collections.",
    "that idle time in all collections / complete steps",
)


@measures(GC_PAUSE_MS, GC_PAUSES_MS, needs=("device_ops", "host_ops"))
def pauses(view: DeviceView) -> Values:
    """Idle time in collections; zero where none was recorded."""
    rows = _collections(view)
    steps = view.complete  # those that a collection made uneven too
    idle = (spans(rows) - view.busy) & spans(steps)
    start = rows["start_ns"].to_numpy()
    each = idle.within(start, start + rows["dur_ns"].to_numpy())
    return {GC_PAUSE_MS: int(each.max(initial=0)) / 1e6, GC_PAUSES_MS: idle.total / 1e6 / steps.height}
