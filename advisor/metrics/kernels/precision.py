"""Matrix products in a type that the device multiplies slowly: fp32 where it has TF32, 32 bits where 16 would do."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import parts
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.matmuls import candidates
from advisor.analysis.device.roofs import memory_ns, no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.inputs.hardware import Gpu
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.whatif import WORDS, faster, saved

_TO_TF32: Final = (0.35, 0.875)  # of the ratio of the peaks, at least and at most: see _TF32_SOURCE
_TO_SIXTEEN_BITS: Final = (0.35, 0.75)
_FROM_TF32: Final = (0.7, 1.0)
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


TF32_OFF_SHARE = Metric(
    "tf32_off_share",
    "Part of the step in fp32 matrix kernels that do not use Tensor Cores, although the device has TF32.",
    "time of fp32 matrix kernels judged unused, where TF32's peak is at least 1.5 times that of fp32, without families "
    "of which some kernel runs in TF32 and without convolutions in three or unknown dimensions / step time",
    "kernel names, then the launching op's dtype; peaks from the hardware table",
    where=lambda view: longest(_tf32_off(view)),
)
TF32_OFF_MS = time_of("tf32_off_ms", TF32_OFF_SHARE, "time of those kernels / steps")
TF32_OFF_OPS = Metric(
    "tf32_off_ops",
    "The ops that launched fp32 products without Tensor Cores.",
    "those with the most time, then the others",
    unit="text",
)
TF32_OFF_SWITCHES = Metric(
    "tf32_off_switches",
    "Which of the two switches is off: `matmul`, `cudnn` or `both`.",
    "by the families of those kernels",
    "PyTorch: torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32",
    unit="text",
)
TF32_LEAST_GAIN_MS = Metric(
    "tf32_least_gain_ms",
    "Step time that allowing TF32 saves at least.",
    f"those kernels 0.35 x the ratio of the peaks as fast, at up to 80 % of the memory bandwidth{WORDS['faster']}",
    _TF32_SOURCE,
)
TF32_GAIN_MS = Metric(
    "tf32_gain_ms",
    "Step time that allowing TF32 saves at most.",
    f"those kernels 0.875 x the ratio of the peaks as fast, at up to the full memory bandwidth{WORDS['faster']}",
    _TF32_SOURCE,
)


@measures(TF32_OFF_SHARE, TF32_OFF_MS, TF32_OFF_OPS, TF32_OFF_SWITCHES, TF32_LEAST_GAIN_MS, TF32_GAIN_MS, needs=_NEEDS)
def tf32(view: DeviceView) -> Values:
    """What TF32 would speed up; zero where the device has none that is faster."""
    gpu = view.chip
    if gpu is None:
        return no_peaks(view)
    kernels, ratio = _tf32_off(view), gpu.tensor_core_gain("fp32", "tf32") or 1.0
    slow, fast = (_faster(gpu, ratio, _TO_TF32, end, 4) for end in (0, 1))
    some, (least, most) = extent(view, kernels), saved(view, faster(kernels, slow, fast))
    return {
        TF32_OFF_SHARE: some.share,
        TF32_OFF_MS: some.ms,
        TF32_OFF_OPS: some.ops,
        TF32_OFF_SWITCHES: _switches(kernels),
        TF32_LEAST_GAIN_MS: least,
        TF32_GAIN_MS: most,
    }


def _switches(kernels: pl.DataFrame) -> str | None:
    of_cudnn = (kernels["family"] == "convolution").unique().to_list()
    return {(True,): "cudnn", (False,): "matmul"}.get(tuple(of_cudnn), "both" if of_cudnn else None)


THIRTY_TWO_BIT_SHARE = Metric(
    "thirty_two_bit_share",
    "Part of the step in matrix kernels on 32-bit inputs, without those of tf32_off_share.",
    "time of matrix kernels with fp32 or TF32 inputs, without those of tf32_off_share / step time",
    "kernel names, then the launching op's dtype",
    where=lambda view: longest(_thirty_two_bit(view)),
)
THIRTY_TWO_BIT_MS = time_of("thirty_two_bit_ms", THIRTY_TWO_BIT_SHARE, "time of those kernels / steps")
THIRTY_TWO_BIT_OPS = Metric(
    "thirty_two_bit_ops",
    "The ops that launched 32-bit products.",
    "those with the most time, then the others",
    unit="text",
)
SIXTEEN_BIT_LEAST_GAIN_MS = Metric(
    "sixteen_bit_least_gain_ms",
    "Step time that mixed precision saves at least.",
    "those kernels 0.35 (0.7 from TF32) x the ratio of the peaks as fast, at up to 80 % of the memory bandwidth; "
    "convolutions in three dimensions as slow as now; "
    f"elementwise, pooling and batch norm kernels on fp32 three quarters as long{WORDS['faster']}",
    _SIXTEEN_SOURCE,
)
SIXTEEN_BIT_GAIN_MS = Metric(
    "sixteen_bit_gain_ms",
    "Step time that mixed precision saves at most.",
    "those kernels 0.75 (1 from TF32; convolutions in three dimensions as from fp32) x the ratio of the peaks as fast, "
    "at up to the full memory bandwidth; "
    f"elementwise, pooling and batch norm kernels on fp32 half as long{WORDS['faster']}",
    _SIXTEEN_SOURCE,
)


@measures(
    THIRTY_TWO_BIT_SHARE,
    THIRTY_TWO_BIT_MS,
    THIRTY_TWO_BIT_OPS,
    SIXTEEN_BIT_LEAST_GAIN_MS,
    SIXTEEN_BIT_GAIN_MS,
    needs=_NEEDS,
)
def mixed_precision(view: DeviceView) -> Values:
    """What 16-bit types would speed up."""
    gpu = view.chip
    if gpu is None:
        return no_peaks(view)
    half = next((dtype for dtype in ("bf16", "fp16") if gpu.supports(dtype)), None)
    if half is None:
        return Missing("no_sixteen_bit_tensor_cores")
    products = _thirty_two_bit(view)
    kernels, some = pl.concat([products, _around(view)], how="diagonal"), extent(view, products)
    least, most = saved(view, faster(kernels, *(_in_sixteen_bits(gpu, half, end) for end in (0, 1))))
    return {
        THIRTY_TWO_BIT_SHARE: some.share,
        THIRTY_TWO_BIT_MS: some.ms,
        THIRTY_TWO_BIT_OPS: some.ops,
        SIXTEEN_BIT_LEAST_GAIN_MS: least,
        SIXTEEN_BIT_GAIN_MS: most,
    }


def _is_tf32_off(view: DeviceView) -> pl.Expr:
    """Whether TF32 is switched off for a kernel: never where kernels of its family run with it, in any step.

    Convolutions with three dimensions have engines without TF32, and one of unknown dimensions may be such a one.
    """
    gain = view.chip.tensor_core_gain("fp32", "tf32") if view.chip and view.chip.vendor == "NVIDIA" else None
    slow = pl.lit((gain or 1.0) >= _WORTH_TF32) & (pl.col("verdict") == "unused") & (pl.col("dtype") == "fp32")
    flat = (pl.col("family") != "convolution") | (pl.col("shape").str.count_matches(",") == _COMMAS_OF_2D)
    volume = matches(_VOLUMES)
    return slow & flat.fill_null(value=False) & ~volume & ~pl.col("family").is_in(view.once(_families_with_tf32))


def _families_with_tf32(view: DeviceView) -> list[str]:
    """Families of which some kernel runs in TF32: its switch, one for products and one for cuDNN, is on."""
    ran = view.once(candidates).filter(pl.col("dtype") == "tf32", pl.col("verdict") == "used")
    return ran["family"].cast(pl.String).unique().to_list()


def _tf32_off(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(_is_tf32_off(view))


def _thirty_two_bit(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("dtype").is_in(["fp32", "tf32"]) & ~_is_tf32_off(view))


def _around(view: DeviceView) -> pl.DataFrame:
    """Kernels that multiply nothing and move fp32 values, of the kinds that autocast leaves in the products' type."""
    norm = (pl.col("family") == "normalisation") & matches("(?i)batch_?norm|bn_[fb]w")
    return view.once(parts).filter(
        (pl.col("family").is_in(_HALVING) | norm) & (pl.col("op_dtype") == "fp32"),
        pl.col("part").is_null() | (pl.col("part") == "chain"),
    )


