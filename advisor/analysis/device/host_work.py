"""What the host does while the device waits for it: launching, Python between the launches, or something else.

And ranges that a program sets itself, `record_function("scores")` say: which of them holds most of some time.
"""

import re
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import runs_in
from advisor.analysis.device.view import (
    DeviceView,
    bounds,
    by_start,
    classes,
    host_bounds,
    inside,
    longest_name,
    outermost,
    spans,
    spent_ns,
)
from advisor.inputs.names.calls import (
    FRAMEWORK_RANGE,
    JIT_CALL,
    NODE,
    OPTIMIZER_STEP,
    OWN_OPTIMIZER,
    RESULT_WAIT,
    SYSTEM_WAIT,
    THREAD_WAIT,
    WAITING_MODULES,
)
from advisor.inputs.names.kernels import PRODUCTS
from advisor.model.clause import Entries
from advisor.model.intervals import EMPTY, Intervals, Ints
from advisor.model.profile import END_NS, matches, rows_where, unnumbered
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import DISPATCH_NS, LONG_CALL_NS, SLOW_CALL_NS
from advisor.vocabulary.parts import HOST_RANGES

# Ops of a backward pass. Forward ops may speak of it too: FSDP's `RegisterPostBackwardFunction` is one
BACKWARD: Final = r"^autograd::|Backward\d*(?:,|$)"
_UPDATES: Final = (r"^aten::_fused_", r"^aten::_foreach_(?:add|sub|lerp)\w*_$", r"^aten::\w+_$")  # clipping multiplies
_PREPARES: Final = (  # arithmetic on single tensors, what finds and copies them, and views
    r"^aten::(?:_foreach_\w+|add|sub|mul|div|neg|pow|sqrt|rsqrt|lerp|maximum|sign|where|norm|linalg_vector_norm|real"
    r"|clone|copy|to|item|tensor|scalar_tensor|empty_like|zeros|zeros_like|is_\w+|result_type|coalesce|_?indices|_?values"
    r"|\w*view\w*|reshape|as_strided|slice|select|narrow|detach|expand|(?:un)?squeeze|unbind|split|chunk|t|transpose)$"
)
_OPTIMIZER: Final = r"^Optimizer\.step#(\w+)\.step$"
_TYPED_OP: Final = r":[A-Za-z_]\w*$"
_CALLBACK_OP: Final = r"^(?:pure|io|debug)_callback(?:\.\d+)?$"
_EXECUTOR: Final = r"^ThunkExecutor::Execute"  # the program is under way, also where it waits for ops on other threads
_HANDED_OVER: Final = pl.col("step").is_not_null() & (pl.col("kind") != "pipeline")
_LIBRARY: Final = r"::|^(?:tf\.function|Torch-Compiled |Compiled|TorchDynamo|Pregraph|\[pl\])"
_PLAIN: Final = r"^[a-z_][a-z0-9_ .-]*$"  # XLA and TensorFlow set ranges of all names, but hardly of such
_XLA: Final = ("jax", "tensorflow")
_CALL: Final = pl.format("`{}`", pl.col("name").cast(pl.String))
_MOST: Final = 0.5  # of the time
_NEARLY_ALL: Final = 0.9  # of the steps: a range around nearly all of a step says nothing of a part of it


def training_ops(view: DeviceView) -> pl.DataFrame:
    """Host ops of the threads that launch the device's work or bear the steps: not those of loaders or loggers.

    Without a device also what these hand over to other threads, as far as the profile tells: TensorFlow and XLA compute
    on pools of threads.
    """
    return rows_where(view.host, view.once(_trains))


def of_process(view: DeviceView) -> pl.Expr:
    """Whether a row of the operating system is of the worker's process."""
    return pl.col("pid") == pl.lit(view.process.get("pid"), pl.Int64)


def of_training(view: DeviceView) -> pl.Expr:
    """Whether it is of a thread of `training_ops`."""
    return of_process(view) & pl.col("thread").is_in(view.once(training_ops)["thread"].unique().implode())


def off_cpu(view: DeviceView) -> pl.DataFrame:
    """When such a thread was on no CPU; empty too where no scheduling was recorded."""
    return view.off_cpu.filter(of_training(view))


def _trains(view: DeviceView) -> pl.Expr:
    """Whether a host op is one of `training_ops`.

    XPlane may record HIP's calls on lines of their own, apart from the thread of JAX that makes them.
    """
    launchers = view.host_of(view.ops["launch"])["thread"]
    callers = view.host_like(JIT_CALL)["thread"] if launchers.len() else launchers
    threads = pl.concat([launchers, callers, view.once(_step_threads)]).unique()
    of_threads = pl.col("thread").is_in(threads.implode()) | pl.lit(not threads.len())
    return of_threads | _HANDED_OVER if view.device is None else of_threads


