"""Attention computed product by product, its scores moved through memory."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import attention_loops, part, parts
from advisor.analysis.device.kernels import longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.whatif import Change, faster, saved

# Of the peak: memory-efficient kernels on a V100; FlashAttention-2 reaches 73 % of an A100's, FlashAttention-3 75 % of
# an H100's.
_RATES: Final = (0.25, 0.75)
_MORE_WORK: Final = (1.25, 1.0)  # the backward pass computes the scores anew
_FUSED: Final = (0.5, 0.13)  # of the time, where peak or shapes are not known: FlashAttention is 2 to 7.6 times as fast
# PyTorch 2.13 in fp32 on one core of an AMD EPYC, forward and backward, 45 shapes of 64 to 1024 positions: fused
# attention takes 40 to 109 % of the time, 88 % in the middle.
_FUSED_ON_CPU: Final = (1.0, 0.4)
_IS_PRODUCT: Final = pl.col("family") == "gemm"


def _kernels(view: DeviceView) -> pl.DataFrame:
    return part(view, "attention")


def _unknown(view: DeviceView) -> Missing | None:
    """That products and softmax ran whose ops were not recorded."""
    nameless = view.once(parts).filter(pl.col("op_name").is_null(), pl.col("family").is_in(["gemm", "softmax"]))
    is_unclear = not view.once(_kernels).height and nameless["family"].n_unique() > 1
    return Missing("launching_ops_not_recorded") if is_unclear else None


def _between_heads(view: DeviceView) -> Intervals:
    """When a loop over heads on a CPU is between these kernels: slices, their gradients, and Python."""
    return view.once(attention_loops) - spans(view.once(_kernels)) if view.device is None else EMPTY


def _attending(view: DeviceView) -> Intervals:
    return spans(view.once(_kernels)) | view.once(_between_heads)


def _fused(view: DeviceView) -> Change:
    """One kernel in place of the products; on a CPU nothing between them."""
    kernels = view.once(_kernels)
    products_ns = max(1, int(kernels.filter(_IS_PRODUCT)["dur_ns"].sum()))
    slow, fast = (
        pl.when(_IS_PRODUCT).then(pl.col("dur_ns") * (ns / products_ns)).otherwise(0) for ns in _fused_ns(view, kernels)
    )
    between_ns = int(view.once(_between_heads).within(view.starts, view.ends).sum())
    return faster(kernels, slow, fast).beyond(between_ns)


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
    peaks = view.gpu.peaks if view.gpu else {}
    if "fp32" in peaks:
        peaks["fp32"] = max(peaks["fp32"], peaks.get("3xtf32", 0.0))
    dtype = pl.coalesce("op_dtype", "element_type")
    return dtype.replace_strict(peaks, default=None, return_dtype=pl.Float64) if peaks else pl.lit(None, pl.Float64)


measure = of_devices(__name__, needs=("device_ops.name",), unknown=_unknown)

measure.time("unfused_attention", _attending, where=longest(_kernels)).says(
    "in which attention is computed product by product",
    "time of softmax kernels between batched products, of those products and of what lies between, on a CPU also "
    "between four or more of them in a row: a loop over heads",
)
measure.kernels("unfused_attention", _kernels, gives=("ops",)).says(
    "in attention's separate products", "those softmax kernels, the products, and what lies between"
)
measure.saving("attention", lambda view: saved(view, _fused(view))).says("a fused attention")
