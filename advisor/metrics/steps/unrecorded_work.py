"""How much of the device was recorded, and kernels that were launched and that the recording lacks."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.launches import FAILURE, launched
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.unrecorded_work import holes_in, lacks_kernels, launches
from advisor.analysis.device.view import DeviceView
from advisor.inputs.step_periods import LAUNCHING
from advisor.metrics.several import Metric, Values, measures
from advisor.vocabulary.kinds import DRIVER_CALLS


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


ABSENT_LAUNCHES = Metric(
    "lost_launches",
    "Launches of a recording that has no kernel at all.",
    "calls that launch kernels or graphs and did not fail; 0 where any kernel was recorded",
    unit="count",
)


@measures(ABSENT_LAUNCHES, needs=())
def absent(view: DeviceView) -> Values:
    """How much was launched of which nothing was recorded."""
    return {ABSENT_LAUNCHES: view.host.filter(launched()).height if view.once(lacks_kernels) else 0}


FAILED_LAUNCHES = Metric(
    "failed_launches",
    "Launches that failed, so that nothing ran.",
    "calls that launch kernels or graphs and return an error",
    "CUDA Runtime API, cudaError",
    unit="count",
    where=lambda view: places(view, view.once(_failed)),
)
FAILED_LAUNCH_SHARE = Metric(
    "failed_launch_share", "Part of the launches that failed.", "failed_launches / launches, failed or not; 0 without"
)
LAUNCH_ERRORS = Metric(
    "launch_errors",
    "The errors with which launches failed, the most frequent first.",
    "what the calls return, by the names of cudaError",
    unit="text",
)
_MOST_ERRORS: Final = 3
_ERRORS: Final = {  # cudaError, as the CUDA Runtime API lists it
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    3: "cudaErrorInitializationError",
    9: "cudaErrorInvalidConfiguration",
    35: "cudaErrorInsufficientDriver",
    98: "cudaErrorInvalidDeviceFunction",
    100: "cudaErrorNoDevice",
    200: "cudaErrorInvalidKernelImage",
    209: "cudaErrorNoKernelImageForDevice",
    218: "cudaErrorInvalidPtx",
    222: "cudaErrorUnsupportedPtxVersion",
    700: "cudaErrorIllegalAddress",
    701: "cudaErrorLaunchOutOfResources",
    702: "cudaErrorLaunchTimeout",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    719: "cudaErrorLaunchFailure",
}


def _failed(view: DeviceView) -> pl.DataFrame:
    return view.host_like(LAUNCHING, *DRIVER_CALLS).filter(FAILURE.is_not_null())


@measures(FAILED_LAUNCHES, FAILED_LAUNCH_SHARE, LAUNCH_ERRORS, needs=())
def failures(view: DeviceView) -> Values:
    """Launches that failed, and why."""
    failed = view.once(_failed)
    errors = failed.select(error=FAILURE).group_by("error").len().sort("len", "error", descending=[True, False])
    number = failed.height + view.host.filter(launched()).height
    return {
        FAILED_LAUNCHES: failed.height,
        FAILED_LAUNCH_SHARE: failed.height / max(1, number),
        LAUNCH_ERRORS: ", ".join(f"{_ERRORS.get(e, 'error')} ({e})" for e in errors["error"].head(_MOST_ERRORS)),
    }


@measures(ABSENT_LAUNCH_SHARE, ABSENT_IDLE_SHARE, needs=())
def holes(view: DeviceView) -> Values:
    """What the recording lacks of the device's work."""
    if view.once(lacks_kernels):
        return {ABSENT_LAUNCH_SHARE: 1.0, ABSENT_IDLE_SHARE: 1.0 - (view.share(view.busy) or 0.0)}
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
