"""The matrix products of the steps: which kernels multiply, in which type, and whether on Tensor Cores."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView
from advisor.inputs import hardware

_SMALLEST_SIDE: Final = 64  # a multiplication with a shorter side is bound by memory, not by arithmetic

_PRODUCT: Final = r"^aten::\w*(?:mm|matmul|linear|einsum|conv\w*|attention\w*)$"


def candidates(view: DeviceView) -> pl.DataFrame:
    """Kernels of the used steps that multiply matrices, with `verdict` (used, unused, unknown) and `dtype`.

    Matrix times vector, and products with a side under 64 where shapes tell, are bound by memory: they count only if
    they run on Tensor Cores all the same. An undecided name is settled where the multiplication's type has no Tensor
    Core path on the device. Kernels whose name tells no family may or may not multiply: they are never called unused
    for their type alone, and have the type of the op that launched them only if that op multiplies.
    """
    tiny = (pl.min_horizontal("m", "n", "k") < _SMALLEST_SIDE).fill_null(value=False)
    products = view.once(kernels).filter("multiplies", pl.col("tensor_cores") | ((pl.col("family") != "gemv") & ~tiny))
    multiplies = pl.col("op_name").str.contains(_PRODUCT) & ~pl.col("op_name").str.contains("depthwise")
    dtype = pl.when((pl.col("family") != "other") | multiplies).then(pl.coalesce("element_type", "op_dtype"))
    impossible = dtype.is_in(_without_path(view)) & (pl.col("family") != "other")
    verdict = (
        pl.when(pl.col("tensor_cores")).then(pl.lit("used"))
        .when(~pl.col("tensor_cores") | impossible).then(pl.lit("unused"))
        .otherwise(pl.lit("unknown"))
    )  # fmt: skip
    return products.with_columns(verdict=verdict, dtype=dtype).sort("start_ns")


def verdicts(view: DeviceView) -> pl.DataFrame:
    """Every compute kernel of the used steps, by `id`, with its `verdict`: that of `candidates`, else `no use`.

    Null where the device has no Tensor Cores, or it cannot be told whether it has.
    """
    ids = view.used_ops.filter(pl.col("kind") == "kernel").select("id")
    rows = ids.join(view.once(candidates).select("id", "verdict"), on="id", how="left")
    verdict = pl.col("verdict").fill_null("no use") if has_tensor_cores(view) else pl.lit(None, pl.String)
    return rows.with_columns(verdict=verdict)


def has_tensor_cores(view: DeviceView) -> bool | None:
    """Whether the device has Tensor Cores; None where it cannot be told."""
    if view.chip is not None:
        return bool(view.chip.tensor_dtypes)
    return hardware.has_tensor_cores(view.facts.get("capability"), view.facts.get("name") or "")


def _without_path(view: DeviceView) -> list[str]:
    """Types that the device's Tensor Cores do not multiply, as far as the hardware table knows the device."""
    if (chip := view.chip) is None:
        return []
    return [dtype for dtype in ("fp64", "fp32", "bf16") if not chip.supports("tf32" if dtype == "fp32" else dtype)]
