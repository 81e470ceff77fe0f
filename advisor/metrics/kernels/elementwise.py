"""Chains of elementwise kernels that move the same values through memory again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.roofline import REPLAYED, gains_ms
from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures

_NEEDS: Final = ("device_ops.name",)


@measures(
    Metric(
        "elementwise_chain_share",
        "share",
        "Part of the step spent in chains of elementwise kernels.",
        "time of elementwise, copy and random-number kernels of which at least three follow each other on a stream "
        "over equally many elements and within one layer's scope where ops are named by layer, without those of "
        "optimizer, attention and layout changes; a fill or random generator only begins a chain / step time",
        where=lambda view: longest(part(view, "chain")),
        needs=_NEEDS,
    ),
    Metric("elementwise_chain_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("elementwise_chain_ops", "text", "The ops that launched them.", "the three with the most", needs=_NEEDS),
    Metric("elementwise_chains_per_step", "number", "Such chains per step.", "chains / steps", needs=_NEEDS),
    Metric("elementwise_chain_kernels", "number", "Kernels in a chain.", "mean over the chains", needs=_NEEDS),
    Metric(
        "chain_least_gain_ms",
        "ms",
        "Step time that fusing each chain gives back at least.",
        f"one kernel per chain, twice as long as its longest{REPLAYED}",
        "twice: other inputs, and values that the backward pass needs, still have to be moved",
        needs=_NEEDS,
    ),
    Metric(
        "chain_gain_ms",
        "ms",
        "Step time that fusing each chain gives back at most.",
        f"one kernel per chain, as long as its shortest{REPLAYED}",
        "the shortest reads and writes as many values once: a fused kernel cannot do with less",
        needs=_NEEDS,
    ),
)
def elementwise(view: DeviceView) -> Mapping[str, Value]:
    """Chains of elementwise kernels; zero where there are none."""
    if not view.total_ns:
        return {}
    found, dur = part(view, "chain"), pl.col("dur_ns")
    is_first = pl.int_range(pl.len()).over("run") == 0
    slow, fast = (
        pl.when(is_first).then(pl.min_horizontal(dur.sum(), left).over("run")).otherwise(0)
        for left in (2 * dur.max(), dur.min())
    )
    chains = found["run"].n_unique()
    counts = (chains / view.steps.height, found.height / max(1, chains))
    return dict(zip(_NAMES, (*extent(view, found), *counts, *gains_ms(view, found, slow, fast)), strict=True))


_NAMES: Final = (
    *("elementwise_chain_share", "elementwise_chain_ms", "elementwise_chain_ops"),
    *("elementwise_chains_per_step", "elementwise_chain_kernels", "chain_least_gain_ms", "chain_gain_ms"),
)
