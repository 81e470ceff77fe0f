"""What autograd does for nothing: layers computed again, gradients that nobody uses, graphs that nobody needs."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import LAYER, used_nodes
from advisor.analysis.device.host_work import BACKWARD, optimizer_work
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.places import stretches
from advisor.analysis.device.replay import ELSE, trusted_replay
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import NODE, OPTIMIZER_STEP
from advisor.inputs.step_periods import PRODUCTS, without_graph
from advisor.metrics.metric import Metric, Values, measures
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.model.profile import END_NS, matches

_MODULE: Final = (
    r"^aten::(?:linear|conv(?:_transpose)?[123]d|(?:layer|batch|group|instance|rms)_norm|scaled_dot_product_attention"
    r"|embedding|lstm|gru)$"
)
_OF_PROGRAM: Final = r": \w+Backward$"  # a function of the program's may compute what it likes
_CHECKPOINT: Final = r": \w*Checkpoint\w*$"  # torch.utils.checkpoint's, which is written as such a one
_GRADIENT: Final = r"^torch::autograd::AccumulateGrad$"
_UPDATES: Final = r"^aten::(?:add|sub|mul|addcdiv|addcmul|lerp|copy|_foreach_\w+|_fused_\w+)_$"
_SHAPE: Final = r"\[[\d, ]*\]"
_OF_WEIGHTS_TOO: Final = r"^aten::(?:t|transpose|detach)$"  # what layers do to their weights
_NEVER: Final = np.iinfo(np.int64).max
_TRAINS: Final = rf"{BACKWARD}|^Optimizer\."
_ADDS: Final = r"^aten::add_$"
_FEWEST_STEPS: Final = 3
_CLEARED: Final = 2  # steps: what they store anew was cleared in between
_UPDATES_IN_TURN: Final = 8  # own choice: models that train in turn do so every five steps (WGAN), or more often
_PRODUCT: Final = r"^aten::(?:addmm|mm|bmm|baddbmm|convolution)$"  # of those within each other, the one with the node
_SEVERAL: Final = 2
_HALF: Final = 0.5
_OF_WEIGHTS: Final = 0.75

RECOMPUTED_SHARE = Metric(
    "recomputed_share",
    "Part of the step in which the backward pass computes layers of the forward pass again.",
    "from the first to the last op with a number of autograd's in each node of the backward pass that runs a layer, "
    "without nodes in it and those of the program's functions / step time",
    "torch.utils.checkpoint runs the forward pass again within a node, with gradients enabled",
    where=lambda view: stretches(view.once(_recomputations), "layers computed again"),
)
RECOMPUTATIONS_PER_STEP = Metric(
    "recomputations_per_step",
    "Parts of the model that the backward pass computes again.",
    "nodes that do so / steps",
)
RECOMPUTED_GAIN_MS = Metric(
    "recomputed_gain_ms",
    "Step time saved if the backward pass computed no layer again.",
    "replay without that work and its kernels" + ELSE + "time of the kernels, without a device of the work / steps",
)
UNUSED_GRADIENTS = Metric(
    "unused_gradients",
    "Gradients that a step computes for parameters, or inputs, and that no optimizer uses.",
    "AccumulateGrad with a shape that no op has that writes in an Optimizer.step# range, or not until, after the next "
    "such range, one without aten::add_ in it has the shape, and no other op has it first / steps; 0 if none has it, "
    "and in jobs of several ranks, whose optimizers update parts; unknown if fewer than two steps store such gradients "
    "anew, because they add up, and fewer than eight steps update anything",
    "Kineto's shapes",
)
UNUSED_GRADIENTS_CLEARED = Metric(
    "unused_gradients_cleared",
    "Steps that store such gradients anew: what was cleared in between, no optimizer can use.",
    "used steps with such an AccumulateGrad without aten::add_ in it, or with one before an update of that shape",
    "PyTorch's AccumulateGrad takes the first gradient over and adds the others",
    unit="count",
)
UNUSED_GRADIENTS_SHARE = Metric(
    "unused_gradients_share",
    "Part of the step in which the backward pass computes gradients after the last one that an optimizer uses.",
    "from the last AccumulateGrad with such a shape to the last one of the step / step time",
    "Kineto's shapes",
    where=lambda view: stretches(view.once(_needless), "gradients that no optimizer uses"),
)
UNUSED_GRADIENTS_LEAST_GAIN_MS = Metric(
    "unused_gradients_least_gain_ms",
    "Step time saved at least without these gradients.",
    "replay without what comes after the last gradient that is used" + ELSE + "that time / steps",
)
UNUSED_GRADIENTS_GAIN_MS = Metric(
    "unused_gradients_gain_ms",
    "Step time saved at most without these gradients.",
    "the same, and three quarters of the time of layers' nodes before it, as far as gradients there are unused / "
    "steps; where some are cleared before an update, shapes that more calls of optimizers write do not count",
    "a layer computes two gradients, that of its weight and that of its input; three quarters: own choice",
)
REPEATED_BACKWARD_SHARE = Metric(
    "repeated_backward_share",
    "Part of the step in which backward passes go through a graph that another one of the step went through already.",
    "nodes with the name and autograd's number of an earlier one of the step / step time; 0 where several threads "
    "build graphs, and where nodes build one themselves, as for gradients of gradients",
    "`backward(retain_graph=True)` keeps the graph for the next pass",
    where=lambda view: stretches(spans(view.once(_repeated)), "nodes of a backward pass once more"),
)
REPEATED_BACKWARD_GAIN_MS = Metric(
    "repeated_backward_gain_ms",
    "Step time saved if one backward pass went through each graph.",
    "replay without these nodes and their kernels"
    + ELSE
    + "time of the kernels, without a device of the nodes / steps",
)
GRAPH_OPS_PER_STEP = Metric(
    "graph_ops_per_step",
    "Ops that build a graph which no backward pass goes through.",
    "different numbers of autograd's / steps: without a backward pass or an optimizer in the recording all, in three "
    "steps or more whose products build a graph; else those of unused_forward_share",
)
UNUSED_FORWARD_SHARE = Metric(
    "unused_forward_share",
    "Part of the step in which a training runs forward passes whose graph no backward pass goes through.",
    "from the first to the last product of ops in a row with numbers of autograd's that no node of the recording has, "
    "though a node has a later one / step time; 0 for fewer than two such passes, for products with one number, which "
    "build no graph, and where several threads build graphs",
    "PyTorch numbers the ops of a thread as they come, and a node as its op",
    where=lambda view: stretches(view.once(_unused_forwards)[0], "a forward pass without its backward pass"),
)
GRAPH_GAIN_MS = Metric(
    "graph_gain_ms",
    "Step time saved at most without such a graph.",
    "inference: half of the step without input, or with a device of its host-bound gaps; training: replay without the "
    "forward passes of unused_forward_share" + ELSE + "their kernels' time, without a device their time / steps",
    "of five models on a CPU, `inference_mode` saved 0, 24, 27, 33 and 43 %",
)


@measures(RECOMPUTED_SHARE, RECOMPUTATIONS_PER_STEP, RECOMPUTED_GAIN_MS)
def recomputed(view: DeviceView) -> Values:
    """Activation checkpointing; zero without it."""
    again = view.once(_recomputations)
    return {
        RECOMPUTED_SHARE: view.share(again),
        RECOMPUTATIONS_PER_STEP: len(again.starts) / view.steps.height,
        RECOMPUTED_GAIN_MS: _gain_ms(view, again),
    }


@measures(
    UNUSED_GRADIENTS,
    UNUSED_GRADIENTS_CLEARED,
    UNUSED_GRADIENTS_SHARE,
    UNUSED_GRADIENTS_LEAST_GAIN_MS,
    UNUSED_GRADIENTS_GAIN_MS,
)
def unused_gradients(view: DeviceView) -> Values:
    """Gradients of what is not trained; zero without any."""
    stored = view.used_like(_GRADIENT, "op")
    if stored.height and not stored["shapes"].count() and not _has_ranks(view):
        return Missing("no_shapes")
    needless, of_weights = view.once(_needless), view.once(_gradients)
    clear = of_weights.filter(~pl.col("is_unclear"))
    most = _after_used(clear)
    unused = of_weights.filter("is_unused")
    cleared = unused.filter("is_cleared")["window"].n_unique()
    updating_steps = view.used_like(OPTIMIZER_STEP)["window"].n_unique()
    if unused.height and cleared < _CLEARED and updating_steps < _UPDATES_IN_TURN:
        return Missing("updates_may_follow", needed=_UPDATES_IN_TURN)
    before = clear.filter(~inside(most, clear))
    layers = view.used_like(LAYER, "op")
    layers_ns = _OF_WEIGHTS * int(layers.filter(~inside(most, layers))["dur_ns"].sum())
    part = float(before["is_unused"].mean() or 0.0)  # type: ignore[arg-type]
    return {
        UNUSED_GRADIENTS: unused.height / view.steps.height,
        UNUSED_GRADIENTS_CLEARED: cleared,
        UNUSED_GRADIENTS_SHARE: view.share(needless),
        UNUSED_GRADIENTS_LEAST_GAIN_MS: _gain_ms(view, needless),
        UNUSED_GRADIENTS_GAIN_MS: _gain_ms(view, most) + part * view.per_step_ms(layers_ns),
    }


@measures(REPEATED_BACKWARD_SHARE, REPEATED_BACKWARD_GAIN_MS)
def repeated_backward(view: DeviceView) -> Values:
    """Several backward passes through one graph; zero without them."""
    again = spans(view.once(_repeated))
    return {REPEATED_BACKWARD_SHARE: view.share(again), REPEATED_BACKWARD_GAIN_MS: _gain_ms(view, again)}


@measures(GRAPH_OPS_PER_STEP, UNUSED_FORWARD_SHARE, GRAPH_GAIN_MS)
def unused_graph(view: DeviceView) -> Values:
    """Inference that builds a graph as training does, and forward passes of training without a backward pass."""
    if not _builds_only(view):
        passes, ops = view.once(_unused_forwards)
        return {
            GRAPH_OPS_PER_STEP: ops / view.steps.height,
            UNUSED_FORWARD_SHARE: view.share(passes),
            GRAPH_GAIN_MS: _gain_ms(view, passes),
        }
    numbers = view.used_host.filter(pl.col("kind") == "op").select("sequence").collect().to_series()
    waits = (view.host_spans("input") & Union.of(view.starts, view.ends)).total
    most = view.total_ns - waits if view.device is None else view.once(launch_gaps).total
    gain_ms = view.per_step_ms(_HALF * most)
    return {
        GRAPH_OPS_PER_STEP: len(numbers.drop_nulls().unique()) / view.steps.height,
        UNUSED_FORWARD_SHARE: 0.0,
        GRAPH_GAIN_MS: gain_ms,
    }


def _unused_forwards(view: DeviceView) -> tuple[Union, int]:
    """Forward passes of the used steps whose graph no backward pass goes through, and how many ops they number."""
    nodes, ops = view.host_like(NODE), view.once(_numbered).sort("start_ns")
    numbers = nodes["sequence"].drop_nulls()
    if not numbers.len():
        return EMPTY, 0
    unused = ~pl.col("sequence").is_in(numbers.implode()) & (pl.col("sequence") < numbers.max())
    ops = ops.filter(~inside(spans(nodes), ops)).with_columns(run=unused.rle_id(), unused=unused).filter("unused")
    products = ops.filter(matches(_PRODUCT)).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    builds = pl.col("sequence").is_unique().all()
    passes = products.group_by("run").agg(pl.min("start_ns"), pl.max("end_ns"), builds=builds).filter("builds")
    if passes.height < _SEVERAL or products["thread"].n_unique() > 1:
        return EMPTY, 0
    of_passes = ops.filter(pl.col("run").is_in(passes["run"].implode()))["sequence"].n_unique()
    return Union.of(passes["start_ns"].to_numpy(), passes["end_ns"].to_numpy()), of_passes


def _builds_only(view: DeviceView) -> bool:
    """Whether products of each of several steps build a graph, and nothing in the recording uses one."""
    if not view.has_marks or view.steps.height < _FEWEST_STEPS or view.host_like(_TRAINS).height:
        return False
    products = view.used_like(PRODUCTS, "op")
    with_graph = products.filter(pl.col("sequence").is_not_null())["window"].n_unique()
    return with_graph == view.steps.height and not without_graph(products)


def _recomputations(view: DeviceView) -> Union:
    """When nodes of backward passes run layers again: a union with one interval for each such node."""
    nodes, inner = _nodes(view)
    ops = view.once(_numbered)
    ops = ops.filter(~inside(inner, ops)).with_columns(layer=matches(_MODULE)).sort("start_ns")
    within = ops.join_asof(nodes, on="start_ns", by="thread", check_sortedness=False)
    last = (pl.col("start_ns") + pl.col("dur_ns")).max()
    again = (
        within.filter(pl.col("start_ns") < pl.col("end_ns"))
        .group_by("node")
        .agg(pl.min("start_ns"), last.alias("last_ns"), pl.col("layer").any())
        .filter("layer")
    )
    return Union.of(again["start_ns"].to_numpy(), again["last_ns"].to_numpy())


def _numbered(view: DeviceView) -> pl.DataFrame:
    """The ops outside of backward passes that bear a number of autograd's: name, thread, sequence, start_ns, dur_ns."""
    ops = view.used_host.filter(pl.col("kind") == "op", pl.col("sequence").is_not_null())
    return ops.select("name", "thread", "sequence", "start_ns", "dur_ns").collect().filter(~matches(BACKWARD))


