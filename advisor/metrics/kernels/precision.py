"""Matrix products in a type that the device multiplies slowly: fp32 where it has TF32, 32 bits where 16 would do."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import parts
from advisor.analysis.device.matmuls import candidates
from advisor.analysis.device.roofs import in_format, no_peaks, speed_ups
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches

# Pairs of public recordings on A100, T4, V100 and GeForce: products from TF32 1.4 to 2.2 times as fast, from fp32 2.8
# to 6 (GeForce 1.4 to 2.6), fp32 attention in one kernel 4 to 8, convolutions in three dimensions 1 to 2.5, all other
# kernels together 0.95 to 1.05.
_FROM_TF32: Final = (0.7, 1.1)  # of the ratio of the peaks, at least and at most
_FROM_3XTF32: Final = (3 * 0.7, 3 * 1.3)  # three products become one, and the kernel FlashAttention
_IN_3D: Final = (1.0, 2.5)  # times as fast
_REST: Final = (0.95, 1.05)  # times as fast, all other kernels together: what elementwise ones save, casts cost
_COMMAS_OF_2D, _COMMAS_OF_3D = 3, 4  # of `[batch, channels, height, width]`, and with a depth
_VOLUMES: Final = r"(?i)3d|ndhwc|ncdhw|vol2col|col2vol"
_WORTH_TF32: Final = 1.5  # of the fp32 peak; GeForce boards multiply TF32 no faster than fp32
_NEEDS: Final = ("device_ops", "device_ops.name")


def _is_tf32_off(view: DeviceView) -> pl.Expr:
    """Whether TF32 is switched off for a kernel: never where kernels of its family run with it, in any step.

    Convolutions with three dimensions have engines without TF32, and one of unknown dimensions may be such a one.
    """
    is_worth = _is_nvidia(view) and _ratio(view, "fp32", "tf32") >= _WORTH_TF32
    slow = pl.lit(is_worth) & (pl.col("verdict") == "unused") & (pl.col("dtype") == "fp32")
    flat = (pl.col("family") != "convolution") | (pl.col("shape").str.count_matches(",") == _COMMAS_OF_2D)
    volume = matches(_VOLUMES)
    return slow & flat.fill_null(value=False) & ~volume & ~pl.col("family").is_in(view.once(_families_with_tf32))


def _families_with_tf32(view: DeviceView) -> list[str]:
    """Families of which some kernel runs in TF32: its switch, one for products and one for cuDNN, is on."""
    ran = view.once(candidates).filter(pl.col("dtype") == "tf32", pl.col("verdict") == "used")
    return ran["family"].cast(pl.String).unique().to_list()


def _is_nvidia(view: DeviceView) -> bool:
    return view.chip is not None and view.chip.vendor == "NVIDIA"


def _ratio(view: DeviceView, dtype: str, faster: str | None) -> float:
    """Of the peaks; 1 where it is not known."""
    return (view.chip.tensor_core_gain(dtype, faster) if view.chip and faster else None) or 1.0


def _tf32_off(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(_is_tf32_off(view))


def _thirty_two_bit(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("dtype").is_in(["fp32", "tf32", "3xtf32"]) & ~_is_tf32_off(view))


def _rest(view: DeviceView) -> pl.DataFrame:
    """Kernels that multiply nothing and move fp32 values, without the optimizer's, whose weights stay in 32 bits."""
    values = pl.coalesce("op_dtype", "element_type") == "fp32"
    is_optimizer = pl.col("part").eq_missing(pl.lit("optimizer")) | (pl.col("family") == "optimizer")
    return view.once(parts).filter(values, ~pl.col("multiplies"), ~is_optimizer)


def _half(view: DeviceView) -> str | None:
    """The type of 16 bits to multiply in; None where the device has none."""
    return next((dtype for dtype in ("bf16", "fp16") if view.chip and view.chip.supports(dtype)), None)


def _in_sixteen_bits(view: DeviceView, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time of products, and of the other kernels, which have no verdict."""
    half = _half(view) or "fp16"
    ordinary, tensor = (_ratio(view, dtype, half) for dtype in ("fp32", "tf32"))
    from_tf32, from_3xtf32 = ((tensor * least, tensor * most) for least, most in (_FROM_TF32, _FROM_3XTF32))
    is_tf32 = (pl.col("dtype") == "tf32") | ((pl.col("verdict") != "unused") & pl.lit(_is_nvidia(view)))
    is_3d = (pl.col("family") == "convolution") & (
        (pl.col("shape").str.count_matches(",") == _COMMAS_OF_3D) | matches(_VOLUMES)
    ).fill_null(value=False)
    return (
        pl.when(pl.col("verdict").is_null())
        .then(pl.col("dur_ns") / _REST[end])
        .when(is_3d)
        .then(pl.col("dur_ns") / min(_IN_3D[end], ordinary))
        .when(pl.col("dtype") == "3xtf32")
        .then(in_format(view, half, from_3xtf32, end))
        .when(is_tf32)
        .then(in_format(view, half, from_tf32, end))
        .otherwise(in_format(view, half, speed_ups(ordinary), end))
    )


def _switches(view: DeviceView) -> str | None:
    of_cudnn = (view.once(_tf32_off)["family"] == "convolution").unique().to_list()
    return {(True,): "cudnn", (False,): "matmul"}.get(tuple(of_cudnn), "both" if of_cudnn else None)


def _in_tf32(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    times = speed_ups(_ratio(view, "fp32", "tf32"))
    return in_format(view, "tf32", times, 0), in_format(view, "tf32", times, 1)


def _narrowed(view: DeviceView) -> pl.DataFrame:
    return pl.concat([view.once(_thirty_two_bit), _rest(view)], how="diagonal")


def _unknown(view: DeviceView) -> Missing | None:
    return None if view.chip else no_peaks(view)


def _no_half(view: DeviceView) -> Missing | None:
    return _unknown(view) or (None if _half(view) else Missing("no_sixteen_bit_tensor_cores"))


measure = of_devices(__name__, needs=_NEEDS, unknown=_unknown)
measure_halves = of_devices(__name__, needs=_NEEDS, unknown=_no_half)

measure.kernels("tf32_off", _tf32_off, gives=("share", "ms", "ops")).says(
    "in fp32 matrix kernels that do not use Tensor Cores, although the device has TF32",
    "fp32 matrix kernels judged unused, where TF32's peak is at least 1.5 times that of fp32, without families of "
    "which some kernel runs in TF32 and without convolutions in three or unknown dimensions",
    "kernel names, then the launching op's dtype; peaks from the hardware table",
)
measure("tf32_off_switches", _switches, unit="text").says(
    "Which of the two switches of TF32 is off: `matmul`, `cudnn` or `both`.",
    "by the families of those kernels",
    "PyTorch: torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32",
)
measure.faster("tf32", _tf32_off, _in_tf32).says("allowing TF32")
measure_halves.kernels("thirty_two_bit", _thirty_two_bit, gives=("share", "ms", "ops")).says(
    "in matrix kernels on 32-bit inputs, without those of tf32_off_share",
    "matrix kernels with fp32 or TF32 inputs, without those of tf32_off_share",
    "kernel names, then the launching op's dtype",
)
measure_halves.faster(
    "sixteen_bit", _narrowed, lambda view: (_in_sixteen_bits(view, 0), _in_sixteen_bits(view, 1))
).says("mixed precision")
