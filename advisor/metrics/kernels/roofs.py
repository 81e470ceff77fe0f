"""What the multiplying ops reach of the device's roof, and which stay far below it."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.places import as_places
from advisor.analysis.device.roofs import calls, in_words, no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import of_devices, tabulates
from advisor.model.missing import Missing

_KNOWN: Final = 0.9  # of the time of the kernels that multiply: what is said of all of them holds for so much
_LARGE_NS: Final = 100_000  # at the roof: ten times what a kernel takes to begin and to end
_FAR: Final = 0.05  # of the roof
# Of the roof, at least and at most, once a library's kernel does it: FlashAttention-3 reaches 75 %, cuBLAS's large
# products 80 % of a peak that assumes the boost clock.
_AFTER: Final = (0.1, 0.8)
_NEEDS: Final = ("device_ops", "host_ops.shapes")
_PEAKS: Final = "dense peaks of the hardware table; formulas of torch.utils.flop_counter and TraceLens"


def _multiplying(view: DeviceView) -> pl.DataFrame:
    return view.once(calls).filter(pl.col("work") != "moving")


def _known_share(view: DeviceView) -> float | None:
    """None where no kernel multiplies."""
    total = int(view.once(kernels).filter(pl.col("family").is_in(PRODUCTS))["dur_ns"].sum())
    return float(view.once(_multiplying)["matrix_ns"].sum()) / total if total else None


def _arithmetic_ns(view: DeviceView) -> float:
    """Time of the step's FLOPs at the peak."""
    least = pl.col("arithmetic_ns") * (pl.col("least_flops") / pl.col("flops"))
    return float(view.once(_multiplying).select(least.sum()).item())


def _no_peaks(view: DeviceView) -> Missing | None:
    return None if view.gpu else no_peaks(view)


def _few_known(view: DeviceView) -> Missing | None:
    known = view.once(_known_share)
    few = Missing("flops_unknown", share=known) if known is not None and known < _KNOWN else None
    return _no_peaks(view) or (few if known is not None else Missing("nothing_to_compute_from"))


def _far(view: DeviceView) -> pl.DataFrame:
    """Ops that a naive kernel computes: large ones that stay far below the roof."""
    large = pl.col("computes") & (pl.col("roof_ns") >= _LARGE_NS)
    return view.once(_multiplying).filter(large, pl.col("reached") < _FAR)


def _far_ns(view: DeviceView) -> int:
    return int(view.once(_far)["dur_ns"].sum())


def _reached(view: DeviceView) -> float:
    total = view.once(_far_ns)
    return float(view.once(_far)["roof_ns"].sum()) / total if total else 1.0


def _names(view: DeviceView) -> str | None:
    name = pl.format("{} {}", "op_name", "shape").alias("name")
    ops = view.once(_far).group_by(name).agg(pl.sum("dur_ns"), pl.mean("reached"))
    return in_words(view, ops.sort("dur_ns", "name", descending=[True, False]))


def _far_kernels(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).join(view.once(_far).select("reached", op="id"), on="op", how="inner")


def _at_roof(part: float) -> pl.Expr:
    """Time of a kernel that reaches this part of the roof."""
    return pl.col("dur_ns") * (pl.col("reached") / part)


measure = of_devices(__name__, needs=_NEEDS, unknown=_no_peaks)
measure_flops = of_devices(__name__, needs=_NEEDS, unknown=_few_known)

measure_flops("flops_of_peak_share", lambda view: _arithmetic_ns(view) / view.total_ns).says(
    "Part of the step that its matrix products, convolutions and attention would take at the device's dense peak: the "
    "utilisation of its FLOPs. What is computed twice, as with activation checkpointing, counts twice.",
    "sum of FLOPs / peak of their type / step time, where FLOPs are known for 90 % of the time of the kernels that "
    "multiply; of attention the causal half where it is causal, or may be",
    f"{_PEAKS}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)
measure(
    "far_below_roof_ms", lambda view: view.per_step_ms(view.once(_far_ns)), where=as_places(_far, "device_ops", op="id")
).says(
    "Time per step in large products, convolutions and attention that reach under a twentieth of the device's roof.",
    "time of the kernels of such ops that are bound by arithmetic, would take 100 µs or more at the roof, and take "
    "over twenty times that / steps",
    f"{_PEAKS}; TraceLens expects 5 % of attention over under 512 positions and 40 % or more from 2048 on, and "
    "libraries reach more in products",
)
measure("far_below_roof_reached", _reached, unit="share").says(
    "What large products, convolutions and attention far below the device's roof reach of it.",
    "sum of the times at the roof / sum of their times",
)
measure("far_below_roof_ops", _names).says(
    "Which ops reach under a twentieth of the device's roof, with what they reach.", "the three with the most time"
)
measure.faster("far_below", _far_kernels, lambda _: (_at_roof(_AFTER[0]), _at_roof(_AFTER[1]))).says(
    "calling a library's kernels for ops far below the device's roof"
)


@tabulates("roof")
def roof_table(view: DeviceView) -> pl.DataFrame:
    """One row per op, shape and type with known FLOPs and bytes, the most time first.

    Columns: op, shape (of its largest input), work (product, convolution, attention, moving), dtype, calls, total_ms,
    gflops and megabytes per call, bound (compute or memory), roof_us per call, reached (share of the roof); of the
    device peak_tflops for the type and memory_gbs.
    """
    gpu = view.gpu
    keys = ["op_name", "shape", "work", "dtype", "flops", "least_bytes"]
    groups = (
        view.once(calls)
        .group_by(keys)
        .agg(pl.len().alias("calls"), pl.first("computes", "roof_ns"), total=pl.sum("dur_ns"), roof=pl.sum("roof_ns"))
    )
    return groups.sort("total", *keys, descending=[True, *[False] * len(keys)], nulls_last=True).select(
        *("shape", "work", "dtype", "calls"),
        op="op_name",
        total_ms=pl.col("total") / 1e6,
        gflops=pl.col("flops") / 1e9,
        megabytes=pl.col("least_bytes") / 1e6,
        bound=pl.when("computes").then(pl.lit("compute")).otherwise(pl.lit("memory")),
        roof_us=pl.col("roof_ns") / 1e3,
        reached=(pl.col("roof") / pl.col("total")).clip(upper_bound=1.0),
        peak_tflops=pl.col("dtype").replace_strict(gpu.peaks if gpu else {}, default=None, return_dtype=pl.Float64),
        memory_gbs=pl.lit(gpu and gpu.memory_bandwidth_gbs, pl.Float64),
    )
