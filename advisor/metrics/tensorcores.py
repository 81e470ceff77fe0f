"""Tensor Cores: which kernels use them, which could and do not, and which cannot be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.hardware import has_tensor_cores
from advisor.kernelnames import classify
from advisor.lens import Lane
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.text import ms

_SMALLEST_DIM: Final = 64  # a multiplication with a shorter side is bound by memory, not by arithmetic
_SIXTEEN_BIT_OR_LESS: Final = ["fp16", "bf16", "fp8", "fp4", "int8"]
_PRODUCTS: Final = ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul"]
_TYPES: Final = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
_NEEDS: Final = ("device_ops",)
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)


def candidates(lane: Lane) -> pl.DataFrame:
    """Kernels of the used steps that multiply matrices, with `verdict` (used, unused, unknown) and `dtype`.

    Matrix times vector, and products with a side under 64 where shapes tell, are bound by memory and left out. An
    undecided name is settled where the multiplication's type has no Tensor Core path on the device. Kernels whose name
    tells no family may or may not multiply: they are never called unused for their type alone.
    """
    kernels = lane.used_ops.filter(pl.col("kind") == "kernel")
    names = kernels.select("name").unique().with_columns(text=pl.col("name").cast(pl.String))
    told = names.hstack(classify(names["text"]).drop("name"))
    ops = _told_ops(lane, kernels)
    found = kernels.join(told, on="name", how="left").join(ops, on="op", how="left")
    found = found.filter("multiplies", pl.col("family") != "gemv", ~pl.col("tiny").fill_null(value=False))
    dtype = pl.coalesce("element_type", "op_dtype")
    impossible = dtype.is_in(_without_path(lane)) & (pl.col("family") != "other")
    verdict = (
        pl.when(pl.col("tensor_cores")).then(pl.lit("used"))
        .when(~pl.col("tensor_cores") | impossible).then(pl.lit("unused"))
        .otherwise(pl.lit("unknown"))
    )  # fmt: skip
    return found.with_columns(verdict=verdict, dtype=dtype).sort("start_ns")


def _without_path(lane: Lane) -> list[str]:
    """Types that the device's Tensor Cores do not multiply, as far as the hardware table knows the device."""
    return [dtype for dtype in ("fp64", "fp32", "bf16") if lane.gpu and not _may_run(lane, dtype)]


def _may_run(lane: Lane, dtype: str) -> bool:
    return lane.gpu is None or lane.gpu.supports("tf32" if dtype == "fp32" else dtype)


def _told_ops(lane: Lane, kernels: pl.DataFrame) -> pl.DataFrame:
    """Per launching op: its input dtype and whether its matrices are tiny; null where the profile does not say."""
    ops = lane.host.filter(pl.col("id").is_in(kernels["op"].drop_nulls().unique().implode()))
    kinds = ops.select("name", "shapes", "dtypes").unique()
    texts = kinds.select(pl.all().cast(pl.String)).rows()
    told = kinds.with_columns(
        op_dtype=pl.Series([_first_float(dtypes) for _, _, dtypes in texts], dtype=pl.String),
        tiny=pl.Series([_is_tiny(name, shapes) for name, shapes, _ in texts], dtype=pl.Boolean),
    )
    keys = ["name", "shapes", "dtypes"]
    return ops.join(told, on=keys, how="left", nulls_equal=True).select("op_dtype", "tiny", op="id", op_name="name")


def _first_float(dtypes: str | None) -> str | None:
    """Type of the first floating-point tensor among an op's inputs, from the profiler's JSON text."""
    names = _parsed(dtypes)
    return next((_TYPES[name] for name in names if name in _TYPES), None)


def _is_tiny(name: str, shapes: str | None) -> bool | None:
    """Whether a product has a side under 64; None where op or shapes do not tell."""
    if name not in _PRODUCTS:
        return None
    matrices = [shape for shape in _parsed(shapes) if isinstance(shape, list) and len(shape) >= 2]  # noqa: PLR2004
    if len(matrices) < 2:  # noqa: PLR2004 - two factors
        return None
    sides = [side for matrix in matrices[-2:] for side in matrix[-2:] if isinstance(side, int)]
    return min(sides, default=0) < _SMALLEST_DIM


def _parsed(text: str | None) -> list[object]:
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    return value if isinstance(value, list) else []


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
