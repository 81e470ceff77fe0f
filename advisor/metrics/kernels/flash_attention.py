"""FlashAttention-2 on GPUs whose Tensor Cores it feeds too slowly: Hopper and Blackwell of data centres."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, kernels, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.profile import matches
from advisor.whatif import WORDS, faster, saved

_CAPABILITIES: Final = (9.0, 12.0)  # from Hopper on; from 12.0 on GPUs have neither's asynchronous products
# of the second version; decoding (`splitkv`) reads the cache, whose bytes set its time
_SECOND: Final = r"\b(?:pytorch_)?flash::flash_(?:fwd_kernel|bwd_dq_dk_dv_loop)"
_LONG_NS: Final = 20_000  # what takes less mostly begins and ends: short sequences gain little
_RESTS: Final = (0.75, 0.5)  # of the time


EARLIER_ATTENTION_SHARE = Metric(
    "earlier_attention_share",
    "Part of the step in FlashAttention-2 on a GPU for which there are faster kernels.",
    "time of kernels flash_fwd_kernel and flash_bwd_dq_dk_dv_loop of 20 µs and more / step time; 0 where the compute"
    " capability is below 9.0, or 12.0 and above",
    where=lambda view: longest(_kernels(view)),
)
EARLIER_ATTENTION_MS = Metric("earlier_attention_ms", "Time per step of these kernels.", "that time / steps")
EARLIER_ATTENTION_LEAST_GAIN_MS = Metric(
    "earlier_attention_least_gain_ms",
    "Step time that attention made for this GPU saves at least.",
    f"those kernels in three quarters of their time{WORDS['faster']}",
    "FlashAttention-3 (2024), figures 5 and 6: 1.3 times as fast with 512 positions",
)
EARLIER_ATTENTION_GAIN_MS = Metric(
    "earlier_attention_gain_ms",
    "Step time that attention made for this GPU saves at most.",
    f"those kernels in half of their time{WORDS['faster']}",
    "FlashAttention-3 (2024): 1.5 to 2 times as fast as FlashAttention-2 forward, 1.5 to 1.75 times backward",
)


@measures(
    *(EARLIER_ATTENTION_SHARE, EARLIER_ATTENTION_MS),
    *(EARLIER_ATTENTION_LEAST_GAIN_MS, EARLIER_ATTENTION_GAIN_MS),
    needs=("device_ops", "device_ops.name"),
)
def earlier_attention(view: DeviceView) -> Values:
    """What FlashAttention-2 takes where a later one would be faster; zero elsewhere."""
    rows = _kernels(view)
    slow, fast = (pl.col("dur_ns") * rest for rest in _RESTS)
    some, (least, most) = extent(view, rows), saved(view, faster(rows, slow, fast))
    return {
        EARLIER_ATTENTION_SHARE: some.share,
        EARLIER_ATTENTION_MS: some.ms,
        EARLIER_ATTENTION_LEAST_GAIN_MS: least,
        EARLIER_ATTENTION_GAIN_MS: most,
    }


def _kernels(view: DeviceView) -> pl.DataFrame:
    first, after = _CAPABILITIES
    chip = view.chip
    is_newer = chip is not None and chip.vendor == "NVIDIA" and first <= (chip.capability or 0) < after
    return view.once(kernels).filter(matches(_SECOND), pl.col("dur_ns") >= _LONG_NS, pl.lit(is_newer))
