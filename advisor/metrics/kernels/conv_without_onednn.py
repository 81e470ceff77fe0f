"""Convolutions that the CPU computes with PyTorch's own loops, without oneDNN."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels, largest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices

_NATIVE: Final = r"^aten::_?(?:slow|thnn)_conv"
_OF_ONEDNN: Final = ["fp32", "bf16"]
_LEAST_ELEMENTS: Final = 20_480  # below it PyTorch itself takes its own loop


def _native(view: DeviceView) -> pl.DataFrame:
    rows = view.once(kernels)
    if view.device is not None:
        return rows.clear()
    of_onednn = pl.col("op_dtype").is_in(_OF_ONEDNN) & (pl.col("elements") > _LEAST_ELEMENTS)
    return rows.filter(pl.col("op_name").str.contains(_NATIVE), of_onednn)


measure = of_devices(__name__, framework="pytorch", needs=("host_ops.shapes",))

measure.kernels("native_convolution", _native).says(
    "in which the CPU computes convolutions without oneDNN, which has them for this type",
    "aten::slow_conv* and aten::thnn_conv* ops in fp32 or bf16 with over 20,480 elements in the largest input; of none "
    "where a device computes",
    "PyTorch, aten/src/ATen/native/Convolution.cpp, use_mkldnn",
)
measure("native_convolution_ops", lambda view: largest(view, view.once(_native)) or None).says(
    "Which convolutions are computed without oneDNN.", "those with the most time, then the others"
)
