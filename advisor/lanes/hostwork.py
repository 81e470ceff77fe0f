"""What the host does while the device waits for it: launching, Python between the launches, or something else."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.intervals import EMPTY, Union
from advisor.lanes.gaps import gaps
from advisor.lanes.lens import Lane, spans
from advisor.profile import named
from advisor.text import ms, percent

LONG_GAP_NS: Final = 1_000_000  # no launch takes that long: the host does something else in between
PYTHON_NS: Final = 50_000  # interpreting the code around a launch takes 5 to 20 us; over 50 it is work of its own
_UNTOLD_SHARE: Final = 0.05  # of the step: with more idle time of unknown cause, no cause's share can be told
_NAMED: Final = 3
_MOST_PLACES: Final = 10
_WRAPPERS: Final = r"\): (?:_call_impl|_wrapped_call_impl|decorate_context|wrapper|inner)$"  # around any function
_NOTHING: Final = "nothing that was recorded"
_CALLS: Final = ["runtime", "sync", "allocator"]
_DISPATCH: Final = ["op", "collective", *_CALLS]
_ACCOUNTED: Final = ["input", "compile", "gc", "allocator"]  # as in advisor.lanes.gaps: causes of their own
_WORK: Final = ["op", "annotation", "module", "python", "collective", *_CALLS]

_HANDED_OVER: Final = pl.col("step").is_not_null() & (pl.col("kind") != "pipeline")


def training_ops(lane: Lane) -> pl.DataFrame:
    """Host ops of the threads that launch the device's work or bear the steps: not those of loaders or loggers.

    Without a device also what these hand over to other threads, as far as the profile tells: TensorFlow and XLA compute
    on pools of threads.
    """
    launching = pl.col("id").is_in(lane.ops["launch"].drop_nulls().unique().implode())
    threads = lane.host.filter(launching | (pl.col("kind") == "step"))["thread"].unique()
    mine = pl.col("thread").is_in(threads.implode())
    if lane.device is None:
        mine |= _HANDED_OVER
    return lane.host.filter(mine) if threads.len() else lane.host


def handed_over(lane: Lane) -> Union:
    """When a thread other than the step's own works for a step; nothing where the profile does not link threads."""
    threads = lane.host.filter(pl.col("kind") == "step")["thread"].unique()
    return spans(lane.host.filter(_HANDED_OVER, ~pl.col("thread").is_in(threads.implode())))


def launch_gaps(lane: Lane) -> Union:
    """When the device waits at most 1 ms for the next launch; what other causes account for is left out."""
    return _late(lane, pl.col("host_bound_ns") <= LONG_GAP_NS)


def stalls(lane: Lane) -> Union:
    """When the device waits longer than that for the next launch."""
    return _late(lane, pl.col("host_bound_ns") > LONG_GAP_NS)


def python_work(lane: Lane) -> Union:
    """Stretches of 50 us to 1 ms in which the training threads run no framework op and make no call.

    Those of the steps left out as uneven are among them: they may be what made a step uneven.
    """
    between = between_ops(lane, pl.concat([lane.steps, lane.uneven]))
    length = between.ends - between.starts
    worth = (length > PYTHON_NS) & (length <= LONG_GAP_NS)
    return Union.of(between.starts[worth], between.ends[worth])


def between_ops(lane: Lane, steps: pl.DataFrame) -> Union:
    """When the host, in these steps, runs no framework op and nothing else that accounts for the time."""
    ops = lane.once(training_ops)
    start = steps["host_start_ns"].to_numpy()
    windows = Union.of(start, start + steps["host_dur_ns"].to_numpy())
    running = spans(ops.filter(pl.col("kind").is_in(_DISPATCH)))
    if lane.device is None:
        running |= handed_over(lane)
    return minus(windows, running | lane.host_spans("collective", *_ACCOUNTED))


def optimizer_work(lane: Lane) -> Union:
    """When an optimizer updates its parameters, as `Optimizer.step#...` ranges tell."""
    return spans(lane.host.filter(pl.col("kind") == "annotation", named(r"^Optimizer\.step#")))


def busiest(lane: Lane, when: Union) -> pl.DataFrame:
    """What ran on the training threads during `when`: name and self_ns, the time of a range outside those within it.

    Ordered by time, most first. The name is null for the time in which no range was open.
    """
    ops = lane.once(training_ops).filter(pl.col("kind").is_in(_WORK))
    start = ops["start_ns"].to_numpy()
    spent = ops.select("id", "parent", "name", ns=pl.Series(when.within(start, start + ops["dur_ns"].to_numpy())))
    spent = spent.filter(pl.col("ns") > 0)
    of_children = spent.group_by("parent").agg(children_ns=pl.sum("ns")).drop_nulls()
    own = spent.join(of_children, left_on="id", right_on="parent", how="left").select(
        name=pl.col("name").cast(pl.String), self_ns=(pl.col("ns") - pl.col("children_ns").fill_null(0)).clip(0)
    )
    nothing = pl.DataFrame({"name": [None], "self_ns": [minus(when, spans(ops)).total]}, schema=own.schema)
    return pl.concat([own, nothing]).group_by("name").sum().sort("self_ns", "name", descending=[True, False])


