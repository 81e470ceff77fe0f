"""What kernels reach of the device's roof, by their shapes or by XLA's cost analysis, and what others publish."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.places import as_places
from advisor.analysis.device.roofs import calls, no_peaks
from advisor.analysis.device.view import DeviceView
from advisor.analysis.device.workload import workload
from advisor.inputs.hardware import usual
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import Value, of_devices, tabulates
from advisor.model.clause import Entries, Missing

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


def _entries(view: DeviceView) -> Entries | None:
    name = pl.format("{} {}", "op_name", "shape").alias("name")
    ops = view.once(_far).group_by(name).agg(pl.sum("dur_ns"), pl.mean("reached"))
    rows = ops.sort("dur_ns", "name", descending=[True, False]).head(3).rows()
    of = "of the roof"
    return [{"name": n, "ms": view.per_step_ms(ns), "share": share, "what": of} for n, ns, share in rows] or None


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
measure("far_below_roof_ops", _entries).says(
    "Which ops reach under a twentieth of the device's roof, with what they reach.", "the three with the most time"
)
measure.faster(
    "far_below",
    lambda view: view.once(kernels).join(view.once(_far).select("reached", op="id"), on="op"),
    lambda _: (_at_roof(_AFTER[0]), _at_roof(_AFTER[1])),
).says("calling a library's kernels for ops far below the device's roof")


@tabulates("roof")
def roof_table(view: DeviceView) -> pl.DataFrame:
    """One row per op, shape and type with known FLOPs and bytes, the most time first.

    Columns: op, shape (of its largest input), work (product, convolution, attention, moving), dtype, calls, total_ms,
    gflops and megabytes per call, bound (compute or memory), roof_us per call, reached (share of the roof); of the
    device peak_tflops for the type and memory_gbs.
    """
    gpu = view.gpu
    keys = ["op_name", "shape", "work", "dtype", "flops", "least_bytes"]
    sums = {"calls": pl.len(), "total": pl.sum("dur_ns"), "roof": pl.sum("roof_ns")}
    groups = view.once(calls).group_by(keys).agg(pl.first("computes", "roof_ns"), **sums)
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


_XPROF: Final = (
    "XProf: stats `flops` and `bytes_accessed` of an op, `peak_teraflops_per_second` and HBM rate of a plane"
)


def _costed(view: DeviceView) -> pl.DataFrame:
    """Ops of known cost with `arithmetic_ns`, their FLOPs at the peak: 1e3 FLOP/ns are a TFLOP/s."""
    peak = pl.lit(view.facts.get("peak_tflops") or None, pl.Float64)
    known = view.used_kernels.filter(pl.col("xla_flops") >= 0, peak.is_not_null())
    return known.with_columns(arithmetic_ns=pl.col("xla_flops") / (peak * 1e3))


def _spent_ns(rows: pl.DataFrame) -> int:
    return int(rows["dur_ns"].sum())


def _few_costed(view: DeviceView) -> Missing | None:
    total, known = _spent_ns(view.used_kernels), _spent_ns(view.once(_costed))
    few = not known or known < _KNOWN * total
    return Missing("flops_unknown", share=known / max(1, total)) if few else None


of_xla = of_devices(__name__, needs=("device_ops",), unknown=_few_costed)

of_xla("xla_flops_of_peak_share", lambda view: float(view.once(_costed)["arithmetic_ns"].sum()) / view.total_ns).says(
    "Part of the step that XLA's ops would take at the device's peak: the utilisation of its FLOPs.",
    "sum of FLOPs by XLA's cost analysis / peak that the profile states / step time, where they are known for 90 % of "
    "the kernels' time",
    f"{_XPROF}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)


_SIXTEEN: Final = ("bf16", "fp16")
_MOSTLY: Final = 0.5  # of the time of kernels that multiply
_EXPERTS: Final = r"(?i)grouped_?(?:gemm|mm)|expert|(?:^|[^a-z])moe"  # of PyTorch, CUTLASS, Transformer Engine, vLLM


def _peak(view: DeviceView) -> float | None:
    """Dense peak in 16 bits, in TFLOP/s."""
    peaks = view.gpu.peak_tflops if view.gpu else {}
    return next((peaks[dtype] for dtype in _SIXTEEN if dtype in peaks), None)


def _peak_work(view: DeviceView) -> Value:
    peak = view.once(_peak)
    return no_peaks(view) if peak is None else peak * 1e9 * view.per_step_ms(view.total_ns)  # 1e9: TFLOP/s, ms


def _model(view: DeviceView) -> str | None:
    """What the job trains in 16 bits, as published.yaml calls it; None where the kernels tell nothing of it."""
    ran = view.once(kernels).with_columns(family=pl.col("family").cast(pl.String))
    multiplying = ran.filter(pl.col("family").is_in(["gemm", "attention", "convolution"]))
    sixteen = multiplying.filter(pl.coalesce("element_type", "op_dtype").is_in(_SIXTEEN))
    if "training" not in view.once(workload) or _spent_ns(sixteen) <= _MOSTLY * _spent_ns(multiplying):
        return None
    if _spent_ns(multiplying.filter(family="convolution")) > _MOSTLY * _spent_ns(multiplying):
        return "convolution"
    if not (ran["family"] == "attention").any():
        return None
    has_experts = ran.select(pl.any_horizontal(pl.col("name", "op_name").cast(pl.String).str.contains(_EXPERTS)).any())
    return "experts" if has_experts.item() else "dense"


def _usual(end: int) -> Callable[[DeviceView], Value]:
    """Lowest (0) or highest (1) published share for the model and the device."""

    def share(view: DeviceView) -> Value:
        model = view.once(_model)
        if view.gpu is None or model is None:
            return Missing("nothing_published")
        ends = usual(model, view.gpu.id, view.process.get("world_size") or 1)
        return ends[end] if ends else Missing("nothing_published")

    return share


of_step = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"))

of_step("peak_work_per_step", _peak_work).says(
    "FLOPs that the device could compute in 16 bits in a mean step.", "dense peak in bf16, or else fp16, x step time"
)
of_step("usual_model", _model, unit="text").says(
    "What the job trains, as far as its kernels tell: dense or experts (language models), or convolution.",
    "by the family of the kernels that multiply, most of them in 16 bits, and by names of grouped products",
)
for _end, _which in enumerate(("least", "most")):
    of_step(f"usual_{_which}_share", _usual(_end)).says(
        f"The {('lowest', 'highest')[_end]} share of the peak FLOPs that is published for training such a model on "
        "this GPU, on one host or on several.",
        "of published.yaml, for the model of usual_model",
        "each figure of published.yaml names its own",
    )
