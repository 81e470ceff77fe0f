"""Loops of Python over small ops of PyTorch: the same few ops again and again, beside the model and its optimizer."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import FEW_PASSES, makers
from advisor.analysis.device.communication import C10D_CALLS
from advisor.analysis.device.host_work import BACKWARD, optimizer_work, step_ops
from advisor.analysis.device.view import DeviceView, by_start, inside, outermost
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS, matches

_LAYER: Final = (
    r"(?i)linear|conv|mm$|mm_|matmul|einsum|embedding|(?:layer|batch|group|instance|rms)_norm|attention|lstm|gru|rnn"
)
_DISTRIBUTED: Final = rf"{C10D_CALLS}|reducer::|^FSDP::"
# resolve_conj is called by numpy() and tolist()
_READING: Final = r"^aten::(?:item|is_nonzero|_local_scalar_dense|resolve_conj)$"
_RUN: Final = ["thread", "window", "run"]


class Loops(NamedTuple):
    """When loops run, and when those that read values from tensors; how many values; the passes of the longest loop."""

    spans: Intervals
    reading: Intervals
    reads: int
    passes: int


NO_LOOPS: Final = Loops(EMPTY, EMPTY, 0, 1)


def loops(view: DeviceView) -> Loops:
    """The loops of the used steps: stretches of ops with nothing of the model, where each kind comes 8 times or more.

    Layers repeat as well: their ops, those that autograd follows, and its nodes end a stretch. A node of the program's
    own may hold one.
    """
    if view.process.get("framework") != "pytorch" or not view.has_marks:  # a recording as a whole repeats its steps
        return NO_LOOPS
    runs = (
        _runs(_outermost(view))
        .group_by(_RUN)
        .agg(
            pl.min("start_ns"),
            pl.max("end_ns"),
            passes=pl.min("calls"),
            kinds=pl.len(),
            ops=pl.sum("calls"),
            reads=pl.col("calls").filter(matches(_READING)).sum(),
        )
    )
    of_loops = runs.filter(pl.col("ops") >= FEW_PASSES * pl.col("kinds"))
    if of_loops.is_empty():
        return NO_LOOPS
    longest = of_loops.sort(pl.col("end_ns") - pl.col("start_ns"), "passes")["passes"][-1]
    reading = of_loops.filter(pl.col("reads") > 0)
    return Loops(_union(of_loops), _union(reading), int(reading["reads"].sum()), int(longest))


def _outermost(view: DeviceView) -> pl.DataFrame:
    """The used steps' ops that lie in none but nodes of autograd, with `apart`: whether one is none of a loop's."""
    ops = view.once(step_ops).select("thread", "window", "name", "start_ns", "dur_ns").collect()
    ops = ops.with_columns(is_node=matches(BACKWARD))
    rows = by_start(pl.concat([ops.filter("is_node"), outermost(ops.filter(~pl.col("is_node")))]))
    rows = rows.with_columns(end_ns=END_NS)
    making = np.sort(view.once(makers)["start_ns"].to_numpy())
    first, last = (np.searchsorted(making, rows[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    of_model = matches(f"{_LAYER}|{_DISTRIBUTED}") | pl.col("is_node") | pl.Series(last > first)
    return rows.with_columns(apart=of_model | inside(view.once(optimizer_work), rows))


def _runs(ops: pl.DataFrame) -> pl.DataFrame:
    """Ops in a row of which each kind comes often in its stretch: thread, window, run, name, calls and their time."""
    stretch = ["thread", "window", "stretch"]
    between = ops.with_columns(stretch=pl.col("apart").cum_sum()).filter(~pl.col("apart"))
    often = between.with_columns(often=pl.len().over(*stretch, "name") >= FEW_PASSES)
    runs = often.with_columns(run=pl.struct(*stretch, "often").rle_id()).filter("often")
    return runs.group_by(*_RUN, "name").agg(pl.min("start_ns"), pl.max("end_ns"), calls=pl.len())


def _union(rows: pl.DataFrame) -> Intervals:
    return Intervals.of(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
