"""Tensors converted between channels first and channels last around convolutions."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.whatif import WORDS, faster, saved

_VOLUMES: Final = r"(?i)3d|ndhwc|ncdhw"
_OF_VOLUMES: Final = 5
_REMAINDER: Final = 0.25  # of their time, in a model of channels last


LAYOUT_TRANSPOSE_SHARE = Metric(
    "layout_transpose_share",
    "Part of the step spent converting tensors between NCHW and NHWC for convolutions.",
    "time of kernels that are so named, or transpose and were launched by a convolution / step time",
    where=lambda view: longest(part(view, "layout")),
)
LAYOUT_TRANSPOSE_MS = time_of("layout_transpose_ms", LAYOUT_TRANSPOSE_SHARE, "time of those kernels / steps")
LAYOUT_TRANSPOSE_OPS = Metric(
    "layout_transpose_ops",
    "The ops that launched conversions between NCHW and NHWC.",
    "those with the most time, then the others",
    unit="text",
)
LAYOUT_TRANSPOSES_PER_STEP = Metric("layout_transposes_per_step", "Such kernels per step.", "kernels / steps")
LAYOUT_DIMENSIONS = Metric(
    "layout_dimensions",
    "Dimensions of the tensors that are converted: 4 of images, 5 of volumes.",
    "sides of the ops' largest input, of the kernels with the most time; from names with 3d or NDHWC 5; 0 without any",
)
LAYOUT_LEAST_GAIN_MS = Metric(
    "layout_least_gain_ms",
    "Step time that a model in channels last saves at least.",
    f"those kernels at a quarter of their time{WORDS['faster']}",
    "a quarter is an own choice: what enters and leaves the network is converted still",
)
LAYOUT_GAIN_MS = Metric(
    "layout_gain_ms",
    "Step time that a model in channels last saves at most.",
    f"without those kernels{WORDS['faster']}",
)


@measures(
    LAYOUT_TRANSPOSE_SHARE,
    LAYOUT_TRANSPOSE_MS,
    LAYOUT_TRANSPOSE_OPS,
    LAYOUT_TRANSPOSES_PER_STEP,
    LAYOUT_DIMENSIONS,
    LAYOUT_LEAST_GAIN_MS,
    LAYOUT_GAIN_MS,
    needs=("device_ops", "device_ops.name"),
)
def layouts(view: DeviceView) -> Values:
    """Conversions around convolutions; zero where there are none."""
    kernels = part(view, "layout")
    some = extent(view, kernels)
    least, most = saved(view, faster(kernels, pl.col("dur_ns") * _REMAINDER, pl.lit(0)))
    return {
        LAYOUT_TRANSPOSE_SHARE: some.share,
        LAYOUT_TRANSPOSE_MS: some.ms,
        LAYOUT_TRANSPOSE_OPS: some.ops,
        LAYOUT_TRANSPOSES_PER_STEP: kernels.height / view.steps.height,
        LAYOUT_DIMENSIONS: _dimensions(kernels),
        LAYOUT_LEAST_GAIN_MS: least,
        LAYOUT_GAIN_MS: most,
    }


def _dimensions(kernels: pl.DataFrame) -> Value:
    """Of the tensors with the most time in conversions; unknown where neither shapes nor names say."""
    if not kernels.height:
        return 0.0
    sides = pl.col("shape").str.count_matches(",") + 1
    of_kernel = pl.when(matches(_VOLUMES)).then(_OF_VOLUMES).otherwise(sides)
    by_sides = kernels.group_by(sides=of_kernel).agg(pl.sum("dur_ns")).filter(pl.col("sides").is_in([4, _OF_VOLUMES]))
    longest_first = by_sides.sort("dur_ns", "sides", descending=True)["sides"]
    return float(longest_first[0]) if len(longest_first) else Missing("launching_ops_not_recorded")
