"""How much of the kernel time is on floating point of 16 bits."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_SIXTEEN: Final = ["fp16", "bf16"]
_LEAST_KNOWN: Final = 0.5


def _total_ns(view: DeviceView) -> int:
    return int(view.once(kernels)["dur_ns"].sum())


def _narrow(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(_dtype().is_in(_SIXTEEN))


def _unknown(view: DeviceView) -> Missing | None:
    """That the types of too many kernels are not known, or that there are none."""
    if not view.once(_total_ns):
        return Missing("nothing_to_compute_from")
    known = view.once(kernels).filter(_dtype().is_not_null())["dur_ns"].sum()
    return Missing("value_types_unknown") if known < _LEAST_KNOWN * view.once(_total_ns) else None


def _dtype() -> pl.Expr:
    return pl.coalesce("op_dtype", pl.when(pl.col("family").is_in(PRODUCTS)).then("element_type"))


measure = of_devices(__name__, needs=("device_ops",), unknown=_unknown)

measure("sixteen_bit_kernel_share", lambda view: float(view.once(_narrow)["dur_ns"].sum()) / view.once(_total_ns)).says(
    "Part of the kernel time on 16-bit floating point, bfloat16 included.",
    "time of kernels whose op's first floating-point input, or else, of products, whose name is of 16 bits / time of "
    "kernels; unknown where the type is known of less than half of that time",
    "XProf's overview page, device compute precisions, which counts bfloat16 as 32 bits",
)
