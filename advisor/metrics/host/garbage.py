"""Pauses of Python's garbage collector, in which neither a device nor an op of the host works."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import running
from advisor.analysis.device.places import places
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.step_periods import RANGES
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import Union
from advisor.model.profile import matches

_CALL: Final = r"collect"  # of the program; a collection that Python begins is called otherwise
_SILENT_SHARE: Final = 0.05  # of the complete steps: as much unrecorded time may hold pauses that are worth a finding


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
GC_RECURRING_MS = Metric(
    "gc_recurring_ms",
    "Time per step that the job pauses for garbage collections, without the longest pause.",
    "that time in all collections but the longest / complete steps",
    "what a short recording holds once may come seldom",
)
GC_CALLED_PART = Metric(
    "gc_called_part",
    "How much of these pauses the program asks for: gc.collect().",
    "time of them in calls of gc.collect / time of them; 0 without any",
)


@measures(GC_PAUSE_MS, GC_PAUSES_MS, GC_RECURRING_MS, GC_CALLED_PART, needs=("host_ops",))
def pauses(view: DeviceView) -> Values:
    """Pauses for collections; zero where none was recorded, unless they may lie where nothing was."""
    rows = _collections(view)
    steps = view.complete  # those that a collection made uneven too
    works = view.once(running) if view.device is None else view.busy
    if not rows.height and (why := no_frames(view)) and _may_hide(view, spans(steps) - works):
        return why
    paused = (spans(rows) - works) & spans(steps)
    start = rows["start_ns"].to_numpy()
    longest = int(paused.within(start, start + rows["dur_ns"].to_numpy()).max(initial=0))
    called = paused & spans(rows.filter(matches(_CALL)))
    return {
        GC_PAUSE_MS: longest / 1e6,
        GC_PAUSES_MS: paused.total / 1e6 / steps.height,
        GC_RECURRING_MS: max(0, paused.total - longest) / 1e6 / steps.height,
        GC_CALLED_PART: called.total / max(1, paused.total),
    }


def _may_hide(view: DeviceView, without_work: Union) -> bool:
    """Whether nothing was recorded in so much of the steps that collections may take a part worth naming."""
    recorded = spans(view.host.select("kind", "start_ns", "dur_ns").filter(~pl.col("kind").is_in(RANGES)))
    return (without_work - recorded).total >= _SILENT_SHARE * int(view.complete["dur_ns"].sum())
