"""Facts of the device that rules ask for."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.missing import Missing


@measures(
    Metric("device_name", "text", "Name of the device as its driver reports it.", "as recorded", needs=("device_ops",)),
    Metric(
        "capability",
        "number",
        "CUDA compute capability; on AMD the gfx version.",
        "major + minor / 10, as recorded",
        needs=("device_ops", "devices"),
    ),
)
def device(view: DeviceView) -> Mapping[str, Value]:
    """Name and capability as recorded; a name that is empty is replaced by the model that its figures tell."""
    name = view.facts.get("name") or (view.gpu.model if view.gpu else None)
    return {
        "device_name": name or Missing("device_nameless"),
        "capability": view.facts.get("capability") or Missing("no_capability"),
    }