def _step_threads(view: DeviceView) -> pl.Series:
    """The threads on which steps are marked, by ranges for that or by others that stand in for them.

    Where executions of JAX's programs stand in, the threads that call these.
    """
    marks = view.complete.select(start_ns="host_start_ns", dur_ns="mark_ns")
    ranges = view.host.select("kind", "thread", *marks.columns)
    marking = [ranges.filter(pl.col("kind") == "step"), ranges.join(marks, on=marks.columns, how="semi")]
    threads = pl.concat(marking)["thread"].unique()
    return threads if threads.len() or not view.has_marks else view.host_like(JIT_CALL)["thread"].unique()


def step_ops(view: DeviceView) -> pl.LazyFrame:
    """Framework ops of the used steps on the training threads, without the data loader's; with their `window`."""
    host = view.windowed.with_columns(loads=inside(view.host_spans("input"), view.host)).lazy()
    is_used = pl.col("window").is_not_null() & (pl.col("kind") == "op")
    return host.filter(is_used, view.once(_trains), ~pl.col("loads")).drop("loads")


def own_ns(ops: pl.DataFrame, time: str = "dur_ns") -> pl.Series:
    """Of each op its `time`, in ns, less that of the ops right inside it; `ops` have id, parent and that column."""
    inner = ops.select("parent", time).drop_nulls("parent")
    ids = ops["id"].to_numpy()
    within = np.bincount(inner["parent"].to_numpy(), inner[time].to_numpy(), minlength=int(ids.max(initial=0)) + 1)
    return ops[time] - pl.Series(within[ids].astype(np.int64))  # whole numbers: sums below 2**53 ns are exact


def handed_over(view: DeviceView) -> Intervals:
    """When a thread other than the step's own works for a step; nothing where the profile does not link threads."""
    on_others = ~pl.col("thread").is_in(view.once(_step_threads).implode())
    return spans(view.host.filter(_HANDED_OVER, on_others))


def executed(view: DeviceView) -> Intervals:
    """When programs of JAX run on threads of XLA: as with a device, the step's thread may do other things meanwhile.

    Only those that a step called; what a loader's thread calls is none of its work.
    """
    if view.device is not None or view.process.get("framework") != "jax":
        return EMPTY
    called = pl.col("step").is_not_null() | pl.lit(not view.has_marks)
    on_others = ~pl.col("thread").is_in(view.host_like(JIT_CALL)["thread"].unique().implode())
    works = ((pl.col("kind") == "op") & ~matches(_TYPED_OP)) | matches(_EXECUTOR)
    return spans(view.host.filter(works, called, on_others))


def python_work(view: DeviceView) -> Intervals:
    """Stretches of `SLOW_CALL_NS` to `DISPATCH_NS` in which the training threads run no framework op and make no call.

    Those of the steps left out as uneven are among them: they may be what made a step uneven.
    """
    between = between_ops(view, pl.concat([view.steps, view.outliers]))
    return between.of_length(SLOW_CALL_NS, DISPATCH_NS)


def between_ops(view: DeviceView, steps: pl.DataFrame) -> Intervals:
    """When the host, in these steps, runs no framework op and nothing else that accounts for the time."""
    elsewhere = view.once(running) | view.once(waits_for_results) | view.host_spans("collective", *HOST_RANGES)
    return Intervals.of(*host_bounds(steps)) - elsewhere


def waits_for_results(view: DeviceView) -> Intervals:
    """When the host waits for the device or for a value from it, in a function or range that is called so."""
    return spans(view.host_like(RESULT_WAIT, "python", "annotation"))


def own_frames(view: DeviceView, names: str) -> pl.DataFrame:
    """Functions of Python with such names on the training threads."""
    return view.once(training_ops).filter(pl.col("kind") == "python", matches(names))


def between_nodes(view: DeviceView) -> Intervals:
    """The moments from one node of autograd right to the next on a thread: its engine, in C++, chooses the next."""
    ops = view.once(training_ops).select("kind", "thread", "start_ns", "dur_ns", is_node=matches(NODE))
    ops = ops.filter(pl.col("kind") == "op")
    beside = by_start(ops.filter(pl.col("is_node") | ~inside(spans(ops.filter("is_node")), ops)))
    after = END_NS.shift(1).over("thread")
    follows = pl.col("is_node") & pl.col("is_node").shift(1).over("thread")
    moments = beside.select(opens=after, closes="start_ns", follows=follows).filter("follows")
    moments = moments.filter((pl.col("closes") - pl.col("opens")).is_between(1, SLOW_CALL_NS))
    return Intervals.of(moments["opens"], moments["closes"])


