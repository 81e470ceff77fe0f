"""How much of the device was recorded, and kernels that were launched and that the recording lacks."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.places import as_places
from advisor.analysis.device.unrecorded_work import holes_in, launches
from advisor.analysis.device.view import DeviceView
from advisor.metrics.several import Metric, Values, measures


def _gaps(view: DeviceView) -> pl.DataFrame:
    idle = view.once(gaps)
    return idle.filter(pl.Series(holes_in(idle, view), dtype=pl.Boolean))


def _places(view: DeviceView) -> pl.DataFrame:
    holes = _gaps(view).select("start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    return as_places(holes, "gaps", name=pl.lit("launched work was not recorded"))


ABSENT_LAUNCH_SHARE = Metric(
    "lost_launch_share",
    "Part of the launches whose kernels the recording lacks.",
    "launching calls without a device op, outside of captures / all, from the first to the last call with an op; 0 "
    "where other devices have ops too, or as many ops have no call",
    "no launch lacks its kernel in 44 of 45 public recordings; in the other 1 in 200 does",
)
ABSENT_IDLE_SHARE = Metric(
    "lost_idle_share",
    "Part of the step in which the device seems idle, but kernels that were not recorded may run.",
    "idle time in gaps of which a kernel that was launched, and not recorded, may run in half or more / step time",
    where=_places,
)


@measures(ABSENT_LAUNCH_SHARE, ABSENT_IDLE_SHARE, needs=("device_ops", "device_ops.launch"))
def holes(view: DeviceView) -> Values:
    """What the recording lacks of the device's work."""
    calls, idle = view.once(launches), _gaps(view)
    return {
        ABSENT_LAUNCH_SHARE: float(calls["is_lost"].mean() or 0.0) if calls.height else 0.0,  # type: ignore[arg-type]  # a share
        ABSENT_IDLE_SHARE: float((idle["end_ns"] - idle["start_ns"]).sum()) / view.total_ns,
    }


DEVICE_EVENTS = Metric(
    "device_events",
    "Events that were recorded of the device.",
    "rows of device ops, whole recording",
    unit="count",
)


@measures(DEVICE_EVENTS, needs=("device_ops",))
def recording(view: DeviceView) -> Values:
    """How much of the device the recording holds."""
    return {DEVICE_EVENTS: view.ops.height}
