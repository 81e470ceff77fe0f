"""The functions of the program in which its threads were sampled, in stretches of idle time."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.model.intervals import Ints, Mask

_HOLDS: Final = 0.8  # of a stretch or its samples: it is what the host does there


def functions_in(view: DeviceView, starts: Ints, ends: Ints) -> pl.DataFrame:
    """What the host ran in each stretch: stretch (its number), function, samples, and the ns that they stand for.

    The innermost function that four fifths of a stretch's samples are in, or below, stands for them; the others count
    for their innermost. The function is null of samples in none of the program's. Of several threads that one counts
    which was sampled most. Only a thread that has a CPU is sampled, so the time may be less than the stretch. The
    stretches ascend and do not overlap.
    """
    at = view.host_samples["at_ns"].to_numpy()
    stretch = np.searchsorted(starts, at, side="right") - 1
    inside = (stretch >= 0) & (at < np.append(ends, 0)[stretch])
    period = pl.col("at_ns").diff().median().over("thread", order_by="at_ns")
    samples = view.host_samples.with_columns(period_ns=period, stretch=pl.Series(stretch)).filter(pl.Series(inside))
    most = samples.group_by("stretch", "thread").len("samples").sort("samples", "thread", descending=[True, False])
    samples = samples.join(most.unique("stretch", keep="first"), on=["stretch", "thread"]).with_row_index("id")
    functions = samples.select("id", "stretch", "samples", function="functions").explode("function").drop_nulls()
    depth = pl.int_range(pl.len()).over("id")
    around = (
        functions.with_columns(depth=depth).group_by("stretch", "samples", "function").agg(pl.len(), pl.mean("depth"))
    )
    around = around.filter(pl.col("len") >= _HOLDS * pl.col("samples")).sort("depth", "function")
    common = around.unique("stretch", keep="first").select("stretch", common="function")
    is_below = pl.col("functions").list.contains(pl.col("common"))
    function = pl.when(is_below).then("common").otherwise(pl.col("functions").list.first())
    length = pl.col("stretch").replace_strict(dict(enumerate((ends - starts).tolist())), return_dtype=pl.Int64)
    stands_for = pl.min_horizontal(pl.first("period_ns"), length.first() / pl.first("samples")) * pl.len()
    return (
        samples.join(common, on="stretch", how="left")
        .group_by("stretch", function=function)
        .agg(stands_for.cast(pl.Int64).alias("ns"), samples=pl.len())
        .sort("stretch", "ns", "function", descending=[False, True, False])
    )


def runs_in(view: DeviceView, starts: Ints, ends: Ints) -> Mask:
    """Whether the program's own functions run on the host for four fifths of each stretch; shape (stretches,)."""
    if view.host_samples.is_empty():
        return np.zeros(len(starts), bool)
    own = functions_in(view, starts, ends).drop_nulls("function").group_by("stretch").agg(pl.sum("ns"))
    ran = np.zeros(len(starts), np.int64)
    ran[own["stretch"].to_numpy()] = own["ns"].to_numpy()
    return (ran > 0) & (ran >= _HOLDS * (ends - starts))
