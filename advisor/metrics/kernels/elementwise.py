"""Chains of elementwise kernels that move the same values through memory again and again."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.profile import matches
from advisor.whatif import WORDS, faster, saved

_FUNCTIONS: Final = r"^aten::(?:tanh|sigmoid|exp|expm1|exp2|log|log1p|log2|pow|sin|cos|erf|softplus|gelu|silu|mish)_?$"


ELEMENTWISE_CHAIN_SHARE = Metric(
    "elementwise_chain_share",
    "Part of the step spent in chains of elementwise kernels.",
    "time of elementwise, copy and random-number kernels of which at least three follow each other on a stream "
    "over equally many elements and within one layer's scope where ops are named by layer, without those of "
    "updates of parameters, attention and layout changes; a fill or random generator only begins a chain / step time",
    where=lambda view: longest(part(view, "chain")),
)
ELEMENTWISE_CHAIN_MS = time_of("elementwise_chain_ms", ELEMENTWISE_CHAIN_SHARE, "time of those kernels / steps")
ELEMENTWISE_CHAIN_OPS = Metric(
    "elementwise_chain_ops",
    "The ops that launched chains of elementwise kernels.",
    "those with the most time, then the others",
    unit="text",
)
ELEMENTWISE_CHAINS_PER_STEP = Metric("elementwise_chains_per_step", "Such chains per step.", "chains / steps")
ELEMENTWISE_CHAIN_KERNELS = Metric("elementwise_chain_kernels", "Kernels in a chain.", "mean over the chains")
CHAIN_LEAST_GAIN_MS = Metric(
    "chain_least_gain_ms",
    "Step time that fusing each chain saves at least.",
    f"one kernel per chain, twice as long as its longest{WORDS['faster']}; without a device at least twice as long as "
    "its functions (tanh, exp, ...) together",
    "twice: other inputs, and values that the backward pass needs, still have to be moved. A CPU takes longer to "
    "compute a function than to move the values, and torch.compile computes it again in the backward pass: of 30 tanh "
    "in a chain, it saved nothing (own measurement)",
)
CHAIN_GAIN_MS = Metric(
    "chain_gain_ms",
    "Step time that fusing each chain saves at most.",
    f"one kernel per chain, as long as its shortest{WORDS['faster']}",
    "the shortest reads and writes as many values once: a fused kernel cannot do with less",
)


@measures(
    ELEMENTWISE_CHAIN_SHARE,
    ELEMENTWISE_CHAIN_MS,
    ELEMENTWISE_CHAIN_OPS,
    ELEMENTWISE_CHAINS_PER_STEP,
    ELEMENTWISE_CHAIN_KERNELS,
    CHAIN_LEAST_GAIN_MS,
    CHAIN_GAIN_MS,
    needs=("device_ops.name",),
)
def elementwise(view: DeviceView) -> Values:
    """Chains of elementwise kernels; zero where there are none."""
    kernels, dur = part(view, "chain"), pl.col("dur_ns")
    is_first = pl.int_range(pl.len()).over("run") == 0
    computed = pl.when(matches(_FUNCTIONS)).then(dur).otherwise(0).sum()  # of ops: kernels have no such names
    slow, fast = (
        pl.when(is_first).then(pl.min_horizontal(dur.sum(), fused).over("run")).otherwise(0)
        for fused in (2 * pl.max_horizontal(dur.max(), computed), dur.min())
    )
    chains = kernels["run"].n_unique()
    some, (least, most) = extent(view, kernels), saved(view, faster(kernels, slow, fast))
    return {
        ELEMENTWISE_CHAIN_SHARE: some.share,
        ELEMENTWISE_CHAIN_MS: some.ms,
        ELEMENTWISE_CHAIN_OPS: some.ops,
        ELEMENTWISE_CHAINS_PER_STEP: chains / view.steps.height,
        ELEMENTWISE_CHAIN_KERNELS: kernels.height / max(1, chains),
        CHAIN_LEAST_GAIN_MS: least,
        CHAIN_GAIN_MS: most,
    }
