"""Histories: each concatenation copies all that the ones before it put together."""

from typing import Final

import polars as pl

from advisor.analysis.device.histories import CONCATENATION, history_copies, unseen_growth
from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

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
    "layer of the model reads along that dimension, that another op makes or fills, or that autograd needs, and no "
    "constant is added",
    "own choice: four, 90 %, half",
)
measure("history_copies_per_step", lambda view: view.once(history_copies).height / view.steps.height).says(
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
