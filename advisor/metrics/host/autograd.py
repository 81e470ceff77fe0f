"""What autograd does for nothing: layers again, graphs and gradients that nobody needs, the search for anomalies."""

from collections import Counter
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import LAYER, makers, nodes, used_nodes
from advisor.analysis.device.host_work import BACKWARD, optimizer_work
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.places import sampled, stretches
from advisor.analysis.device.recording_cost import measured_share, without_recording
from advisor.analysis.device.view import DeviceView, inside, outermost, spans, spent_ns
from advisor.inputs.names.calls import NODE, OPTIMIZER_STEP
from advisor.inputs.step_periods import PRODUCTS, without_graph
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals, Ints, begun
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.whatif.change import Change, Interval, between, loss, saved, together, without, without_work

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
_MOST: Final = 0.5  # of the step without the arithmetic of products
_DISPATCH_NS: Final = 20_000  # of a product: the rest is arithmetic, and takes as long without a graph
_LARGE_NS: Final = 500_000  # only such products are arithmetic where `nn.TransformerEncoderLayer` may fuse the others
_ATTENTION: Final = "_scaled_dot_product"

measure = of_devices(__name__)


def _graph(view: DeviceView) -> tuple[int, Change]:
    """How many ops build a graph that no backward pass goes through, and the change without it.

    Of inference that builds one as training does, or of a training's forward passes without a backward pass.
    """
    if not _builds_only(view):
        return view.once(_unused_forwards)[1], without_work(view, view.once(_forward_alone))
    numbers = view.used_host.filter(pl.col("kind") == "op").select("sequence").collect().to_series()
    waits = (view.host_spans("input") & view.windows).total
    products = view.used_like(PRODUCTS, "op")
    least = _LARGE_NS if products.filter(matches(_ATTENTION)).height else _DISPATCH_NS
    arithmetic = products.filter(pl.col("dur_ns") > least).with_columns(
        pl.col("start_ns") + _DISPATCH_NS, pl.col("dur_ns") - _DISPATCH_NS
    )
    most = view.total_ns - waits - spans(arithmetic).total if view.device is None else view.once(launch_gaps).total
    return len(numbers.drop_nulls().unique()), loss(0.0, _MOST * max(0, most))


def _forward_alone(view: DeviceView) -> Intervals:
    return view.once(_unused_forwards)[0]


def _unused_forwards(view: DeviceView) -> tuple[Intervals, int]:
    """Forward passes of the used steps whose graph no backward pass goes through, and how many ops they number."""
    nodes, ops = view.host_like(NODE), view.once(_numbered).sort("start_ns")
    numbers = nodes["sequence"].drop_nulls()
    if not numbers.len():
        return EMPTY, 0
    unused = ~pl.col("sequence").is_in(numbers.implode()) & (pl.col("sequence") < numbers.max())
    ops = ops.filter(~inside(spans(nodes), ops)).with_columns(run=unused.rle_id(), unused=unused).filter("unused")
    products = ops.filter(matches(_PRODUCT)).with_columns(end_ns=END_NS)
    builds = pl.col("sequence").is_unique().all()
    passes = products.group_by("run").agg(pl.min("start_ns"), pl.max("end_ns"), builds=builds).filter("builds")
    if passes.height < _SEVERAL or products["thread"].n_unique() > 1:
        return EMPTY, 0
    of_passes = ops.filter(pl.col("run").is_in(passes["run"].implode()))["sequence"].n_unique()
    return Intervals.of(passes["start_ns"], passes["end_ns"]), of_passes


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
    runs = within.filter(pl.col("start_ns") < pl.col("end_ns")).group_by("node")
    again = runs.agg(pl.min("start_ns"), pl.col("layer").any(), last_ns=END_NS.max()).filter("layer")
    return Intervals.of(again["start_ns"], again["last_ns"])


def _numbered(view: DeviceView) -> pl.DataFrame:
    """The ops outside of backward passes that bear a number of autograd's: name, thread, sequence, start_ns, dur_ns."""
    ops = view.used_host.filter(pl.col("kind") == "op", pl.col("sequence").is_not_null())
    return ops.select("name", "thread", "sequence", "start_ns", "dur_ns").collect().filter(~matches(BACKWARD))


