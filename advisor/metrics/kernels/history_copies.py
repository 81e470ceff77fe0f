"""Histories, and windows that slide: each concatenation copies all that the ones before it put together."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.op_work import is_shape, values_of
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing
from advisor.model.profile import matches

CONCATENATION: Final = r"^aten::cat$"
_FEATURES: Final = {r"^aten::(?:linear|matmul)$": -1, r"^aten::conv(?:olution|[123]d)$": 1}
"""By the name of a layer, the dimension of its input that it has weights for."""
_SLICE: Final = "aten::slice"
_SLICE_OPTIONS: Final = 5  # the tensor, then dimension, start, end and step
_INNER: Final = ("aten::narrow", "aten::as_strided")  # they call slices, or are called by views
_UNSEEN: Final = r"^\[\s*\[\s*\]"  # a list of no shapes: the profiler writes those of 30 tensors at most
_PARTS: Final = 2  # what is kept of a window, and what is new
_FEWEST: Final = 4  # lengths in a row that grow by the same: fewer may be so by chance
_MOST_GROW: Final = 0.9  # of the changes, and of the calls: the others begin another history
_MOST_READ: Final = 0.5  # of a window, between two calls
_COLUMNS: Final = {"shapes": pl.String, "history": pl.String, "length": pl.Int64, "added": pl.Int64}

_Shape: TypeAlias = tuple[int, ...]


def history_copies(view: DeviceView) -> pl.DataFrame:
    """The calls of the used steps that copy a history to add to it.

    With the `length` of the history, what is `added` along it, and whether it `slides`: as much is dropped.
    """
    # All of them, in steps and between, whose shapes are recorded and that autograd does not need.
    calls = view.host_like(CONCATENATION, "op").join(view.host_like(r"CatBackward\d*$"), on="sequence", how="anti")
    calls = calls.with_columns(pl.col("shapes").cast(pl.String)).drop_nulls("shapes").sort("start_ns")
    joins = {shapes: joined for shapes in calls["shapes"].unique() if (joined := _joined(shapes))}
    known = [(shapes, _history(view, of), sum(of.lengths) - of.added, of.added) for shapes, of in joins.items()]
    calls = calls.join(pl.DataFrame(known, schema=_COLUMNS, orient="row"), on="shapes", maintain_order="left")
    lengths = calls.drop_nulls("history").group_by("history", maintain_order=True).agg("length", pl.first("added"))
    growing = [name for name, length, added in lengths.rows() if _grows(length, added)]
    calls = calls.with_columns(slides=~pl.col("history").is_in(growing).fill_null(value=False))
    counts = calls.filter("slides").group_by("shapes").len().filter(pl.col("len") >= _FEWEST)
    sliding = [shapes for shapes, count in counts.rows() if _slides(view, joins[shapes], count)]
    used = view.used_like(CONCATENATION, "op").select("id")
    return calls.filter(~pl.col("slides") | pl.col("shapes").is_in(sliding)).join(used, on="id", how="semi")


class _Joined(NamedTuple):
    """Tensors that differ in one dimension, their lengths in it, and what becomes of them."""

    dimension: int
    lengths: list[int]
    result: _Shape

    @property
    def added(self) -> int:
        """What is not of the longest."""
        return sum(self.lengths) - max(self.lengths)


def _joined(shapes: str) -> _Joined | None:
    """The tensors of a call; None where they do not differ, or none is larger than the others together."""
    shapes_of = _first_input(shapes)
    is_known = isinstance(shapes_of, list) and all(map(is_shape, shapes_of))  # long lists are cut off
    tensors = np.array(shapes_of) if is_known and len({*map(len, shapes_of)}) == 1 else np.empty((0, 0), np.int64)
    differs = np.flatnonzero((tensors != tensors[:1]).any(axis=0))
    if len(differs) != 1:
        return None
    at, lengths = int(differs[0]), tensors[:, differs[0]].tolist()
    joined = _Joined(at, lengths, (*tensors[0, :at].tolist(), sum(lengths), *tensors[0, at + 1 :].tolist()))
    return joined if 0 < 2 * joined.added < sum(lengths) else None


def _first_input(shapes: str | None) -> Any:  # noqa: ANN401 - JSON
    """The shape of a tensor, or those of a list."""
    inputs = values_of(shapes or "")
    return inputs[0] if isinstance(inputs, list) and inputs else None


def _history(view: DeviceView, joined: _Joined) -> str | None:
    """What calls for one history agree in; None if the first tensor is not what the call before made, by its shape."""
    at, result = joined.dimension, joined.result
    if joined.lengths[0] < max(joined.lengths) or (at, result) in view.once(_read_by_layers):
        return None  # what is put before, a token of the class say, is of a model
    return f"{[*result[:at], -1, *result[at + 1 :]]} + {joined.added}"


def _grows(lengths: Sequence[int], added: int) -> bool:
    """Whether nearly each next length is the one before with what was added, in equally many calls of each.

    Layers share a length. Batches sorted by length have some of each.
    """
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    changes, calls = np.diff(np.array(lengths)[starts]), np.diff(starts)[1:]
    return (
        len(changes) >= _FEWEST - 1
        and float((changes == added).mean()) >= _MOST_GROW
        and float((calls == np.median(calls)).mean()) >= _MOST_GROW
    )


def _read_by_layers(view: DeviceView) -> set[tuple[int, _Shape]]:
    """Dimension and shape of what layers read as features: no history has weights for each length."""
    kinds = view.once(_kinds)
    return {
        (dimension % len(shape), shape)
        for layer, dimension in _FEATURES.items()
        for shapes in kinds.filter(pl.col("name").str.contains(layer))["shapes"].unique()
        if (shape := tuple(_first(shapes)))
    }


def _kinds(view: DeviceView) -> pl.DataFrame:
    """Each kind of call of an op with the number of calls; without what concatenations call."""
    ops = view.host.lazy().filter(pl.col("kind") == "op", pl.col("shapes").is_not_null())
    rows = ops.select("name", "shapes", "details", "start_ns").collect()
    within = inside(spans(view.host_like(CONCATENATION, "op")), rows)
    kinds = rows.filter(~within | matches(CONCATENATION)).group_by("name", "shapes", "details").len()
    return kinds.with_columns(pl.col("name", "shapes", "details").cast(pl.String))


def _first(shapes: str | None) -> list[int]:
    """The shape of the first input; empty where it is no tensor."""
    first = _first_input(shapes)
    return first if is_shape(first) else []


def _cut(details: str | None, shape: _Shape) -> tuple[int, int] | None:
    """The dimension that a slice cuts, and how much of it is left; None where that was not recorded."""
    options = values_of(details or "")
    if not isinstance(options, list) or len(options) != _SLICE_OPTIONS:
        return None
    try:
        side, start, end, step = (int(text) if text else None for text in options[1:])
        at = (side or 0) % len(shape)
        return at, len(range(*slice(start, end, step).indices(shape[at])))
    except (TypeError, ValueError):
        return None


def _slides(view: DeviceView, joined: _Joined, calls: int) -> bool:
    """Whether calls put something new to all the rest of a tensor as long as what they make, little of which is read.

    Each keeps a slice of it, and all else that reads one reads little.
    """
    side, result = joined.dimension, joined.result
    if len(joined.lengths) != _PARTS:
        return False
    text = str([*result]).replace(" ", "")
    shapes = pl.col("shapes").str.replace_all(" ", "", literal=True)
    slices, read = 0, 0.0
    for name, inputs, details, count in view.once(_kinds).filter(shapes.str.contains(text, literal=True)).rows():
        part = _part_read(name, inputs, details, result)
        if part is None:
            return False
        if name == _SLICE and _cut(details, result) == (side, result[side] - joined.added):
            slices += count
        else:
            read += count * part
    return slices >= calls - 1 and read <= _MOST_READ * calls


def _part_read(name: str, shapes: str, details: str | None, shape: _Shape) -> float | None:
    """The part of a tensor that an op reads at most; None where that is not known."""
    if name in _INNER:
        return 0.0  # within the others
    if tuple(_first(shapes)) != shape:
        return None
    if name == _SLICE:
        cut = _cut(details, shape)
        return cut[1] / shape[cut[0]] if cut else None
    return 1 / min(shape) if name == "aten::select" else None


def unseen_growth(view: DeviceView) -> pl.DataFrame:
    """Calls with more tensors than the profiler writes shapes of, if what the next op reads grows from call to call."""
    long = view.host_like(CONCATENATION, "op").filter(pl.col("shapes").cast(pl.String).str.contains(_UNSEEN))
    if long.height < _FEWEST:
        return long.clear()
    ops = view.host.lazy().filter(pl.col("kind") == "op").sort("start_ns", "id")
    following = ops.select("id", following=pl.col("shapes").cast(pl.String).shift(-1).over("thread")).collect()
    read = long.sort("start_ns").join(following, on="id", maintain_order="left")["following"]
    changes = [b - a for a, b in pairwise(prod(_first(shapes)) for shapes in read)]
    return long if min(changes) == max(changes) > 0 else long.clear()


_WORTH_LOOKING: Final = 0.01  # of the step
_SHORTEST_NS: Final = 2_000  # a kernel or an op that copies little begins and ends, for the most part
_REMAINDER: Final = 0.5  # of the time of the copy, at most: what writes the new part has to find it first


def _unknown(view: DeviceView) -> Missing | None:
    """What hides whether enough time goes into histories to be worth a look."""
    lacks_shapes = view.host["shapes"].null_count() == view.host.height
    if lacks_shapes and _is_worth(view, view.used_like(CONCATENATION, "op")):
        return Missing("no_shapes")
    return Missing("long_lists") if _is_worth(view, unseen_growth(view)) else None


def _is_worth(view: DeviceView, calls: pl.DataFrame) -> bool:
    return (view.share(spans(_kernels(view, calls))) or 0.0) >= _WORTH_LOOKING


def _copies(view: DeviceView) -> pl.DataFrame:
    """The kernels of calls that copy a history, or without a device the calls, with what the calls know of it."""
    calls = view.once(history_copies)
    return _kernels(view, calls).join(calls.select("length", "added", op="id"), on="op", how="left")


def _kernels(view: DeviceView, calls: pl.DataFrame) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("op").is_in(calls["id"].implode()))


def _length(view: DeviceView) -> float:
    calls = view.once(history_copies)
    return float((calls["length"] / calls["added"]).to_numpy().mean()) if calls.height else 0.0


def _new_parts(_: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    dur, new_share = pl.col("dur_ns"), pl.col("added") / (pl.col("length") + pl.col("added"))
    new = pl.max_horizontal(dur * new_share, pl.min_horizontal(dur, pl.lit(_SHORTEST_NS)))
    return new + (dur - new) * _REMAINDER, new


measure = of_devices(__name__, needs=("host_ops",), framework="pytorch", unknown=_unknown)

measure.kernels("history_copy", _copies).says(
    "in concatenations of a history, which one before them made, with something new",
    "kernels that copy a history: the first and largest tensor, if its length in at least four calls of aten::cat "
    "grows by what is added, in 90 % of the changes, with equally many calls of each length; or a slice of a tensor as "
    "long as the result of at least four calls, if all else that reads one reads half of it at most; nothing that a "
    "layer of the model reads along that dimension, or that autograd needs",
    "own choice: four, 90 %, half",
)
measure.per_step("history_copies", history_copies).says(
    "Concatenations of a history with something new per step.", "calls / steps"
)
measure("history_length", _length).says(
    "How many times as long a history is as what is added to it.",
    "mean of length / what is added, over those calls; 0 without any",
)
measure(
    "history_window_part",
    lambda view: float(view.once(history_copies)["slides"].sum()) / max(1, view.once(history_copies).height),
).says(
    "How many of the concatenations of a history drop as much of it as they add.",
    "such calls / those calls; 0 without any",
)
measure.faster("history", _copies, _new_parts).says("writing only what is new of a history")
