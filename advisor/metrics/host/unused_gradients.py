"""Gradients that a training computes and no optimizer uses."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import LAYER
from advisor.analysis.device.host_work import optimizer_work
from advisor.analysis.device.places import stretches
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import NODE, OPTIMIZER_STEP
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals, Ints, begun
from advisor.model.profile import END_NS, matches
from advisor.whatif.change import Interval, between, saved, without_work

_GRADIENT: Final = r"^torch::autograd::AccumulateGrad$"
_UPDATES: Final = r"^aten::(?:add|sub|mul|addcdiv|addcmul|lerp|copy|_foreach_\w+|_fused_\w+)_$"
_SHAPES: Final = pl.col("shapes").cast(pl.String).str.extract_all(r"\[[\d, ]*\]")
_OF_WEIGHTS_TOO: Final = r"^aten::(?:t|transpose|detach)$"  # what layers do to their weights
_NEVER: Final = np.iinfo(np.int64).max
_CLEARED: Final = 2  # steps: what they store anew was cleared in between
_UPDATES_IN_TURN: Final = 8  # own choice: models that train in turn do so every five steps (WGAN), or more often
_OF_WEIGHTS: Final = 0.75  # own choice: a layer computes two gradients, of its weight and of its input


def _unused(view: DeviceView) -> pl.DataFrame:
    return view.once(_gradients).filter("is_unused")


def _cleared(view: DeviceView) -> int:
    return view.once(_unused).filter("is_cleared")["window"].n_unique()


def _unknown(view: DeviceView) -> Missing | None:
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
    change = without_work(view, needless)
    return saved(view, between(change, change.beyond(part * layers_ns)))


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
    is_updated = pl.col("shape").is_in(written["shape"].implode())
    rows = rows.with_columns(is_updated=is_updated, too_late=_cleared_before(view, rows, written, calls))
    is_known = rows["is_updated"].any() and not (rows["shape"].null_count() or hides.height or _has_ranks(view))
    is_unused, is_cleared = ~pl.col("is_updated") | pl.col("too_late"), ~pl.col("adds") | pl.col("too_late")
    rows = rows.with_columns(is_unused=is_unused, is_cleared=is_cleared)
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


measure = of_devices(__name__, unknown=_unknown)
measure("unused_gradients", lambda view: view.once(_unused).height / view.steps.height).says(
    "Gradients that a step computes for parameters, or inputs, and that no optimizer uses.",
    "AccumulateGrad with a shape that no op has that writes in an Optimizer.step# range, or not until, after the next "
    "such range, one without aten::add_ in it has the shape, and no other op has it first / steps; 0 if none has it, "
    "or lists of more than 30 tensors are updated, whose shapes PyTorch does not record, and in jobs of several ranks, "
    "whose optimizers update parts; unknown if fewer than two steps store such gradients "
    "anew, because they add up, and fewer than eight steps update anything",
    "Kineto's shapes",
)
measure("unused_gradients_cleared", _cleared, unit="count").says(
    "Steps that store such gradients anew: what was cleared in between, no optimizer can use.",
    "used steps with such an AccumulateGrad without aten::add_ in it, or with one before an update of that shape",
    "PyTorch's AccumulateGrad takes the first gradient over and adds the others",
)
measure(
    "unused_gradients_share",
    lambda view: view.share(view.once(_needless)),
    where=stretches(_needless, "gradients that no optimizer uses"),
).says(
    "Part of the step in which the backward pass computes gradients after the last one that an optimizer uses.",
    "from the last AccumulateGrad with such a shape to the last one of the step / step time",
    "Kineto's shapes",
)
measure.saving("unused_gradients", _unneeded).says("training without gradients that no optimizer uses")
