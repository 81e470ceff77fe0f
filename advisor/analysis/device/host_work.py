"""What the host does while the device waits for it: launching, Python between the launches, or something else."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import at_edges, gaps
from advisor.analysis.device.steps import DeviceView, rows_where, spans
from advisor.analysis.device.user_code import callers
from advisor.inputs.names.calls import JIT_CALL, LOGGING, NODE, RESULT_WAIT, SAVING, THREAD_WAIT, WAITING_MODULES
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.model.profile import HOST_OP_KINDS, matches
from advisor.text import ms
from advisor.vocabulary import DRIVER_CALLS, LAUNCH_GAP_NS, SLOW_CALL_NS

BACKWARD: Final = r"^autograd::|Backward\d*(?:,|$)"
"""Ops of a backward pass. Forward ops may speak of it too: FSDP's `RegisterPostBackwardFunction` is one."""

_UNKNOWN_SHARE: Final = 0.05  # of the step: with more idle time of unknown cause, no cause's share is known
_MOST_NAMES: Final = 3
_LITTLE: Final = 0.01
_OPTIMIZER_CLASS: Final = r"^Optimizer\.step#(\w+)\.step$"
_FRAMEWORKS: Final = ("tensorflow", "jax", "pytorch")
_MOST_PLACES: Final = 10
_WRAPPERS: Final = (
    r"\): (?:_call_impl|_wrapped_call_impl|decorate_context|wrapper|inner)$|<module>$"  # around any function
)
_ROOT: Final = r"<module>$"  # the script itself, which tells nothing
_TYPED_OP: Final = r":[A-Za-z_]\w*$"
_CALLBACK_OP: Final = r"^(?:pure|io|debug)_callback(?:\.\d+)?$"
_NOTHING: Final = "time in which nothing was recorded"
_DISPATCH: Final = ["op", "collective", *DRIVER_CALLS]
_ACCOUNTED: Final = ["input", "compile", "gc", "allocator"]  # as in advisor.analysis.device.idle: causes of their own
_WORK: Final = ["op", "annotation", "module", "python", "collective", *DRIVER_CALLS]
_OF_OPS: Final = ["id", "worker", "thread", "kind", "name", "start_ns", "dur_ns", "step", "parent", "eager"]

DOUBTFUL: Final = ("host_bound", "sync", "queued", "dependency", "unrecorded")
"""Causes of idle time of which nothing is told where too much of it has an unknown one."""

_BUILT_IN: Final = r"^<built-in (?:method|function) (?P<name>[^ >]+).*>$"
_SPAN: Final = ("start_ns", "dur_ns")
_SEVERAL: Final = 2
_EXECUTOR: Final = r"^ThunkExecutor::Execute"  # the program is under way, also where it waits for ops on other threads
_HANDED_OVER: Final = pl.col("step").is_not_null() & (pl.col("kind") != "pipeline")


def training_ops(view: DeviceView) -> pl.DataFrame:
    """Host ops of the threads that launch the device's work or bear the steps: not those of loaders or loggers.

    Without a device also what these hand over to other threads, as far as the profile tells: TensorFlow and XLA compute
    on pools of threads.
    """
    return rows_where(view.host, view.once(_trains))


def _trains(view: DeviceView) -> pl.Expr:
    """Whether a host op is one of `training_ops`.

    XPlane may record HIP's calls on lines of their own, apart from the thread of JAX that makes them.
    """
    launching = pl.col("id").is_in(view.ops["launch"].drop_nulls().unique().implode())
    launchers = view.host.select("id", "thread").filter(launching)["thread"]
    callers = view.host_like(JIT_CALL)["thread"] if launchers.len() else launchers
    threads = pl.concat([launchers, callers, view.once(_step_threads)]).unique()
    of_threads = pl.col("thread").is_in(threads.implode()) | pl.lit(not threads.len())
    return of_threads | _HANDED_OVER if view.device is None else of_threads


def _step_threads(view: DeviceView) -> pl.Series:
    """The threads on which steps are marked, by ranges for that or by others that stand in for them.

    Where executions of JAX's programs stand in, the threads that call these.
    """
    threads = _marking_threads(view)
    return threads if threads.len() or not view.has_marks else view.host_like(JIT_CALL)["thread"].unique()


