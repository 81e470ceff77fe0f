"""Chains of elementwise kernels that move the same values through memory again and again."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches

_FUNCTIONS: Final = r"^aten::(?:tanh|sigmoid|exp|expm1|exp2|log|log1p|log2|pow|sin|cos|erf|softplus|gelu|silu|mish)_?$"


def _kernels(view: DeviceView) -> pl.DataFrame:
    return part(view, "chain")


def _chains(view: DeviceView) -> int:
    return view.once(_kernels)["run"].n_unique()


def _fused(_: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    """One kernel for each chain: twice as long as its longest, and as long as its shortest."""
    dur, is_first = pl.col("dur_ns"), pl.int_range(pl.len()).over("run") == 0
    computed = pl.when(matches(_FUNCTIONS)).then(dur).otherwise(0).sum()  # of ops: kernels have no such names
    slow, fast = (
        pl.when(is_first).then(pl.min_horizontal(dur.sum(), fused).over("run")).otherwise(0)
        for fused in (2 * pl.max_horizontal(dur.max(), computed), dur.min())
    )
    return slow, fast


measure = of_devices(__name__, needs=("device_ops.name",))

measure.kernels("elementwise_chain", _kernels, gives=("share", "ms", "ops")).says(
    "in chains of elementwise kernels",
    "elementwise, copy and random-number kernels of which at least three follow each other on a stream over equally "
    "many elements and within one layer's scope where ops are named by layer, without those of updates of parameters, "
    "attention and layout changes; a fill or random generator only begins a chain",
)
measure("elementwise_chains_per_step", lambda view: view.once(_chains) / view.steps.height).says(
    "Chains of elementwise kernels per step.", "chains / steps"
)
measure("elementwise_chain_kernels", lambda view: view.once(_kernels).height / max(1, view.once(_chains))).says(
    "Kernels in a chain of elementwise kernels.", "mean over the chains"
)
measure.faster("chain", _kernels, _fused).says(
    "fusing each chain of elementwise kernels",
    "one kernel per chain, twice as long as its longest; without a device at least twice as long as "
    "its functions (tanh, exp, ...) together",
    "one kernel per chain, as long as its shortest",
    "twice: other inputs, and values that the backward pass needs, still have to be moved. A CPU takes longer "
    "to compute a function than to move the values, and torch.compile computes it again in the backward pass: "
    "of 30 tanh in a chain, it saved nothing (own measurement)",
    "the shortest reads and writes as many values once: a fused kernel cannot do with less",
)
