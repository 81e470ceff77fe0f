"""The framework's operators: how often each is called, and the time it takes on the host and on the device."""

from __future__ import annotations

import polars as pl

from advisor.lens import Lane
from advisor.metrics.registry import tabulates


@tabulates("operator")
def operator_table(lane: Lane) -> pl.DataFrame:
    """One row per op, input shapes and caller in the used steps, the most time first.

    Columns: name, shapes (JSON text), stack (innermost frame first), calls, host_ms (in the op and not in an op that it
    calls, as torch-tb-profiler counts self time), device_ms (kernels, copies and memsets that it launches itself).
    """
    called = lane.used_host.filter(pl.col("kind") == "op")
    inner = called.group_by(id="parent").agg(inner_ns=pl.sum("dur_ns")).drop_nulls("id")
    launched = lane.ops.group_by(id="op").agg(device_ns=pl.sum("dur_ns")).drop_nulls("id")
    own = called.join(inner, on="id", how="left").join(launched, on="id", how="left")
    rows = own.group_by("name", "shapes", "stack").agg(
        calls=pl.len(),
        host_ms=(pl.col("dur_ns") - pl.col("inner_ns").fill_null(0)).clip(0).sum() / 1e6,
        device_ms=pl.col("device_ns").fill_null(0).sum() / 1e6,
    )
    told = rows.with_columns(pl.col("name", "shapes", "stack").cast(pl.String))
    keys = ("name", "shapes", "stack")
    return told.sort("device_ms", "host_ms", *keys, descending=[True, True, *[False] * len(keys)], nulls_last=True)
