"""Launches that wait for their kernels: what CUDA_LAUNCH_BLOCKING=1 adds to the steps."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.profile import END_NS
from advisor.whatif import saved, without

_LAUNCHES: Final = r"(?i)Launch(?:Cooperative)?Kernel"


BLOCKING_LAUNCH_SHARE = Metric(
    "blocking_launch_share",
    "Part of the kernels whose launch returned only after the kernel had ended.",
    "kernels of the steps that ended before the kernel launch that started them returned / those with a recorded "
    "launch; 0 where none was recorded",
    "CUDA_LAUNCH_BLOCKING=1 makes every launch wait (CUDA C++ Programming Guide)",
    where=lambda view: as_places(_launched(view), "device_ops", op="op"),
)
BLOCKING_GAIN_MS = Metric(
    "blocking_gain_ms",
    "Step time saved if launches did not wait.",
    "replay without the blocking launches' time; where no replay can be trusted: 0",
    "advisor.whatif.replay",
)
LAUNCHED_KERNELS_PER_STEP = Metric(
    "launched_kernels_per_step",
    "Kernels per step that were launched one by one.",
    "kernels with a recorded kernel launch / steps",
)


@measures(BLOCKING_LAUNCH_SHARE, BLOCKING_GAIN_MS, LAUNCHED_KERNELS_PER_STEP)
def blocking_launches(view: DeviceView) -> Values:
    """Launches that wait for their kernels."""
    launched = _launched(view)
    blocking = launched.filter(pl.col("returned") >= END_NS)
    return {
        BLOCKING_LAUNCH_SHARE: blocking.height / launched.height if launched.height else 0.0,
        LAUNCHED_KERNELS_PER_STEP: launched.height / view.steps.height,
        BLOCKING_GAIN_MS: saved(view, without(calls=blocking["launch"])).most_ms,
    }


def _launched(view: DeviceView) -> pl.DataFrame:
    """Kernels of the steps that were launched one by one, with when their launch `returned`."""
    launches = view.host_like(_LAUNCHES, "runtime")
    returned = launches.select(launch="id", returned=END_NS)
    return view.used_ops.filter(pl.col("kind") == "kernel").join(returned, on="launch")
