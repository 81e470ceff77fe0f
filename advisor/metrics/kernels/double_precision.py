"""Matrix products and convolutions of training that are computed in 64 bits, which networks hardly ever need."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels, largest
from advisor.analysis.device.roofs import in_format
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_WORK: Final = ["product", "convolution", "attention"]
_OF_HOST: Final = {True: (0.55, 0.35), False: (0.8, 0.3)}  # of a product's time, and of another op's: see the rule
_RATES: Final = (0.35, 0.875)  # of the ratio of the peaks, at least and at most, as for TF32
_HALF: Final = 0.5  # of the bytes
_MOVING: Final = (0.75, _HALF)  # of the time of a kernel that only moves them
_TYPED: Final = 0.5  # of the products' time
_CONVOLUTION: Final = r"^aten::\w*conv"  # on the host, whose ops have no family of that kind
_NUMERICAL: Final = r"""(?x)
    ^aten::_?linalg_(?:cholesky|eig|svd|solve|lu|ldl|qr|inv|lstsq|pinv|det|slogdet|householder)\w*$
    |^aten::(?:cholesky|triangular_solve|ormqr|geqrf|_fft_)\w*$
    |evaluate_function:\s\w*(?:BackwardBackward|DoubleBackward)"""


def _doubles(view: DeviceView) -> pl.DataFrame:
    """All kernels, or without a device ops, that compute in fp64."""
    return view.once(kernels).filter(_dtype() == "fp64")


def _products(view: DeviceView) -> pl.DataFrame:
    return view.once(_doubles).filter(_is_product())


def _unknown(view: DeviceView) -> Missing | None:
    """That the types of most products are not known, or that the program may need 64 bits."""
    if view.device is None and not view.host["dtypes"].count():
        return Missing("no_shapes" if view.process.get("framework") == "pytorch" else "value_types_unknown")
    products = view.once(kernels).filter(_is_product())
    total, typed = (float(rows["dur_ns"].sum()) for rows in (products, products.filter(_dtype().is_not_null())))
    if typed < _TYPED * total:
        return Missing("value_types_unknown")
    is_numerical = view.once(_products).height and view.used_like(_NUMERICAL, "op").height
    return Missing("numerical_program") if is_numerical else None


def _narrowed(view: DeviceView) -> pl.DataFrame:
    """What takes less time in 32 bits; none where nothing is multiplied."""
    doubles = view.once(_doubles)
    return doubles if view.once(_products).height else doubles.clear()


def _is_product() -> pl.Expr:
    """Whether it multiplies matrices, as the inputs or the name of its op tell, or the kernel's name."""
    of_work = pl.col("work").is_in(_WORK) | (pl.col("kind").is_null() & pl.col("op_name").str.contains(_CONVOLUTION))
    return of_work.fill_null(value=False) | pl.col("family").cast(pl.String).is_in(PRODUCTS)


def _dtype() -> pl.Expr:
    return pl.coalesce("element_type", "op_dtype")


def _in_fp32(view: DeviceView, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time in 32 bits, in ns."""
    now, is_product = pl.col("dur_ns"), _is_product()
    if view.device is None:
        return now * pl.when(is_product).then(_OF_HOST[True][end]).otherwise(_OF_HOST[False][end])
    ratio = (view.chip.fp64_ratio if view.chip else None) or 1.0
    least, most = _RATES
    times = (least * ratio, max(most * ratio, 1 / _HALF))
    product = in_format(view, "fp32", times, end)
    return pl.when(is_product).then(product).otherwise(now * _MOVING[end])


measure = of_devices(__name__, unknown=_unknown)

measure.kernels("double_product", _products, gives=("share", "ms")).says(
    "in which matrix products, convolutions and attention are computed in 64 bits (fp64)",
    "kernels, or without a device ops, that multiply and whose name tells fp64, or else the first floating-point input "
    "of the op",
    "kernel names, then the launching op's dtype",
)
measure("double_product_ops", lambda view: largest(view, view.once(_products)) or None).says(
    "The ops whose products are in 64 bits.", "those with the most time, then the others"
)
measure.faster("double", _narrowed, lambda view: (_in_fp32(view, 0), _in_fp32(view, 1))).says(
    "computing in 32 bits instead of 64"
)
