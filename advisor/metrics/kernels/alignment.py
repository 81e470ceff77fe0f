"""Matrix products whose sides are out of step with what Tensor Core kernels fetch at a time."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.matmuls import candidates
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.missing import Missing
from advisor.whatif import WORDS, faster, saved

_PADDED: Final = (0.9, 0.6)  # of the kernel's time, once the sides are padded
_STEP_OF: Final = {"fp16": 8, "bf16": 8, "tf32": 4}  # elements in 16 bytes
_FORWARD: Final = ["aten::addmm", "aten::linear", "aten::bmm", "aten::baddbmm"]  # n and k are lengths of rows there


MISALIGNED_PRODUCT_SHARE = Metric(
    "misaligned_product_share",
    "Part of the step in which Tensor Cores multiply matrices whose rows do not start at multiples of 16 bytes.",
    "time of GEMM kernels that use Tensor Cores on fp16, bf16 or TF32, and bear an alignment of under 16 bytes in "
    "their name or were launched by addmm, linear or bmm with n or k no multiple of 8 (TF32: 4) / step time",
    "NVIDIA Matrix Multiplication Background User's Guide, table 1",
    where=lambda view: longest(_misaligned(view)),
)
MISALIGNED_PRODUCT_MS = time_of("misaligned_product_ms", MISALIGNED_PRODUCT_SHARE, "time of those kernels / steps")
MISALIGNED_PRODUCT_OPS = Metric(
    "misaligned_product_ops",
    "The ops that launched misaligned products, with rows x inner side x columns if shapes were recorded.",
    "those with the most time, then the others",
    unit="text",
)
MISALIGNED_LEAST_GAIN_MS = Metric(
    "misaligned_least_gain_ms",
    "Step time that padding the sides saves at least.",
    f"those kernels a tenth shorter{WORDS['faster']}",
)
MISALIGNED_GAIN_MS = Metric(
    "misaligned_gain_ms",
    "Step time that padding the sides saves at most.",
    f"those kernels two fifths shorter{WORDS['faster']}",
    "38 % measured on a B200 for a bf16 product of 1157 x 4096 x 1157 (pytorch/pytorch, pull request 196992)",
)


@measures(
    MISALIGNED_PRODUCT_SHARE,
    MISALIGNED_PRODUCT_MS,
    MISALIGNED_PRODUCT_OPS,
    MISALIGNED_LEAST_GAIN_MS,
    MISALIGNED_GAIN_MS,
    needs=("device_ops", "device_ops.name"),
)
def alignment(view: DeviceView) -> Values:
    """Products out of step with the Tensor Cores; unknown where there are products of which nothing tells."""
    products = _on_tensor_cores(view)
    if products.height and not (products["alignment"].count() or products["n"].count()):
        return Missing("alignment_unknown")
    kernels = _misaligned(view)
    slow, fast = (pl.col("dur_ns") * share for share in _PADDED)
    some, (least, most) = extent(view, kernels), saved(view, faster(kernels, slow, fast))
    return {
        MISALIGNED_PRODUCT_SHARE: some.share,
        MISALIGNED_PRODUCT_MS: some.ms,
        MISALIGNED_PRODUCT_OPS: some.ops,
        MISALIGNED_LEAST_GAIN_MS: least,
        MISALIGNED_GAIN_MS: most,
    }


def _on_tensor_cores(view: DeviceView) -> pl.DataFrame:
    used = (pl.col("family") == "gemm") & (pl.col("verdict") == "used") & pl.col("dtype").is_in(list(_STEP_OF))
    return view.once(candidates).filter(used)


def _misaligned(view: DeviceView) -> pl.DataFrame:
    """Labelled with the sides of the product where they are known."""
    step = pl.col("dtype").replace_strict(_STEP_OF, default=None, return_dtype=pl.Int64)
    by_name = pl.col("alignment") < step
    by_shape = pl.col("op_name").is_in(_FORWARD) & ((pl.col("n") % step != 0) | (pl.col("k") % step != 0))
    odd = by_name.fill_null(value=False) | by_shape.fill_null(value=False)
    sized = pl.format("{} {} x {} x {}", "op_name", "m", "k", "n")
    return _on_tensor_cores(view).filter(odd).with_columns(op_name=pl.coalesce(sized, "op_name"))
