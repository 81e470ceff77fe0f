"""What autograd does for nothing: layers again, graphs and gradients that nobody needs, the search for anomalies."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import LAYER, makers, nodes, used_nodes
from advisor.analysis.device.host_work import BACKWARD, optimizer_work
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.places import stretches
from advisor.analysis.device.recording_cost import measured_share, without_recording
from advisor.analysis.device.view import DeviceView, inside, spans, spent_ns
from advisor.inputs.names.calls import NODE, OPTIMIZER_STEP
from advisor.inputs.step_periods import PRODUCTS, without_graph
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.whatif import Change, between, loss, saved, together, without, without_work

_MODULE: Final = (
    r"^aten::(?:linear|conv(?:_transpose)?[123]d|(?:layer|batch|group|instance|rms)_norm|scaled_dot_product_attention"
    r"|embedding|lstm|gru)$"
)
_OF_PROGRAM: Final = r": \w+Backward$"  # a function of the program's may compute what it likes
_CHECKPOINT: Final = r": \w*Checkpoint\w*$"  # torch.utils.checkpoint's, which is written as such a one
_TRAINS: Final = rf"{BACKWARD}|^Optimizer\."
_FEWEST_STEPS: Final = 3
_PRODUCT: Final = r"^aten::(?:addmm|mm|bmm|baddbmm|convolution)$"  # of those within each other, the one with the node
_SEVERAL: Final = 2
_MOST: Final = 0.5  # of the step
_MOST_OF_LARGE: Final = 0.25  # with large ops
_LARGE_NS: Final = 500_000

measure = of_devices(__name__)


class _Graph(NamedTuple):
    """A graph that no backward pass goes through: its ops, a training's forward passes, and the change without it."""

    ops: int
    passes: Intervals
    without: Change


def _graph(view: DeviceView) -> _Graph:
    """Of inference that builds a graph as training does, or of a training's forward passes without a backward pass."""
    if not _builds_only(view):
        passes, ops = view.once(_unused_forwards)
        return _Graph(ops, passes, without_work(view, passes))
    numbers = view.used_host.filter(pl.col("kind") == "op").select("sequence").collect().to_series()
    waits = (view.host_spans("input") & Intervals.of(view.starts, view.ends)).total
    most = view.total_ns - waits if view.device is None else view.once(launch_gaps).total
    ops = len(numbers.drop_nulls().unique())
    part = _MOST_OF_LARGE if view.device is None and most > _LARGE_NS * ops else _MOST
    return _Graph(ops, EMPTY, loss(0.0, part * most))


def _unused_forwards(view: DeviceView) -> tuple[Intervals, int]:
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
    return Intervals.of(passes["start_ns"].to_numpy(), passes["end_ns"].to_numpy()), of_passes


def _builds_only(view: DeviceView) -> bool:
    """Whether products of each of several steps build a graph, and nothing in the recording uses one."""
    if not view.has_marks or view.steps.height < _FEWEST_STEPS or view.host_like(_TRAINS).height:
        return False
    products = view.used_like(PRODUCTS, "op")
    with_graph = products.filter(pl.col("sequence").is_not_null())["window"].n_unique()
    return with_graph == view.steps.height and not without_graph(products)


def _recomputations(view: DeviceView) -> Intervals:
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
    return Intervals.of(again["start_ns"].to_numpy(), again["last_ns"].to_numpy())


def _numbered(view: DeviceView) -> pl.DataFrame:
    """The ops outside of backward passes that bear a number of autograd's: name, thread, sequence, start_ns, dur_ns."""
    ops = view.used_host.filter(pl.col("kind") == "op", pl.col("sequence").is_not_null())
    return ops.select("name", "thread", "sequence", "start_ns", "dur_ns").collect().filter(~matches(BACKWARD))


def _nodes(view: DeviceView) -> tuple[pl.DataFrame, Intervals]:
    """The outermost nodes of backward passes that may run layers again, and when nodes within them run."""
    nodes = view.once(used_nodes).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    nodes = nodes.sort("thread", "start_ns")
    before = pl.col("end_ns").cum_max().shift(1).over("thread")
    is_outermost = before.is_null() | (pl.col("start_ns") >= before)
    may = ~matches(_OF_PROGRAM) | matches(_CHECKPOINT)
    outermost = nodes.filter(is_outermost, may).select("thread", "start_ns", "end_ns", node="id").sort("start_ns")
    return outermost, spans(nodes.filter(~is_outermost))


