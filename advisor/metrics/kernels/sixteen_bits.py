"""How much of the kernel time is on floating point of 16 bits."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels, largest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

_SIXTEEN: Final = ["fp16", "bf16"]
_LEAST_KNOWN: Final = 0.5


SIXTEEN_BIT_KERNEL_SHARE = Metric(
    "sixteen_bit_kernel_share",
    "Part of the kernel time on 16-bit floating point, bfloat16 included.",
    "time of kernels whose op's first floating-point input, or else whose name, is of 16 bits / time of kernels; "
    "unknown where the type is known of less than half of that time",
    "XProf's overview page, device compute precisions, which counts bfloat16 as 32 bits",
)
SIXTEEN_BIT_KERNEL_OPS = Metric(
    "sixteen_bit_kernel_ops",
    "The ops with the most kernel time on 16-bit floating point.",
    "those with the most time, then the others",
    unit="text",
)


@measures(SIXTEEN_BIT_KERNEL_SHARE, SIXTEEN_BIT_KERNEL_OPS, needs=("device_ops",))
def sixteen_bits(view: DeviceView) -> Values:
    """Part of the kernel time, and its ops; unknown where the types of too many kernels are."""
    ran, dtype = view.once(kernels), pl.coalesce("op_dtype", "element_type")
    total = int(ran["dur_ns"].sum())
    if not total or view.device is None:
        return {}
    if (ran.select(pl.col("dur_ns").filter(dtype.is_not_null()).sum()).item() or 0) < _LEAST_KNOWN * total:
        return Missing("value_types_unknown")
    narrow = ran.filter(dtype.is_in(_SIXTEEN))
    return {
        SIXTEEN_BIT_KERNEL_SHARE: float(narrow["dur_ns"].sum()) / total,
        SIXTEEN_BIT_KERNEL_OPS: largest(view, narrow),
    }
