"""Matrix products whose sides are out of step with what Tensor Core kernels fetch at a time."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import candidates
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_PADDED: Final = (0.9, 0.6)  # of the kernel's time, once the sides are padded
_STEP_OF: Final = {"fp16": 8, "bf16": 8, "tf32": 4}  # elements in 16 bytes
_FORWARD: Final = ["aten::addmm", "aten::linear", "aten::bmm", "aten::baddbmm"]  # n and k are lengths of rows there


def _on_tensor_cores(view: DeviceView) -> pl.DataFrame:
    used = (pl.col("family") == "gemm") & (pl.col("verdict") == "used") & pl.col("dtype").is_in(list(_STEP_OF))
    return view.once(candidates).filter(used)


def _misaligned(view: DeviceView) -> pl.DataFrame:
    """Labelled with the sides of the product, rows x inner side x columns, where they are known."""
    step = pl.col("dtype").replace_strict(_STEP_OF, default=None, return_dtype=pl.Int64)
    by_name = pl.col("alignment") < step
    by_shape = pl.col("op_name").is_in(_FORWARD) & ((pl.col("n") % step != 0) | (pl.col("k") % step != 0))
    odd = by_name.fill_null(value=False) | by_shape.fill_null(value=False)
    sized = pl.format("{} {} x {} x {}", "op_name", "m", "k", "n")
    return view.once(_on_tensor_cores).filter(odd).with_columns(op_name=pl.coalesce(sized, "op_name"))


def _unknown(view: DeviceView) -> Missing | None:
    """That there are products of which neither name nor shapes tell."""
    products = view.once(_on_tensor_cores)
    is_known = not products.height or products["alignment"].count() or products["n"].count()
    return None if is_known else Missing("alignment_unknown")


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"), unknown=_unknown)

measure.kernels("misaligned_product", _misaligned, gives=("share", "ms", "ops")).says(
    "in which Tensor Cores multiply matrices whose rows do not start at multiples of 16 bytes",
    "GEMM kernels that use Tensor Cores on fp16, bf16 or TF32, and bear an alignment of under 16 bytes in their name "
    "or were launched by addmm, linear or bmm with n or k no multiple of 8 (TF32: 4)",
    "NVIDIA Matrix Multiplication Background User's Guide, table 1",
)
measure.faster("misaligned", _misaligned, _PADDED).says("padding the sides")
