"""Convolutions that the CPU computes with PyTorch's own loops, without oneDNN."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, kernels, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures, time_of

_NATIVE: Final = r"^aten::_?(?:slow|thnn)_conv"
_OF_ONEDNN: Final = ["fp32", "bf16"]
_LEAST_ELEMENTS: Final = 20_480  # below it PyTorch itself takes its own loop
_NEEDS: Final = ("host_ops.shapes",)


NATIVE_CONVOLUTION_SHARE = Metric(
    "native_convolution_share",
    "Part of the step in which the CPU computes convolutions without oneDNN, which has them for this type.",
    "time of aten::slow_conv* and aten::thnn_conv* ops in fp32 or bf16 with over 20,480 elements in the largest "
    "input / step time; 0 where a device computes",
    "PyTorch, aten/src/ATen/native/Convolution.cpp, use_mkldnn",
    where=lambda view: longest(_native(view)),
)
NATIVE_CONVOLUTION_MS = time_of("native_convolution_ms", NATIVE_CONVOLUTION_SHARE, "time of those ops / steps")
NATIVE_CONVOLUTION_OPS = Metric(
    "native_convolution_ops",
    "Which convolutions are computed without oneDNN.",
    "those with the most time, then the others",
    unit="text",
)


@measures(NATIVE_CONVOLUTION_SHARE, NATIVE_CONVOLUTION_MS, NATIVE_CONVOLUTION_OPS, framework="pytorch", needs=_NEEDS)
def host_convolutions(view: DeviceView) -> Values:
    """Convolutions outside oneDNN."""
    some = extent(view, _native(view))
    return {
        NATIVE_CONVOLUTION_SHARE: some.share,
        NATIVE_CONVOLUTION_MS: some.ms,
        NATIVE_CONVOLUTION_OPS: some.ops or None,
    }


def _native(view: DeviceView) -> pl.DataFrame:
    rows = view.once(kernels)
    if view.device is not None:
        return rows.clear()
    of_onednn = pl.col("op_dtype").is_in(_OF_ONEDNN) & (pl.col("elements") > _LEAST_ELEMENTS)
    return rows.filter(pl.col("op_name").str.contains(_NATIVE), of_onednn)
