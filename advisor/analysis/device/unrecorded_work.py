"""Work that was launched and not recorded: while it may run, a device that seems idle is not."""

import numpy as np
import polars as pl

from advisor.analysis.device import launches as calls
from advisor.analysis.device.view import DeviceView
from advisor.model.arrays import Ints, Mask
from advisor.model.profile import END_NS


def launches(view: DeviceView) -> pl.DataFrame:
    """The launches of a view, as `advisor.analysis.device.launches` has them, without the tail."""
    return calls.launches(view.host, view.ops, view.devices).filter(~pl.col("is_tail"))


def lacks_kernels(view: DeviceView) -> bool:
    """Whether the recording has launches, and no kernel at all: when the device works is unknown then."""
    if view.device is None or view.devices > 1 or view.ops["kind"].is_in(["kernel", "collective"]).any():
        return False
    return not view.host.filter(calls.launched()).is_empty()


def holes_in(gaps: pl.DataFrame, view: DeviceView) -> Mask:
    """Whether work that was not recorded may run in half of each gap or more; shape (gaps,).

    It was launched after the op before the gap and before the one that ends it (`next`), so it can run from its launch
    on.
    """
    absent = view.once(launches).filter("is_lost")["start_ns"].to_numpy()
    if not len(absent):
        return np.zeros(gaps.height, bool)
    before, after = _called(gaps, view)
    start, end = gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy()
    i = np.searchsorted(absent, before, side="right")
    first = absent[np.minimum(i, len(absent) - 1)]
    may_run: Mask = (i < len(absent)) & (first < after) & (2 * (end - np.maximum(start, first)) >= end - start)
    return may_run


def _called(gaps: pl.DataFrame, view: DeviceView) -> tuple[Ints, Ints]:
    """When the ops around each gap were launched; in no order where either is unknown."""
    ops = view.with_host(view.ops, "launch", called="start_ns").drop_nulls("called")
    ends = ops.group_by(dry=END_NS).agg(before=pl.max("called"))
    dry = pl.Series(view.busy.last_end(gaps["start_ns"].to_numpy()), dtype=pl.Int64)
    around = (
        gaps.select("next", dry=dry)
        .join(ends, on="dry", how="left", maintain_order="left")
        .join(ops.select("id", after="called"), left_on="next", right_on="id", how="left", maintain_order="left")
    )
    unknown = np.iinfo(np.int64)
    return around["before"].fill_null(unknown.max).to_numpy(), around["after"].fill_null(unknown.min).to_numpy()
