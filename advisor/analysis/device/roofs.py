"""What ops take against the least time that the device's peaks allow for their work: the roof."""

from typing import Final, TypeAlias

import polars as pl

from advisor.analysis.device.kernels import TYPE_BYTES, kernels
from advisor.analysis.device.view import DeviceView
from advisor.inputs.hardware import Gpu
from advisor.inputs.names.kernels import PRODUCTS
from advisor.model.clause import Missing

Ends: TypeAlias = tuple[float, float]  # of a change, at least and at most helpful
_BANDWIDTH: Final[Ends] = (0.8, 1.0)
# Parts of the peak that library kernels reach in a whole job. GeForce boards add in fp32 at half the rate of their
# Tensor Cores, so that all other limits bind half as much there.
_RATES: Final[dict[str, Ends]] = {"tf32": (0.35, 0.875), "bf16": (0.3, 0.55), "fp16": (0.3, 0.55)}
_MOST_RATE: Final = 0.9
# fp32 to TF32 on an A100 (8 times the peak) up to 7 times as fast, to 16 bits on V100 and T4 (8) 2.8 to 6, TF32 to 16
# bits (2) 1.4 to 2.2, fp32 to 16 bits on GeForce boards (2) 1.4 to 2.6
_LEAST_POWER: Final = 0.45
_MOST_FACTOR, _MOST_POWER = 1.75, 2 / 3
_FAMILIES: Final = {"product": ["gemm", "gemv"], "convolution": ["convolution", "gemm"], "attention": ["attention"]}
# More of the roof than this was not reached: another thing ran than the op's name says (a sparse product), or on
# another device. Winograd multiplies a 3 x 3 filter with a quarter of the products; caches feed small ops.
_MOST_REACHED: Final = {"product": 1.1, "attention": 1.1, "convolution": 4.0}
_FIRST: Final = ("op_name", "shape", "work", "op_dtype", "flops", "least_flops", "least_bytes", "worker", "step")
_IS_OF_OP: Final = pl.col("op").is_not_null() & pl.col("work").is_in(["convolution", "attention"])
_PART_OF_OP: Final = pl.when(_IS_OF_OP).then(pl.col("dur_ns") / pl.col("dur_ns").sum().over("op"))
_M, _N, _K = (pl.col(side).cast(pl.Float64) for side in "mnk")
_FLOPS: Final = pl.coalesce(2 * pl.col("count") * _M * _N * _K, pl.col("flops") * _PART_OF_OP)
"""Of one kernel: the product that it computes, or its part of what its op has to do, by the time that it takes."""


def calls(view: DeviceView) -> pl.DataFrame:
    """One row per call of an op whose work and whose roof are known, of the used steps.

    Columns: id (of the op), op_name, shape, work (of `Work`), dtype (that was multiplied), name (its longest kernel),
    worker, step, start_ns, dur_ns (all its kernels), matrix_ns (those that multiply), flops, least_flops,
    least_bytes, arithmetic_ns (FLOPs at the type's peak), roof_ns (the longer of that and of the bytes at the memory
    bandwidth), computes (arithmetic is the longer), and reached: roof_ns / dur_ns, at most 1, and an upper bound where
    the inputs leave the FLOPs open.
    """
    is_known = view.device is not None and view.gpu is not None and bool(view.gpu.memory_bandwidth_gbs)
    rows = view.once(kernels).filter(pl.col("work").is_not_null(), pl.lit(is_known))
    multiplies = pl.col("family").cast(pl.String).is_in(PRODUCTS)
    by_call = rows.group_by(pl.col("op").alias("id"), maintain_order=True).agg(
        pl.first(*_FIRST),
        pl.col("name", "element_type", "tensor_cores").get(pl.col("dur_ns").arg_max()),
        families=pl.col("family").cast(pl.String).unique(),
        start_ns=pl.min("start_ns"),
        dur_ns=pl.sum("dur_ns"),
        matrix_ns=pl.col("dur_ns").filter(multiplies).sum(),
    )
    in_tf32 = pl.when(pl.col("element_type") == "3xtf32").then("element_type").when("tensor_cores").then(pl.lit("tf32"))
    dtype = pl.when(pl.col("op_dtype") == "fp32").then(in_tf32.otherwise("op_dtype")).otherwise("op_dtype")
    return _with_roofs(by_call.with_columns(dtype=dtype), view).filter(_is_believable()).select(*_COLUMNS)


def memory_ns(nbytes: pl.Expr, rate: float | None, share: float) -> pl.Expr:
    """Time to move so many bytes at this share of a bandwidth in GB/s, which is bytes per ns; 0 if one is not known."""
    return (nbytes / (share * rate)).fill_null(0.0) if rate else pl.lit(0.0)


