"""What the ops of a job that runs on the CPU would take on the GPU beside it."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing

# At least and at most. Of NVIDIA's consumer chips since Pascal and of Hopper a multiprocessor has 128 cores for fp32,
# of the others and of AMD's it has 64. From a laptop's GPU to a data centre's: clocks, and the bandwidth per
# multiprocessor (RTX 4090 and MI300X 8 and 17 GB/s, H100 25). What is reached of them, and what an op takes that has
# little to do, is chosen: of 27 devices of 10 public recordings the time of fp32 ops lies between in 26.
_CORES: Final = {6.1: 128, 8.6: 128, 8.7: 128, 8.9: 128, 9.0: 128, 10.0: 128, 12.0: 128}
_FEW_CORES: Final = 64
_GHZ: Final = (1.2, 2.0)
_REACHED: Final = (0.3, 0.8)
_GBS: Final = (5.0, 25.0)
_LAUNCH_NS: Final = (20_000, 4_000)
_KNOWN: Final = 0.5  # of the time of the ops
_SINGLE: Final = ("fp32", "fp16", "bf16")


def _gain_ms(view: DeviceView) -> tuple[float, float] | Missing:
    """At least the host's other work stays and the GPU's comes on top; at most the longer of both is left.

    Ops of unknown work take as long as now, or a launch.
    """
    gpus = view.visible.drop("device").drop_nulls("sm_count").unique()
    if gpus.height != 1:
        return Missing("sm_count_unknown")
    rows = view.once(kernels)
    known = rows.filter(pl.col("least_bytes").is_not_null(), pl.col("op_dtype").is_in(_SINGLE))
    total_ns, known_ns = (int(of["dur_ns"].sum()) for of in (rows, known))
    if known_ns < _KNOWN * total_ns:
        return Missing("work_unknown", share=known_ns / total_ns)
    count, capability = gpus.select("sm_count", "capability").row(0)
    cores = _CORES.get(round(capability or 0.0, 1), _FEW_CORES)
    computing_ns = view.used_ns(spans(rows))
    slow_ns, fast_ns = (
        known.select(
            pl.max_horizontal(
                pl.col("flops") / (2 * cores * count * ghz * reached), pl.col("least_bytes") / (gbs * count), launch_ns
            ).sum()
        ).item()
        for ghz, reached, gbs, launch_ns in zip(_GHZ, _REACHED, _GBS, _LAUNCH_NS, strict=True)
    )
    least_ns = computing_ns - slow_ns - (total_ns - known_ns)
    most_ns = min(computing_ns, view.total_ns - fast_ns)
    return view.per_step_ms(max(0.0, least_ns)), view.per_step_ms(max(0.0, most_ns))


of_devices(__name__, needs=("host_ops.shapes",)).saving("idle_gpu", _gain_ms).says(
    "running the ops on the one GPU that the process sees and does not use"
)
