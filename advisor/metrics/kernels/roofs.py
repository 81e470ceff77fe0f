"""What the multiplying ops reach of the device's roof, and which stay far below it."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.places import as_places
from advisor.analysis.device.roofs import calls, no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import tabulates
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.text import ms, percent
from advisor.whatif import WORDS, faster, saved

_KNOWN: Final = 0.9  # of the time of the kernels that multiply: what is said of all of them holds for so much
_LARGE_NS: Final = 100_000  # at the roof: ten times what a kernel takes to begin and to end
_FAR: Final = 0.05  # of the roof
_MOST: Final = 3
_AFTER: Final = (0.1, 0.8)  # of the roof, at least and at most, once a library's kernel does it
_NEEDS: Final = ("device_ops", "host_ops.shapes")
_PEAKS: Final = "dense peaks of the hardware table; formulas of torch.utils.flop_counter and TraceLens"


FLOPS_OF_PEAK_SHARE = Metric(
    "flops_of_peak_share",
    "Part of the step that its matrix products, convolutions and attention would take at the device's dense peak: the "
    "utilisation of its FLOPs. What is computed twice, as with activation checkpointing, counts twice.",
    "sum of FLOPs / peak of their type / step time, where FLOPs are known for 90 % of the time of the kernels that "
    "multiply; of attention the causal half where it is causal, or may be",
    f"{_PEAKS}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)
MATRIX_TFLOPS = Metric(
    "matrix_tflops",
    "TFLOP/s of matrix products, convolutions and attention over the whole step.",
    "sum of FLOPs / step time",
)
FLOPS_KNOWN_SHARE = Metric(
    "flops_known_share",
    "Part of the time of the kernels that multiply for which FLOPs are known.",
    "time of GEMM, convolution and attention kernels launched by ops with known FLOPs / time of all of them",
)
_ALL: Final = (FLOPS_OF_PEAK_SHARE, MATRIX_TFLOPS, FLOPS_KNOWN_SHARE)


@measures(*_ALL, needs=_NEEDS)
def utilisation(view: DeviceView) -> Values:
    """FLOPs of the step; unknown where too few of the kernels tell theirs, or none multiplies."""
    if view.gpu is None:
        return no_peaks(view)
    rows = _multiplying(view)
    total = int(view.once(kernels).filter(pl.col("family").is_in(PRODUCTS))["dur_ns"].sum())
    if not total:
        return {}
    known = float(rows["matrix_ns"].sum()) / total
    if known < _KNOWN:
        return {FLOPS_KNOWN_SHARE: known} | dict.fromkeys(_ALL[:2], Missing("flops_unknown", share=known))
    part = pl.col("least_flops") / pl.col("flops")
    return {
        FLOPS_OF_PEAK_SHARE: float(rows.select((pl.col("arithmetic_ns") * part).sum()).item()) / view.total_ns,
        MATRIX_TFLOPS: float(rows["least_flops"].sum()) / view.total_ns / 1e3,
        FLOPS_KNOWN_SHARE: known,
    }


FAR_BELOW_ROOF_MS = Metric(
    "far_below_roof_ms",
    "Time per step in large products, convolutions and attention that reach under a twentieth of the device's roof.",
    "time of the kernels of such ops that are bound by arithmetic, would take 100 µs or more at the roof, and take "
    "over twenty times that / steps",
    f"{_PEAKS}; TraceLens expects 5 % of attention over under 512 positions and 40 % or more from 2048 on, and "
    "libraries reach more in products",
    where=lambda view: as_places(_far(view), "device_ops", op="id"),
)
FAR_BELOW_ROOF_REACHED = Metric(
    "far_below_roof_reached",
    "What large products, convolutions and attention far below the device's roof reach of it.",
    "sum of the times at the roof / sum of their times",
    unit="share",
)
FAR_BELOW_ROOF_OPS = Metric(
    "far_below_roof_ops",
    "Which ops reach under a twentieth of the device's roof, with what they reach.",
    "the three with the most time",
    unit="text",
)
FAR_BELOW_LEAST_GAIN_MS = Metric(
    "far_below_least_gain_ms",
    "Step time that a library's kernels in their place save at least.",
    f"those ops at a tenth of the roof{WORDS['faster']}",
)
FAR_BELOW_GAIN_MS = Metric(
    "far_below_gain_ms",
    "Step time that a library's kernels in their place save at most.",
    f"those ops at 80 % of the roof{WORDS['faster']}",
    "the best fused kernels reach 75 % (FlashAttention-3); cuBLAS's large products reach 80 % of a peak that "
    "assumes the boost clock",
)


@measures(
    FAR_BELOW_ROOF_MS,
    FAR_BELOW_ROOF_REACHED,
    FAR_BELOW_ROOF_OPS,
    FAR_BELOW_LEAST_GAIN_MS,
    FAR_BELOW_GAIN_MS,
    needs=_NEEDS,
)
def far_below(view: DeviceView) -> Values:
    """Ops that a naive kernel computes; zero where each is within reach of the roof, or small."""
    if view.gpu is None:
        return no_peaks(view)
    rows = _far(view)
    slow, fast = (pl.col("dur_ns") * (pl.col("reached") / rate) for rate in _AFTER)
    least, most = saved(view, faster(_kernels(view, rows), slow, fast))
    total = int(rows["dur_ns"].sum())
    return {
        FAR_BELOW_ROOF_MS: view.per_step_ms(total),
        FAR_BELOW_ROOF_REACHED: float(rows["roof_ns"].sum()) / total if total else 1.0,
        FAR_BELOW_ROOF_OPS: _names(view, rows),
        FAR_BELOW_LEAST_GAIN_MS: least,
        FAR_BELOW_GAIN_MS: most,
    }


@tabulates("roof")
def roof_table(view: DeviceView) -> pl.DataFrame:
    """One row per op, shape and type with known FLOPs and bytes, the most time first.

    Columns: op, shape (of its largest input), work (product, convolution, attention, moving), dtype, calls, total_ms,
    gflops and megabytes per call, bound (compute or memory), roof_us per call, reached (share of the roof).
    """
    keys = ["op_name", "shape", "work", "dtype", "flops", "least_bytes"]
    groups = (
        view.once(calls)
        .group_by(keys)
        .agg(
            pl.len().alias("calls"),
            pl.first("computes", "roof_ns"),
            total=pl.sum("dur_ns"),
            roof=pl.sum("roof_ns"),
        )
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
    )


def _multiplying(view: DeviceView) -> pl.DataFrame:
    return view.once(calls).filter(pl.col("work") != "moving")


def _far(view: DeviceView) -> pl.DataFrame:
    large = pl.col("computes") & (pl.col("roof_ns") >= _LARGE_NS)
    return _multiplying(view).filter(large, pl.col("reached") < _FAR)


def _kernels(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels of these calls, each with its call's columns."""
    of_calls = rows.select("reached", op="id")
    return view.once(kernels).join(of_calls, on="op", how="inner")


def _names(view: DeviceView, rows: pl.DataFrame) -> str | None:
    """`aten::mm [4096, 4096] (3.6 % of the roof, 6.9 ms), ...`."""
    ops = rows.group_by("op_name", "shape").agg(pl.sum("dur_ns"), pl.mean("reached"))
    longest = ops.sort("dur_ns", "op_name", "shape", descending=[True, False, False]).head(_MOST)
    texts = [
        f"{name} {shape} ({percent(reached)} of the roof, {ms(view.per_step_ms(ns))})"
        for name, shape, ns, reached in longest.rows()
    ]
    return ", ".join(texts) or None