def speed_ups(ratio: float) -> Ends:
    """How many times as fast products get whose format has `ratio` times the peak, at the least and at the most.

    The higher the ratio, the less of it is reached: memory, shapes and launches do not get faster.
    """
    return (ratio**_LEAST_POWER, _MOST_FACTOR * ratio**_MOST_POWER) if ratio > 1 else (1.0, 1.0)


def in_format(view: DeviceView, dtype: str, times: Ends, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time of products that are multiplied in another format; never more than now.

    Where shapes tell their FLOPs: these at a part of its peak. Else as many `times` as fast, at least and at most,
    which is also the most that is believed of FLOPs. In no case faster than memory supplies the matrices; where the
    bandwidth is not known, it may supply nothing (end 0) or everything.
    """
    chip, now = view.chip, pl.col("dur_ns")
    if end == 0 and (chip is None or chip.memory_bandwidth_gbs is None):
        return now
    slow, fast = (now / max(1.0, of) for of in times)
    per_ns = 1e3 * _reached_tflops(chip, dtype)[end]  # 1e3 FLOP/ns are a TFLOP/s
    by_flops = pl.max_horizontal(_FLOPS / per_ns, fast) if per_ns else pl.lit(None, pl.Float64)
    takes = pl.coalesce(pl.when(_FLOPS.is_not_null()).then(by_flops), slow if end == 0 else fast)
    rate = chip.memory_bandwidth_gbs if chip else None
    return pl.min_horizontal(now, pl.max_horizontal(takes, memory_ns(_bytes(dtype), rate, _BANDWIDTH[end])))


def _bytes(dtype: str) -> pl.Expr:
    """What the kernel has to read and write, where values have this format."""
    size = TYPE_BYTES.get(dtype, 4)
    now = pl.col("op_dtype").replace_strict(TYPE_BYTES, default=4, return_dtype=pl.Float64)
    of_op = pl.col("least_bytes") * _PART_OF_OP * size / now
    return pl.coalesce(pl.col("count") * (_M * _K + _K * _N + _M * _N) * size, of_op)


def _reached_tflops(chip: Gpu | None, dtype: str) -> Ends:
    """What a whole job's products reach at least and at most; 0 where that is not known."""
    peak = chip.peak_tflops.get(dtype, 0.0) if chip else 0.0
    least, most = _RATES.get(dtype, (0.0, 0.0))
    if chip and chip.adds_slowly and dtype != "tf32":
        least, most = 2 * least, min(2 * most, _MOST_RATE)
    return least * peak, most * peak


def no_chip(view: DeviceView) -> Missing | None:
    """Why it is not known how fast the device multiplies, if neither its model nor its generation tells."""
    return None if view.chip else no_peaks(view)


def no_peaks(view: DeviceView) -> Missing:
    """Why it is not known how fast the device multiplies which type: it has no name, or one the table lacks."""
    name = view.facts.get("name")
    if not name:
        return Missing("gpu_unknown")
    return Missing("peaks_unknown", name=str(name))


def _with_roofs(rows: pl.DataFrame, view: DeviceView) -> pl.DataFrame:
    gpu = view.gpu
    peaks, bandwidth = (gpu.peaks, gpu.memory_bandwidth_gbs) if gpu else ({}, None)
    peak = pl.col("dtype").replace_strict(peaks, default=None, return_dtype=pl.Float64)
    arithmetic = pl.when(pl.col("flops") > 0).then(pl.col("flops") / peak / 1e3).otherwise(0.0)  # 1e3: TFLOP/s, ns
    moving = pl.col("least_bytes") / bandwidth  # GB/s is bytes per ns
    rows = rows.with_columns(arithmetic_ns=arithmetic, moving_ns=moving)
    longer = pl.when(pl.col("arithmetic_ns").is_not_null()).then(pl.max_horizontal("arithmetic_ns", "moving_ns"))
    return rows.with_columns(
        roof_ns=longer,
        computes=pl.col("arithmetic_ns") > pl.col("moving_ns"),
        reached=(longer / pl.col("dur_ns")).clip(upper_bound=1.0),
    )


def _is_believable() -> pl.Expr:
    """Whether kernels of the op's kind ran, and no faster than the device can."""
    of_kind = pl.lit(value=False)
    for work, families in _FAMILIES.items():
        ran = pl.col("families").list.set_intersection(families).list.len() > 0
        of_kind |= (pl.col("work") == work) & ran
    most = pl.col("work").replace_strict(_MOST_REACHED, default=None, return_dtype=pl.Float64)
    believable = of_kind & (pl.col("roof_ns") <= most * pl.col("dur_ns"))
    return (believable | (pl.col("work") == "moving")) & (pl.col("roof_ns") > 0) & (pl.col("dur_ns") > 0)


_COLUMNS: Final = (
    *("id", "op_name", "shape", "work", "dtype", "name", "worker", "step", "start_ns", "dur_ns", "matrix_ns"),
    *("flops", "least_flops", "least_bytes", "arithmetic_ns", "roof_ns", "computes", "reached"),
)
