"""What the device could compute in a step, and what others publish of jobs like it."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.roofs import no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.analysis.device.workload import workload
from advisor.inputs.published import usual
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing

_SIXTEEN: Final = ("bf16", "fp16")
_MOSTLY: Final = 0.5  # of the time of kernels that multiply


def _peak(view: DeviceView) -> float | None:
    """Dense peak in 16 bits, in TFLOP/s."""
    peaks = view.gpu.peak_tflops if view.gpu else {}
    return next((peaks[dtype] for dtype in _SIXTEEN if dtype in peaks), None)


def _peak_work(view: DeviceView) -> Value:
    peak = view.once(_peak)
    return no_peaks(view) if peak is None else peak * 1e9 * view.per_step_ms(view.total_ns)  # 1e9: TFLOP/s, ms


def _usual(end: int) -> Callable[[DeviceView], Value]:
    """Lowest (0) or highest (1) published share for the device, where the job trains with attention in 16 bits."""

    def share(view: DeviceView) -> Value:
        ran = view.once(kernels)
        multiplying = ran.filter(pl.col("family").cast(pl.String).is_in(["gemm", "attention"]))
        sixteen_ns = int(multiplying.filter(pl.coalesce("element_type", "op_dtype").is_in(_SIXTEEN))["dur_ns"].sum())
        attends = (ran["family"].cast(pl.String) == "attention").any()
        is_mostly = sixteen_ns > _MOSTLY * int(multiplying["dur_ns"].sum())
        if view.gpu is None or not attends or not is_mostly or "training" not in view.once(workload):
            return Missing("nothing_published")
        ends = usual(view.gpu.id, view.process.get("world_size") or 1)
        return ends[end] if ends else Missing("nothing_published")

    return share


measure = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"))

measure("peak_work_per_step", _peak_work).says(
    "FLOPs that the device could compute in 16 bits in a mean step.", "dense peak in bf16, or else fp16, x step time"
)
for _end, _which in enumerate(("least", "most")):
    measure(f"usual_{_which}_share", _usual(_end)).says(
        f"The {('lowest', 'highest')[_end]} share of the peak FLOPs that is published for training dense language "
        "models on this GPU, on one host or on several.",
        "of published.yaml, where attention ran, most of the products are in 16 bits, and the job trains",
        "mosaicml/llm-foundry, benchmarks; NVIDIA/Megatron-LM, README",
    )
