"""What ran in the whole recording, by name: the tables that `nsys stats` prints."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.lanes.lens import Lane
from advisor.metrics.registry import tabulates

_CALLS: Final = ["runtime", "sync", "allocator"]
_RANGES: Final = ["op", "annotation", "input", "step", "compile"]
_OF: Final = "Nsight Systems"
_DUR: Final = pl.col("dur_ns")
_SPREAD: Final = (
    pl.len().alias("calls"),
    _DUR.sum().alias("total_ns"),
    _DUR.mean().alias("mean_ns"),
    _DUR.median().alias("median_ns"),
    _DUR.min().alias("min_ns"),
    _DUR.max().alias("max_ns"),
    _DUR.std().alias("sd_ns"),
)
_SIZE: Final = pl.col("bytes")
_SIZES: Final = {
    "total_bytes": _SIZE.sum(),
    "mean_bytes": _SIZE.mean(),
    "median_bytes": _SIZE.median(),
    "min_bytes": _SIZE.min(),
    "max_bytes": _SIZE.max(),
    "sd_bytes": _SIZE.std(),
}


@tabulates("activity")
def activity(lane: Lane) -> pl.DataFrame:
    """One row per kind and name of device op in a whole Nsight Systems recording, steps or not; most time first.

    Columns: kind (kernel, collective, memcpy, memset), name (of copies their direction); calls, total_ns, mean_ns,
    median_ns, min_ns, max_ns, sd_ns; and of copies and memsets the same of their bytes.
    """
    way = pl.format("Memcpy {}", pl.col("copy_kind").cast(pl.String).fill_null("?"))
    name = pl.col("name").cast(pl.String)
    named = lane.ops.with_columns(
        pl.col("kind").cast(pl.String),
        name=pl.when(pl.col("kind") == "memcpy")
        .then(way)
        .when(pl.col("kind") == "memset")
        .then(pl.lit("Memset"))
        .otherwise(name),
    )
    sizes = {column: pl.when(_SIZE.count() > 0).then(size) for column, size in _SIZES.items()}
    return _most_first(_recorded(named, lane).group_by("kind", "name").agg(*_SPREAD, **sizes))


@tabulates("call")
def call(lane: Lane) -> pl.DataFrame:
    """One row per CUDA call and NVTX range by name, of the worker, in such a recording; most time first.

    Columns: kind (api, or range), name, calls, total_ns, mean_ns, median_ns, min_ns, max_ns, sd_ns.
    """
    is_call = pl.col("kind").is_in(_CALLS)
    found = _recorded(lane.host, lane).filter(is_call | pl.col("kind").is_in(_RANGES))
    kind = pl.when(is_call).then(pl.lit("api")).otherwise(pl.lit("range"))
    named = found.select("dur_ns", kind=kind, name=pl.col("name").cast(pl.String))
    return _most_first(named.group_by("kind", "name").agg(_SPREAD))


def _recorded(rows: pl.DataFrame, lane: Lane) -> pl.DataFrame:
    return rows if str(lane.process.get("producer")).startswith(_OF) else rows.clear()


def _most_first(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("total_ns", "kind", "name", descending=[True, False, False])
