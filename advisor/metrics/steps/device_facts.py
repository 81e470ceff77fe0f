"""Facts of the device that rules ask for."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.missing import Missing

DEVICE_NAME = Metric(
    "device_name", "text", "Name of the device as its driver reports it.", "as recorded", needs=("device_ops",)
)
CAPABILITY = Metric(
    "capability",
    "number",
    "CUDA compute capability; on AMD the gfx version.",
    "major + minor / 10, as recorded",
    needs=("device_ops", "devices"),
)
GPU_LISTED = Metric(
    "gpu_listed",
    "count",
    "Whether the hardware table has this GPU: 0 where only its compute capability tells what it can do.",
    "1 if it is certain which entry of the table it is, else 0",
)


@measures(DEVICE_NAME, CAPABILITY, GPU_LISTED)
def device(view: DeviceView) -> Mapping[Metric, Value]:
    """Name and capability as recorded; a name that is empty is replaced by the model that its figures tell."""
    name = view.facts.get("name") or (view.gpu.model if view.gpu else None)
    return {
        DEVICE_NAME: name or Missing("device_nameless"),
        GPU_LISTED: int(view.gpu is not None),
        CAPABILITY: view.facts.get("capability") or Missing("no_capability"),
    }
