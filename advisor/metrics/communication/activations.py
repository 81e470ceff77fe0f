"""Reductions of activations, as tensor parallelism needs them: the forward pass waits for each."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.communication import device_collectives
from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints

_REDUCTIONS: Final = ["all_reduce", "reduce_scatter"]
_LARGE_BYTES: Final = 1 << 20  # losses and counts that are logged have less
_UPDATE: Final = r"^Optimizer\.(?:step|zero_grad)#"


def _per_step(view: DeviceView) -> float:
    """Reductions before the backward pass; zero where nothing shows when weights are updated."""
    is_large = pl.col("does").is_in(_REDUCTIONS) & (pl.col("size") >= _LARGE_BYTES)
    calls = view.host_of(view.once(device_collectives).filter(is_large)["launch"])
    return int(_is_forward(view, _begins(calls)).sum()) / view.steps.height


def _is_forward(view: DeviceView, at: Ints) -> Ints:
    """Whether each instant lies between an update of weights and the backward pass that follows it."""
    updates = np.sort(spans(view.host_like(_UPDATE)).ends)
    backward = np.sort(_begins(view.host_like(BACKWARD)))
    number = np.searchsorted(updates, at, side="right")
    if not len(updates) or not len(backward):
        return np.zeros(len(at), np.int64)
    since = np.where(number > 0, updates[np.maximum(number - 1, 0)], np.iinfo(np.int64).max)
    first = np.searchsorted(backward, since)
    follows = np.append(backward, np.iinfo(np.int64).min)[first]
    return (at < follows).astype(np.int64)


def _begins(rows: pl.DataFrame) -> Ints:
    begins: Ints = rows["start_ns"].to_numpy()
    return begins


of_devices(__name__, needs=("device_ops",))("forward_reductions_per_step", _per_step).says(
    "Reductions of 1 MiB and more per step that a forward pass needs: of activations, never of gradients.",
    "all_reduce and reduce_scatter kernels of that size that are called between the end of an Optimizer.step or "
    "zero_grad and the first op of a backward pass after it / steps",
    "Megatron-LM (2019): two all-reduces in the forward pass of a layer whose products are split among ranks",
)
