"""Facts of the device that rules ask for, and how the worker spreads its work over devices."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value
from advisor.metrics.several import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.text import runs_of

DEVICE_NAME = Metric(
    "device_name", "Name of the device as its driver reports it.", "as recorded", needs=("device_ops",), unit="text"
)
CAPABILITY = Metric(
    "capability",
    "CUDA compute capability; on AMD the gfx version.",
    "major + minor / 10, as recorded",
    needs=("device_ops", "devices"),
)
GPU_LISTED = Metric(
    "gpu_listed",
    "Whether the hardware table has this GPU: 0 where only its compute capability tells what it can do.",
    "1 if it is certain which entry of the table it is, else 0",
    unit="count",
)


@measures(DEVICE_NAME, CAPABILITY, GPU_LISTED, needs_steps=False)
def device(view: DeviceView) -> Values:
    """Name and capability as recorded; a name that is empty is replaced by the model that its figures tell."""
    name = view.facts.get("name") or (view.gpu.model if view.gpu else None)
    return {
        DEVICE_NAME: name or Missing("device_nameless"),
        GPU_LISTED: int(view.gpu is not None),
        CAPABILITY: view.facts.get("capability") or Missing("no_capability"),
    }


DATA_PARALLEL_CALLS_PER_STEP = Metric(
    "data_parallel_calls_per_step",
    "Forward passes of torch.nn.DataParallel per step.",
    "ranges named DataParallel.forward / steps",
    "torch-tb-profiler's rule on DataParallel",
    where=lambda view: places(view, _replicated(view)),
)


@measures(DATA_PARALLEL_CALLS_PER_STEP)
def data_parallel(view: DeviceView) -> Values:
    """How often the model runs in DataParallel, which copies it to each device."""
    return {DATA_PARALLEL_CALLS_PER_STEP: _replicated(view).height / view.steps.height}


def _replicated(view: DeviceView) -> pl.DataFrame:
    return view.used_like(r"^DataParallel\.forward$")


DEVICES_VISIBLE = Metric(
    "devices_visible",
    "Devices that the worker's process sees.",
    "devices that the profile describes",
    "XProf's overview page, run environment",
    unit="count",
)
VISIBLE_NAMES = Metric(
    "visible_devices", "What the devices are called that the worker's process sees.", "as recorded", unit="text"
)
DEVICES_USED = Metric(
    "devices_used", "Devices that the worker ran anything on.", "number of devices with device ops", unit="count"
)
DEVICES_WORKING = Metric(
    "devices_working",
    "The devices on which the worker's process ran kernels.",
    "numbers of the devices with kernels",
    unit="text",
)
DEVICES_IDLE = Metric(
    "devices_idle",
    "How many of the devices that the worker's process sees it ran nothing on.",
    "devices_visible - devices with any op, copies too",
    unit="count",
)


@measures(DEVICES_VISIBLE, VISIBLE_NAMES, DEVICES_USED, DEVICES_WORKING, DEVICES_IDLE)
def devices(view: DeviceView) -> Values:
    """Devices that the process sees and uses."""
    working: dict[Metric, Value] = {
        DEVICES_USED: view.devices,
        DEVICES_WORKING: runs_of(view.working),
        VISIBLE_NAMES: ", ".join(view.visible_names),
    }
    if view.visible is None:
        return working | dict.fromkeys((DEVICES_VISIBLE, DEVICES_IDLE), Missing("no_device_description"))
    return working | {DEVICES_VISIBLE: view.visible, DEVICES_IDLE: view.visible - len(view.used)}
