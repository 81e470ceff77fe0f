"""Expressions over the columns of runs and findings that several parts of the weekly report need."""

from typing import Final

import polars as pl

LIKE: Final = ("job_key", "gpu_type", "gpus")  # runs that may be compared


def sum_of(values: pl.Expr) -> pl.Expr:
    """The sum, null where all values are."""
    return pl.when(values.is_not_null().any()).then(values.sum())


_MEASURED: Final = pl.col("busy_share").is_not_null()
HOURS: Final = (
    pl.len().alias("runs"),
    pl.col("hours").sum().alias("paid"),
    sum_of(pl.col("hours") * pl.col("busy_share")).alias("busy"),
    sum_of(pl.col("hours") * (1 - pl.col("busy_share"))).alias("wasted"),
    pl.col("hours").filter(~_MEASURED).sum().alias("unknown"),
)
"""Runs, and their GPU-hours: those paid are those busy, wasted and unknown together, wherever they are shown."""
