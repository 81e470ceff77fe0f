"""Tensor Cores: which kernels use them, which could and do not, and which cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import largest, longest
from advisor.analysis.device.matmuls import candidates, has_tensor_cores
from advisor.analysis.device.steps import DeviceView, spans
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.missing import Missing

_SIXTEEN_BIT_OR_LESS: Final = ["fp16", "bf16", "fp8", "fp4", "int8"]
_NEEDS: Final = ("device_ops", "device_ops.name")
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)


def _unused(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("verdict") == "unused")


@measures(
    Metric(
        "tensor_core_share",
        "share",
        "Part of the kernel time spent in kernels that use Tensor Cores.",
        "time of kernels judged used / time of all compute kernels",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "tensor_core_eligible_share",
        "share",
        "Part of the kernel time spent in matrix kernels that use Tensor Cores or could.",
        "time of GEMM, convolution and attention kernels judged used or unused / time of all compute kernels",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "tensor_core_unknown_share",
        "share",
        "Part of the kernel time spent in matrix kernels of which it cannot be told.",
        "time of matrix kernels judged unknown / time of all compute kernels",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "tensor_core_unused_share",
        "share",
        "Part of the step in which a matrix kernel runs without the Tensor Cores that the device has.",
        "union of the kernels judged unused, inside the steps / step time",
        _SOURCE,
        _NEEDS,
        lambda view: longest(_unused(view)),
    ),
    Metric(
        "tensor_core_unused_ms",
        "ms",
        "The same, per step.",
        "union of the kernels judged unused, inside the steps / steps",
        _SOURCE,
        _NEEDS,
        lambda view: longest(_unused(view)),
    ),
    Metric(
        "tensor_core_unused_ops",
        "text",
        "The framework ops that launched those kernels, the largest first.",
        "kernel time judged unused, summed by launching op; the three largest",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "sixteen_bit_share",
        "share",
        "Part of the matrix kernels' time spent on inputs of 16 bits or fewer.",
        "time of matrix kernels with fp16, bf16, fp8, fp4 or int8 inputs / time of those whose type is known",
        _SOURCE,
        _NEEDS,
    ),
)
def tensor_cores(view: DeviceView) -> Mapping[str, Value]:
    """Shares by verdict; all unknown where it cannot be told whether the device has Tensor Cores."""
    has = has_tensor_cores(view)
    if has is None:
        return dict.fromkeys(_NAMES, Missing("tensor_cores_unknown"))
    if not has:
        return dict.fromkeys(_NAMES, Missing("no_tensor_cores"))
    found = view.once(candidates)
    all_ns = int(view.used_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    if not all_ns:
        return {}
    used, unused, unknown = (
        int(found.filter(pl.col("verdict") == verdict)["dur_ns"].sum()) for verdict in ("used", "unused", "unknown")
    )
    in_steps = int(spans(_unused(view)).within(view.starts, view.ends).sum())  # overlapping kernels count once
    typed_ns = int(found.filter(pl.col("dtype").is_not_null())["dur_ns"].sum())
    short_ns = int(found.filter(pl.col("dtype").is_in(_SIXTEEN_BIT_OR_LESS))["dur_ns"].sum())
    return {
        "tensor_core_share": used / all_ns,
        "tensor_core_eligible_share": (used + unused) / all_ns,
        "tensor_core_unknown_share": unknown / all_ns,
        "tensor_core_unused_share": in_steps / view.total_ns,
        "tensor_core_unused_ms": view.per_step_ms(in_steps),
        "tensor_core_unused_ops": largest(view, _unused(view)),
        "sixteen_bit_share": short_ns / typed_ns if typed_ns else None,
    }


_NAMES: Final = (
    "tensor_core_share",
    "tensor_core_eligible_share",
    "tensor_core_unknown_share",
    "tensor_core_unused_share",
    "tensor_core_unused_ms",
    "tensor_core_unused_ops",
    "sixteen_bit_share",
)
