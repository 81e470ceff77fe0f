"""What Python takes of a step on a CPU: between ops, in loops over small ones, and how often a step does the same."""

from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.autograd import FEW_PASSES, makers, nodes, passes_per_step, row_gradients
from advisor.analysis.device.communication import C10D_CALLS
from advisor.analysis.device.host_work import (
    BACKWARD,
    between_nodes,
    between_ops,
    optimizer_work,
    own_frames,
    own_ns,
    step_ops,
    thread_waits,
)
from advisor.analysis.device.view import DeviceView, by_start, inside, outermost, spans
from advisor.inputs.names.calls import FILE_READ, FUNCTION_CALL, JIT_CALL, LOGGING, SAVING
from advisor.inputs.step_periods import RANGES
from advisor.model.intervals import EMPTY, Intervals, begun
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.limits import DISPATCH_NS

_MOST_CALLS: Final = 0.8  # of all calls of jitted functions: op by op, none has so many
_TINY_NS: Final = 10_000  # a framework op that itself takes less is mostly dispatch

SMALL_NS: Final = 100_000  # a framework op that itself takes less costs about as much for a few samples as for one
SILENT_SHARE: Final = 0.05
"""Of the step: with so much time of which nothing is known, and less in Python, Python's part is unknown."""


def repetitions(view: DeviceView) -> float:
    """How often a step runs the same ops; 1 where that is less than 8 times."""
    if not view.has_marks:
        return 1.0  # a recording as a whole repeats its steps
    is_jitted = view.process.get("framework") in XLA_FRAMEWORKS
    passes = _calls_again(view) if is_jitted else max(view.once(passes_per_step), _single_samples(view))
    return passes if passes >= FEW_PASSES else 1.0


def _single_samples(view: DeviceView) -> float:
    """How often a step of a training gives one sample to a model that does not learn from it: its rarest product.

    A model that takes its own results, word by word, cannot take them all at once: attention and recurrent layers tell.
    """
    forward, apart = view.once(makers), spans(view.once(nodes)) | view.once(optimizer_work)
    ops = view.once(step_ops).filter(matches(_PRODUCT) | matches(_IN_TURN)).collect()
    ops = ops.filter(~pl.col("id").is_in(forward["id"].implode()), ~inside(apart, ops))
    call = pl.concat_str(pl.col("name", "shapes").cast(pl.String))
    sizes = ops.filter(call.str.contains(_SINGLE)).group_by("name", "shapes").len()["len"]
    if forward.is_empty() or sizes.len() < _FEW_SIZES or ops.filter(matches(_IN_TURN)).height:
        return 1.0
    return float(sizes.min() or 0) / view.steps.height  # type: ignore[arg-type]  # integers


def _calls_again(view: DeviceView) -> float:
    """How often a step on a CPU calls the jitted function, or tf.function, that makes most of its calls."""
    if view.device is not None:
        return 1.0
    rows = view.used_host.filter(matches(JIT_CALL) | matches(FUNCTION_CALL, "details")).collect()
    calls = rows.filter(~pl.col("parent").fill_null(-1).is_in(rows["id"].implode()))["name"].value_counts()
    most = int(calls["count"].max() or 0)  # type: ignore[arg-type]  # integers
    return most / view.steps.height if most >= _MOST_CALLS * int(calls["count"].sum()) else 1.0


class PythonTime(NamedTuple):
    """What Python does on a CPU; times in ns."""

    between: Intervals  # when no op runs
    silent: Intervals  # the part of that of which nothing is known
    ns: int  # Python's time
    ops: int  # recorded ones
    recorded: int  # of that time, in functions of over `DISPATCH_NS`
    steady: int  # as much of that time as each step has at least
    looped: int  # of that time, in loops over small ops
    pauses: int  # long ones in these loops
    small: int  # in other ops that typically take under 100 us, and between nodes of autograd
    rows: int  # in longer ones that fill gradients row by row


def python_time(view: DeviceView) -> PythonTime:
    """What Python takes of the used steps of a worker without a device."""
    # When no op runs, nor anything that other rules judge, nor what reads files: no other Python shortens that.
    frames = (own_frames(view, SAVING), own_frames(view, LOGGING), own_frames(view, FILE_READ))
    others = reduce(or_, map(spans, frames), view.once(optimizer_work))
    between = between_ops(view, view.steps) - (others | between_nodes(view))
    long = between.of_length(DISPATCH_NS)
    silent = (long - spans(view.host.select("kind", "start_ns", "dur_ns").filter(~pl.col("kind").is_in(RANGES)))) | (
        long & thread_waits(view)
    )
    recorded, in_loops = long - silent, view.once(loops).spans - view.host_spans("input")
    ops = _own_times(view, in_loops)
    tiny, large = pl.col("own_ns") < _TINY_NS, pl.col("own_ns") >= SMALL_NS
    is_small = pl.col("typical_ns") < SMALL_NS
    looped = (in_loops - silent).total - _total(ops, "in_loop", large, ~pl.col("reads"))
    return PythonTime(
        between,
        silent,
        ns=(between - (silent | in_loops)).total + _total(ops, ~pl.col("in_loop"), "is_eager", tiny) + looped,
        ops=int(ops["is_eager"].sum()),
        recorded=recorded.total,
        steady=int(recorded.within(view.starts, view.ends).min(initial=recorded.total)) * view.steps.height,
        looped=looped,
        pauses=min(looped, (silent & in_loops).total),
        small=_total(ops, ~pl.col("in_loop"), ~(pl.col("is_eager") & tiny), is_small) + between_nodes(view).total,
        rows=_total(ops, large, "fills_rows"),
    )


