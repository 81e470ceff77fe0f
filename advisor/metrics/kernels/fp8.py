"""Products in 8 bits, and the kernels that only cast to 8 bits for them."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.profile import matches

_PRODUCTS: Final = ["gemm", "attention"]
_TO_EIGHT_BITS: Final = r"""(?xi)
    (?:copy|cast|convert|cvt|quant|amax|scale).*(?:fp8|float8|e4m3|e5m2) | (?:fp8|float8)\w*(?:quant|cast|copy)"""

measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))


def _products(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("family").is_in(_PRODUCTS), pl.col("element_type") == "fp8")


def _casts(view: DeviceView) -> pl.DataFrame:
    """None where nothing is multiplied in 8 bits."""
    casts = view.once(kernels).filter(~pl.col("family").is_in(_PRODUCTS), matches(_TO_EIGHT_BITS))
    return casts if view.once(_products).height else casts.clear()


measure("fp8_product_share", lambda view: view.share(spans(view.once(_products)))).says(
    "Part of the step in which matrices of 8-bit floating-point numbers are multiplied.",
    "union of GEMM and attention kernels with fp8 inputs by name / step time",
)
measure.kernels("fp8_cast", _casts, gives=("share", "ms", "ops")).says(
    "in kernels that only cast to 8 bits or compute the scales for it",
    "kernels other than products whose name has fp8 or one of its formats and quantises, casts or scales",
)
