"""Tensors that grow: each concatenation copies all that the ones before it put together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.kernel_gains import REPLAYED, gains_ms
from advisor.analysis.device.kernels import extent, kernels, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Metric, Values, measures, time_of
from advisor.model.missing import Missing

_CONCATENATION: Final = r"^aten::cat$"
_BACKWARD: Final = r"CatBackward\d*$"
_CONVOLUTION: Final = r"^aten::conv(?:olution|[123]d)$"
_CHANNELS: Final = 1  # the dimension of images and volumes that layers of convolutions may add to on purpose
_IMAGE: Final = 4  # dimensions
_FEWEST: Final = 4  # lengths in a row that grow by the same: fewer may be so by chance
_MOST_GROW: Final = 0.9  # of the changes: the others begin another history
_SHAPES: Final = 2  # sides of an array of shapes
_COLUMNS: Final = {"shapes": pl.String, "history": pl.String, "length": pl.Int64, "added": pl.Int64}
_WORTH_LOOKING: Final = 0.01  # of the step
_SHORTEST_NS: Final = 2_000  # a kernel or an op that copies little begins and ends, for the most part
_REMAINDER: Final = 0.5  # of the time of the copy, at most: what writes the new part has to find it first

HISTORY_COPY_SHARE = Metric(
    "history_copy_share",
    "Part of the step in concatenations of a history, which one before them made, with something new.",
    "time of those kernels / step time; a history: the largest of the tensors, if its length in at least four calls of "
    "aten::cat grows by what is added, in 90 % of the changes; no channels of images beside convolutions, and nothing "
    "that autograd needs; 0 where all concatenations together take less than 1 % of the step",
    "own choice: four, 90 %, 1 %",
    where=lambda view: longest(view.once(_copies)),
)
HISTORY_COPY_MS = time_of("history_copy_ms", HISTORY_COPY_SHARE, "time of those kernels / steps")
HISTORY_COPIES_PER_STEP = Metric("history_copies_per_step", "Such concatenations per step.", "calls / steps")
HISTORY_LENGTH = Metric(
    "history_length",
    "How many times as long a history is as what is added to it.",
    "mean of length / what is added, over those calls; 0 without any",
)
HISTORY_LEAST_GAIN_MS = Metric(
    "history_least_gain_ms",
    "Step time saved at least if only what is new was written.",
    f"those kernels in half of their time, and in that for what is new{REPLAYED}",
    "half is an own choice",
)
HISTORY_GAIN_MS = Metric(
    "history_gain_ms",
    "Step time saved at most if only what is new was written.",
    f"those kernels in the part of their time that is for what is new, but no less than 2 µs{REPLAYED}",
)


@measures(
    *(HISTORY_COPY_SHARE, HISTORY_COPY_MS, HISTORY_COPIES_PER_STEP, HISTORY_LENGTH),
    *(HISTORY_LEAST_GAIN_MS, HISTORY_GAIN_MS),
    needs=("host_ops",),
    framework="pytorch",
)
def histories(view: DeviceView) -> Values:
    """Concatenations that copy a history; zero without any."""
    lacks_shapes = view.host["shapes"].null_count() == view.host.height
    if lacks_shapes and extent(view, _kernels(view, view.used_like(_CONCATENATION, "op"))).share >= _WORTH_LOOKING:
        return Missing("no_shapes")
    rows, calls = view.once(_copies), view.once(_calls)
    new = pl.max_horizontal(pl.col("dur_ns") * pl.col("new_share"), pl.min_horizontal("dur_ns", pl.lit(_SHORTEST_NS)))
    least, most = gains_ms(view, rows, new + (pl.col("dur_ns") - new) * _REMAINDER, new)
    some = extent(view, rows)
    return {
        HISTORY_COPY_SHARE: some.share,
        HISTORY_COPY_MS: some.ms,
        HISTORY_COPIES_PER_STEP: calls.height / view.steps.height,
        HISTORY_LENGTH: float((calls["length"] / calls["added"]).to_numpy().mean()) if calls.height else 0.0,
        HISTORY_LEAST_GAIN_MS: least,
        HISTORY_GAIN_MS: most,
    }


class _Growth(NamedTuple):
    """What a call adds to the largest of its tensors, along the dimension in which they differ."""

    history: str  # the other dimensions and what is added: in these, calls for one history agree
    length: int
    added: int


def _copies(view: DeviceView) -> pl.DataFrame:
    """The kernels of calls that copy a history, or without a device the calls, with the `new_share` of their work."""
    calls = view.once(_calls)
    return _kernels(view, calls).join(calls.select("new_share", op="id"), on="op", how="left")


def _kernels(view: DeviceView, calls: pl.DataFrame) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("op").is_in(calls["id"].implode()))


def _calls(view: DeviceView) -> pl.DataFrame:
    """The calls that concatenate a history, with `length`, `added` and the `new_share` of what they copy."""
    needed = view.host_like(_BACKWARD)["sequence"].drop_nulls()
    calls = view.used_like(_CONCATENATION, "op").filter(
        ~pl.col("sequence").is_in(needed.implode()).fill_null(value=False)
    )
    calls = calls.with_columns(pl.col("shapes").cast(pl.String)).drop_nulls("shapes")
    has_images = view.used_like(_CONVOLUTION, "op").height > 0
    growths = {
        shapes: growth for shapes in calls["shapes"].unique() if (growth := _growth(shapes, has_images=has_images))
    }
    rows = [(shapes, *growth) for shapes, growth in growths.items()]
    calls = calls.join(pl.DataFrame(rows, schema=_COLUMNS, orient="row"), on="shapes").sort("start_ns")
    lengths = calls.group_by("history", maintain_order=True).agg("length", pl.first("added"))
    growing = [name for name, length, added in lengths.rows() if _grows(length, added)]
    new_share = pl.col("added") / (pl.col("length") + pl.col("added"))
    return calls.filter(pl.col("history").is_in(growing)).with_columns(new_share=new_share)


def _growth(shapes: str, *, has_images: bool) -> _Growth | None:
    """What a call with inputs of these shapes adds; None where no tensor is larger than the others together."""
    try:
        tensors = np.array(json.loads(shapes)[0])
    except (ValueError, LookupError):  # cut off, or of different ranks
        return None
    if tensors.ndim != _SHAPES or tensors.dtype.kind != "i":
        return None
    differs = np.flatnonzero((tensors != tensors[0]).any(axis=0))
    if len(differs) != 1 or (has_images and tensors.shape[1] >= _IMAGE and differs[0] == _CHANNELS):
        return None
    lengths = tensors[:, differs[0]]
    longest_ = int(lengths.max())
    added = int(lengths.sum()) - longest_
    others = tensors[0].tolist()
    others[differs[0]] = -1
    return _Growth(f"{others} + {added}", longest_, added) if 0 < added < longest_ else None


def _grows(lengths: Sequence[int], added: int) -> bool:
    """Whether nearly each next length is the one before with what was added; layers may share a length."""
    changes = np.diff(lengths)
    changes = changes[changes != 0]
    return len(changes) >= _FEWEST - 1 and float((changes == added).mean()) >= _MOST_GROW