def silent_ns(view: DeviceView, time: PythonTime) -> int:
    """Time outside of loops in which nothing shows what the host does, if it is more than Python's; else 0."""
    silent = time.silent.total - time.pauses
    prevails = silent >= SILENT_SHARE * view.total_ns and silent > time.ns and repetitions(view) == 1
    return silent if prevails else 0


def _own_times(view: DeviceView, in_loops: Intervals) -> pl.DataFrame:
    """The ops that are no optimizer's: own_ns, typical_ns, in_loop, reads, fills_rows, is_eager.

    `reads`: in a loop that reads values. `typical_ns` is the median of the op's name and shapes: a busy machine makes a
    view take milliseconds. Python dispatches an eager op; those of a graph are its executor's.
    """
    ops = view.once(step_ops).select("id", "parent", "name", "shapes", "start_ns", "dur_ns", "eager").collect()
    ops = ops.filter(~inside(view.once(optimizer_work), ops))
    of_graphs = view.process.get("framework") in XLA_FRAMEWORKS
    return ops.with_columns(own_ns=own_ns(ops)).select(
        "own_ns",
        typical_ns=pl.median("own_ns").over("name", "shapes"),
        in_loop=inside(in_loops, ops),
        reads=inside(view.once(loops).reading, ops),
        fills_rows=inside(view.once(row_gradients), ops),
        is_eager=pl.col("eager").fill_null(value=False) | pl.lit(not of_graphs),
    )


def _total(ops: pl.DataFrame, *which: str | pl.Expr) -> int:
    return int(ops.filter(*which)["own_ns"].sum())


_PRODUCT: Final = r"^aten::(?:addmm|mm|addmv|mv|convolution)$"
_IN_TURN: Final = r"^aten::(?:bmm|baddbmm|lstm|gru|rnn_tanh|rnn_relu|\w*scaled_dot_product\w*)$"
_SINGLE: Final = r"^aten::(?:mm|mv|addmv|convolution)\[\[1, ?|^aten::addmm\[\[[\d, ]*\], ?\[1, ?"
_FEW_SIZES: Final = 2  # of products: those of equal layers are as many as the layers
_LAYER: Final = (
    r"(?i)linear|conv|mm$|mm_|matmul|einsum|embedding|(?:layer|batch|group|instance|rms)_norm|attention|lstm|gru|rnn"
)
_DISTRIBUTED: Final = rf"{C10D_CALLS}|reducer::|^FSDP::"
# resolve_conj is called by numpy() and tolist()
_READING: Final = r"^aten::(?:item|is_nonzero|_local_scalar_dense|resolve_conj)$"
_AS_OFTEN: Final = 0.8  # as a loop's rows: some of its ops are in a branch
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
    by_run = _runs(_outermost(view)).group_by(_RUN)
    runs = by_run.agg(
        pl.min("start_ns"),
        pl.max("end_ns"),
        passes=pl.min("calls"),
        kinds=pl.len(),
        ops=pl.sum("calls"),
        reads=pl.col("calls").filter(matches(_READING)).sum(),
    )
    of_loops = runs.filter(pl.col("ops") >= FEW_PASSES * pl.col("kinds"))
    if of_loops.is_empty():
        return NO_LOOPS
    longest = of_loops.sort(pl.col("end_ns") - pl.col("start_ns"), "passes")["passes"][-1]
    reading = of_loops.filter(pl.col("reads") > 0)
    when, reads = (Intervals.of(rows["start_ns"], rows["end_ns"]) for rows in (of_loops, reading))
    return Loops(when, reads, int(reading["reads"].sum()), int(longest))


def row_loop(view: DeviceView) -> Intervals:
    """When ops and nodes come about as often as rows of `row_gradients`, if nothing else tells of that loop."""
    rows = view.once(row_gradients)
    if view.device is not None or not rows.total or repetitions(view) > 1:
        return EMPTY
    ops, often = _outermost(view), pl.len().over("name")
    fewest = ops.select(often.filter(pl.Series(inside(rows, ops))).min()).item()
    return spans(ops.filter(often >= _AS_OFTEN * fewest))


def _outermost(view: DeviceView) -> pl.DataFrame:
    """The used steps' ops that lie in none but nodes of autograd, with `apart`: whether one is none of a loop's."""
    ops = view.once(step_ops).select("thread", "window", "name", "start_ns", "dur_ns").collect()
    ops = ops.with_columns(is_node=matches(BACKWARD))
    rows = by_start(pl.concat([ops.filter("is_node"), outermost(ops.filter(~pl.col("is_node")))]))
    rows = rows.with_columns(end_ns=END_NS)
    makes = pl.Series(begun(view.once(makers)["start_ns"], rows["start_ns"], rows["end_ns"])) > 0
    of_model = matches(f"{_LAYER}|{_DISTRIBUTED}") | pl.col("is_node") | makes
    return rows.with_columns(apart=of_model | inside(view.once(optimizer_work), rows))


def _runs(ops: pl.DataFrame) -> pl.DataFrame:
    """Ops in a row of which each kind comes often in its stretch: thread, window, run, name, calls and their time."""
    stretch = ["thread", "window", "stretch"]
    between = ops.with_columns(stretch=pl.col("apart").cum_sum()).filter(~pl.col("apart"))
    often = between.with_columns(often=pl.len().over(*stretch, "name") >= FEW_PASSES)
    runs = often.with_columns(run=pl.struct(*stretch, "often").rle_id()).filter("often")
    return runs.group_by(*_RUN, "name").agg(pl.min("start_ns"), pl.max("end_ns"), calls=pl.len())
