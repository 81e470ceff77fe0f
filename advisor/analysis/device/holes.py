"""Work that was launched and not recorded: while it may run, a device that seems idle is not."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.analysis.device.steps import DeviceView
from advisor.inputs.periods import LAUNCHING
from advisor.model.intervals import EMPTY, Ints, Union
from advisor.model.profile import matches
from advisor.vocabulary import DRIVER_CALLS

Mask: TypeAlias = npt.NDArray[np.bool_]

_CAPTURE: Final = r"^(?:cu|cuda|hip)StreamBeginCapture"
_CAPTURE_END: Final = r"^(?:cu|cuda|hip)StreamEndCapture"


def launches(view: DeviceView) -> pl.DataFrame:
    """Calls that launch kernels or graphs, from the first to the last with a recorded op: start_ns, is_lost.

    None where it is unknown whose they are: other devices have ops too, or as many ops have no call as calls have no
    op. A launch into a graph that is being captured runs nothing, and of a call inside another one of both is recorded.
    """
    calls = view.host.select("id", "parent", "kind", "start_ns", "name").filter(
        pl.col("kind").is_in(DRIVER_CALLS), matches(LAUNCHING)
    )
    has_op = pl.col("id").is_in(view.ops["launch"].drop_nulls().unique().implode())
    nested = pl.col("parent").is_in(calls["id"].implode()) | pl.col("id").is_in(calls["parent"].drop_nulls().implode())
    rows = calls.with_columns(is_lost=~has_op).filter(has_op | ~nested.fill_null(value=False)).sort("start_ns")
    of_ops = rows.filter(~pl.col("is_lost"))["start_ns"]
    if view.devices != 1 or not of_ops.len():
        return rows.clear()
    captured = pl.Series(_captures(view).within(rows["start_ns"], rows["start_ns"] + 1) > 0, dtype=pl.Boolean)
    between = rows.filter(~captured).filter(pl.col("start_ns").is_between(of_ops[0], of_ops[-1]))
    return between if between["is_lost"].sum() > view.ops["launch"].null_count() else between.filter(~pl.col("is_lost"))


def _captures(view: DeviceView) -> Union:
    """When launches go into a graph instead of to the device."""
    begins = view.host.filter(matches(_CAPTURE))["start_ns"].sort().to_numpy()
    ends = view.host.filter(matches(_CAPTURE_END))["start_ns"].sort().to_numpy()
    if not len(begins) or not len(ends):
        return EMPTY
    after = np.searchsorted(ends, begins)
    return Union.of(begins[after < len(ends)], ends[after[after < len(ends)]])


def holes_in(gaps: pl.DataFrame, view: DeviceView) -> Mask:
    """Whether work that was not recorded may run in half of each gap or more; shape (gaps,).

    It was launched after the op before the gap and before the one that ends it, so it can run from its launch on.

    Args:
        gaps: start_ns, end_ns, next (id of the op that ends it).
        view: Their device.
    """
    calls = view.once(launches)
    absent = calls.filter("is_lost")["start_ns"].to_numpy()
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
    calls = view.host.select(launch="id", called="start_ns")
    ops = view.ops.join(calls, on="launch")
    ends = ops.group_by(dry=pl.col("start_ns") + pl.col("dur_ns")).agg(before=pl.max("called"))
    dry = pl.Series(view.busy.last_end(gaps["start_ns"].to_numpy()), dtype=pl.Int64)
    around = (
        gaps.select("next", dry=dry)
        .join(ends, on="dry", how="left", maintain_order="left")
        .join(ops.select("id", after="called"), left_on="next", right_on="id", how="left", maintain_order="left")
    )
    unknown = np.iinfo(np.int64)
    return around["before"].fill_null(unknown.max).to_numpy(), around["after"].fill_null(unknown.min).to_numpy()
