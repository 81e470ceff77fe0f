"""Matrix products in a type that the device multiplies slowly: TF32 not allowed, no 16-bit types, sides out of step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.hardware import Gpu
from advisor.lens import Lane
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.patterns import parts
from advisor.products import candidates
from advisor.roofline import gains_ms, memory_ns
from advisor.workload import largest, longest

_ORDINARY_TO_TENSOR: Final = (0.35, 0.875)  # of the ratio of the peaks: see _SPEEDUP
_TENSOR_TO_TENSOR: Final = (0.7, 1.0)
_BANDWIDTH: Final = (0.8, 1.0)
_HALVED: Final = (0.75, 0.5)  # of a memory-bound kernel's time in 16 bits: half its bytes, where autocast reaches it
_HALVING: Final = ["elementwise", "pooling", "cat"]
_WORTH_TF32: Final = 1.5  # GeForce boards multiply TF32 no faster than fp32
_MISALIGNED: Final = (0.9, 0.6)  # of the kernel's time once its sides are padded
_STEP_OF: Final = {"fp16": 8, "bf16": 8, "tf32": 4}  # elements in 16 bytes
_FORWARD: Final = ["aten::addmm", "aten::linear", "aten::bmm", "aten::baddbmm"]
_NEEDS: Final = ("device_ops",)

_SPEEDUP: Final = (
    "kernel time / s, not below the time its matrices take through memory; s is 0.35 (at least) or 0.875 (at most) times "
    "the ratio of the peaks"
)
_SPEEDUP_SOURCE: Final = (
    "at most as PyTorch's TF32 note measures on an A100: 7 times of a ratio of 8; at least as when the Tensor Cores reach "
    "35 % of their peak, the low end of published training runs, and the ordinary cores all of theirs"
)
_REPLAYED: Final = "; replay of the recorded steps with that; where no replay can be trusted, 0 and the kernels' loss"


@measures(
    Metric(
        "tf32_off_share",
        "share",
        "Part of the step in which fp32 matrices are multiplied on the ordinary cores though the device has TF32.",
        "time of matrix kernels judged unused with fp32 inputs, where TF32's peak is at least 1.5 times that of fp32 / "
        "step time",
        "kernel names, then the launching op's dtype; peaks from the hardware table",
        _NEEDS,
        lambda lane: longest(_tf32_off(lane)),
    ),
    Metric("tf32_off_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("tf32_off_ops", "text", "The ops that launched them.", "the three with the most time", needs=_NEEDS),
    Metric(
        "tf32_least_gain_ms",
        "ms",
        "Step time that allowing TF32 gives back at least.",
        f"those kernels at {_SPEEDUP}, at 80 % of the bandwidth{_REPLAYED}",
        _SPEEDUP_SOURCE,
        _NEEDS,
    ),
    Metric(
        "tf32_gain_ms",
        "ms",
        "Step time that allowing TF32 gives back at most.",
        f"those kernels at {_SPEEDUP}, at the full bandwidth{_REPLAYED}",
        _SPEEDUP_SOURCE,
        _NEEDS,
    ),
)
def tf32(lane: Lane) -> Mapping[str, Value]:
    """What TF32 would speed up; zero where the device has none that is faster."""
    if (gpu := lane.gpu) is None or not lane.total_ns:
        return dict.fromkeys(_TF32, _UNKNOWN_GPU)
    found = _tf32_off(lane)
    ratio = gpu.tensor_core_gain("fp32", "tf32") or 1.0
    low, high = gains_ms(lane, found, *(_left(gpu, ratio, end, _ORDINARY_TO_TENSOR, 4) for end in (0, 1)))
    return dict(zip(_TF32, (*_extent(lane, found), low, high), strict=True))


@measures(
    Metric(
        "thirty_two_bit_share",
        "share",
        "Part of the step in which 32-bit matrices are multiplied that no cheaper switch than 16 bits makes faster.",
        "time of matrix kernels with fp32 or TF32 inputs, without those of tf32_off_share / step time",
        "kernel names, then the launching op's dtype",
        _NEEDS,
        lambda lane: longest(_thirty_two_bit(lane)),
    ),
    Metric("thirty_two_bit_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("thirty_two_bit_ops", "text", "The ops that launched them.", "the three with the most time", needs=_NEEDS),
    Metric(
        "sixteen_bit_least_gain_ms",
        "ms",
        "Step time that mixed precision gives back at least.",
        f"those kernels at {_SPEEDUP} (0.7 where they use TF32), elementwise, pooling and batch norm kernels on fp32 at "
        f"3/4 of their time{_REPLAYED}",
        _SPEEDUP_SOURCE,
        _NEEDS,
    ),
    Metric(
        "sixteen_bit_gain_ms",
        "ms",
        "Step time that mixed precision gives back at most.",
        f"those kernels at {_SPEEDUP} (1 where they use TF32), elementwise, pooling and batch norm kernels on fp32 at "
        f"half of their time{_REPLAYED}",
        f"{_SPEEDUP_SOURCE}; half as Daydream (USENIX ATC 2020) takes memory-bound kernels",
        _NEEDS,
    ),
)
def mixed_precision(lane: Lane) -> Mapping[str, Value]:
    """What 16-bit types would speed up."""
    gpu = lane.gpu
    if gpu is None or not lane.total_ns:
        return dict.fromkeys(_SIXTEEN, _UNKNOWN_GPU)
    half = next((dtype for dtype in ("bf16", "fp16") if gpu.supports(dtype)), None)
    if half is None:
        return dict.fromkeys(_SIXTEEN, Missing("the device has no Tensor Cores for 16-bit types"))
    found = _thirty_two_bit(lane)
    low, high = gains_ms(lane, *_in_sixteen_bits(lane, gpu, half, found))
    return dict(zip(_SIXTEEN, (*_extent(lane, found), low, high), strict=True))


@measures(
    Metric(
        "misaligned_product_share",
        "share",
        "Part of the step in which Tensor Cores multiply matrices whose rows do not start at multiples of 16 bytes.",
        "time of GEMM kernels that use Tensor Cores on fp16, bf16 or TF32 and either bear an alignment of under 16 bytes in "
        "their name or were launched by addmm, linear or bmm with n or k no multiple of 8 (TF32: 4) / step time",
        "NVIDIA Matrix Multiplication Background User's Guide, table 1",
        _NEEDS,
        lambda lane: longest(_misaligned(lane)),
    ),
    Metric("misaligned_product_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric(
        "misaligned_product_ops",
        "text",
        "The ops that launched them, with rows x inner side x columns where shapes tell.",
        "the three with the most time",
        needs=_NEEDS,
    ),
    Metric(
        "misaligned_least_gain_ms",
        "ms",
        "Step time that padding the sides gives back at least.",
        f"those kernels a tenth shorter{_REPLAYED}",
        needs=_NEEDS,
    ),
    Metric(
        "misaligned_gain_ms",
        "ms",
        "Step time that padding the sides gives back at most.",
        f"those kernels two fifths shorter{_REPLAYED}",
        "38 % measured on a B200 for a bf16 product of 1157 x 4096 x 1157 (pytorch/pytorch, pull request 196992)",
        _NEEDS,
    ),
)
def alignment(lane: Lane) -> Mapping[str, Value]:
    """Products out of step with the Tensor Cores; unknown where neither names nor shapes tell of any product."""
    if not lane.total_ns:
        return {}
    products = _on_tensor_cores(lane)
    if products.height and not (products["alignment"].count() or products["n"].count()):
        return dict.fromkeys(_ALIGNED, Missing("neither shapes nor kernel names tell how the matrices are aligned"))
    found = _misaligned(lane)
    slow, fast = (pl.col("dur_ns") * left for left in _MISALIGNED)
    return dict(zip(_ALIGNED, (*_extent(lane, found), *gains_ms(lane, found, slow, fast)), strict=True))


_TF32: Final = ("tf32_off_share", "tf32_off_ms", "tf32_off_ops", "tf32_least_gain_ms", "tf32_gain_ms")
_SIXTEEN: Final = (
    *("thirty_two_bit_share", "thirty_two_bit_ms", "thirty_two_bit_ops"),
    *("sixteen_bit_least_gain_ms", "sixteen_bit_gain_ms"),
)
_ALIGNED: Final = (
    *("misaligned_product_share", "misaligned_product_ms", "misaligned_product_ops"),
    *("misaligned_least_gain_ms", "misaligned_gain_ms"),
)
_UNKNOWN_GPU: Final = Missing("it cannot be told which GPU this is, and so how fast it multiplies which type")


def _extent(lane: Lane, found: pl.DataFrame) -> tuple[float, float, str]:
    """Share of the step, ms per step, and the ops."""
    total = int(found["dur_ns"].sum())
    return total / lane.total_ns, lane.per_step_ms(total), largest(lane, found)


def _is_tf32_off(lane: Lane) -> pl.Expr:
    gain = lane.gpu.tensor_core_gain("fp32", "tf32") if lane.gpu and lane.gpu.vendor == "NVIDIA" else None
    return pl.lit((gain or 1.0) >= _WORTH_TF32) & (pl.col("verdict") == "unused") & (pl.col("dtype") == "fp32")


def _tf32_off(lane: Lane) -> pl.DataFrame:
    return lane.once(candidates).filter(_is_tf32_off(lane))


def _thirty_two_bit(lane: Lane) -> pl.DataFrame:
    return lane.once(candidates).filter(pl.col("dtype").is_in(["fp32", "tf32"]) & ~_is_tf32_off(lane))


def _left(gpu: Gpu, ratio: float, end: int, rates: tuple[float, float], element_bytes: int) -> pl.Expr:
    """Time of a product when it runs `ratio` x a rate as fast, memory permitting; never more than now."""
    m, n, k = (pl.col(side).cast(pl.Float64) for side in "mnk")
    moved = pl.col("count") * (m * k + k * n + m * n) * element_bytes
    faster = pl.col("dur_ns") / max(1.0, ratio * rates[end])
    return pl.min_horizontal("dur_ns", pl.max_horizontal(faster, memory_ns(moved, gpu, _BANDWIDTH[end])))


def _in_sixteen_bits(lane: Lane, gpu: Gpu, half: str, products: pl.DataFrame) -> tuple[pl.DataFrame, pl.Expr, pl.Expr]:
    """The products and the kernels around them that move 32-bit values, and the longest and shortest each would take."""
    name = pl.col("name").cast(pl.String)
    norm = (pl.col("family") == "normalisation") & name.str.contains("(?i)batch_?norm|bn_[fb]w")
    around = lane.once(parts).filter(
        (pl.col("family").is_in(_HALVING) | norm) & (pl.col("op_dtype") == "fp32"),
        pl.col("part").is_null() | (pl.col("part") == "chain"),
    )
    found = pl.concat([products.with_columns(is_product=True), around.with_columns(is_product=False)], how="diagonal")
    from_tf32 = (pl.col("dtype") == "tf32") | ((pl.col("verdict") != "unused") & pl.lit(gpu.vendor == "NVIDIA"))
    ordinary, tensor = (gpu.tensor_core_gain(dtype, half) or 1.0 for dtype in ("fp32", "tf32"))
    slow, fast = (
        pl.when(~pl.col("is_product"))
        .then(pl.col("dur_ns") * _HALVED[end])
        .when(from_tf32)
        .then(_left(gpu, tensor, end, _TENSOR_TO_TENSOR, 2))
        .otherwise(_left(gpu, ordinary, end, _ORDINARY_TO_TENSOR, 2))
        for end in (0, 1)
    )
    return found, slow, fast


def _on_tensor_cores(lane: Lane) -> pl.DataFrame:
    used = (pl.col("family") == "gemm") & (pl.col("verdict") == "used") & pl.col("dtype").is_in(list(_STEP_OF))
    return lane.once(candidates).filter(used)


def _misaligned(lane: Lane) -> pl.DataFrame:
    """Labelled with the sides of the product where they are known."""
    step = pl.col("dtype").replace_strict(_STEP_OF, default=None, return_dtype=pl.Int64)
    by_name = pl.col("alignment") < step
    by_shape = pl.col("op_name").is_in(_FORWARD) & ((pl.col("n") % step != 0) | (pl.col("k") % step != 0))
    odd = by_name.fill_null(value=False) | by_shape.fill_null(value=False)
    sized = pl.format("{} {} x {} x {}", "op_name", "m", "k", "n")
    return _on_tensor_cores(lane).filter(odd).with_columns(op_name=pl.coalesce(sized, "op_name"))