def _nodes(view: DeviceView) -> tuple[pl.DataFrame, Union]:
    """The outermost nodes of backward passes that may run layers again, and when nodes within them run."""
    nodes = view.once(used_nodes).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    nodes = nodes.sort("thread", "start_ns")
    before = pl.col("end_ns").cum_max().shift(1).over("thread")
    is_outermost = before.is_null() | (pl.col("start_ns") >= before)
    may = ~matches(_OF_PROGRAM) | matches(_CHECKPOINT)
    outermost = nodes.filter(is_outermost, may).select("thread", "start_ns", "end_ns", node="id").sort("start_ns")
    return outermost, spans(nodes.filter(~is_outermost))


def _gradients(view: DeviceView) -> pl.DataFrame:
    """The gradients that used steps store: window, update, start_ns, end_ns, and `is_unused`, `_cleared`, `_unclear`.

    `update` counts the calls of optimizers before it. A gradient is unused where no optimizer updates such a shape, or
    none before it is cleared. None where optimizers update nothing of any, and in jobs of several ranks.
    """
    stored = view.used_like(_GRADIENT, "op").with_columns(end_ns=END_NS).sort("end_ns")
    added, calls = (_starts(view.host_like(name)) for name in (_ADDS, OPTIMIZER_STEP))
    adds = np.searchsorted(added, stored["end_ns"]) > np.searchsorted(added, stored["start_ns"])
    update = np.searchsorted(calls, stored["start_ns"])
    rows = stored.select("window", "start_ns", "end_ns", shape=_shapes().list.first())
    rows = rows.with_columns(update=pl.Series(update), adds=pl.Series(adds))
    updates = view.host_like(_UPDATES, "op")
    written = _by_shape(updates.filter(inside(optimizer_work(view), updates)), _shapes())
    is_updated = pl.col("shape").is_in(written["shape"].implode())
    rows = rows.with_columns(is_updated=is_updated, too_late=_cleared_before(view, rows, written, calls))
    is_known = not rows["shape"].null_count() and rows["is_updated"].any() and not _has_ranks(view)
    is_unused, is_cleared = ~pl.col("is_updated") | pl.col("too_late"), ~pl.col("adds") | pl.col("too_late")
    is_unclear = pl.col("shape").is_in(_shared(written, calls).implode()) & pl.col("too_late").any() & ~is_unused
    rows = rows.with_columns(is_unused=is_unused, is_cleared=is_cleared, is_unclear=is_unclear)
    return rows if is_known else rows.clear()


