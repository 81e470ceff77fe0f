"""Which serving engine runs, and which phases its steps have."""

from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import ENGINES
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing


def _phases(view: DeviceView) -> Value:
    rows = view.once(steps_by_phase)
    return ", ".join(rows["phase"].unique().sort()) if rows.height else Missing("no_engine_steps")


measure = of_devices(__name__, needs_steps=False)

measure(
    "engine",
    lambda view: next((name for name, of in ENGINES if view.host_like(of).height), Missing("no_engine")),
    unit="text",
).says(
    "The serving engine: `vllm`, `sglang` or `tensorrt_llm`.",
    "the first of them whose name for a step, or whose code, the host's ranges hold",
)
measure("phases", _phases, unit="text").says(
    "The phases of the used steps of a server: `prefill`, `decode`, `mixed`, `verify`; `unnamed` is none of them.",
    "from the marks of the steps, or else from the kernels of forward passes",
)