def _marking_threads(view: DeviceView) -> pl.Series:
    marks = view.complete.select(start_ns="host_start_ns", dur_ns="mark_ns")
    ranges = view.host.select("kind", "thread", *marks.columns)
    return pl.concat([ranges.filter(pl.col("kind") == "step"), ranges.join(marks, on=marks.columns, how="semi")])[
        "thread"
    ].unique()


def step_ops(view: DeviceView) -> pl.DataFrame:
    """Framework ops of the used steps on the training threads, without the data loader's; with their `window`."""
    ops = view.used_host.select(*_OF_OPS, "window").filter(pl.col("kind") == "op", view.once(_trains))
    return ops.filter(~inside(view.host_spans("input"), ops))


def own_ns(ops: pl.DataFrame, time: str = "dur_ns") -> pl.Series:
    """Of each op its `time`, in ns, less that of the ops right inside it; `ops` have id, parent and that column."""
    inner = ops.select("parent", time).drop_nulls("parent")
    ids = ops["id"].to_numpy()
    within = np.bincount(inner["parent"].to_numpy(), inner[time].to_numpy(), minlength=int(ids.max(initial=0)) + 1)
    return ops[time] - pl.Series(within[ids].astype(np.int64))  # whole numbers: sums below 2**53 ns are exact


def handed_over(view: DeviceView) -> Union:
    """When a thread other than the step's own works for a step; nothing where the profile does not link threads."""
    on_others = ~pl.col("thread").is_in(view.once(_step_threads).implode())
    return spans(view.host.filter(_HANDED_OVER, on_others))


def executed(view: DeviceView) -> Union:
    """When programs of JAX run on threads of XLA: as with a device, the step's thread may do other things meanwhile.

    Only those that a step called; what a loader's thread calls is none of its work.
    """
    if view.device is not None or view.process.get("framework") != "jax":
        return EMPTY
    called = pl.col("step").is_not_null() | pl.lit(not view.has_marks)
    on_others = ~pl.col("thread").is_in(view.host_like(JIT_CALL)["thread"].unique().implode())
    works = ((pl.col("kind") == "op") & ~matches(_TYPED_OP)) | matches(_EXECUTOR)
    return spans(view.host.filter(works, called, on_others))


def launch_gaps(view: DeviceView) -> Union:
    """When the device waits at most 1 ms for the next launch; without what other causes account for."""
    return _late(view, pl.col("host_bound_ns") <= LAUNCH_GAP_NS)


def stalls(view: DeviceView) -> Union:
    """When the device waits longer than that for the next launch."""
    return _late(view, pl.col("host_bound_ns") > LAUNCH_GAP_NS)


def python_work(view: DeviceView) -> Union:
    """Stretches of 50 us to 1 ms in which the training threads run no framework op and make no call.

    Those of the steps left out as uneven are among them: they may be what made a step uneven.
    """
    between = between_ops(view, pl.concat([view.steps, view.outliers]))
    length = between.ends - between.starts
    worth = (length > SLOW_CALL_NS) & (length <= LAUNCH_GAP_NS)
    return Union.of(between.starts[worth], between.ends[worth])


def between_ops(view: DeviceView, steps: pl.DataFrame) -> Union:
    """When the host, in these steps, runs no framework op and nothing else that accounts for the time."""
    start = steps["host_start_ns"].to_numpy()
    windows = Union.of(start, start + steps["host_dur_ns"].to_numpy())
    elsewhere = view.once(running) | view.once(waits_for_results) | view.host_spans("collective", *_ACCOUNTED)
    return minus(windows, elsewhere)


def waits_for_results(view: DeviceView) -> Union:
    """When the host waits for the device or for a value from it, in a function or range that is called so."""
    return spans(view.host_like(RESULT_WAIT, "python", "annotation"))


def logging_frames(view: DeviceView) -> pl.DataFrame:
    """Functions of Python that log, on any thread."""
    return view.host_like(LOGGING, "python")


def saving_frames(view: DeviceView) -> pl.DataFrame:
    """Functions of Python that save files, on the training threads."""
    return view.once(training_ops).filter(pl.col("kind") == "python", matches(SAVING))