def _nodes(view: DeviceView) -> tuple[pl.DataFrame, Intervals]:
    """The outermost nodes of backward passes that may run layers again, and when nodes within them run."""
    outer = outermost(view.once(used_nodes))
    inner = view.once(used_nodes).join(outer.select("id"), on="id", how="anti")
    may = outer.filter(~matches(_OF_PROGRAM) | matches(_CHECKPOINT))
    return may.select("thread", "start_ns", end_ns=END_NS, node="id").sort("start_ns"), spans(inner)


def _repetitions(view: DeviceView) -> Intervals:
    """When nodes run that an earlier backward pass of their step evaluated too."""
    nodes = view.once(used_nodes).filter(pl.col("sequence").is_not_null()).sort("start_ns")
    ops = view.once(_numbered)
    if ops["thread"].n_unique() > 1 or inside(spans(nodes), ops).any():
        return EMPTY
    return spans(nodes.filter(pl.int_range(pl.len()).over("window", "name", "sequence") > 0))


measure.share("recomputed_share", _recomputations, where=stretches(_recomputations, "layers computed again")).says(
    "Part of the step in which the backward pass computes layers of the forward pass again.",
    "from the first to the last op with a number of autograd's in each node of the backward pass that runs a layer, "
    "without nodes in it and those of the program's functions / step time",
    "torch.utils.checkpoint runs the forward pass again within a node, with gradients enabled",
)
measure("recomputations_per_step", lambda view: len(view.once(_recomputations).starts) / view.steps.height).says(
    "Parts of the model that the backward pass computes again.", "nodes that do so / steps"
)
measure.gain("recomputed", lambda view: without_work(view, view.once(_recomputations))).says(
    "Step time saved if the backward pass computed no layer again."
)
measure.share(
    "repeated_backward_share", _repetitions, where=stretches(_repetitions, "nodes of a backward pass once more")
).says(
    "Part of the step in which backward passes go through a graph that another one of the step went through already.",
    "nodes with the name and autograd's number of an earlier one of the step / step time; 0 where several threads "
    "build graphs, and where nodes build one themselves, as for gradients of gradients",
    "`backward(retain_graph=True)` keeps the graph for the next pass",
)
measure.gain("repeated_backward", lambda view: without_work(view, view.once(_repetitions))).says(
    "Step time saved if one backward pass went through each graph."
)
measure("graph_ops_per_step", lambda view: view.once(_graph)[0] / view.steps.height).says(
    "Ops that build a graph which no backward pass goes through.",
    "different numbers of autograd's / steps: without a backward pass or an optimizer in the recording all, in three "
    "steps or more whose products build a graph; else those of unused_forward_share",
)
measure.share(
    "unused_forward_share", _forward_alone, where=stretches(_forward_alone, "a forward pass without its backward pass")
).says(
    "Part of the step in which a training runs forward passes whose graph no backward pass goes through.",
    "from the first to the last product of ops in a row with numbers of autograd's that no node of the recording has, "
    "though a node has a later one / step time; 0 for fewer than two such passes, for products with one number, which "
    "build no graph, and where several threads build graphs",
    "PyTorch numbers the ops of a thread as they come, and a node as its op",
)
measure(
    "unused_forward_steps_share",
    lambda view: float((view.once(_forward_alone).within(view.starts, view.ends) > 0).mean()),
).says(
    "In which part of the steps such forward passes run: in few of them, they are a validation, say.",
    "steps with a part of unused_forward_share / steps",
)
measure.gain("graph", lambda view: view.once(_graph)[1]).says(
    "Step time saved at most without a graph that no backward pass goes through."
)


_CHECKS: Final = r"^aten::(?:isnan|_is_any_true|any|is_nonzero|item)$"
_SEARCH: Final = r"^aten::isnan$"
_VIEWS: Final = r"^aten::(?:t|view|transpose|permute|expand|select|slice|unsqueeze|squeeze|_reshape_alias|alias)$"
_VIEW_NS: Final = 10_000  # a view that notes no stack takes less
_SURE_PART: Final = 0.5  # a node of a leaf, which notes a stack too, may be made in the same op


def _checks(view: DeviceView) -> pl.DataFrame:
    checks = view.used_like(_CHECKS)
    return checks.filter(pl.col("parent").is_in(view.once(nodes)["id"].implode()))


