"""Products in 8 bits, and the kernels that only cast to 8 bits for them."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, kernels, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Metric, Values, measures, time_of
from advisor.model.profile import matches

_PRODUCTS: Final = ["gemm", "attention"]
_TO_EIGHT_BITS: Final = r"""(?xi)
    (?:copy|cast|convert|cvt|quant|amax|scale).*(?:fp8|float8|e4m3|e5m2) | (?:fp8|float8)\w*(?:quant|cast|copy)"""


FP8_PRODUCT_SHARE = Metric(
    "fp8_product_share",
    "Part of the step in which matrices of 8-bit floating-point numbers are multiplied.",
    "union of GEMM and attention kernels with fp8 inputs by name / step time",
)
FP8_CAST_SHARE = Metric(
    "fp8_cast_share",
    "Part of the step in kernels that only cast to 8 bits or compute the scales for it.",
    "time of kernels other than products whose name has fp8 or one of its formats and quantises, casts or scales "
    "/ step time",
    where=lambda view: longest(_casts(view)),
)
FP8_CAST_MS = time_of("fp8_cast_ms", FP8_CAST_SHARE, "time of those kernels / steps")
FP8_CAST_OPS = Metric(
    "fp8_cast_ops",
    "The ops that launched kernels that only cast to 8 bits.",
    "those with the most time, then the others",
    unit="text",
)


@measures(FP8_PRODUCT_SHARE, FP8_CAST_SHARE, FP8_CAST_MS, FP8_CAST_OPS, needs=("device_ops", "device_ops.name"))
def fp8(view: DeviceView) -> Values:
    """What runs in 8 bits and what leads there; zero where nothing does."""
    products = _products(view)
    casts = _casts(view) if products.height else products
    some = extent(view, casts)
    return {
        FP8_PRODUCT_SHARE: view.share(spans(products)),
        FP8_CAST_SHARE: some.share,
        FP8_CAST_MS: some.ms,
        FP8_CAST_OPS: some.ops,
    }


def _products(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("family").is_in(_PRODUCTS), pl.col("element_type") == "fp8")


def _casts(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(~pl.col("family").is_in(_PRODUCTS), matches(_TO_EIGHT_BITS))
