"""What ran in the whole recording, by name: the tables that `nsys stats` prints."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import tabulates
from advisor.vocabulary.kinds import DRIVER_CALLS

_RANGES: Final = ["op", "annotation", "input", "step", "compile"]
_KIND: Final = pl.col("kind")


def _spread(column: str, unit: str) -> dict[str, pl.Expr]:
    """Total, mean, median, least, most and standard deviation."""
    values = pl.col(column)
    return {
        f"total_{unit}": values.sum(),
        f"mean_{unit}": values.mean(),
        f"median_{unit}": values.median(),
        f"min_{unit}": values.min(),
        f"max_{unit}": values.max(),
        f"sd_{unit}": values.std(),
    }


@tabulates("activity")
def activity(view: DeviceView) -> pl.DataFrame:
    """One row per kind and name of device op in a whole Nsight Systems recording, steps or not; most time first.

    Columns: kind (kernel, collective, memcpy, memset), name (of copies their direction); calls, total_ns, mean_ns,
    median_ns, min_ns, max_ns, sd_ns; and of copies and memsets the same of their bytes.
    """
    keys = [_KIND, pl.when(_KIND.is_in(["kernel", "collective"])).then("name").alias("name"), pl.col("copy_kind")]
    sizes = {name: pl.when(pl.col("bytes").count() > 0).then(size) for name, size in _spread("bytes", "bytes").items()}
    rows = _recorded(view.ops, view).group_by(keys).agg(calls=pl.len(), **_spread("dur_ns", "ns"), **sizes)
    # named once they are few: of hundreds of thousands of rows that takes longer than all the rest
    moved = pl.format("Memcpy {}", pl.col("copy_kind").cast(pl.String).fill_null("?"))
    label = pl.when(_KIND == "memcpy").then(moved).when(_KIND == "memset").then(pl.lit("Memset"))
    name = label.otherwise(pl.col("name").cast(pl.String))
    return _most_first(rows.with_columns(_KIND.cast(pl.String), name=name).drop("copy_kind"))


@tabulates("call")
def call(view: DeviceView) -> pl.DataFrame:
    """One row per CUDA call and NVTX range by name, of the worker, in such a recording; most time first.

    Columns: kind (api, or range), name, calls, total_ns, mean_ns, median_ns, min_ns, max_ns, sd_ns.
    """
    kind = pl.when(_KIND.is_in(DRIVER_CALLS)).then(pl.lit("api")).when(_KIND.is_in(_RANGES)).then(pl.lit("range"))
    host = _recorded(view.host, view).group_by(kind.alias("kind"), "name")
    rows = host.agg(calls=pl.len(), **_spread("dur_ns", "ns")).drop_nulls("kind")
    return _most_first(rows.with_columns(pl.col("name").cast(pl.String)))


def _recorded(rows: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    return rows if view.is_of_nsight else rows.clear()


def _most_first(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("total_ns", "kind", "name", descending=[True, False, False])
