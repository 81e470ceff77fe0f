"""Pauses of Python's garbage collector, in which neither a device nor an op of the host works."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import running
from advisor.analysis.device.places import places
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView, spans, spent_ns
from advisor.inputs.step_periods import RANGES
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.model.profile import matches

_CALL: Final = r"collect"  # of the program; a collection that Python begins is called otherwise
_SILENT_SHARE: Final = 0.05  # of the complete steps: as much unrecorded time may hold pauses that are worth a finding


def _collections(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "gc")


def _without_work(view: DeviceView) -> Intervals:
    """When nothing works in the complete steps: those that a collection made uneven too."""
    return spans(view.complete) - (view.once(running) if view.device is None else view.busy)


def _paused(view: DeviceView) -> Intervals:
    return spans(view.once(_collections)) & view.once(_without_work)


def _longest_ns(view: DeviceView) -> int:
    return max(spent_ns(view.once(_collections), view.once(_paused)), default=0)


def _unrecorded(view: DeviceView) -> Missing | None:
    """Why collections may take a part worth naming though none was recorded; what samples stacks marks all of them."""
    if view.once(_collections).height or view.process.get("stacks") is not None or not (why := no_frames(view)):
        return None
    recorded = spans(view.host.select("kind", "start_ns", "dur_ns").filter(~pl.col("kind").is_in(RANGES)))
    silent_ns = (view.once(_without_work) - recorded).total
    return why if silent_ns >= _SILENT_SHARE * int(view.complete["dur_ns"].sum()) else None


def _called_part(view: DeviceView) -> float:
    paused = view.once(_paused)
    return (paused & spans(view.once(_collections).filter(matches(_CALL)))).total / max(1, paused.total)


measure = of_devices(__name__, needs=("host_ops",), unknown=_unrecorded)
measure("gc_pause_ms", lambda view: view.once(_longest_ns) / 1e6, where=places(_collections)).says(
    "The longest pause of the job in one garbage collection.",
    "longest time in one collection of Python's, inside the complete steps, uneven ones too, in which the device "
    "idles, or without a device no op runs",
)
measure("gc_pauses_ms", lambda view: view.once(_paused).total / 1e6 / view.complete.height).says(
    "Time per step that the job pauses for garbage collections.", "that time in all collections / complete steps"
)
measure(
    "gc_recurring_ms",
    lambda view: max(0, view.once(_paused).total - view.once(_longest_ns)) / 1e6 / view.complete.height,
).says(
    "Time per step that the job pauses for garbage collections, without the longest pause.",
    "that time in all collections but the longest / complete steps",
    "what a short recording holds once may come seldom",
)
measure("gc_called_part", _called_part).says(
    "How much of these pauses the program asks for: gc.collect().",
    "time of them in calls of gc.collect / time of them; 0 without any",
)