def between_nodes(view: DeviceView) -> Union:
    """The moments from one node of autograd right to the next on a thread: its engine, in C++, chooses the next."""
    ops = view.once(training_ops).filter(pl.col("kind") == "op").with_columns(is_node=matches(NODE))
    beside = ops.filter(pl.col("is_node") | ~inside(spans(ops.filter("is_node")), ops)).sort("thread", "start_ns")
    after = (pl.col("start_ns") + pl.col("dur_ns")).shift(1).over("thread")
    follows = pl.col("is_node") & pl.col("is_node").shift(1).over("thread")
    moments = beside.select(opens=after, closes="start_ns", follows=follows).filter("follows")
    moments = moments.filter((pl.col("closes") - pl.col("opens")).is_between(1, SLOW_CALL_NS))
    return Union.of(moments["opens"].to_numpy(), moments["closes"].to_numpy())


def thread_waits(view: DeviceView) -> Union:
    """When a training thread waits, in a function of Python, for another thread or process or for time to pass."""
    return spans(waiting_calls(view))


def waiting_calls(view: DeviceView) -> pl.DataFrame:
    """The functions of Python in which a training thread does that."""
    return view.once(training_ops).filter(pl.col("kind") == "python", matches(THREAD_WAIT))


def no_frames(view: DeviceView) -> Missing | None:
    """Why Python's functions were not recorded, or None where they were."""
    if (view.host["kind"] == "python").any():
        return None
    framework = view.process.get("framework")
    if framework == "pytorch" and view.process.get("cpus") is not None:  # `advisor record` notes them
        return Missing("no_python_calls_recorder")
    return Missing(f"no_python_calls_{framework}" if framework in _FRAMEWORKS else "no_python_calls")


def waiting_function(view: DeviceView, when: Union) -> str:
    """The function of Python's library, else the built-in one, that waits longest then: `queue.py(154): get`."""
    python = view.once(training_ops).filter(pl.col("kind") == "python")
    for names in (WAITING_MODULES, THREAD_WAIT):
        calls = python.filter(matches(names)).sort("start_ns")
        start = calls["start_ns"].to_numpy()
        spent = pl.Series("ns", when.within(start, start + calls["dur_ns"].to_numpy()), dtype=pl.Int64)
        of_name = calls.with_columns(spent).group_by("name", maintain_order=True).agg(pl.sum("ns"))
        if of_name["ns"].sum():
            return str(of_name.sort("ns", descending=True, maintain_order=True)["name"].first())
    return ""


def running(view: DeviceView) -> Union:
    """When a training thread, or without a device one that works for it, runs a framework op or makes a call."""
    running = spans(view.once(training_ops).select("kind", *_SPAN).filter(pl.col("kind").is_in(_DISPATCH)))
    return running | handed_over(view) if view.device is None else running


def callbacks(view: DeviceView) -> pl.DataFrame:
    """Functions of Python that JAX's compiled code calls: ranges right inside its ops; without Python's calls, the ops.

    Autograd, too, calls Python inside its ops, which are not compiled; so do ops of tf.data, which have a type's name.
    """
    if view.process.get("framework") != "jax":
        return view.host.clear()
    ops = view.host.filter(pl.col("kind") == "op", ~matches(_TYPED_OP))
    inside = view.host.filter(pl.col("kind") == "python", pl.col("parent").is_in(ops["id"].implode()))
    opaque = ops.filter(matches(_CALLBACK_OP), ~pl.col("id").is_in(inside["parent"].implode()))
    return pl.concat([inside, opaque])


def optimizer_work(view: DeviceView) -> Union:
    """When an optimizer updates its parameters, as `Optimizer.step#...` ranges tell.

    A closure within the range computes forward and backward pass first (Lightning, LBFGS): what lies up to the end of
    the last backward op is not the optimizer's.
    """
    updates = view.host_like(r"^Optimizer\.step#", "annotation")
    if not updates.height:
        return EMPTY
    backward = spans(view.host_like(BACKWARD, "op"))
    start, end = updates["start_ns"].to_numpy(), updates.select(pl.col("start_ns") + pl.col("dur_ns")).to_series()
    has_closure = backward.within(start, end.to_numpy()) > 0
    begin = np.where(has_closure, np.maximum(start, backward.last_end(end.to_numpy())), start)
    return Union.of(begin, end.to_numpy())