def _in_sixteen_bits(gpu: Gpu, half: str, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time of products and of the kernels around them, which have no verdict."""
    ordinary, tensor = (gpu.tensor_core_gain(dtype, half) or 1.0 for dtype in ("fp32", "tf32"))
    is_tf32 = (pl.col("dtype") == "tf32") | ((pl.col("verdict") != "unused") & pl.lit(gpu.vendor == "NVIDIA"))
    is_3d = (pl.col("family") == "convolution") & (
        (pl.col("shape").str.count_matches(",") == _COMMAS_OF_3D) | matches(_VOLUMES)
    ).fill_null(value=False)
    in_3d = pl.col("dur_ns") if end == 0 else _faster(gpu, ordinary, _TO_SIXTEEN_BITS, end, 2)
    return (
        pl.when(pl.col("verdict").is_null())
        .then(pl.col("dur_ns") * _HALVED[end])
        .when(is_3d)
        .then(in_3d)
        .when(is_tf32)
        .then(_faster(gpu, tensor, _FROM_TF32, end, 2))
        .otherwise(_faster(gpu, ordinary, _TO_SIXTEEN_BITS, end, 2))
    )


def _faster(gpu: Gpu, ratio: float, rates: tuple[float, float], end: int, element_bytes: int) -> pl.Expr:
    """Time of a product that runs `ratio` x a rate as fast, where memory permits; never more than now.

    Where the bandwidth is not known, memory may permit nothing (end 0) or everything.
    """
    if end == 0 and gpu.memory_bandwidth_gbs is None:
        return pl.col("dur_ns")
    m, n, k = (pl.col(side).cast(pl.Float64) for side in "mnk")
    nbytes = pl.col("count") * (m * k + k * n + m * n) * element_bytes
    multiplied = pl.col("dur_ns") / max(1.0, ratio * rates[end])
    return pl.min_horizontal("dur_ns", pl.max_horizontal(multiplied, memory_ns(nbytes, gpu, _BANDWIDTH[end])))