def _cleared_before(view: DeviceView, rows: pl.DataFrame, written: pl.DataFrame, calls: Ints) -> pl.Series:
    """Of gradients in order: whether each is cleared before an optimizer updates its shape.

    As where models train in turn: after the next call of an optimizer, which is another one, a gradient of that shape
    is stored anew, and until then no op outside of the backward passes takes the shape first, as what reads gradients
    does and layers do not.
    """
    following = np.searchsorted(calls, rows["end_ns"])
    after = np.append(calls, _NEVER)[following]
    anew = rows.filter(~pl.col("adds")).select("shape", at_ns="start_ns")
    stored = _next(rows.with_columns(end_ns=pl.Series(after)), anew)
    is_late = stored < _next(rows, written)
    if not is_late.any():
        return is_late
    ops = view.host.filter(pl.col("kind") == "op", ~matches(_OF_WEIGHTS_TOO))
    read = _by_shape(ops.filter(~inside(spans(view.host_like(NODE)), ops)), _shapes().list.head(1))
    return is_late & (_next(rows, read) >= stored)


def _shared(written: pl.DataFrame, calls: Ints) -> pl.Series:
    """Shapes that more calls of optimizers write than those of another shape: several models may have them."""
    of_call = written.with_columns(call=pl.Series(np.searchsorted(calls, written["at_ns"])))
    times = of_call.group_by("shape").agg(pl.n_unique("call"))
    return times.filter(pl.col("call") > pl.col("call").min())["shape"]


