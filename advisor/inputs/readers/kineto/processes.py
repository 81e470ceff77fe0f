"""Whose the host's ranges are: tools that merge recordings put several processes into one file."""

from typing import Final

import polars as pl

from advisor.vocabulary.kinds import DRIVER_CALLS

_DOES: Final = {"op": "work", "collective": "work", "step": "step"}


def outsiders(host: pl.DataFrame, device: pl.DataFrame) -> pl.Series:
    """Ids of the processes that are not the device's: they run ops or steps of their own, and launch nothing on it.

    Some writers give the calls, the steps or a few frames of one process another id, so that a process counts as
    another only where those that launch have all that it has: ops, steps or both. Empty where nothing is linked.
    """
    does = host.select("pid", "kind").unique().cast({"kind": pl.String})
    does = does.select("pid", does=pl.col("kind").replace_strict(_DOES, default=None)).drop_nulls().unique()
    if does["pid"].n_unique() <= 1:
        return does["pid"].clear()
    calls = host.filter(pl.col("kind").is_in(DRIVER_CALLS) & (pl.col("correlation") > 0))
    launching = pl.col("pid").is_in(calls.join(device, on="correlation", how="semi")["pid"].unique().implode())
    own = does.filter(launching)["does"].unique()
    rest = does.filter(~launching).group_by("pid").agg(pl.col("does").is_in(own.implode()).all())
    return rest.filter("does")["pid"].sort()