def optimizer_class(view: DeviceView) -> str | None:
    """The class of the optimizer with the most time in the used steps, `AdamW`; None where no range names one."""
    name = pl.col("name").cast(pl.String).str.extract(_OPTIMIZER_CLASS)
    of_class = view.used_like(_OPTIMIZER_CLASS).group_by(name).agg(pl.sum("dur_ns")).sort("dur_ns", "name")
    return str(of_class["name"][-1]) if of_class.height else None


def busiest(view: DeviceView, when: Union) -> pl.DataFrame:
    """What ran on the training threads during `when`: name and self_ns, the time of a range outside those within it.

    Ordered by time, most first. The name is null for the time in which no range was open.
    """
    ops = _during(view, when)
    own = by_place(view, ops.select("id", "name", self_ns=own_ns(ops, "ns").clip(0)))
    nothing = pl.DataFrame({"name": [None], "self_ns": [minus(when, spans(ops)).total]}, schema=own.schema)
    return pl.concat([own, nothing]).group_by("name").sum().sort("self_ns", "name", descending=[True, False])


def _during(view: DeviceView, when: Union) -> pl.DataFrame:
    """What of `_WORK` ran on the training threads during `when`, and for how long of it: `ns`."""
    ops = view.once(_unmarked)
    start = ops["start_ns"].to_numpy()
    spent = when.within(start, start + ops["dur_ns"].to_numpy())
    return ops.with_columns(ns=pl.Series(spent, dtype=pl.Int64)).filter(pl.col("ns") > 0)


def _unmarked(view: DeviceView) -> pl.DataFrame:
    """What of `_WORK` ran on the training threads.

    Marks of steps are none of it: what lies in one is part of what the mark lies in, a function that runs the loop say.
    Nor are ranges around several steps, such as an epoch's.
    """
    marks = view.complete.select(kind=pl.lit("annotation", HOST_OP_KINDS), start_ns="host_start_ns", dur_ns="mark_ns")
    ops = view.once(training_ops).select(_OF_OPS).filter(pl.col("kind").is_in(_WORK))
    ops = ops.filter((pl.col("kind") != "annotation") | (_steps_begun(view, ops) < _SEVERAL))
    of_kind = view.host.filter(pl.col("kind") == "step").select("id", "parent", *marks.columns)
    all_marks = pl.concat([ops.join(marks, on=marks.columns, how="semi").select(of_kind.columns), of_kind])
    return (
        ops.join(marks, on=marks.columns, how="anti", maintain_order="left")
        .join(all_marks.select(parent="id", outer="parent"), on="parent", how="left", maintain_order="left")
        .with_columns(parent=pl.coalesce("outer", "parent"))
        .drop("outer")
    )


def _steps_begun(view: DeviceView, ops: pl.DataFrame) -> pl.Series:
    """How many steps begin within each op."""
    begins, start = np.sort(view.complete["host_start_ns"].to_numpy()), ops["start_ns"].to_numpy()
    return pl.Series(np.searchsorted(begins, start + ops["dur_ns"].to_numpy()) - np.searchsorted(begins, start))