def telling(lane: Lane, when: Union) -> pl.DataFrame:
    """As `busiest`, but by the outermost ranges that lie in `when` for half of their time or more.

    An op is named, not the views that it consists of; a function, not what it calls. Where no such range is open, the
    time is that of the ranges around, as in `busiest`.
    """
    ops = lane.once(training_ops).filter(pl.col("kind").is_in(_WORK)).select("thread", "name", "start_ns", "dur_ns")
    start = ops["start_ns"].to_numpy()
    ops = ops.with_columns(
        self_ns=pl.Series(when.within(start, start + ops["dur_ns"].to_numpy()), dtype=pl.Int64),
        end_ns=pl.col("start_ns") + pl.col("dur_ns"),
    )
    worth = ops.filter(pl.col("self_ns") > 0, 2 * pl.col("self_ns") >= pl.col("dur_ns"))
    mine = (worth.with_columns(pl.col("name").cast(pl.String)).filter(~pl.col("name").str.contains(_WRAPPERS))).sort(
        "thread", "start_ns", "end_ns", descending=[False, False, True]
    )
    before = pl.col("end_ns").cum_max().shift(1).over("thread")
    outermost = mine.filter(before.is_null() | (pl.col("start_ns") >= before))
    rest = busiest(lane, minus(when, spans(outermost)))
    named = pl.concat([outermost.select("name", "self_ns"), rest])
    return named.group_by("name").sum().sort("self_ns", "name", descending=[True, False])


def in_words(lane: Lane, ran: pl.DataFrame) -> str:
    """`a (1.2 ms), b (0.3 ms)`: the three of `busiest` with the most time per step; empty where there are none."""
    top = ran.filter(pl.col("self_ns") > 0).head(_NAMED)
    return ", ".join(f"{name or _NOTHING} ({ms(lane.per_step_ms(ns))})" for name, ns in top.rows())


def places(lane: Lane, rows: pl.DataFrame, op: str = "id") -> pl.DataFrame:
    """Those of the host ops that lie in used steps, as places to point at; `op` holds the id of the op to name."""
    number = pl.col("window").replace_strict(list(range(lane.steps.height)), lane.steps["step"], return_dtype=pl.Int32)
    found = rows.drop("step").join(lane.used_host.select("id", "window"), on="id").with_columns(step=number, op=op)
    return found.sort("dur_ns", "start_ns", descending=[True, False]).select(
        "step", "start_ns", "dur_ns", "op", table=pl.lit("host_ops"), name=pl.col("name").cast(pl.String)
    )


def idle_after_waits(lane: Lane) -> pl.DataFrame:
    """Gaps after synchronising calls: window, start_ns, end_ns, sync_ns, and `call`, the id of the one that waited."""
    found = lane.once(gaps).filter(pl.col("sync_ns") > 0)
    ran_dry = lane.busy.last_end(found["start_ns"].to_numpy())
    calls = lane.host.filter(pl.col("kind") == "sync").sort("start_ns")
    if not calls.height or not found.height:
        return found.clear().select("window", "start_ns", "end_ns", "sync_ns", call=pl.lit(None, pl.Int64))
    start = calls["start_ns"].to_numpy()
    row = np.searchsorted(start, ran_dry, side="right") - 1
    still_open = (row >= 0) & ((start + calls["dur_ns"].to_numpy())[row] >= ran_dry)
    call = calls["id"].gather(np.maximum(row, 0))
    return found.select(
        "window", "start_ns", "end_ns", "sync_ns", call=pl.when(pl.Series(still_open, dtype=pl.Boolean)).then(call)
    )


def waits_that_cost(lane: Lane) -> pl.DataFrame:
    """The calls that waited, each with the idle time that followed, as places to point at, the costliest first."""
    calls = lane.host.select("id", "parent", "dur_ns", call_start="start_ns", called="name")
    after = lane.once(idle_after_waits).group_by("call").agg(pl.min("window"), pl.sum("sync_ns"))
    found = after.join(calls, left_on="call", right_on="id")
    return (
        found.sort("sync_ns", "call_start", descending=[True, False])
        .head(_MOST_PLACES)
        .select(
            step=pl.col("window").replace_strict(
                list(range(lane.steps.height)), lane.steps["step"], return_dtype=pl.Int32
            ),
            start_ns="call_start",
            dur_ns="dur_ns",
            op="parent",
            table=pl.lit("host_ops"),
            name=pl.format("{}, then the device idles for {}", "called", _in_ms("sync_ns")),
        )
    )


