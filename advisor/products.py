"""The matrix products of the steps: which kernels multiply, in which type, and whether on Tensor Cores."""

from __future__ import annotations

import json
from typing import Final

import polars as pl

from advisor.kernelnames import classify
from advisor.lens import Lane

_SMALLEST_DIM: Final = 64  # a multiplication with a shorter side is bound by memory, not by arithmetic
_PRODUCTS: Final = ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul"]
_TYPES: Final = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16"}


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