def _repeated(view: DeviceView) -> pl.DataFrame:
    """The nodes that an earlier backward pass of their step evaluated too."""
    nodes = view.once(used_nodes).filter(pl.col("sequence").is_not_null()).sort("start_ns")
    ops = view.once(_numbered)
    if ops["thread"].n_unique() > 1 or inside(spans(nodes), ops).any():
        return nodes.clear()
    number = pl.int_range(pl.len()).over("window", "name", "sequence")
    return nodes.with_columns(number=number).filter(pl.col("number") > 0)


def _repetitions(view: DeviceView) -> Intervals:
    return spans(view.once(_repeated))


measure(
    "recomputed_share",
    lambda view: view.share(view.once(_recomputations)),
    where=stretches(_recomputations, "layers computed again"),
)
measure("recomputations_per_step", lambda view: len(view.once(_recomputations).starts) / view.steps.height)
measure.gain("recomputed", lambda view: without_work(view, view.once(_recomputations)))
measure(
    "repeated_backward_share",
    lambda view: view.share(view.once(_repetitions)),
    where=stretches(_repetitions, "nodes of a backward pass once more"),
)
measure.gain("repeated_backward", lambda view: without_work(view, view.once(_repetitions)))
measure("graph_ops_per_step", lambda view: view.once(_graph).ops / view.steps.height)
measure(
    "unused_forward_share",
    lambda view: view.share(view.once(_graph).passes),
    where=stretches(lambda view: view.once(_unused_forwards)[0], "a forward pass without its backward pass"),
)
measure(
    "unused_forward_steps_share",
    lambda view: float((view.once(_graph).passes.within(view.starts, view.ends) > 0).mean()),
)
measure.gain("graph", lambda view: view.once(_graph).without)


_CHECKS: Final = r"^aten::(?:isnan|_is_any_true|any|is_nonzero|item)$"
_SEARCH: Final = r"^aten::isnan$"
_NOTES_STACK: Final = r"traceback\.py\(\d+\): format_stack$"
_VIEWS: Final = r"^aten::(?:t|view|transpose|permute|expand|select|slice|unsqueeze|squeeze|_reshape_alias|alias)$"
_VIEW_NS: Final = 10_000  # a view that notes no stack takes less
_SURE_PART: Final = 0.5  # a node of a leaf, which notes a stack too, may be made in the same op


class _Notes(NamedTuple):
    """When forward ops may note a stack; in ns how long they surely do; and whether they are recorded doing it."""

    when: Intervals
    sure_ns: int
    is_recorded: bool


def _checks(view: DeviceView) -> pl.DataFrame:
    checks = view.used_like(_CHECKS)
    return checks.filter(pl.col("parent").is_in(view.once(nodes)["id"].implode()))


def _notes(view: DeviceView) -> _Notes:
    """Stacks are noted in the time that forward ops take for themselves; recorded calls of Python show when."""
    if view.once(_checks).is_empty():
        return _Notes(EMPTY, 0, is_recorded=False)
    forward = view.once(makers)
    within = view.used_host.filter(pl.col("parent").is_in(forward["id"].implode())).collect()
    inner = within.filter(pl.col("kind").is_in(["op", "collective", *DRIVER_CALLS]))
    alone = spans(forward) - spans(inner)
    frames = within.filter(pl.col("kind") == "python", matches(_NOTES_STACK))
    if frames.height:
        return _Notes(alone, spans(frames).total, is_recorded=True)
    own_ns = spent_ns(forward, alone).to_numpy()
    of_views = own_ns[forward.select(matches(_VIEWS)).to_series().to_numpy()]
    note_ns = max(0, int(np.median(of_views)) - _VIEW_NS) if len(of_views) else 0
    return _Notes(alone, int(np.minimum(own_ns, note_ns).sum()), is_recorded=False)


