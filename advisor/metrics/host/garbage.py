"""Pauses of Python's garbage collector, in which neither a device nor an op of the host works."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import running
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Metric, Values, measures
from advisor.model.profile import matches

_CALL: Final = r"collect"  # of the program; a collection that Python begins is called otherwise


def _collections(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "gc")


GC_PAUSE_MS = Metric(
    "gc_pause_ms",
    "The longest pause of the job in one garbage collection.",
    "longest time in one collection of Python's, inside the complete steps, uneven ones too, in which the device "
    "idles, or without a device no op runs",
    where=lambda view: places(view, _collections(view)),
)
GC_PAUSES_MS = Metric(
    "gc_pauses_ms",
    "Time per step that the job pauses for garbage collections.",
    "that time in all collections / complete steps",
)
GC_CALLED_PART = Metric(
    "gc_called_part",
    "How much of these pauses the program asks for: gc.collect().",
    "time of them in calls of gc.collect / time of them; 0 without any",
)


@measures(GC_PAUSE_MS, GC_PAUSES_MS, GC_CALLED_PART, needs=("host_ops",))
def pauses(view: DeviceView) -> Values:
    """Pauses for collections; zero where none was recorded."""
    rows = _collections(view)
    steps = view.complete  # those that a collection made uneven too
    works = view.once(running) if view.device is None else view.busy
    paused = (spans(rows) - works) & spans(steps)
    start = rows["start_ns"].to_numpy()
    each = paused.within(start, start + rows["dur_ns"].to_numpy())
    called = paused & spans(rows.filter(matches(_CALL)))
    return {
        GC_PAUSE_MS: int(each.max(initial=0)) / 1e6,
        GC_PAUSES_MS: paused.total / 1e6 / steps.height,
        GC_CALLED_PART: called.total / max(1, paused.total),
    }
