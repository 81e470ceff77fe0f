"""Tensor Cores: which kernels use them, which could and do not, and which cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.hardware import has_tensor_cores
from advisor.lens import Lane
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.products import candidates
from advisor.text import ms

_SIXTEEN_BIT_OR_LESS: Final = ["fp16", "bf16", "fp8", "fp4", "int8"]
_NEEDS: Final = ("device_ops",)
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)


def _largest_ops(lane: Lane, unused: pl.DataFrame) -> str:
    """`aten::mm (12.3 ms), ...`: time per step of the three ops with the most; empty where there are none."""
    by_op = (
        unused.filter(pl.col("op_name").is_not_null()).group_by(pl.col("op_name").cast(pl.String)).agg(pl.sum("dur_ns"))
    )
    top = by_op.sort("dur_ns", "op_name", descending=[True, False]).head(3)
    return ", ".join(f"{name} ({ms(lane.per_step_ms(ns))})" for name, ns in top.rows())


def _longest_unused(lane: Lane) -> pl.DataFrame:
    """The longest call of each kernel that could use Tensor Cores and does not, by the kernel's total time."""
    unused = lane.once(candidates).filter(pl.col("verdict") == "unused")
    longest = unused.sort("dur_ns", descending=True).group_by("name", maintain_order=True).first()
    totals = unused.group_by("name").agg(total=pl.col("dur_ns").sum())
    return (
        longest.join(totals, on="name")
        .sort("total", "start_ns", descending=[True, False])
        .select("step", "start_ns", "dur_ns", "op", table=pl.lit("device_ops"), name=pl.col("name").cast(pl.String))
    )


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
        "time of kernels judged unused / step time",
        _SOURCE,
        _NEEDS,
        _longest_unused,
    ),
    Metric(
        "tensor_core_unused_ms",
        "ms",
        "The same, per step.",
        "time of kernels judged unused / steps",
        _SOURCE,
        _NEEDS,
        _longest_unused,
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
def tensor_cores(lane: Lane) -> Mapping[str, Value]:
    """Shares by verdict; all unknown where it cannot be told whether the device has Tensor Cores."""
    has = has_tensor_cores(lane.facts.get("capability"), lane.facts.get("name") or "")
    if lane.gpu is not None:
        has = bool(lane.gpu.tensor_dtypes)
    if has is None:
        return dict.fromkeys(_NAMES, Missing("it cannot be told whether the device has Tensor Cores"))
    if not has:
        return dict.fromkeys(_NAMES, Missing("the device has no Tensor Cores"))
    found = lane.once(candidates)
    all_ns = int(lane.used_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    if not all_ns:
        return {}
    used, unused, unknown = (
        int(found.filter(pl.col("verdict") == verdict)["dur_ns"].sum()) for verdict in ("used", "unused", "unknown")
    )
    typed = found.filter(pl.col("dtype").is_not_null())
    short = typed.filter(pl.col("dtype").is_in(_SIXTEEN_BIT_OR_LESS))
    return {
        "tensor_core_share": used / all_ns,
        "tensor_core_eligible_share": (used + unused) / all_ns,
        "tensor_core_unknown_share": unknown / all_ns,
        "tensor_core_unused_share": unused / lane.total_ns,
        "tensor_core_unused_ms": lane.per_step_ms(unused),
        "tensor_core_unused_ops": _largest_ops(lane, found.filter(pl.col("verdict") == "unused")),
        "sixteen_bit_share": int(short["dur_ns"].sum()) / int(typed["dur_ns"].sum()) if typed.height else None,
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
