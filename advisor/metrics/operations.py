"""What runs on the device and on the host, kind by kind, with the spread that comparing two recordings needs."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.lens import Lane
from advisor.metrics.registry import tabulates

MOST_ROWS: Final = 2000
"""Of a pooled table: what takes least time is left out."""

_LONGEST_SHAPES: Final = 300
_SPREAD: Final = (
    pl.len().alias("calls"),
    (pl.col("dur_ns").mean() / 1e3).alias("mean_us"),
    (pl.col("dur_ns").std() / 1e3).alias("sd_us"),
)


@tabulates("launch")
def launch_table(lane: Lane) -> pl.DataFrame:
    """One row per device op's kind, name and size in the used steps; sorted by them.

    Columns: kind, name, grid and block of kernels, bytes of copies; calls, mean_us, sd_us (null for one call).
    """
    copies = ~pl.col("kind").is_in(["kernel", "collective"])
    keys = ["kind", "name", "grid", "block", "bytes"]
    ran = lane.used_ops.select("kind", "name", "grid", "block", "dur_ns", bytes=pl.when(copies).then("bytes"))
    found = ran.group_by(keys).agg(_SPREAD).with_columns(pl.col("kind", "name").cast(pl.String))
    return found.sort(keys, nulls_last=True)


@tabulates("op")
def op_table(lane: Lane) -> pl.DataFrame:
    """One row per framework op's name and shapes in the used steps, in the time outside the ops within it.

    Columns: name, shapes (null where not recorded), calls, mean_us, sd_us (null for one call).
    """
    keys = ["name", "shapes"]
    ops = lane.used_host.filter(pl.col("kind") == "op")
    within = ops.group_by("parent").agg(within_ns=pl.sum("dur_ns")).drop_nulls()
    own = ops.join(within, left_on="id", right_on="parent", how="left", maintain_order="left").select(
        pl.col("name").cast(pl.String),
        pl.col("shapes").cast(pl.String).str.replace_all(r"\s", "").str.slice(0, _LONGEST_SHAPES),
        dur_ns=(pl.col("dur_ns") - pl.col("within_ns").fill_null(0)).clip(0),
    )
    return own.group_by(keys).agg(_SPREAD).sort(keys, nulls_last=True)


def pooled(table: pl.DataFrame, steps: int) -> pl.DataFrame:
    """One of these tables for all devices together, the most time first.

    Args:
        table: With a row per device (or worker) and kind of work.
        steps: Used steps of all devices together.

    Returns:
        Without worker and device, with calls_per_step and ms_per_step, both per device.
    """
    keys = [name for name in table.columns if name not in {"worker", "device", "calls", "mean_us", "sd_us"}]
    number, mean = pl.col("calls"), pl.col("mean_us")
    whole_mean = (number * mean).sum() / number.sum()
    # Chan, Golub and LeVeque 1979: squares about the common mean from those about each part's
    squares = ((number - 1) * pl.col("sd_us").fill_null(0) ** 2 + number * (mean - whole_mean) ** 2).sum()
    total = number.sum()
    together = table.group_by(keys).agg(
        calls=total,
        calls_per_step=total / max(1, steps),
        ms_per_step=(number * mean).sum() / 1e3 / max(1, steps),
        mean_us=whole_mean,
        sd_us=pl.when(total > 1).then((squares / (total - 1)).sqrt()),
    )
    return together.sort("ms_per_step", *keys, descending=[True, *[False] * len(keys)], nulls_last=True).head(MOST_ROWS)
