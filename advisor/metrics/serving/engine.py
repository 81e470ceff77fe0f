"""Which serving engine runs, and which phases its steps have."""

from __future__ import annotations

from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import ENGINES
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

ENGINE = Metric(
    "engine",
    "The serving engine: `vllm`, `sglang` or `tensorrt_llm`.",
    "the first of them whose name for a step, or whose code, the host's ranges hold",
    unit="text",
)


PHASES = Metric(
    "phases",
    "The phases of the used steps of a server: `prefill`, `decode`, `mixed`, `verify`; `unnamed` is none of them.",
    "from the marks of the steps, or else from the kernels of forward passes",
    unit="text",
)


@measures(ENGINE, needs_steps=False)
def engine(view: DeviceView) -> Values:
    """The engine; unknown where no name tells."""
    known = (name for name, pattern in ENGINES if view.host_like(pattern).height)
    return {ENGINE: next(known, Missing("no_engine"))}


@measures(PHASES, needs_steps=False)
def phases(view: DeviceView) -> Values:
    """The phases, with a comma between them; unknown where neither marks nor kernels show any."""
    rows = view.once(steps_by_phase)
    return {PHASES: ", ".join(rows["phase"].unique().sort()) if rows.height else Missing("no_engine_steps")}
