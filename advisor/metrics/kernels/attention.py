"""Attention computed product by product, its scores moved through memory."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import attention_loops, part, parts
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.missing import Missing
from advisor.whatif import WORDS, faster, saved

_RATES: Final = (0.25, 0.75)  # of the peak
_MORE_WORK: Final = (1.25, 1.0)
_FUSED: Final = (0.5, 0.13)  # of the time on a device, where peak or shapes are not known
_FUSED_ON_CPU: Final = (1.0, 0.4)
_EMULATED: Final = 3  # TF32 products for one of fp32 in the memory-efficient kernels
_ON_CPU: Final = (
    "PyTorch 2.13 in fp32 on one core of an AMD EPYC, forward and backward, 45 shapes of 64 to 1024 positions: fused "
    "attention takes 40 to 109 % of the time, 88 % in the middle"
)
_IS_PRODUCT: Final = pl.col("family") == "gemm"


UNFUSED_ATTENTION_SHARE = Metric(
    "unfused_attention_share",
    "Part of the step in which attention is computed product by product.",
    "time of softmax kernels between batched products, of those products and of what lies between, on a CPU also "
    "between four or more of them in a row: a loop over heads / step time",
    where=lambda view: longest(part(view, "attention")),
)
UNFUSED_ATTENTION_MS = time_of("unfused_attention_ms", UNFUSED_ATTENTION_SHARE, "that time / steps")
UNFUSED_ATTENTION_OPS = Metric(
    "unfused_attention_ops",
    "The ops that launched attention's separate products.",
    "those with the most time, then the others",
    unit="text",
)
ATTENTION_LEAST_GAIN_MS = Metric(
    "attention_least_gain_ms",
    "Step time that a fused attention saves at least.",
    "those kernels replaced by 1.25 times their products' arithmetic at 25 % of the peak for the type (fp32: a "
    f"third of TF32's, where that is more); half of their time where shapes or peak are not known; on a CPU "
    f"none of it{WORDS['faster']}",
    "25 %: memory-efficient kernels on a V100; 1.25: the backward pass computes the scores anew; half: "
    f"FlashAttention is twice as fast or more (Dao et al., 2022); none: {_ON_CPU}",
)
ATTENTION_GAIN_MS = Metric(
    "attention_gain_ms",
    "Step time that a fused attention saves at most.",
    "those kernels replaced by their products' arithmetic at 75 % of that peak; 13 % of their time where shapes or "
    f"peak are not known; on a CPU 40 %, and nothing between the heads of a loop{WORDS['faster']}",
    "FlashAttention-2 reaches up to 73 % of an A100's peak, FlashAttention-3 75 % of an H100's; 13 %: "
    f"FlashAttention's 7.6 times on GPT-2 (their papers); 40 %: {_ON_CPU}",
)


@measures(
    UNFUSED_ATTENTION_SHARE,
    UNFUSED_ATTENTION_MS,
    UNFUSED_ATTENTION_OPS,
    ATTENTION_LEAST_GAIN_MS,
    ATTENTION_GAIN_MS,
    needs=("device_ops.name",),
)
def attention(view: DeviceView) -> Values:
    """Attention outside fused kernels; unknown where products and softmax ran whose ops were not recorded."""
    kernels = part(view, "attention")
    nameless = view.once(parts).filter(pl.col("op_name").is_null(), pl.col("family").is_in(["gemm", "softmax"]))
    if not kernels.height and nameless["family"].n_unique() > 1:
        return Missing("launching_ops_not_recorded")
    products_ns = max(1, int(kernels.filter(_IS_PRODUCT)["dur_ns"].sum()))
    slow, fast = (
        pl.when(_IS_PRODUCT).then(pl.col("dur_ns") * (ns / products_ns)).otherwise(0) for ns in _fused_ns(view, kernels)
    )
    some, (least, most) = extent(view, kernels), saved(view, faster(kernels, slow, fast))
    between = _between_heads(view, kernels)
    return {
        UNFUSED_ATTENTION_SHARE: some.share + between / view.total_ns,
        UNFUSED_ATTENTION_MS: some.ms + view.per_step_ms(between),
        UNFUSED_ATTENTION_OPS: some.ops,
        ATTENTION_LEAST_GAIN_MS: least,
        ATTENTION_GAIN_MS: most + view.per_step_ms(between),
    }


def _between_heads(view: DeviceView, kernels: pl.DataFrame) -> int:
    """Time between these kernels in loops over heads on a CPU, in ns: slices, their gradients, and Python."""
    if view.device is not None:
        return 0
    return int((view.once(attention_loops) - spans(kernels)).within(view.starts, view.ends).sum())


def _fused_ns(view: DeviceView, kernels: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that do all of it; never more than now."""
    now = float(kernels["dur_ns"].sum())
    if view.device is None:
        return _FUSED_ON_CPU[0] * now, _FUSED_ON_CPU[1] * now
    flops = 2.0 * pl.col("count") * pl.col("m") * pl.col("n") * pl.col("k")
    at_peak = kernels.filter(_IS_PRODUCT).select(ns=flops / _peak(view) / 1e3)["ns"]  # 1e3 per TFLOP/s
    if not len(at_peak) or at_peak.null_count():
        return _FUSED[0] * now, _FUSED[1] * now
    least = float(at_peak.to_numpy().sum())
    slow, fast = (min(now, more * least / rate) for more, rate in zip(_MORE_WORK, _RATES, strict=True))
    return slow, fast


def _peak(view: DeviceView) -> pl.Expr:
    """The device's peak for the type of each product in TFLOP/s, as fused attention computes it."""
    peaks = dict(view.gpu.peak_tflops) if view.gpu else {}
    if "fp32" in peaks:
        peaks["fp32"] = max(peaks["fp32"], peaks.get("tf32", 0.0) / _EMULATED)
    dtype = pl.coalesce("op_dtype", "element_type")
    return dtype.replace_strict(peaks, default=None, return_dtype=pl.Float64) if peaks else pl.lit(None, pl.Float64)