def _notes(view: DeviceView) -> tuple[Intervals, int]:
    """When forward ops may note a stack, in the time that they take for themselves; and how long they surely do, in ns.

    Views compute nothing: what they take longer than without a note is surely one, and all notes take as long.
    """
    if view.once(_checks).is_empty():
        return EMPTY, 0
    forward, inner = view.once(makers), pl.col("kind").is_in(["op", "collective", *DRIVER_CALLS])
    within = view.used_host.filter(pl.col("parent").is_in(forward["id"].implode()), inner).collect()
    alone = spans(forward) - spans(within)
    own_ns = spent_ns(forward, alone).to_numpy()
    of_views = own_ns[forward.select(matches(_VIEWS)).to_series().to_numpy()]
    note_ns = max(0, int(np.median(of_views)) - _VIEW_NS) if len(of_views) else 0
    return alone, int(np.minimum(own_ns, note_ns).sum())


def _undetected(view: DeviceView) -> Change:
    """Without the checks, and without the time in which stacks may be noted; at least of half of what is sure."""
    checking, (notes, sure_ns) = spans(view.once(_checks)), view.once(_notes)
    ops = view.used_host.filter(pl.col("kind") == "op").select("start_ns").collect()
    recorded = int(inside(checking, ops).sum())
    unchecked = without_work(view, checking, (without_recording(view, checking.total, recorded), checking.total))
    rest, most_ns = 1 - sure_ns / max(1, notes.total), notes.total / (1 - (measured_share(view) or 0.0))
    unnoted = without(host=notes, rest=(rest, 0.0), bound_ns=(sure_ns, most_ns))
    return together(unchecked, unnoted).surely(_SURE_PART)


measure.per_step("anomaly_checks", lambda view: view.once(_checks).filter(matches(_SEARCH))).says(
    "Gradients per step that are searched for NaN, as torch.autograd.detect_anomaly does.",
    "aten::isnan called by autograd's engine itself / steps",
    "torch/csrc/autograd/engine.cpp",
)
measure("anomaly_ms", lambda view: view.per_step_ms(spans(view.once(_checks)).total)).says(
    "Host time per step in searches of gradients for NaN.",
    "time of aten::isnan, aten::any and the reading of the result, called by autograd's engine itself / steps",
    "torch/csrc/autograd/engine.cpp",
)
measure("anomaly_stacks_ms", lambda view: view.per_step_ms(view.once(_notes)[0].total)).says(
    "Host time per step in which forward ops may note Python's stack, as anomaly detection makes them do.",
    "time of forward ops that made a node, outside of the ops and calls within them / steps; 0 without checks",
    "torch/csrc/autograd/function.h: with anomaly detection each new node notes Python's stack",
)
measure.saving("anomaly", lambda view: saved(view, _undetected(view))).says("a backward pass without anomaly detection")


_GRADIENT: Final = r"^torch::autograd::AccumulateGrad$"
_UPDATES: Final = r"^aten::(?:add|sub|mul|addcdiv|addcmul|lerp|copy|_foreach_\w+|_fused_\w+)_$"
_SHAPES: Final = pl.col("shapes").cast(pl.String).str.extract_all(r"\[[\d, ]*\]")
_WRITTEN: Final = (
    pl.col("shapes").cast(pl.String).str.extract(r"^\[(\[\[.*?\]\]|\[[\d, ]*\])").str.extract_all(r"\[[\d, ]*\]")
)  # the first argument, or each tensor of a list
_OF_WEIGHTS_TOO: Final = r"^aten::(?:t|transpose|detach)$"  # what layers do to their weights
_NEVER: Final = np.iinfo(np.int64).max
_CLEARED: Final = 2  # steps: what they store anew was cleared in between
_UPDATES_IN_TURN: Final = 8  # own choice: models that train in turn do so every five steps (WGAN), or more often
_CLIPS: Final = r"^aten::(?:_foreach_norm|_foreach_mul_|linalg_vector_norm)$"  # `clip_grad_norm_`, of all gradients
_OF_WEIGHTS: Final = 0.75  # own choice: a layer computes two gradients, of its weight and of its input


def _unused(view: DeviceView) -> pl.DataFrame:
    return view.once(_gradients).filter("is_unused")


def _cleared(view: DeviceView) -> int:
    return view.once(_unused).filter("is_cleared")["window"].n_unique()


