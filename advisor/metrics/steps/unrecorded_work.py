"""How much of the device was recorded, and kernels that were launched and that the recording lacks."""

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.launches import FAILURE, launched
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.unrecorded_work import holes_in, lacks_kernels, launches
from advisor.analysis.device.view import DeviceView
from advisor.inputs.step_periods import LAUNCHING
from advisor.metrics.metric import of_devices
from advisor.vocabulary.kinds import DRIVER_CALLS

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


def _gaps(view: DeviceView) -> pl.DataFrame:
    idle = view.once(gaps)
    holes = idle.filter(pl.Series(holes_in(idle, view), dtype=pl.Boolean))
    return holes.select("start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))


def _failed(view: DeviceView) -> pl.DataFrame:
    return view.host_like(LAUNCHING, *DRIVER_CALLS).filter(FAILURE.is_not_null())


def _failed_share(view: DeviceView) -> float:
    failed = view.once(_failed).height
    return failed / max(1, failed + view.host.filter(launched()).height)


def _errors(view: DeviceView) -> str:
    errors = view.once(_failed).select(error=FAILURE).group_by("error").len()
    most = errors.sort("len", "error", descending=[True, False])["error"].head(_MOST_ERRORS)
    return ", ".join(f"{_ERRORS.get(error, 'error')} ({error})" for error in most)


def _absent_share(view: DeviceView) -> float:
    calls = view.once(launches)
    if view.once(lacks_kernels):
        return 1.0
    return float(calls["is_lost"].mean() or 0.0) if calls.height else 0.0  # type: ignore[arg-type]  # a share


def _absent_idle_share(view: DeviceView) -> float:
    if view.once(lacks_kernels):
        return 1.0 - (view.share(view.busy) or 0.0)
    return float(view.once(_gaps)["dur_ns"].sum()) / view.total_ns


measure = of_devices(__name__)
measure("device_events", lambda view: view.ops.height, unit="count", needs=("device_ops",)).says(
    "Events that were recorded of the device.", "rows of device ops, whole recording"
)
measure(
    "lost_launches", lambda view: view.host.filter(launched()).height if view.once(lacks_kernels) else 0, unit="count"
).says(
    "Launches of a recording that has no kernel at all.",
    "calls that launch kernels or graphs and did not fail; 0 where any kernel was recorded",
)
measure("failed_launches", lambda view: view.once(_failed).height, where=places(_failed), unit="count").says(
    "Launches that failed, so that nothing ran.",
    "calls that launch kernels or graphs and return an error",
    "CUDA Runtime API, cudaError",
)
measure("failed_launch_share", _failed_share).says(
    "Part of the launches that failed.", "failed_launches / launches, failed or not; 0 without"
)
measure("launch_errors", _errors, unit="text").says(
    "The errors with which launches failed, the most frequent first.",
    "what the calls return, by the names of cudaError",
)
measure("lost_launch_share", _absent_share).says(
    "Part of the launches whose kernels the recording lacks.",
    "launching calls without a device op, outside of captures / all, from the first to the last call with an op; 0 "
    "where other devices have ops too, or as many ops have no call",
    "no launch lacks its kernel in 44 of 45 public recordings; in the other 1 in 200 does",
)
measure(
    "lost_idle_share", _absent_idle_share, where=as_places(_gaps, "gaps", name=pl.lit("launched work was not recorded"))
).says(
    "Part of the step in which the device seems idle, but kernels that were not recorded may run.",
    "idle time in gaps of which a kernel that was launched, and not recorded, may run in half or more / step time",
)
