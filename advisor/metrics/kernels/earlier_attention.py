"""FlashAttention-2 on GPUs whose Tensor Cores it feeds too slowly: Hopper and Blackwell of data centres."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches

_CAPABILITIES: Final = (9.0, 12.0)  # from Hopper on; from 12.0 on GPUs have neither's asynchronous products
# of the second version; decoding (`splitkv`) reads the cache, whose bytes set its time
_SECOND: Final = r"\b(?:pytorch_)?flash::flash_(?:fwd_kernel|bwd_dq_dk_dv_loop)"
_LONG_NS: Final = 20_000  # what takes less mostly begins and ends: short sequences gain little
_RESTS: Final = (0.75, 0.5)  # of the time


def _kernels(view: DeviceView) -> pl.DataFrame:
    first, after = _CAPABILITIES
    chip = view.chip
    is_newer = chip is not None and chip.vendor == "NVIDIA" and first <= (chip.capability or 0) < after
    return view.once(kernels).filter(matches(_SECOND), pl.col("dur_ns") >= _LONG_NS, pl.lit(is_newer))


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))

measure.kernels("earlier_attention", _kernels).says(
    "in FlashAttention-2 on a GPU for which there are faster kernels",
    "kernels flash_fwd_kernel and flash_bwd_dq_dk_dv_loop of 20 µs and more, of GPUs of a compute capability of at "
    "least 9.0 and below 12.0",
)
measure.faster("earlier_attention", _kernels, _RESTS).says(
    "attention made for this GPU",
    "those kernels in three quarters of their time",
    "those kernels in half of their time",
    "FlashAttention-3 (2024), figures 5 and 6: 1.3 times as fast with 512 positions",
    "FlashAttention-3 (2024): 1.5 to 2 times as fast as FlashAttention-2 forward, 1.5 to 1.75 times backward",
)