def _gradients_unknown(view: DeviceView) -> Missing | None:
    stored = view.used_like(_GRADIENT, "op")
    if stored.height and not stored["shapes"].count() and not _has_ranks(view):
        return Missing("no_shapes")
    updating_steps = view.used_like(OPTIMIZER_STEP)["window"].n_unique()
    if view.once(_unused).height and view.once(_cleared) < _CLEARED and updating_steps < _UPDATES_IN_TURN:
        return Missing("updates_may_follow", needed=_UPDATES_IN_TURN)
    return None


def _unneeded(view: DeviceView) -> Interval:
    needless, layers = view.once(_needless), view.used_like(LAYER, "op")
    layers_ns = _OF_WEIGHTS * int(layers.filter(~inside(needless, layers))["dur_ns"].sum())
    gradients = view.once(_gradients)
    part = float(gradients.filter(~inside(needless, gradients))["is_unused"].mean() or 0.0)  # type: ignore[arg-type]
    clips = spans(view.used_like(_CLIPS, "op")) - view.once(optimizer_work)
    clips_ns = float(gradients["is_unused"].mean() or 0.0) * view.used_ns(clips)  # type: ignore[arg-type]
    change = without_work(view, needless)
    return saved(view, between(change, change.beyond(part * layers_ns + clips_ns)))


def _gradients(view: DeviceView) -> pl.DataFrame:
    """The gradients that used steps store: window, update, start_ns, end_ns, and `is_unused`, `is_cleared`.

    `update` counts the calls of optimizers before it. A gradient is unused where no optimizer updates such a shape, or
    none before it is cleared. None where optimizers update nothing of any, or long lists, and in jobs of several ranks.
    """
    stored = view.used_like(_GRADIENT, "op").with_columns(end_ns=END_NS).sort("end_ns")
    calls = np.sort(view.host_like(OPTIMIZER_STEP)["start_ns"].to_numpy())
    adds = begun(view.host_like("^aten::add_$")["start_ns"], stored["start_ns"], stored["end_ns"]) > 0
    update = np.searchsorted(calls, stored["start_ns"])
    rows = stored.select("window", "start_ns", "end_ns", shape=_SHAPES.list.first())
    rows = rows.with_columns(update=pl.Series(update), adds=pl.Series(adds))
    updates = view.host_like(_UPDATES, "op")
    updates = updates.filter(inside(view.once(optimizer_work), updates))
    hides = updates.filter(matches("^aten::_f"), matches(r"^\[\[\]", "shapes"))  # lists of more than 30 tensors
    written = _by_shape(updates, _SHAPES)
    is_updated = pl.col("shape").is_in(written["shape"].implode()) & (_in_block(rows, updates) | adds.any())
    rows = rows.with_columns(is_updated=is_updated, too_late=_cleared_before(view, rows, written, calls))
    is_known = rows["is_updated"].any() and not (rows["shape"].null_count() or hides.height or _has_ranks(view))
    is_unused, is_cleared = ~pl.col("is_updated") | pl.col("too_late"), ~pl.col("adds") | pl.col("too_late")
    rows = rows.with_columns(is_unused=is_unused, is_cleared=is_cleared)
    return rows if is_known else rows.clear()


def _in_block(rows: pl.DataFrame, updates: pl.DataFrame) -> pl.Series:
    """Of gradients of different parameters in order: false outside of a block with just the shapes that are updated.

    Of several such blocks the last one counts. The last op that writes a shape writes each parameter of it.
    """
    written = updates.select("name", "start_ns", shape=_WRITTEN).explode("shape").sort("start_ns")
    shapes, begins, mask = rows["shape"].to_list(), [*rows["start_ns"], _NEVER], np.ones(rows.height, np.bool_)
    for first, end in pairwise([*np.flatnonzero(np.diff(rows["update"], prepend=-1)), rows.height]):
        is_next = pl.col("start_ns").is_between(begins[first], begins[end])
        following = written.filter(is_next, pl.col("shape").is_in(shapes[first:end]))
        counts = Counter(following.filter(pl.col("name") == pl.col("name").last().over("shape"))["shape"])
        size = counts.total()
        blocks = [at for at in range(first, end - size + 1) if Counter(shapes[at : at + size]) == counts]
        if size and blocks:
            mask[first : blocks[-1]] = mask[blocks[-1] + size : end] = False
    return pl.Series(mask)


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
    read = _by_shape(ops.filter(~inside(spans(view.host_like(NODE)), ops)), _SHAPES.list.head(1))
    return is_late & (_next(rows, read) >= stored)


