"""What kernels reach of the device's roof, by their shapes, XLA's cost analysis or hardware counters; an idle GPU.

Counters are sampled over the steps, or of single kernels as Nsight Compute shows them beside a recording. Of a job
that runs on the CPU: what its ops would take on the GPU beside it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.places import as_places
from advisor.analysis.device.roofs import calls, no_peaks
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.device.workload import workload
from advisor.inputs.hardware import usual
from advisor.inputs.names.kernels import PRODUCTS, kernel_name
from advisor.inputs.ncu import Counters, base_name
from advisor.metrics.metric import Value, of_devices, tabulates
from advisor.model.clause import Entries, Missing, largest_first
from advisor.vocabulary.limits import table

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


def _usual(view: DeviceView, end: int) -> Value:
    """Lowest (0) or highest (1) published share for the model and the device."""
    gpu, model = view.gpu, view.once(_model)
    ends = usual(model, gpu.id, view.process.get("world_size") or 1) if gpu and model else None
    return ends[end] if ends else Missing("nothing_published")


of_step = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"))

of_step("peak_work_per_step", _peak_work).says(
    "FLOPs that the device could compute in 16 bits in a mean step.", "dense peak in bf16, or else fp16, x step time"
)
of_step("usual_model", _model, unit="text").says(
    "What the job trains, as far as its kernels tell: dense or experts (language models), or convolution.",
    "by the family of the kernels that multiply, most of them in 16 bits, and by names of grouped products",
)
for _end, _which in enumerate(("least", "most")):
    of_step(f"usual_{_which}_share", partial(_usual, end=_end)).says(
        f"The {('lowest', 'highest')[_end]} share of the peak FLOPs that is published for training such a model on "
        "this GPU, on one host or on several.",
        "of published.yaml, for the model of usual_model",
        "each figure of published.yaml names its own",
    )


_HIGH: Final = 0.6  # of a peak: what limits a kernel is used at least so much
_ENOUGH: Final = 100  # samples in the steps used
_SOURCE: Final = "Nsight Systems' GPU metrics (--gpu-metrics-devices)"
_ROOFS: Final = "60 % of the peak: Nsight Compute's speed-of-light rule calls less than that latency-bound"
_COUNTERS: Final = ("sm_active", "sm_issue", "tensor_active", "dram_read", "dram_write")


def _samples(view: DeviceView) -> pl.DataFrame:
    """The counters per instant sampled in the used steps (0..1, null if not sampled); arithmetic, dram and busy."""
    at = view.gpu_samples["at_ns"].to_numpy()
    inside = pl.Series(view.windows.covers(at), dtype=pl.Boolean)
    wide = (
        view.gpu_samples.filter(inside)
        .with_columns(pl.col("metric").cast(pl.String))
        .pivot("metric", index="at_ns", values="value", aggregate_function="mean", maintain_order=True)
    )
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _COUNTERS if name not in wide.columns)
    at = wide["at_ns"].to_numpy()
    return wide.with_columns(
        arithmetic=pl.max_horizontal("sm_issue", "tensor_active"),
        dram=pl.col("dram_read") + pl.col("dram_write").fill_null(0),
        busy=pl.Series(view.busy.covers(at), dtype=pl.Boolean),
    )


def _unknown(view: DeviceView) -> Missing | None:
    samples = view.once(_samples).height
    return Missing("few_samples", samples=samples, needed=_ENOUGH) if samples < _ENOUGH else None


def _while_busy(view: DeviceView, counter: str) -> Value:
    return _mean(view.once(_samples).filter("busy"), pl.col(counter))


def _limiting(view: DeviceView, roof: str, other: str) -> Value:
    """How often this roof limits what runs, of the samples of both."""
    return _mean(view.once(_samples), (pl.col(roof) >= _HIGH) & (pl.col(roof) > pl.col(other)))


def _mean(samples: pl.DataFrame, of: pl.Expr) -> Value:
    mean: float | None = samples.select(of.mean()).item()
    return Missing("counters_not_sampled") if mean is None else mean


of_counters = of_devices(__name__, source=_SOURCE, needs=("device_ops", "gpu_samples"), unknown=_unknown)

of_counters("sm_active_share", lambda view: _while_busy(view, "sm_active")).says(
    "How many of the multiprocessors have work, while the device is busy.",
    "mean of the samples of SMs Active in the steps, taken while an op runs",
)
of_counters("tensor_active_share", lambda view: _while_busy(view, "tensor_active")).says(
    "How busy the Tensor Cores are, while the device is busy.",
    "mean of the samples of Tensor Active in the steps, taken while an op runs",
)
of_counters("dram_share", lambda view: _while_busy(view, "dram")).says(
    "How much of the device memory's bandwidth is used, while the device is busy.",
    "mean of the samples of DRAM read and write together in the steps, taken while an op runs",
)
of_counters("memory_bound_share", lambda view: _limiting(view, "dram", "arithmetic")).says(
    "Part of the step in which memory bandwidth limits what runs.",
    "samples in the steps with DRAM read and write of at least 60 % and more than SM Issue and Tensor Active "
    "/ samples in the steps",
    _ROOFS,
)
of_counters("compute_bound_share", lambda view: _limiting(view, "arithmetic", "dram")).says(
    "Part of the step in which arithmetic limits what runs.",
    "samples in the steps with SM Issue or Tensor Active of at least 60 % and more than DRAM / samples there",
    _ROOFS,
)


_RULES: Final = (
    "NVIDIA Nsight Compute's rules CPIStall, UncoalescedGlobalAccess, SharedMemoryConflicts, Occupancy, "
    "AchievedOccupancy and ThreadDivergence"
)


_COUNTED: Final = {
    "name": pl.String,
    "ms": pl.Float64,
    **{field: pl.String if field in {"stall", "limit"} else pl.Float64 for field in Counters._fields},
}
_LIMITS: Final[dict[str, dict[str, str]]] = table(__file__, "counters")

of_kernels = of_devices(__name__, source=_RULES, unknown=lambda _: Missing("no_ncu"))
of_kernels("ncu_share", lambda _: None).says(
    "Part of the step in kernels whose counters were given.", "time of kernels that the CSV of --ncu names / step time"
)
for _name, _limit in _LIMITS.items():
    of_kernels(f"{_name}_kernels_share", lambda _: None).says(
        f"Part of the step in kernels {_limit['words']}.", f"time of kernels with {_limit['formula']} / step time"
    )
    of_kernels(f"{_name}_kernels", lambda _: None, unit="names").says(
        f"The kernels {_limit['words']}, the most time first.", f"those with {_limit['formula']}"
    )


def ncu_values(
    kernels: pl.DataFrame, counters: Mapping[str, Counters], steps: int, steps_ms: float
) -> dict[str, object]:
    """These metrics, of the table of kernels (name, total_ms) of so many used steps, which took `steps_ms` together."""
    spent: dict[str, float] = {}
    for symbol, total_ms in kernels.select("name", "total_ms").rows():
        spent[kernel_name(symbol)] = spent.get(kernel_name(symbol), 0.0) + total_ms
    known = [(name, ms, *counters[base_name(name)]) for name, ms in spent.items() if base_name(name) in counters]
    counted = pl.DataFrame(known, _COUNTED, orient="row").with_columns(missing=pl.col("occupancy") - pl.col("achieved"))
    shares: dict[str, object] = {"ncu_share": min(1.0, sum(counted["ms"]) / steps_ms)}
    for name, limit in _LIMITS.items():
        share, what = pl.sql_expr([limit["share"], limit["what"]])
        limited = counted.filter(pl.sql_expr(limit["when"])).select("name", "ms", share=share, what=what)
        parts = {row.pop("name"): row for row in limited.drop("ms").to_dicts()}
        shares[f"{name}_kernels_share"] = min(1.0, sum(limited["ms"]) / steps_ms)
        largest = largest_first(limited.select("name", "ms").rows(), unit=steps)
        shares[f"{name}_kernels"] = [row | parts.get(row["name"], {}) for row in largest]
    return shares


# At least and at most. Of NVIDIA's consumer chips since Pascal and of Hopper a multiprocessor has 128 cores for fp32,
# of the others and of AMD's it has 64. From a laptop's GPU to a data centre's: clocks, and the bandwidth per
# multiprocessor (RTX 4090 and MI300X 8 and 17 GB/s, H100 25). What is reached of them, and what an op takes that has
# little to do, is chosen: of 27 devices of 10 public recordings the time of fp32 ops lies between in 26.
_CORES: Final = {6.1: 128, 8.6: 128, 8.7: 128, 8.9: 128, 9.0: 128, 10.0: 128, 12.0: 128}
_FEW_CORES: Final = 64
_GHZ: Final = (1.2, 2.0)
_REACHED: Final = (0.3, 0.8)
_GBS: Final = (5.0, 25.0)
_LAUNCH_NS: Final = (20_000, 4_000)
_KNOWN_TIME: Final = 0.5  # of the time of the ops
_SINGLE: Final = ("fp32", "fp16", "bf16")


def _gain_ms(view: DeviceView) -> tuple[float, float] | Missing:
    """At least the host's other work stays and the GPU's comes on top; at most the longer of both is left.

    Ops of unknown work take as long as now, or a launch.
    """
    gpus = view.visible.drop("device").drop_nulls("sm_count").unique()
    if gpus.height != 1:
        return Missing("sm_count_unknown")
    rows = view.once(kernels)
    known = rows.filter(pl.col("least_bytes").is_not_null(), pl.col("op_dtype").is_in(_SINGLE))
    total_ns, known_ns = (int(of["dur_ns"].sum()) for of in (rows, known))
    if known_ns < _KNOWN_TIME * total_ns:
        return Missing("work_unknown", share=known_ns / total_ns)
    count, capability = gpus.select("sm_count", "capability").row(0)
    cores = _CORES.get(round(capability or 0.0, 1), _FEW_CORES)
    computing_ns = view.used_ns(spans(rows))
    slow_ns, fast_ns = (
        known.select(
            pl.max_horizontal(
                pl.col("flops") / (2 * cores * count * ghz * reached), pl.col("least_bytes") / (gbs * count), launch_ns
            ).sum()
        ).item()
        for ghz, reached, gbs, launch_ns in zip(_GHZ, _REACHED, _GBS, _LAUNCH_NS, strict=True)
    )
    least_ns = computing_ns - slow_ns - (total_ns - known_ns)
    most_ns = min(computing_ns, view.total_ns - fast_ns)
    return view.per_step_ms(max(0.0, least_ns)), view.per_step_ms(max(0.0, most_ns))


of_devices(__name__, needs=("host_ops.shapes",)).saving("idle_gpu", _gain_ms).says(
    "running the ops on the one GPU that the process sees and does not use"
)
