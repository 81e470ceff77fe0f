"""Tensor Cores: which kernels use them, which could and do not, and which cannot be told."""

from typing import Final

import polars as pl

from advisor.analysis.device.matmuls import candidates, has_tensor_cores
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_SIXTEEN_BIT_OR_LESS: Final = ["fp16", "bf16", "fp8", "fp4", "int8"]
_MOST_UNKNOWN: Final = 0.5  # of the kernel time: with more, the share of the rest says nothing of the whole
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)
_NEEDS: Final = ("device_ops", "device_ops.name")


def _all_ns(view: DeviceView) -> int:
    return int(view.used_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())


def _of_verdict(view: DeviceView, *verdicts: str) -> float:
    """Part of the kernel time."""
    judged = view.once(candidates).filter(pl.col("verdict").is_in(verdicts))
    return int(judged["dur_ns"].sum()) / view.once(_all_ns)


def _unused(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("verdict") == "unused")


def _sixteen_bit_share(view: DeviceView) -> float | None:
    typed = view.once(candidates).filter(pl.col("dtype").is_not_null())
    typed_ns = int(typed["dur_ns"].sum())
    short_ns = int(typed.filter(pl.col("dtype").is_in(_SIXTEEN_BIT_OR_LESS))["dur_ns"].sum())
    return short_ns / typed_ns if typed_ns else None


def _unknown(view: DeviceView) -> Missing | None:
    has = has_tensor_cores(view)
    if has is None:
        return Missing("tensor_cores_unknown")
    if not has:
        return Missing("no_tensor_cores")
    return None if view.once(_all_ns) else Missing("nothing_to_compute_from")


def _unclear(view: DeviceView) -> Missing | None:
    is_unclear = not _unknown(view) and _of_verdict(view, "unknown") > _MOST_UNKNOWN
    return Missing("kernels_untold") if is_unclear else _unknown(view)


measure = of_devices(__name__, source=_SOURCE, needs=_NEEDS, unknown=_unknown)
measure_shares = of_devices(__name__, source=_SOURCE, needs=_NEEDS, unknown=_unclear)

measure_shares("tensor_core_share", lambda view: _of_verdict(view, "used")).says(
    "Part of the kernel time spent in kernels that use Tensor Cores.",
    "time of kernels judged used / time of all compute kernels; null where over half of that is judged unknown",
)
measure_shares("tensor_core_eligible_share", lambda view: _of_verdict(view, "used", "unused")).says(
    "Part of the kernel time spent in matrix kernels that use Tensor Cores or could.",
    "time of GEMM, convolution and attention kernels judged used or unused / time of all compute kernels; "
    "null where over half of that is judged unknown",
)
measure("tensor_core_unknown_share", lambda view: _of_verdict(view, "unknown")).says(
    "Part of the kernel time in matrix kernels of which it is unknown whether they could use Tensor Cores.",
    "time of matrix kernels judged unknown / time of all compute kernels",
)
measure.kernels("tensor_core_unused", _unused, gives=("share", "ops")).says(
    "in matrix kernels without the Tensor Cores that the device has", "matrix kernels judged unused"
)
measure("sixteen_bit_share", _sixteen_bit_share).says(
    "Part of the matrix kernels' time spent on inputs of 16 bits or fewer.",
    "time of matrix kernels with fp16, bf16, fp8, fp4 or int8 inputs / time of those whose type is known",
)
