"""What the device computes in the used steps: every kernel with what its name and the op that launched it tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Final

import polars as pl

from advisor.kernelnames import classify
from advisor.lens import Lane
from advisor.text import ms

_FLOATS: Final = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16"}
_BYTES: Final = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
_PRODUCTS: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "matmul"})
_NAMED: Final = 3
_MOST: Final = 1 << 62  # what a column of integers holds; more elements than any device has

Sides = tuple[int, int, int, int]


def kernels(lane: Lane) -> pl.DataFrame:
    """Compute kernels of the used steps, ordered by stream and start.

    Adds to the columns of `device_ops`: family, multiplies, tensor_cores, element_type and alignment as the name tells
    (advisor.kernelnames); of the op, op_name (text), op_dtype (its first floating-point input's), elements (of its largest
    input), element_bytes, and of a product of `count` pairs of (m x k) and (k x n) matrices count, m, n and k. Null
    where the profile does not tell.
    """
    found = lane.used_ops.filter(pl.col("kind") == "kernel")
    names = found.select("name").unique().with_columns(text=pl.col("name").cast(pl.String))
    told = names.hstack(classify(names["text"]).drop("name")).drop("text")
    return (
        found.join(told, on="name", how="left")
        .join(_ops(lane, found), on="op", how="left")
        .sort("stream", "start_ns", "id")
    )


def largest(lane: Lane, found: pl.DataFrame) -> str:
    """`aten::mm (12.3 ms), ...`: time per step of the three ops (or where no op is known, kernels) with the most."""
    by = pl.coalesce("op_name", pl.col("name").cast(pl.String)).alias("by")
    top = found.group_by(by).agg(pl.sum("dur_ns")).sort("dur_ns", "by", descending=[True, False]).head(_NAMED)
    return ", ".join(f"{name} ({ms(lane.per_step_ms(ns))})" for name, ns in top.rows())


def longest(found: pl.DataFrame) -> pl.DataFrame:
    """The longest call of each kernel, the kernel with the most time first, as places to point at."""
    totals = found.group_by("name").agg(total=pl.col("dur_ns").sum())
    return (
        found.sort("dur_ns", "start_ns", descending=[True, False])
        .unique("name", keep="first", maintain_order=True)
        .join(totals, on="name")
        .sort("total", "start_ns", descending=[True, False])
        .select("step", "start_ns", "dur_ns", "op", table=pl.lit("device_ops"), name=pl.col("name").cast(pl.String))
    )


def _ops(lane: Lane, found: pl.DataFrame) -> pl.DataFrame:
    """The launching ops; each kind of input is parsed once."""
    ops = lane.host.filter(pl.col("id").is_in(found["op"].drop_nulls().unique().implode()))
    keys = ["name", "shapes", "dtypes"]
    kinds = ops.select(keys).unique(maintain_order=True)
    told = [_told(*row) for row in kinds.select(pl.all().cast(pl.String)).rows()]
    return ops.join(
        kinds.hstack(pl.DataFrame(told, _TOLD, orient="row")), on=keys, how="left", nulls_equal=True
    ).select(op="id", *(pl.col(name) for name in _TOLD))


_TOLD: Final = {
    "op_name": pl.String,
    "op_dtype": pl.String,
    "element_bytes": pl.Int64,
    "elements": pl.Int64,
    **dict.fromkeys(("count", "m", "n", "k"), pl.Int64),
}


def _told(name: str | None, shapes: str | None, dtypes: str | None) -> tuple[object, ...]:
    dtype = next((_FLOATS[text] for text in _parsed(dtypes) if isinstance(text, str) and text in _FLOATS), None)
    tensors = [shape for shape in _parsed(shapes) if _is_shape(shape)]
    sides = _sides(tensors) if (name or "").removeprefix("aten::") in _PRODUCTS else None
    elements = max((_count(shape) for shape in tensors), default=None)
    return name, dtype, _BYTES.get(dtype or ""), elements, *(sides or (None,) * 4)


def _sides(tensors: Sequence[list[int]]) -> Sides | None:
    """(count, m, n, k) of the product of the last two tensors that are matrices or batches of them."""
    matrices = [shape for shape in tensors if len(shape) >= 2]  # noqa: PLR2004 - a matrix has rows and columns
    if len(matrices) < 2:  # noqa: PLR2004 - two factors
        return None
    left, right = matrices[-2:]
    (rows, inner), (first, second) = left[-2:], right[-2:]
    columns = second if inner == first else first  # of a linear layer, whose weight is stored transposed
    return _count(left[:-2]), rows, columns, inner


def _count(shape: Sequence[int]) -> int:
    return min(prod(shape), _MOST)


def _is_shape(value: object) -> bool:
    """Whether it is a tensor's shape; a list of tensors holds lists, a scalar has none."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(side, int) and 0 <= side <= _MOST for side in value)
    )


def _parsed(text: str | None) -> list[object]:
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
