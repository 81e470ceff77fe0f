"""Launches that wait for their kernels: what CUDA_LAUNCH_BLOCKING=1 adds to the steps."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.profile import END_NS
from advisor.whatif import without

_LAUNCHES: Final = r"(?i)Launch(?:Cooperative)?Kernel"

measure = of_devices(__name__)


def _launched(view: DeviceView) -> pl.DataFrame:
    """Kernels of the steps that were launched one by one, with when their launch `returned`."""
    launches = view.host_like(_LAUNCHES, "runtime")
    returned = launches.select(launch="id", returned=END_NS)
    return view.used_ops.filter(pl.col("kind") == "kernel").join(returned, on="launch")


def _blocking(view: DeviceView) -> pl.DataFrame:
    return view.once(_launched).filter(pl.col("returned") >= END_NS)


measure(
    "blocking_launch_share",
    lambda view: view.once(_blocking).height / max(1, view.once(_launched).height),
    where=lambda view: as_places(view.once(_launched), "device_ops", op="op"),
).says(
    "Part of the kernels whose launch returned only after the kernel had ended.",
    "kernels of the steps that ended before the kernel launch that started them returned / those with a recorded "
    "launch; 0 where none was recorded",
    "CUDA_LAUNCH_BLOCKING=1 makes every launch wait (CUDA C++ Programming Guide)",
)
measure.gain("blocking", lambda view: without(calls=view.once(_blocking)["launch"])).says(
    "Step time saved if launches did not wait.",
    "replay without the blocking launches' time; where no replay can be trusted: 0",
)
measure("launched_kernels_per_step", lambda view: view.once(_launched).height / view.steps.height).says(
    "Kernels per step that were launched one by one.", "kernels with a recorded kernel launch / steps"
)
