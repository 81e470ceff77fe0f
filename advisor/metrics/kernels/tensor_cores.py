"""Tensor Cores: which kernels use them, which could and do not, and which cannot be told."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import largest, longest
from advisor.analysis.device.matmuls import candidates, has_tensor_cores
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

_SIXTEEN_BIT_OR_LESS: Final = ["fp16", "bf16", "fp8", "fp4", "int8"]
_MOST_UNKNOWN: Final = 0.5  # of the kernel time: with more, the share of the rest says nothing of the whole
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)


def _unused(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("verdict") == "unused")


TENSOR_CORE_SHARE = Metric(
    "tensor_core_share",
    "Part of the kernel time spent in kernels that use Tensor Cores.",
    "time of kernels judged used / time of all compute kernels; null where over half of that is judged unknown",
    _SOURCE,
)
TENSOR_CORE_ELIGIBLE_SHARE = Metric(
    "tensor_core_eligible_share",
    "Part of the kernel time spent in matrix kernels that use Tensor Cores or could.",
    "time of GEMM, convolution and attention kernels judged used or unused / time of all compute kernels; "
    "null where over half of that is judged unknown",
    _SOURCE,
)
TENSOR_CORE_UNKNOWN_SHARE = Metric(
    "tensor_core_unknown_share",
    "Part of the kernel time in matrix kernels of which it is unknown whether they could use Tensor Cores.",
    "time of matrix kernels judged unknown / time of all compute kernels",
    _SOURCE,
)
TENSOR_CORE_UNUSED_SHARE = Metric(
    "tensor_core_unused_share",
    "Part of the step in which a matrix kernel runs without the Tensor Cores that the device has.",
    "union of the kernels judged unused, inside the steps / step time",
    _SOURCE,
    where=lambda view: longest(_unused(view)),
)
TENSOR_CORE_UNUSED_OPS = Metric(
    "tensor_core_unused_ops",
    "The framework ops that launched matrix kernels without Tensor Cores, the largest first.",
    "kernel time judged unused, summed by launching op; the three largest",
    _SOURCE,
    unit="text",
)
SIXTEEN_BIT_SHARE = Metric(
    "sixteen_bit_share",
    "Part of the matrix kernels' time spent on inputs of 16 bits or fewer.",
    "time of matrix kernels with fp16, bf16, fp8, fp4 or int8 inputs / time of those whose type is known",
    _SOURCE,
)


@measures(
    TENSOR_CORE_SHARE,
    TENSOR_CORE_ELIGIBLE_SHARE,
    TENSOR_CORE_UNKNOWN_SHARE,
    TENSOR_CORE_UNUSED_SHARE,
    TENSOR_CORE_UNUSED_OPS,
    SIXTEEN_BIT_SHARE,
    needs=("device_ops", "device_ops.name"),
)
def tensor_cores(view: DeviceView) -> Values:
    """Shares by verdict; all unknown where it cannot be told whether the device has Tensor Cores."""
    has = has_tensor_cores(view)
    if has is None:
        return Missing("tensor_cores_unknown")
    if not has:
        return Missing("no_tensor_cores")
    all_ns = int(view.used_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    if not all_ns:
        return {}
    return {**_verdict_shares(view, all_ns), **_unused_time(view), SIXTEEN_BIT_SHARE: _sixteen_bit_share(view)}


def _verdict_shares(view: DeviceView, all_ns: int) -> dict[Metric, Value]:
    of_verdicts = dict(view.once(candidates).group_by("verdict").agg(pl.sum("dur_ns")).rows())
    used, unused, unknown = (of_verdicts.get(verdict, 0) for verdict in ("used", "unused", "unknown"))
    reason = Missing("kernels_untold") if unknown > _MOST_UNKNOWN * all_ns else None
    return {
        TENSOR_CORE_SHARE: reason or used / all_ns,
        TENSOR_CORE_ELIGIBLE_SHARE: reason or (used + unused) / all_ns,
        TENSOR_CORE_UNKNOWN_SHARE: unknown / all_ns,
    }


def _unused_time(view: DeviceView) -> dict[Metric, Value]:
    kernels = _unused(view)
    unused_ns = int(spans(kernels).within(view.starts, view.ends).sum())  # overlapping kernels count once
    return {
        TENSOR_CORE_UNUSED_SHARE: unused_ns / view.total_ns,
        TENSOR_CORE_UNUSED_OPS: largest(view, kernels),
    }


def _sixteen_bit_share(view: DeviceView) -> float | None:
    typed = view.once(candidates).filter(pl.col("dtype").is_not_null())
    typed_ns = int(typed["dur_ns"].sum())
    short_ns = int(typed.filter(pl.col("dtype").is_in(_SIXTEEN_BIT_OR_LESS))["dur_ns"].sum())
    return short_ns / typed_ns if typed_ns else None