def telling(view: DeviceView, when: Union) -> pl.DataFrame:
    """As `busiest`, but by the outermost ranges that lie in `when` for half of their time or more.

    An op is named, not the views that it consists of; a function, not what it calls. Where no such range is open, the
    time is that of the ranges around, as in `busiest`.
    """
    ops = _during(view, when).select(
        "id", "thread", "name", *_SPAN, self_ns="ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    worth = ops.filter(2 * pl.col("self_ns") >= pl.col("dur_ns"))
    ranges = worth.filter(~matches(_WRAPPERS)).sort("thread", "start_ns", "end_ns", descending=[False, False, True])
    before = pl.col("end_ns").cum_max().shift(1).over("thread")
    outermost = ranges.filter(before.is_null() | (pl.col("start_ns") >= before))
    rest = busiest(view, minus(when, spans(outermost)))
    return (
        pl.concat([by_place(view, outermost), rest])
        .group_by("name")
        .sum()
        .sort("self_ns", "name", descending=[True, False])
    )


def by_place(view: DeviceView, ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges' self_ns summed by name: that of a library's function, and of the user's that called it, as text.

    A built-in function goes without the object that it is of; the script as a whole has no name.
    """
    own = ranges.join(view.once(callers), on="id", how="left").group_by("name", "caller").agg(pl.sum("self_ns"))
    name = pl.col("name").cast(pl.String)
    plain = name.str.replace(_BUILT_IN, "$name (built-in)")
    place = pl.when(pl.col("caller") == name).then(plain).otherwise(pl.format("{} in {}", plain, "caller"))
    known = pl.when(~name.str.contains(_ROOT)).then(pl.coalesce(place, plain))
    return own.select(name=known, self_ns="self_ns").group_by("name").sum()


def in_words(view: DeviceView, ran: pl.DataFrame) -> str:
    """`a (1.2 ms), b (0.3 ms)`: the three of `busiest` with the most time per step; empty where there are none.

    What takes under a hundredth of all of it is left out: it is the rest between two ranges.
    """
    top = longest(ran)
    return ", ".join(f"{name or _NOTHING} ({ms(view.per_step_ms(ns))})" for name, ns in top.rows())


def longest(ran: pl.DataFrame) -> pl.DataFrame:
    """Those three of `busiest`."""
    return ran.filter(pl.col("self_ns") > _LITTLE * pl.col("self_ns").sum()).head(_MOST_NAMES)


def places(view: DeviceView, rows: pl.DataFrame, op: str = "id") -> pl.DataFrame:
    """Those of the host ops that lie in used steps, as places to point at; `op` holds the id of the op to name."""
    number = pl.col("window").replace_strict(list(range(view.steps.height)), view.steps["step"], return_dtype=pl.Int32)
    used = rows.drop("step").join(view.used_host.select("id", "window"), on="id").with_columns(step=number, op=op)
    return used.sort("dur_ns", "start_ns", descending=[True, False]).select(
        "step", "start_ns", "dur_ns", "op", table=pl.lit("host_ops"), name=pl.col("name").cast(pl.String)
    )


def idle_after_waits(view: DeviceView) -> pl.DataFrame:
    """Gaps after synchronising calls: window, start_ns, end_ns, sync_ns, and `call`, the id of the one that waited."""
    waits = view.once(gaps).filter(pl.col("sync_ns") > 0)
    ran_dry = view.busy.last_end(waits["start_ns"].to_numpy())
    calls = view.host.filter(pl.col("kind") == "sync").sort("start_ns")
    if not calls.height or not waits.height:
        return waits.clear().select("window", "start_ns", "end_ns", "sync_ns", call=pl.lit(None, pl.Int64))
    start = calls["start_ns"].to_numpy()
    row = np.searchsorted(start, ran_dry, side="right") - 1
    still_open = (row >= 0) & ((start + calls["dur_ns"].to_numpy())[row] >= ran_dry)
    call = calls["id"].gather(np.maximum(row, 0))
    return waits.select(
        "window", "start_ns", "end_ns", "sync_ns", call=pl.when(pl.Series(still_open, dtype=pl.Boolean)).then(call)
    )


def waits_that_cost(view: DeviceView) -> pl.DataFrame:
    """The calls that waited, each with the idle time that followed, as places to point at, the costliest first."""
    calls = view.host.select("id", "parent", "dur_ns", call_start="start_ns", called="name")
    after = view.once(idle_after_waits).group_by("call").agg(pl.min("window"), pl.sum("sync_ns"))
    costs = after.join(calls, left_on="call", right_on="id")
    return (
        costs.sort("sync_ns", "call_start", descending=[True, False])
        .head(_MOST_PLACES)
        .select(
            step=pl.col("window").replace_strict(
                list(range(view.steps.height)), view.steps["step"], return_dtype=pl.Int32
            ),
            start_ns="call_start",
            dur_ns="dur_ns",
            op="parent",
            table=pl.lit("host_ops"),
            name=pl.format("{}, then the device idles for {}", "called", _in_ms("sync_ns")),
        )
    )


def device_places(view: DeviceView, ops: pl.DataFrame) -> pl.DataFrame:
    """Device ops as places to point at, the longest first: which call launched each, in what op or range, what follows.

    Only for as many as a report names: what follows is looked up for each.
    """
    first = ops.sort("dur_ns", "start_ns", descending=[True, False]).head(_MOST_PLACES)
    calls = view.host.select("parent", launch="id", called="name")
    idle = view.once(gaps).select(end_ns="start_ns", idle_ns=pl.col("end_ns") - pl.col("start_ns"))
    calls_and_gaps = (
        first.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .join(calls, on="launch", how="left", maintain_order="left")
        .join(idle, on="end_ns", how="left", maintain_order="left")
    )
    by = pl.format(" by {}", "called").fill_null("")
    after = pl.format(", then the device idles for {}", _in_ms("idle_ns")).fill_null("")
    return calls_and_gaps.select(
        "step",
        "start_ns",
        "dur_ns",
        op=pl.coalesce("op", "parent"),
        table=pl.lit("device_ops"),
        name=pl.concat_str(pl.col("name").cast(pl.String), by, after),
    )


def _in_ms(column: str) -> pl.Expr:
    return pl.col(column).map_elements(lambda ns: ms(ns / 1e6), return_dtype=pl.String)


def unknown_waits(view: DeviceView) -> Missing | None:
    """Why it is unknown what the device waited for, or None where it is known."""
    if view.device is None or not view.total_ns:
        return None
    if not view.ops["launch"].count():
        return Missing("no_launches_tpu" if (view.facts.get("name") or "").startswith("TPU") else "no_cuda_calls")
    return unknown_idle(view)


def unknown_idle(view: DeviceView) -> Missing | None:
    """Why the causes of the idle time are unknown, or None where they are known.

    What lies at the edges of a recording without steps casts no doubt on the gaps between ops, where these are longer.
    """
    idle, startup = view.once(gaps), view.once(start_up)[0]
    between, length = idle.filter(~at_edges(idle, view)), pl.col("end_ns") - pl.col("start_ns")
    prevail = 2 * int(between.select(length).sum().item()) > int(idle.select(length).sum().item())
    unknown = int((between if prevail else idle)["unknown_ns"].sum()) / view.total_ns
    rest = unknown if prevail else unknown - startup
    if rest + startup < _UNKNOWN_SHARE:
        return None
    is_startup = rest < min(_UNKNOWN_SHARE, startup)
    return Missing("cuda_start_up", share=startup) if is_startup else Missing("idle_cause_unknown", share=rest)


def start_up(view: DeviceView) -> tuple[float, str]:
    """Share of the time in which the process sets CUDA or HIP up, and that in words; steps begin after it."""
    if view.has_marks or not view.ops.height:
        return 0.0, ""
    first = int(view.ops["start_ns"].min())  # type: ignore[arg-type]  # integers
    before = Union.of(view.starts, np.minimum(view.ends, first))
    calls = view.host.filter(pl.col("kind").is_in(["runtime", "sync"]), pl.col("start_ns") < first)
    setting_up = minus(spans(calls) & before, view.host_spans(*_ACCOUNTED))
    if not calls.height or not setting_up.total:
        return 0.0, ""
    longest = calls.sort("dur_ns", descending=True)["name"].cast(pl.String)[0]
    return setting_up.total / view.total_ns, f"CUDA or HIP starts up, longest in {longest}"


def undirected_copies(view: DeviceView) -> Missing | None:
    """Why it is unknown what is copied to and from the host, or None where it is known."""
    if not view.total_ns:
        return None
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").is_null())
    share = float(spans(copies).within(view.starts, view.ends).sum()) / view.total_ns
    return Missing("copy_direction_unknown", share=share) if share >= _UNKNOWN_SHARE else None


def minus(union: Union, other: Union) -> Union:
    """Time covered by `union` and not by `other`."""
    if not len(union.starts):
        return EMPTY
    return union & Union.of(*other.gaps(int(union.starts[0]), int(union.ends[-1])))


def _late(view: DeviceView, which: pl.Expr) -> Union:
    rows = view.once(gaps).filter(pl.col("host_bound_ns") > 0, which)
    late = Union.of(rows["late_ns"].to_numpy(), rows["due_ns"].to_numpy())
    return minus(late, view.host_spans(*_ACCOUNTED))


def inside(union: Union, ops: pl.DataFrame) -> pl.Series:
    """Whether each op starts during `union`."""
    return pl.Series(union.covers(ops["start_ns"].to_numpy()), dtype=pl.Boolean)