def _next(rows: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """When the next of these events with a row's shape begins after the row's end, in ns; `_NEVER` if none does."""
    hits = rows.join_asof(
        events.sort("at_ns"), left_on="end_ns", right_on="at_ns", by="shape", strategy="forward", check_sortedness=False
    )
    return hits["at_ns"].fill_null(_NEVER)


def _by_shape(ops: pl.DataFrame, shapes: pl.Expr) -> pl.DataFrame:
    """When ops begin, by the shapes that they take: shape, at_ns."""
    return ops.select(shape=shapes, at_ns="start_ns").explode("shape").drop_nulls()


def _has_ranks(view: DeviceView) -> bool:
    """Whether the job communicates: an optimizer may then update a part of what the gradients are of."""
    return bool(view.collectives.height or (view.host["kind"] == "collective").any())


def _needless(view: DeviceView) -> Intervals:
    """From the last gradient before an update that an optimizer uses to the last one after it, which none does."""
    last_used, last_unused = (pl.col("end_ns").filter(which).max() for which in (~pl.col("is_unused"), "is_unused"))
    by_update = view.once(_gradients).group_by("window", "update").agg(start_ns=last_used, end_ns=last_unused)
    after = by_update.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns")
    return Intervals.of(after["start_ns"], after["end_ns"])


of_gradients = of_devices(__name__, unknown=_gradients_unknown)
of_gradients("unused_gradients", lambda view: view.once(_unused).height / view.steps.height).says(
    "Gradients that a step computes for parameters, or inputs, and that no optimizer uses.",
    "AccumulateGrad with a shape that no op has that writes in an Optimizer.step# range, or not until, after the next "
    "such range, one without aten::add_ in it has the shape, and no other op has it first; if none adds, also those "
    "outside of a row of gradients with just the shapes that are written next, the last such row / steps; 0 if none, "
    "or lists of more than 30 tensors are updated, whose shapes PyTorch does not record, and in jobs of several ranks, "
    "whose optimizers update parts; unknown if fewer than two steps store such gradients "
    "anew, because they add up, and fewer than eight steps update anything",
    "Kineto's shapes",
)
of_gradients("unused_gradients_cleared", _cleared, unit="count").says(
    "Steps that store such gradients anew: what was cleared in between, no optimizer can use.",
    "used steps with such an AccumulateGrad without aten::add_ in it, or with one before an update of that shape",
    "PyTorch's AccumulateGrad takes the first gradient over and adds the others",
)
of_gradients.share(
    "unused_gradients_share", _needless, where=stretches(_needless, "gradients that no optimizer uses")
).says(
    "Part of the step in which the backward pass computes gradients after the last one that an optimizer uses.",
    "from the last AccumulateGrad with such a shape to the last one of the step / step time",
    "Kineto's shapes",
)
of_gradients.saving("unused_gradients", _unneeded).says("training without gradients that no optimizer uses")


def _unheld_line(view: DeviceView) -> str:
    """The line that calls that part of the model, as most samples show it; empty where none does."""
    part = view.process.get("unheld_part") or ""
    lines: Counter[str] = Counter()
    for row in view.once(sampled).to_dicts() if part else ():
        frames = (of for of in (*(row["callers"] or ()), row) if of["line"] and of["call"])  # a library's have no line
        calls = (of for of in frames if of["call"].rpartition(".")[2] == part)
        lines.update({f"{of['line']} `{of['call']}(...)`": row["ns"] for of in calls})
    return max(lines, key=lambda line: lines[line], default="")


measure("unheld_parameters", lambda view: view.process.get("unheld") or 0, unit="count").says(
    "Parameters with gradients that no optimizer of the program has, and that do not change in the recording.",
    "parameters of all modules with a gradient, in no group of an optimizer, whose first value and version are "
    "the same before and after it, as `advisor record` notes; 0 where it does not",
)
measure("unheld_line", _unheld_line, unit="text").says(
    "The line that calls the largest part of a model with such parameters alone; empty where none was sampled.",
    "the sampled line with most time whose call ends in the part's name",
)