def device_places(lane: Lane, ops: pl.DataFrame) -> pl.DataFrame:
    """Device ops as places to point at, the longest first: which call launched each, in what op or range, what follows.

    Only for as many as are shown: what follows is looked up for each.
    """
    first = ops.sort("dur_ns", "start_ns", descending=[True, False]).head(_MOST_PLACES)
    calls = lane.host.select("parent", launch="id", called="name")
    idle = lane.once(gaps).select(end_ns="start_ns", idle_ns=pl.col("end_ns") - pl.col("start_ns"))
    told = (
        first.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(calls, on="launch", how="left", maintain_order="left")
        .join(idle, on="end_ns", how="left", maintain_order="left")
    )
    by = pl.format(" by {}", "called").fill_null("")
    after = pl.format(", then the device idles for {}", _in_ms("idle_ns")).fill_null("")
    return told.select(
        "step",
        "start_ns",
        "dur_ns",
        op=pl.coalesce("op", "parent"),
        table=pl.lit("device_ops"),
        name=pl.concat_str(pl.col("name").cast(pl.String), by, after),
    )


def _in_ms(column: str) -> pl.Expr:
    return pl.col(column).map_elements(lambda ns: ms(ns / 1e6), return_dtype=pl.String)


def untold(lane: Lane) -> str | None:
    """Why it cannot be told what the device waited for, or None where it can."""
    if lane.device is None or not lane.total_ns:
        return None
    if not lane.ops["launch"].count():
        return "no runtime calls were recorded: nothing links the device's work to the host"
    return idle_untold(lane)


def idle_untold(lane: Lane) -> str | None:
    """Why the causes of the idle time cannot be told apart, or None where they can."""
    share = float(lane.once(gaps)["unknown_ns"].sum()) / lane.total_ns
    if share < _UNTOLD_SHARE:
        return None
    startup = lane.once(start_up)[0]
    if share - startup < _UNTOLD_SHARE:
        return f"the recording holds the start of the process: CUDA or HIP sets itself up in {percent(startup)} of it"
    return f"{percent(share - startup)} of the time is idle and nothing tells why"


def start_up(lane: Lane) -> tuple[float, str]:
    """Share of the time in which the process sets CUDA or HIP up, and that in words; steps begin after it."""
    if lane.marked or not lane.ops.height:
        return 0.0, ""
    first = int(lane.ops["start_ns"].min())  # type: ignore[arg-type]  # integers
    before = Union.of(lane.starts, np.minimum(lane.ends, first))
    calls = lane.host.filter(pl.col("kind").is_in(["runtime", "sync"]), pl.col("start_ns") < first)
    setting_up = minus(spans(calls) & before, lane.host_spans(*_ACCOUNTED))
    if not calls.height or not setting_up.total:
        return 0.0, ""
    longest = calls.sort("dur_ns", descending=True)["name"].cast(pl.String)[0]
    return setting_up.total / lane.total_ns, f"CUDA or HIP starts up, longest in {longest}"


def undirected_copies(lane: Lane) -> str | None:
    """Why it cannot be told what is copied to and from the host, or None where it can."""
    if not lane.total_ns:
        return None
    copies = lane.used_ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").is_null())
    share = float(spans(copies).within(lane.starts, lane.ends).sum()) / lane.total_ns
    said = f"copies are open in {percent(share)} of the time, and nothing tells whether they come from the host"
    return said if share >= _UNTOLD_SHARE else None


def minus(union: Union, other: Union) -> Union:
    """Time covered by `union` and not by `other`."""
    if not len(union.starts):
        return EMPTY
    return union & Union.of(*other.gaps(int(union.starts[0]), int(union.ends[-1])))


def _late(lane: Lane, which: pl.Expr) -> Union:
    found = lane.once(gaps).filter(pl.col("host_bound_ns") > 0, which)
    late = Union.of(found["late_ns"].to_numpy(), found["end_ns"].to_numpy())
    return minus(late, lane.host_spans(*_ACCOUNTED))


def inside(union: Union, ops: pl.DataFrame) -> pl.Series:
    """Whether each op starts during `union`."""
    start = ops["start_ns"].to_numpy()
    return pl.Series(np.asarray(union.within(start, start + 1)) > 0, dtype=pl.Boolean)
