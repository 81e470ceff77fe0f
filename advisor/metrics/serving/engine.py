"""Which serving engine runs, as its marks, its code or its kernels name it."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.analysis.device.steps import DeviceView
from advisor.inputs.names.engines import ENGINES
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches

ENGINE = Metric(
    "engine",
    "text",
    "The serving engine: `vllm`, `sglang` or `tensorrt_llm`.",
    "the first of them whose name for a step, or whose code, the host's ranges hold",
)


@measures(ENGINE)
def engine(view: DeviceView) -> Mapping[Metric, Value]:
    """The engine; unknown where no name tells."""
    names = view.host.select("name").unique()
    known = (name for name, pattern in ENGINES if names.select(matches(pattern).any()).item())
    return {ENGINE: next(known, Missing("no_engine"))}
