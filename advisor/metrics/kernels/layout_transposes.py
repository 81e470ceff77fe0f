"""Tensors converted between channels first and channels last around convolutions."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches

_VOLUMES: Final = r"(?i)3d|ndhwc|ncdhw"
_OF_VOLUMES: Final = 5
_PARTS: Final = (0.25, 0.0)  # of their time, in a model of channels last


def _kernels(view: DeviceView) -> pl.DataFrame:
    return part(view, "layout")


def _dimensions(view: DeviceView) -> Value:
    """Of the tensors with the most time in conversions; unknown where neither shapes nor names say."""
    kernels = view.once(_kernels)
    if not kernels.height:
        return 0.0
    sides = pl.col("shape").str.count_matches(",") + 1
    of_kernel = pl.when(matches(_VOLUMES)).then(_OF_VOLUMES).otherwise(sides)
    by_sides = kernels.group_by(sides=of_kernel).agg(pl.sum("dur_ns")).filter(pl.col("sides").is_in([4, _OF_VOLUMES]))
    longest_first = by_sides.sort("dur_ns", "sides", descending=True)["sides"]
    return float(longest_first[0]) if len(longest_first) else Missing("launching_ops_not_recorded")


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))

measure.kernels("layout_transpose", _kernels, gives=("share", "ms", "ops")).says(
    "in conversions of tensors between NCHW and NHWC for convolutions",
    "kernels that are so named, or transpose and were launched by a convolution",
)
measure("layout_transposes_per_step", lambda view: view.once(_kernels).height / view.steps.height).says(
    "Conversions of tensors between NCHW and NHWC per step.", "kernels / steps"
)
measure("layout_dimensions", _dimensions).says(
    "Dimensions of the tensors that are converted: 4 of images, 5 of volumes.",
    "sides of the ops' largest input, of the kernels with the most time; from names with 3d or NDHWC 5; 0 without any",
)
measure.faster("layout", _kernels, _PARTS).says(
    "a model in channels last",
    "those kernels at a quarter of their time",
    "without those kernels",
    "a quarter is an own choice: what enters and leaves the network is converted still",
    "",
)
