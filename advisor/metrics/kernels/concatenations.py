"""Histories: each concatenation copies all that the ones before it put together."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.histories import CONCATENATION, history_copies, unseen_growth
from advisor.analysis.device.kernels import extent, kernels, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.missing import Missing
from advisor.whatif import WORDS, faster, saved

_WORTH_LOOKING: Final = 0.01  # of the step
_SHORTEST_NS: Final = 2_000  # a kernel or an op that copies little begins and ends, for the most part
_REMAINDER: Final = 0.5  # of the time of the copy, at most: what writes the new part has to find it first

HISTORY_COPY_SHARE = Metric(
    "history_copy_share",
    "Part of the step in concatenations of a history, which one before them made, with something new.",
    "time of those kernels / step time; a history: the first and largest tensor, if its length in at least four "
    "calls of aten::cat grows by what is added, in 90 % of the changes, with equally many calls of each length; or a "
    "slice of a tensor as long as the result of at least four calls, if all else that reads one reads half of it at "
    "most; nothing that a layer of the model reads along that dimension, that another op makes or fills, or that "
    "autograd needs, and no constant is added",
    "own choice: four, 90 %, half",
    where=lambda view: longest(view.once(_copies)),
)
HISTORY_COPY_MS = time_of("history_copy_ms", HISTORY_COPY_SHARE, "time of those kernels / steps")
HISTORY_COPIES_PER_STEP = Metric("history_copies_per_step", "Such concatenations per step.", "calls / steps")
HISTORY_LENGTH = Metric(
    "history_length",
    "How many times as long a history is as what is added to it.",
    "mean of length / what is added, over those calls; 0 without any",
)
HISTORY_WINDOW_PART = Metric(
    "history_window_part",
    "How much of those calls drops as much of the history as it adds.",
    "such calls / those calls; 0 without any",
)
HISTORY_LEAST_GAIN_MS = Metric(
    "history_least_gain_ms",
    "Step time saved at least if only what is new was written.",
    f"those kernels in half of their time, and in that for what is new{WORDS['faster']}",
    "half is an own choice",
)
HISTORY_GAIN_MS = Metric(
    "history_gain_ms",
    "Step time saved at most if only what is new was written.",
    f"those kernels in the part of their time that is for what is new, but no less than 2 µs{WORDS['faster']}",
)


@measures(
    *(HISTORY_COPY_SHARE, HISTORY_COPY_MS, HISTORY_COPIES_PER_STEP, HISTORY_LENGTH),
    *(HISTORY_WINDOW_PART, HISTORY_LEAST_GAIN_MS, HISTORY_GAIN_MS),
    needs=("host_ops",),
    framework="pytorch",
)
def histories(view: DeviceView) -> Values:
    """Concatenations that copy a history; zero without any."""
    lacks_shapes = view.host["shapes"].null_count() == view.host.height
    if lacks_shapes and extent(view, _kernels(view, view.used_like(CONCATENATION, "op"))).share >= _WORTH_LOOKING:
        return Missing("no_shapes")
    if extent(view, _kernels(view, unseen_growth(view))).share >= _WORTH_LOOKING:
        return Missing("long_lists")
    rows, calls = view.once(_copies), view.once(history_copies)
    new_share = pl.col("added") / (pl.col("length") + pl.col("added"))
    new = pl.max_horizontal(pl.col("dur_ns") * new_share, pl.min_horizontal("dur_ns", pl.lit(_SHORTEST_NS)))
    least, most = saved(view, faster(rows, new + (pl.col("dur_ns") - new) * _REMAINDER, new))
    some = extent(view, rows)
    return {
        HISTORY_COPY_SHARE: some.share,
        HISTORY_COPY_MS: some.ms,
        HISTORY_COPIES_PER_STEP: calls.height / view.steps.height,
        HISTORY_LENGTH: float((calls["length"] / calls["added"]).to_numpy().mean()) if calls.height else 0.0,
        HISTORY_WINDOW_PART: float(calls["slides"].sum()) / max(1, calls.height),
        HISTORY_LEAST_GAIN_MS: least,
        HISTORY_GAIN_MS: most,
    }


def _copies(view: DeviceView) -> pl.DataFrame:
    """The kernels of calls that copy a history, or without a device the calls, with what the calls know of it."""
    calls = view.once(history_copies)
    return _kernels(view, calls).join(calls.select("length", "added", op="id"), on="op", how="left")


def _kernels(view: DeviceView, calls: pl.DataFrame) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("op").is_in(calls["id"].implode()))