def thread_waits(view: DeviceView) -> Intervals:
    """When a training thread waits for another thread or process, for somebody to type, or for time to pass."""
    return spans(own_frames(view, THREAD_WAIT)) | spans(system_waits(view))


def system_waits(view: DeviceView) -> pl.DataFrame:
    """Calls of the system in which a training thread waits for somebody to type, a child process or time to pass."""
    return view.os_calls.filter(of_training(view), matches(SYSTEM_WAIT))


def longest_wait(view: DeviceView, when: Intervals) -> list[tuple[str, int]]:
    """The one of these calls in which over half of this time passes, and how much of it, in ns; empty without one."""
    calls = system_waits(view)
    times = calls.select(pl.col("name").cast(pl.String), ns=spent_ns(calls, when)).group_by("name").sum()
    return times.filter(2 * pl.col("ns") > when.total).rows()


def waiting_function(view: DeviceView, when: Intervals) -> str:
    """What waits longest then: a function of Python's library, else a built-in one, else a call of the system."""
    python = view.once(training_ops).filter(pl.col("kind") == "python")
    waits = (*(python.filter(matches(names)) for names in (WAITING_MODULES, THREAD_WAIT)), system_waits(view))
    times = (calls.select("name", dur_ns=spent_ns(calls, when)).filter(pl.col("dur_ns") > 0) for calls in waits)
    return next(filter(None, map(longest_name, times)), "")


def running(view: DeviceView) -> Intervals:
    """When a training thread, or without a device one that works for it, runs a framework op or makes a call."""
    ops = view.once(training_ops).select("kind", "start_ns", "dur_ns")
    running = spans(ops.filter(pl.col("kind").is_in(["op", "collective", *DRIVER_CALLS])))
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


def optimizer_work(view: DeviceView) -> Intervals:
    """When an optimizer updates its parameters, as `Optimizer.step#...` ranges tell; else the program's, or Adam's op.

    A closure or a hook within the range computes something else first or afterwards (Lightning, LBFGS): what lies up to
    the end of the last op before its updates that does not prepare them is not the optimizer's, nor what follows the
    first such op behind. What prepares an update is no further ahead of the first than the others are of each other.
    Updates are fused ops; without any those that add to lists of tensors; else those that change a tensor; where a
    backward pass runs within, those behind it.
    """
    steps = view.host_like(OPTIMIZER_STEP, "annotation")
    steps = steps if steps.height else _own_updates(view)
    start, end = bounds(steps) if steps.height else _unmarked_updates(view)
    if not len(start):
        return EMPTY
    ops = view.host_like(rf"^aten::|{BACKWARD}", "op")
    ops = outermost(ops.filter(inside(Intervals.of(start, end), ops))).sort("start_ns")
    flags = ops.select(matches(pattern).alias(pattern) for pattern in (BACKWARD, _PREPARES, *_UPDATES)).to_dict()
    is_like = {pattern: flag.to_numpy() for pattern, flag in flags.items()}
    (at, until), begin, last = bounds(ops), start.copy(), end.copy()
    of = np.searchsorted(start, at, side="right") - 1
    for step in np.unique(of):
        inner = of == step
        computed_ns = until[inner & is_like[BACKWARD]].max(initial=start[step])
        form = next((form for form in _UPDATES if is_like[form][inner].any()), None)
        updates = inner & is_like[form] if form else np.zeros_like(inner)
        behind_backward = updates & (at >= computed_ns)
        updates = behind_backward if behind_backward.any() else updates
        others = inner & (~(is_like[form] | is_like[_PREPARES]) if form else is_like[BACKWARD])
        first, final = (at[updates][0], at[updates][-1]) if updates.any() else (end[step], end[step])
        between_ns = (at[updates][1:] - until[updates][:-1]).max(initial=0)
        others |= inner & (first - until > (between_ns or end[step] - start[step]))
        begin[step] = until[others & (at < first)].max(initial=start[step])
        last[step] = at[others & (at > final)].min(initial=end[step])
    return Intervals.of(begin, last)


def _own_updates(view: DeviceView) -> pl.DataFrame:
    """Ranges like `optimizer_step`, without those in which products are launched: a whole step may be called so."""
    ranges = view.host_like(OWN_OPTIMIZER, "annotation")
    names = view.once(classes).filter(pl.col("family").cast(pl.String).is_in(PRODUCTS))
    launches = np.sort(view.host_of(view.ops.join(names, on="name", how="semi")["launch"])["start_ns"].to_numpy())
    begin, end = (np.searchsorted(launches, of) for of in bounds(ranges))
    return ranges.filter(pl.Series(begin == end, dtype=pl.Boolean))


