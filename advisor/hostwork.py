"""What the host does while the device waits for it: launching, Python between the launches, or something else."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.gaps import gaps
from advisor.intervals import EMPTY, Union
from advisor.lens import Lane, spans

LONG_GAP_NS: Final = 1_000_000  # no launch takes that long: the host does something else in between
PYTHON_NS: Final = 50_000  # interpreting the code around a launch takes 5 to 20 us; over 50 it is work of its own
_CALLS: Final = ["runtime", "sync", "allocator"]
_DISPATCH: Final = ["op", "collective", *_CALLS]
_ACCOUNTED: Final = ["input", "compile", "gc", "allocator"]  # as in advisor.gaps: causes of their own
_WORK: Final = ["op", "annotation", "module", "python", "collective", *_CALLS]


def training_ops(lane: Lane) -> pl.DataFrame:
    """Host ops of the threads that launch the device's work or bear the steps: not those of loaders or loggers."""
    launching = pl.col("id").is_in(lane.ops["launch"].drop_nulls().unique().implode())
    threads = lane.host.filter(launching | (pl.col("kind") == "step"))["thread"].unique()
    return lane.host.filter(pl.col("thread").is_in(threads.implode())) if threads.len() else lane.host


def launch_gaps(lane: Lane) -> Union:
    """When the device waits at most 1 ms for the next launch; what other causes account for is left out."""
    return _late(lane, pl.col("host_bound_ns") <= LONG_GAP_NS)


def stalls(lane: Lane) -> Union:
    """When the device waits longer than that for the next launch."""
    return _late(lane, pl.col("host_bound_ns") > LONG_GAP_NS)


def python_work(lane: Lane) -> Union:
    """Stretches of 50 us to 1 ms in which the training threads run no framework op and make no call."""
    ops = lane.once(training_ops)
    busy = spans(ops.filter(pl.col("kind").is_in(_DISPATCH))) | lane.host_spans(*_ACCOUNTED)
    between = minus(host_windows(lane), busy)
    length = between.ends - between.starts
    worth = (length > PYTHON_NS) & (length <= LONG_GAP_NS)
    return Union.of(between.starts[worth], between.ends[worth])


def optimizer_work(lane: Lane) -> Union:
    """When an optimizer updates its parameters, as `Optimizer.step#...` ranges tell."""
    name = pl.col("name").cast(pl.String)
    return spans(lane.host.filter(pl.col("kind") == "annotation", name.str.starts_with("Optimizer.step#")))


def host_windows(lane: Lane) -> Union:
    """The host's own ranges of the used steps."""
    start = lane.steps["host_start_ns"].to_numpy()
    return Union.of(start, start + lane.steps["host_dur_ns"].to_numpy())


def busiest(lane: Lane, when: Union) -> pl.DataFrame:
    """What ran on the training threads during `when`: name and self_ns, the time of a range outside those within it.

    Ordered by time, most first. What no range but the step's own covers has the name null.
    """
    ops = lane.once(training_ops).filter(pl.col("kind").is_in([*_WORK, "step"]))
    start = ops["start_ns"].to_numpy()
    inside = ops.select("id", "parent", "name", "kind", ns=pl.Series(when.within(start, start + ops["dur_ns"].to_numpy())))
    of_children = inside.group_by("parent").agg(children_ns=pl.sum("ns")).drop_nulls()
    own = inside.join(of_children, left_on="id", right_on="parent", how="left")
    name = pl.when(pl.col("kind") != "step").then(pl.col("name").cast(pl.String))
    return (
        own.group_by(name=name)
        .agg(self_ns=(pl.col("ns") - pl.col("children_ns").fill_null(0)).clip(0).sum())
        .filter(pl.col("self_ns") > 0)
        .sort("self_ns", "name", descending=[True, False])
    )


def minus(union: Union, other: Union) -> Union:
    """Time covered by `union` and not by `other`."""
    if not len(union.starts):
        return EMPTY
    return union & Union.of(*other.gaps(int(union.starts[0]), int(union.ends[-1])))


def _late(lane: Lane, which: pl.Expr) -> Union:
    found = lane.once(gaps).filter(pl.col("host_bound_ns") > 0, which)
    late = Union.of(found["start_ns"].to_numpy(), found["end_ns"].to_numpy())
    return minus(late, lane.host_spans(*_ACCOUNTED))


def inside(union: Union, ops: pl.DataFrame) -> pl.Series:
    """Whether each op starts during `union`."""
    start = ops["start_ns"].to_numpy()
    return pl.Series(np.asarray(union.within(start, start + 1)) > 0, dtype=pl.Boolean)
