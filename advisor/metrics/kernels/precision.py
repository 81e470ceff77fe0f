"""Matrix products in a type that the device multiplies slowly: fp32 where it has TF32, 32 bits where 16 would do."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import parts
from advisor.analysis.device.matmuls import candidates
from advisor.analysis.device.roofs import memory_ns, no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches

_TO_TF32: Final = (0.35, 0.875)  # of the ratio of the peaks, at least and at most: see _TF32_SOURCE
_TO_SIXTEEN_BITS: Final = (0.35, 0.75)
_FROM_TF32: Final = (0.7, 1.0)
_FROM_3XTF32: Final = (0.7, 1.3)  # 4 to 8 times as fast on an A100: it becomes FlashAttention
_PRODUCTS_OF_3XTF32: Final = 3
_BANDWIDTH: Final = (0.8, 1.0)
_HALVED: Final = (0.75, 0.5)  # of a memory-bound kernel's time in 16 bits: half its bytes, where autocast reaches it
_HALVING: Final = ["elementwise", "pooling", "cat"]
_COMMAS_OF_2D, _COMMAS_OF_3D = 3, 4  # of `[batch, channels, height, width]`, and with a depth
_VOLUMES: Final = r"(?i)3d|ndhwc|ncdhw|vol2col|col2vol"
_WORTH_TF32: Final = 1.5  # of the fp32 peak; GeForce boards multiply TF32 no faster than fp32
_NEEDS: Final = ("device_ops", "device_ops.name")

_TF32_SOURCE: Final = (
    "0.35: whole training steps reach 38 to 57 % of the Tensor Cores' peak (Llama 3 report, Megatron-LM), ordinary "
    "cores all of theirs; 0.875: PyTorch's note on TF32 measures 7 times of a ratio of 8"
)
_SIXTEEN_SOURCE: Final = (
    "0.35 as for TF32; 0.75: the best fused kernels (FlashAttention-3); half: Daydream (USENIX ATC 2020); three "
    "dimensions: cuDNN falls back to kernels without Tensor Cores, by channels and workspace (Best Practices For Using "
    "cuDNN 3D Convolutions; pytorch#57115, no gain; apex#875, a quarter of the time)"
)


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


def _around(view: DeviceView) -> pl.DataFrame:
    """Kernels that multiply nothing and move fp32 values, of the kinds that autocast leaves in the products' type."""
    norm = (pl.col("family") == "normalisation") & matches("(?i)batch_?norm|bn_[fb]w")
    return view.once(parts).filter(
        (pl.col("family").is_in(_HALVING) | norm) & (pl.col("op_dtype") == "fp32"),
        pl.col("part").is_null() | (pl.col("part") == "chain"),
    )


def _half(view: DeviceView) -> str | None:
    """The type of 16 bits to multiply in; None where the device has none."""
    return next((dtype for dtype in ("bf16", "fp16") if view.chip and view.chip.supports(dtype)), None)


def _in_sixteen_bits(view: DeviceView, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time of products and of the kernels around them, which have no verdict."""
    ordinary, tensor = (_ratio(view, dtype, _half(view)) for dtype in ("fp32", "tf32"))
    is_tf32 = (pl.col("dtype") == "tf32") | ((pl.col("verdict") != "unused") & pl.lit(_is_nvidia(view)))
    is_3d = (pl.col("family") == "convolution") & (
        (pl.col("shape").str.count_matches(",") == _COMMAS_OF_3D) | matches(_VOLUMES)
    ).fill_null(value=False)
    in_3d = pl.col("dur_ns") if end == 0 else _faster(view, ordinary, _TO_SIXTEEN_BITS, end, 2)
    return (
        pl.when(pl.col("verdict").is_null())
        .then(pl.col("dur_ns") * _HALVED[end])
        .when(is_3d)
        .then(in_3d)
        .when(pl.col("dtype") == "3xtf32")
        .then(_faster(view, _PRODUCTS_OF_3XTF32 * tensor, _FROM_3XTF32, end, 2))
        .when(is_tf32)
        .then(_faster(view, tensor, _FROM_TF32, end, 2))
        .otherwise(_faster(view, ordinary, _TO_SIXTEEN_BITS, end, 2))
    )


def _faster(view: DeviceView, ratio: float, rates: tuple[float, float], end: int, element_bytes: int) -> pl.Expr:
    """Time of a product that runs `ratio` x a rate as fast, where memory permits; never more than now.

    Where the bandwidth is not known, memory may permit nothing (end 0) or everything.
    """
    if end == 0 and (view.chip is None or view.chip.memory_bandwidth_gbs is None):
        return pl.col("dur_ns")
    m, n, k = (pl.col(side).cast(pl.Float64) for side in "mnk")
    nbytes = pl.col("count") * (m * k + k * n + m * n) * element_bytes
    faster = pl.col("dur_ns") / max(1.0, ratio * rates[end])
    return pl.min_horizontal("dur_ns", pl.max_horizontal(faster, memory_ns(nbytes, view.chip, _BANDWIDTH[end])))


def _switches(view: DeviceView) -> str | None:
    of_cudnn = (view.once(_tf32_off)["family"] == "convolution").unique().to_list()
    return {(True,): "cudnn", (False,): "matmul"}.get(tuple(of_cudnn), "both" if of_cudnn else None)


def _in_tf32(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    ratio = _ratio(view, "fp32", "tf32")
    return _faster(view, ratio, _TO_TF32, 0, 4), _faster(view, ratio, _TO_TF32, 1, 4)


def _narrowed(view: DeviceView) -> pl.DataFrame:
    return pl.concat([view.once(_thirty_two_bit), _around(view)], how="diagonal")


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
measure.faster("tf32", _tf32_off, _in_tf32).says(
    "allowing TF32",
    "those kernels 0.35 x the ratio of the peaks as fast, at up to 80 % of the memory bandwidth",
    "those kernels 0.875 x the ratio of the peaks as fast, at up to the full memory bandwidth",
    _TF32_SOURCE,
    _TF32_SOURCE,
)
measure_halves.kernels("thirty_two_bit", _thirty_two_bit, gives=("share", "ms", "ops")).says(
    "in matrix kernels on 32-bit inputs, without those of tf32_off_share",
    "matrix kernels with fp32 or TF32 inputs, without those of tf32_off_share",
    "kernel names, then the launching op's dtype",
)
measure_halves.faster(
    "sixteen_bit", _narrowed, lambda view: (_in_sixteen_bits(view, 0), _in_sixteen_bits(view, 1))
).says(
    "mixed precision",
    "those kernels 0.35 (0.7 from TF32) x the ratio of the peaks as fast, at up to 80 % of the memory "
    "bandwidth; convolutions in three dimensions as slow as now; elementwise, pooling and batch norm kernels "
    "on fp32 three quarters as long",
    "those kernels 0.75 (1 from TF32; convolutions in three dimensions as from fp32) x the ratio of the peaks as fast, "
    "at up to the full memory bandwidth; elementwise, pooling and batch norm kernels on fp32 half as long",
    _SIXTEEN_SOURCE,
    _SIXTEEN_SOURCE,
)