def _undetected(view: DeviceView) -> Change:
    """Without the checks, and without the time in which stacks may be noted; at least of half of what is sure."""
    checking, notes = spans(view.once(_checks)), view.once(_notes)
    ops = view.used_host.filter(pl.col("kind") == "op").select("start_ns").collect()
    recorded = int(inside(checking, ops).sum())
    slower = 0.0 if notes.is_recorded else measured_share(view) or 0.0
    unchecked = without_work(view, checking, (without_recording(view, checking.total, recorded), checking.total))
    rest, most_ns = 1 - notes.sure_ns / max(1, notes.when.total), notes.when.total / (1 - slower)
    unnoted = without(host=notes.when, rest=(rest, 0.0), bound_ns=(notes.sure_ns, most_ns))
    return together(unchecked, unnoted).surely(_SURE_PART)


measure("anomaly_checks_per_step", lambda view: view.once(_checks).filter(matches(_SEARCH)).height / view.steps.height)
measure("anomaly_ms", lambda view: view.per_step_ms(spans(view.once(_checks)).total))
measure("anomaly_stacks_ms", lambda view: view.per_step_ms(view.once(_notes).when.total))
measure.saving("anomaly", lambda view: saved(view, _undetected(view)))


_GRADIENT: Final = r"^torch::autograd::AccumulateGrad$"
_UPDATES: Final = r"^aten::(?:add|sub|mul|addcdiv|addcmul|lerp|copy|_foreach_\w+|_fused_\w+)_$"
_SHAPE: Final = r"\[[\d, ]*\]"
_OF_WEIGHTS_TOO: Final = r"^aten::(?:t|transpose|detach)$"  # what layers do to their weights
_NEVER: Final = np.iinfo(np.int64).max
_ADDS: Final = r"^aten::add_$"
_CLEARED: Final = 2  # steps: what they store anew was cleared in between
_UPDATES_IN_TURN: Final = 8  # own choice: models that train in turn do so every five steps (WGAN), or more often
_OF_WEIGHTS: Final = 0.75  # own choice: a layer computes two gradients, of its weight and of its input


def _unused_gradients(view: DeviceView) -> pl.DataFrame:
    return view.once(_gradients).filter("is_unused")


def _cleared(view: DeviceView) -> int:
    return view.once(_unused_gradients).filter("is_cleared")["window"].n_unique()


def _unknown(view: DeviceView) -> Missing | None:
    stored = view.used_like(_GRADIENT, "op")
    if stored.height and not stored["shapes"].count() and not _has_ranks(view):
        return Missing("no_shapes")
    updating_steps = view.used_like(OPTIMIZER_STEP)["window"].n_unique()
    if view.once(_unused_gradients).height and view.once(_cleared) < _CLEARED and updating_steps < _UPDATES_IN_TURN:
        return Missing("updates_may_follow", needed=_UPDATES_IN_TURN)
    return None


def _unneeded(view: DeviceView) -> Change:
    clear = view.once(_gradients).filter(~pl.col("is_unclear"))
    most = _after_used(clear)
    before = clear.filter(~inside(most, clear))
    layers = view.used_like(LAYER, "op")
    layers_ns = _OF_WEIGHTS * int(layers.filter(~inside(most, layers))["dur_ns"].sum())
    part = float(before["is_unused"].mean() or 0.0)  # type: ignore[arg-type]
    return between(without_work(view, view.once(_needless)), without_work(view, most).beyond(part * layers_ns))


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


def _needless(view: DeviceView) -> Intervals:
    return _after_used(view.once(_gradients))


def _after_used(gradients: pl.DataFrame) -> Intervals:
    """From the last gradient before an update that an optimizer uses to the last one after it, which none does."""
    is_unused = pl.col("is_unused")
    by_update = gradients.group_by("window", "update").agg(
        start_ns=pl.col("end_ns").filter(~is_unused).max(), end_ns=pl.col("end_ns").filter(is_unused).max()
    )
    after = by_update.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    return Intervals.of(after["start_ns"].to_numpy(), after["end_ns"].to_numpy())


of_gradients = of_devices(__name__, unknown=_unknown)
of_gradients("unused_gradients", lambda view: view.once(_unused_gradients).height / view.steps.height)
of_gradients("unused_gradients_cleared", lambda view: view.once(_cleared), unit="count")
of_gradients(
    "unused_gradients_share",
    lambda view: view.share(view.once(_needless)),
    where=stretches(_needless, "gradients that no optimizer uses"),
)
of_gradients.saving("unused_gradients", lambda view: saved(view, _unneeded(view)))
