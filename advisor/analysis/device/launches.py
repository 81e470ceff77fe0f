"""Calls that launch work, and which of them lack it in the recording: while it may run, an idle device is not idle."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import CAPTURE_BEGINS, CAPTURE_ENDS, DEVICE_WAIT, LAUNCHING
from advisor.inputs.step_periods import ENDED_EARLY, KERNELS_ABSENT
from advisor.model.intervals import Intervals, Ints, Mask, begun
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS

_FEW: Final = 0.05  # of a step's launches: a step without so many is incomplete
_QUEUE: Final = 1_024  # launches that wait on a stream at most: then the call blocks
_AMD_QUEUE: Final = 16_384  # packets, ROC_AQL_QUEUE_SIZE

# The number of the error that a call of the driver returned; null where it returned none
FAILURE: Final = pl.col("details").cast(pl.String).str.extract(r'"returnValue": (\d+)').cast(pl.Int64, strict=False)
LAUNCHED: Final = pl.col("kind").is_in(DRIVER_CALLS) & matches(LAUNCHING) & FAILURE.is_null()
"""Whether a host op is a call that launched a kernel or a graph, recorded or not; one that failed launched none."""


def launches(host: pl.DataFrame, ops: pl.DataFrame, devices: int) -> pl.DataFrame:
    """Calls that launch kernels or graphs, from the first with a recorded op on, or all: start_ns, is_lost, is_tail.

    None where it is unknown whose they are: other devices have ops too, or as many ops have no call as calls have no
    op. A launch into a graph that is being captured runs nothing, and of a call inside another one of both is recorded.
    The tail is what may not have run when the recording ended: it comes after the last call with an op and after the
    last wait for the whole device, and fits into the queues of the streams. Calls of a name without any op are not
    after the last call with one.
    `devices` is how many the worker used.
    """
    calls = host.select("id", "parent", "kind", "start_ns", "name", "details").filter(LAUNCHED)
    has_op = pl.col("id").is_in(ops["launch"].drop_nulls().implode())
    nested = pl.col("parent").is_in(calls["id"].implode()) | pl.col("id").is_in(calls["parent"].drop_nulls().implode())
    rows = calls.with_columns(is_lost=~has_op)
    rows = rows.filter(~pl.col("is_lost") | ~nested.fill_null(value=False)).sort("start_ns")
    of_ops = rows.filter(~pl.col("is_lost"))["start_ns"]
    if devices != 1 or not ops.height:
        return rows.with_columns(is_tail=False).clear()
    if of_ops.len():
        is_known = pl.col("start_ns") <= of_ops[-1]
        rows = rows.filter(is_known | (~pl.col("is_lost")).any().over("name"))
        runs = _uncaptured(rows.with_columns(is_tail=~is_known & _may_be_queued(host, ops)), host)
        runs = runs.filter(pl.col("start_ns") >= of_ops[0])
    else:  # copies and memsets were recorded, and no kernel; nodes of graphs have options of their own
        runs = _uncaptured(rows.filter(~matches("Graph")).with_columns(is_tail=False), host)
    absent = runs.filter("is_lost", ~pl.col("is_tail")).height
    return runs if absent > ops["launch"].null_count() else runs.filter(~pl.col("is_lost") | pl.col("is_tail"))


def _may_be_queued(host: pl.DataFrame, ops: pl.DataFrame) -> pl.Expr:
    """Whether a launch may still wait for the device at the end, of launches in order."""
    waits = host.filter(matches(DEVICE_WAIT))["start_ns"]
    streams = ops.filter(pl.col("kind").is_in(["kernel", "collective"]))["stream"].n_unique()  # libraries clear others
    queue = pl.when(matches("^hip")).then(_AMD_QUEUE).otherwise(_QUEUE) * streams
    to_come = pl.len() - pl.int_range(pl.len())
    return (to_come <= queue) & (pl.col("start_ns") > (-1 if waits.is_empty() else waits.max()))


def _uncaptured(calls: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    captured = captures(host.filter(matches(CAPTURE_BEGINS)), host.filter(matches(CAPTURE_ENDS)))
    return calls.filter(~pl.Series(captured.covers(calls["start_ns"]), dtype=pl.Boolean))


def captures(begins: pl.DataFrame, ends: pl.DataFrame) -> Intervals:
    """When launches go into a graph instead of to the device: from each begin of a capture to the next end of one."""
    begin, end = (np.sort(rows["start_ns"].to_numpy()) for rows in (begins, ends))
    after = np.searchsorted(end, begin)
    return Intervals.of(begin[after < len(end)], end[after[after < len(end)]])


def incomplete(starts: Ints, ends: Ints, calls: pl.DataFrame) -> pl.Series:
    """Why each step on the host lacks kernels of its launches (see `launches`), null where it has them all.

    Where kernels are absent amid the recording, the step after it begins at an unknown time. Where they are absent at
    its end, the recording ended before them.
    """
    parts = (calls, calls.filter("is_lost", ~pl.col("is_tail")), calls.filter("is_lost", "is_tail"))
    number, absent, tail = (begun(part["start_ns"], starts, ends) for part in parts)
    lacks = (absent > 0) & (absent >= _FEW * number)
    unsure = lacks | np.concatenate(([False], lacks[:-1]))
    why = np.select([unsure, tail > 0], [KERNELS_ABSENT, ENDED_EARLY], "")
    return pl.Series(why, dtype=pl.String).replace("", None)


def launches_of(view: DeviceView) -> pl.DataFrame:
    """The `launches` of a view without the tail."""
    return launches(view.host, view.ops, view.devices).filter(~pl.col("is_tail"))


def lacks_kernels(view: DeviceView) -> bool:
    """Whether the recording has launches, and no kernel at all: when the device works is unknown then."""
    if view.device is None or view.devices > 1 or view.ops["kind"].is_in(["kernel", "collective"]).any():
        return False
    return not view.host.filter(LAUNCHED).is_empty()


def holes_in(gaps: pl.DataFrame, view: DeviceView) -> Mask:
    """Whether work that was not recorded may run in half of each gap or more; shape (gaps,).

    It was launched after the op before the gap and before the one that ends it (`next`), so it can run from its launch
    on.
    """
    absent = view.once(launches_of).filter("is_lost")["start_ns"].to_numpy()
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
