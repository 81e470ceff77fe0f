"""The optimizer's kernels where it updates one tensor at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part, parts
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.roofline import REPLAYED, gains_ms
from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures

_PARAMETER_BYTES: Final = (28, 20)  # moved per fp32 parameter in one kernel, at most and at least
_RATES: Final = (0.6, 1.0)  # of the memory bandwidth
_FUSED: Final = (0.65, 0.2)  # of the time, where shapes or bandwidth are not known
_NEEDS: Final = ("device_ops", "device_ops.name")


OPTIMIZER_SHARE = Metric(
    "optimizer_share",
    "share",
    "Part of the step in which kernels of the optimizer run, one tensor at a time.",
    "time of kernels launched inside an Optimizer.step annotation (where there is none: of chains that hold addcdiv, "
    "as Adam's updates do), without fused and multi-tensor ones / step time",
    needs=_NEEDS,
    where=lambda view: longest(_single_tensor(view)),
)
OPTIMIZER_MS = Metric("optimizer_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS)
OPTIMIZER_OPS = Metric("optimizer_ops", "text", "The ops that launched them.", "the three with the most", needs=_NEEDS)
OPTIMIZER_KERNELS_PER_STEP = Metric(
    "optimizer_kernels_per_step", "number", "Such kernels per step.", "kernels / steps", needs=_NEEDS
)
OPTIMIZER_LEAST_GAIN_MS = Metric(
    "optimizer_least_gain_ms",
    "ms",
    "Step time on the device that a fused optimizer saves at least.",
    "one kernel per step that moves 28 bytes per parameter (elements that an op covers, median over the ops) at "
    f"60 % of the memory bandwidth; 65 % of the time where shapes or bandwidth are not known{REPLAYED}",
    "Adam reads the gradient, reads and writes parameter and two moments; 65 %: SGD's 20 bytes for 32 in three kernels",
    _NEEDS,
)
OPTIMIZER_GAIN_MS = Metric(
    "optimizer_gain_ms",
    "ms",
    "Step time on the device that a fused optimizer saves at most.",
    f"the same with 20 bytes at the full bandwidth; 20 % of the time where shapes or bandwidth are not known{REPLAYED}",
    "SGD with momentum reads the gradient, reads and writes parameter and momentum; 20 %: Adam's 28 bytes for 140 "
    "in twelve kernels",
    _NEEDS,
)
UPDATE_SHARE = Metric(
    "update_share",
    "share",
    "Part of the step in which kernels update parameters, in whatever form: their time does not depend on the batch.",
    "time of kernels launched inside an Optimizer.step annotation or named after an optimizer or multi-tensor update, "
    "clipping of gradients among them / step time",
    needs=_NEEDS,
    where=lambda view: longest(_updates(view)),
)
UPDATE_MS = Metric("update_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS)


@measures(
    OPTIMIZER_SHARE, OPTIMIZER_MS, OPTIMIZER_OPS, OPTIMIZER_KERNELS_PER_STEP, OPTIMIZER_LEAST_GAIN_MS, OPTIMIZER_GAIN_MS
)
def optimizers(view: DeviceView) -> Mapping[Metric, Value]:
    """The optimizer's kernels where it loops over tensors; zero where it does not."""
    if not view.total_ns:
        return {}
    kernels = _single_tensor(view)
    is_first = pl.int_range(pl.len()).over("window") == 0
    steps = max(1, kernels["window"].n_unique())
    slow, fast = (pl.when(is_first).then(pl.lit(ns / steps)).otherwise(0) for ns in _fused_ns(view, kernels))
    some, (least, most) = extent(view, kernels), gains_ms(view, kernels, slow, fast)
    return {
        OPTIMIZER_SHARE: some.share,
        OPTIMIZER_MS: some.ms,
        OPTIMIZER_OPS: some.ops,
        OPTIMIZER_KERNELS_PER_STEP: kernels.height / view.steps.height,
        OPTIMIZER_LEAST_GAIN_MS: least,
        OPTIMIZER_GAIN_MS: most,
    }


@measures(UPDATE_SHARE, UPDATE_MS)
def updates(view: DeviceView) -> Mapping[Metric, Value]:
    """What the step pays once, whatever the batch; zero where nothing is updated."""
    if not view.total_ns:
        return {}
    some = extent(view, _updates(view))
    return {UPDATE_SHARE: some.share, UPDATE_MS: some.ms}


def _updates(view: DeviceView) -> pl.DataFrame:
    is_update = (pl.col("part") == "optimizer").fill_null(value=False) | (pl.col("family") == "optimizer")
    return view.once(parts).filter(is_update)


def _single_tensor(view: DeviceView) -> pl.DataFrame:
    return part(view, "optimizer").filter(pl.col("family") != "optimizer")


def _fused_ns(view: DeviceView, kernels: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that make the same updates; never more than now."""
    now = float(kernels["dur_ns"].sum())
    parameters = kernels.group_by("op_name").agg(pl.sum("elements"))["elements"].median()
    rate = view.gpu.memory_bandwidth_gbs if view.gpu else None  # GB/s is bytes per ns
    if not rate or not isinstance(parameters, float) or kernels["elements"].null_count():
        return _FUSED[0] * now, _FUSED[1] * now
    ends = zip(_PARAMETER_BYTES, _RATES, strict=True)
    slow, fast = (min(now, parameters * nbytes / (share * rate)) for nbytes, share in ends)
    return slow, fast
