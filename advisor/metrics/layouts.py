"""Tensors converted between channels first and channels last around convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.lens import Lane
from advisor.metrics.registry import Metric, Value, measures
from advisor.patterns import parts
from advisor.roofline import gains_ms
from advisor.workload import largest, longest

_REMAINING: Final = 0.25  # inputs and outputs of the network are converted still
_NEEDS: Final = ("device_ops",)
_REPLAYED: Final = "; replay of the recorded steps with that; where no replay can be trusted, 0 and the kernels' time"


def _conversions(lane: Lane) -> pl.DataFrame:
    return lane.once(parts).filter(pl.col("part") == "layout")


@measures(
    Metric(
        "layout_transpose_share",
        "share",
        "Part of the step spent converting tensors between NCHW and NHWC for convolutions.",
        "time of kernels that are so named, or transpose and were launched by a convolution / step time",
        "advisor.patterns",
        _NEEDS,
        lambda lane: longest(_conversions(lane)),
    ),
    Metric("layout_transpose_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("layout_transposes_per_step", "number", "Such kernels per step.", "kernels / steps", needs=_NEEDS),
    Metric("layout_transpose_ops", "text", "The ops that launched them.", "the three with the most time", needs=_NEEDS),
    Metric(
        "layout_least_gain_ms",
        "ms",
        "Step time that a model in channels last gives back at least.",
        f"those kernels at a quarter of their time{_REPLAYED}",
        "own choice: first and last conversions stay",
        _NEEDS,
    ),
    Metric(
        "layout_gain_ms",
        "ms",
        "Step time that a model in channels last gives back at most.",
        f"without those kernels{_REPLAYED}",
        needs=_NEEDS,
    ),
)
def layouts(lane: Lane) -> Mapping[str, Value]:
    """Conversions around convolutions; zero where there are none."""
    if not lane.total_ns:
        return {}
    found = _conversions(lane)
    total = int(found["dur_ns"].sum())
    low, high = gains_ms(lane, found, pl.col("dur_ns") * _REMAINING, pl.lit(0))
    return {
        "layout_transpose_share": total / lane.total_ns,
        "layout_transpose_ms": lane.per_step_ms(total),
        "layout_transposes_per_step": found.height / lane.steps.height,
        "layout_transpose_ops": largest(lane, found),
        "layout_least_gain_ms": low,
        "layout_gain_ms": high,
    }