def _next(rows: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """When the next of these events with a row's shape begins after the row's end, in ns; `_NEVER` if none does."""
    hits = rows.join_asof(
        events.sort("at_ns"), left_on="end_ns", right_on="at_ns", by="shape", strategy="forward", check_sortedness=False
    )
    return hits["at_ns"].fill_null(_NEVER)


def _by_shape(ops: pl.DataFrame, shapes: pl.Expr) -> pl.DataFrame:
    """When ops begin, by the shapes that they take: shape, at_ns."""
    return ops.select(shape=shapes, at_ns="start_ns").explode("shape").drop_nulls()


def _shapes() -> pl.Expr:
    return pl.col("shapes").cast(pl.String).str.extract_all(_SHAPE)


def _starts(ops: pl.DataFrame) -> Ints:
    return np.sort(ops["start_ns"].to_numpy())


def _has_ranks(view: DeviceView) -> bool:
    """Whether the job communicates: an optimizer may then update a part of what the gradients are of."""
    return bool(view.collectives.height or (view.host["kind"] == "collective").any())


def _needless(view: DeviceView) -> Union:
    return _after_used(view.once(_gradients))


def _after_used(gradients: pl.DataFrame) -> Union:
    """From the last gradient before an update that an optimizer uses to the last one after it, which none does."""
    is_unused = pl.col("is_unused")
    by_update = gradients.group_by("window", "update").agg(
        start_ns=pl.col("end_ns").filter(~is_unused).max(), end_ns=pl.col("end_ns").filter(is_unused).max()
    )
    after = by_update.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    return Union.of(after["start_ns"].to_numpy(), after["end_ns"].to_numpy())


def _repeated(view: DeviceView) -> pl.DataFrame:
    """The nodes that an earlier backward pass of their step evaluated too."""
    nodes = view.once(used_nodes).filter(pl.col("sequence").is_not_null()).sort("start_ns")
    ops = view.once(_numbered)
    if ops["thread"].n_unique() > 1 or inside(spans(nodes), ops).any():
        return nodes.clear()
    number = pl.int_range(pl.len()).over("window", "name", "sequence")
    return nodes.with_columns(number=number).filter(pl.col("number") > 0)


def _gain_ms(view: DeviceView, when: Union) -> float:
    """Step time saved if the host left out what it does at these times, with the kernels that it calls for."""
    if view.device is None or not when.total:
        return view.per_step_ms(float(when.within(view.starts, view.ends).sum()))
    calls = view.host.filter(pl.col("kind").is_in(["runtime", "sync"]))
    calls = calls.filter(inside(when, calls))
    kernels = view.used_ops.join(calls.select(launch="id"), on="launch", how="semi")
    trusted = view.once(trusted_replay)
    if trusted is None:
        return view.per_step_ms(float(spans(kernels).within(view.starts, view.ends).sum()))
    ids = kernels["id"].to_numpy()
    without = trusted.without_host(when).without_calls(calls["id"].to_numpy())
    return trusted.saved_ms(without.with_durations(ids, np.zeros_like(ids)))