def _unmarked_updates(view: DeviceView) -> tuple[Ints, Ints]:
    """Without a range of an optimizer: from the first op behind each backward pass to the last that only Adam runs.

    Ahead of that op the host may wait for other ranks.
    """
    at, until = bounds(view.host_like(r"^aten::addcdiv_$", "op"))
    computed = np.sort(bounds(view.host_like(BACKWARD, "op"))[1])
    behind = np.searchsorted(computed, at, side="right")
    passes, first = np.unique(behind[behind > 0], return_index=True)
    begins = np.sort(bounds(view.host_like(r"^aten::", "op"))[0])
    begin = begins[np.searchsorted(begins, computed[passes - 1])]
    return begin, np.maximum.reduceat(until[behind > 0], first) if len(first) else first


def optimizer_class(view: DeviceView) -> str | None:
    """The class of the optimizer with the most time, `AdamW`; None where no range names one."""
    steps = view.used_like(OPTIMIZER_STEP).select(pl.col("name").cast(pl.String).str.extract(_OPTIMIZER), "dur_ns")
    return longest_name(steps.drop_nulls()) or None


def holder(view: DeviceView, when: Intervals) -> tuple[str, float] | None:
    """The shortest of the program's own ranges that holds more than half of the time `when`, and its share of that."""
    ranges = view.once(own_ranges)
    long_enough = ranges.group_by("label").agg(pl.sum("dur_ns")).filter(pl.col("dur_ns") > _MOST * when.total)
    holders = []
    for (label,), of_label in ranges.join(long_enough, on="label", how="semi").group_by("label", maintain_order=True):
        covered = spans(of_label)
        length, share = covered.within(view.starts, view.ends).sum(), (covered & when).total / max(1, when.total)
        if share > _MOST and length <= _NEARLY_ALL * view.total_ns:
            holders.append((int(length), (str(label), share)))
    return min(holders)[1] if holders else None


def is_own(view: DeviceView, name: str) -> bool:
    """Whether a range of this name may be the program's own, not one of its framework or of a library."""
    is_foreign = re.search(FRAMEWORK_RANGE, name) or re.search(_LIBRARY, name)
    return not is_foreign and bool(view.process.get("framework") not in _XLA or re.search(_PLAIN, name))


def own_ranges(view: DeviceView) -> pl.DataFrame:
    """The program's own ranges on the training threads: label, start_ns, dur_ns; without those that mark the steps."""
    marks = view.complete.select(start_ns="host_start_ns", dur_ns="mark_ns")
    ranges = view.once(training_ops).filter(pl.col("kind") == "annotation")
    ranges = ranges.filter(~matches(FRAMEWORK_RANGE), ~matches(_LIBRARY))
    if view.process.get("framework") in _XLA:
        ranges = ranges.filter(matches(_PLAIN))
    return ranges.join(marks, on=marks.columns, how="anti").select("start_ns", "dur_ns", label=unnumbered())


def host_alone(view: DeviceView, before: Intervals, once: Intervals) -> Intervals:
    """Long stretches of `before`, which ends with the work, that a program which calls CUDA itself computes in.

    No call of CUDA, work of the device or `once` lies in them. Frameworks load weights between their first calls, which
    is start-up; so is what precedes calls that use memory, unless samples show functions of the program, or the reader
    saw it run without any call, where the recording begins for that.
    """
    calls = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS))
    if view.process.get("framework") not in ("cuda", None):
        return EMPTY
    long = (before - spans(calls) - once - view.busy).of_length(above=LONG_CALL_NS)
    uses_memory = calls.filter(matches("(?i)alloc|memcpy|memset|launch"))["start_ns"].to_numpy()
    is_used = view.process.get("framework") is not None and long.starts >= uses_memory.min(initial=view.recorded[1])
    is_own = is_used | runs_in(view, long.starts, long.ends) | (long.starts == view.process.get("recorded_start_ns"))
    return Intervals.of(long.starts[is_own], long.ends[is_own])


def place_of(view: DeviceView, stretches: Intervals) -> Entries:
    """Between which two calls most of this time lies, with their part of it; none if that is half or less."""
    calls = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS)).sort("start_ns")
    free, pairs = stretches - spans(calls), calls.select("start_ns", following=_CALL, last=_CALL.shift())
    lengths = pl.DataFrame({"start_ns": free.ends, "ns": free.ends - free.starts})
    around = lengths.join_asof(pairs, on="start_ns", strategy="forward").drop_nulls("following")
    longest = around.group_by("last", "following").agg(pl.sum("ns")).sort("ns").tail(1)
    for before, behind, ns in longest.rows():
        if 2 * ns > free.total:
            both = f"two calls of {behind}" if before == behind else f"{before} and {behind}"
            place = f"between {both}" if before else f"before the first call, {behind}"
            return [{"name": place, "share": ns / free.total}]
    return []
