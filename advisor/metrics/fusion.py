"""Work in many kernels that is known to fit into few: attention step by step, elementwise chains, optimizer loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.lens import Lane
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.patterns import parts
from advisor.roofline import gains_ms
from advisor.workload import largest, longest

_FUSED_RATES: Final = (0.25, 0.75)  # of the peak: see the metric's source
_MORE_WORK: Final = (1.25, 1.0)  # the backward pass computes the scores anew
_FUSED_LEFT: Final = (0.6, 1 / 3)  # of the time, where peak or shapes are not known
_EMULATED: Final = 3  # TF32 products per fp32 product in the memory-efficient kernels
_UPDATE_BYTES: Final = (28, 20)  # per fp32 parameter in one kernel: Adam; SGD with momentum
_UPDATE_RATES: Final = (0.6, 1.0)  # of the memory bandwidth
_UPDATE_LEFT: Final = (0.65, 0.2)  # of the time, where shapes or bandwidth are not known
_NEEDS: Final = ("device_ops",)
_REPLAYED: Final = "; replay of the recorded steps with that; where no replay can be trusted, 0 and the kernels' loss"


@measures(
    Metric(
        "unfused_attention_share",
        "share",
        "Part of the step in which attention is computed product by product, its scores moved through memory.",
        "time of softmax kernels between batched products, of those products and of what lies between / step time",
        "advisor.patterns",
        _NEEDS,
        lambda lane: longest(_part(lane, "attention")),
    ),
    Metric("unfused_attention_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("unfused_attention_ops", "text", "The ops that launched them.", "the three with the most", needs=_NEEDS),
    Metric(
        "attention_least_gain_ms",
        "ms",
        "Step time that a fused attention gives back at least.",
        "those kernels replaced by their products' arithmetic and a quarter more, at 25 % of the peak for their type (fp32: "
        f"a third of TF32's); 60 % of their time where shapes or peak are not known{_REPLAYED}",
        "25 %: the memory-efficient kernels on a V100; a quarter more: the scores are computed anew in the backward pass",
        _NEEDS,
    ),
    Metric(
        "attention_gain_ms",
        "ms",
        "Step time that a fused attention gives back at most.",
        f"the same at 75 % of the peak without more; a third of their time where shapes or peak are not known{_REPLAYED}",
        "FlashAttention-2 reaches up to 73 % of an A100's peak, FlashAttention-3 75 % of an H100's (their papers)",
        _NEEDS,
    ),
)
def attention(lane: Lane) -> Mapping[str, Value]:
    """Attention outside fused kernels; unknown where the kernels' ops were not recorded."""
    if not lane.total_ns:
        return {}
    every, found = lane.once(parts), _part(lane, "attention")
    unlabelled = every.filter(pl.col("op_name").is_null() & pl.col("family").is_in(["gemm", "softmax"]))
    if not found.height and set(unlabelled["family"]) == {"gemm", "softmax"}:
        return dict.fromkeys(_ATTENTION, Missing("the ops that launched the products were not recorded"))
    is_product = pl.col("family") == "gemm"
    now = int(found["dur_ns"].sum())
    products = max(1, int(found.filter(is_product)["dur_ns"].sum()))
    slow, fast = (
        pl.when(is_product).then(pl.col("dur_ns") * min(now, left) / products).otherwise(0)
        for left in _fused_ns(lane, found)
    )
    return dict(zip(_ATTENTION, (*_extent(lane, found), *gains_ms(lane, found, slow, fast)), strict=True))


@measures(
    Metric(
        "elementwise_chain_share",
        "share",
        "Part of the step spent in chains of elementwise kernels that each move the same values through memory.",
        "time of elementwise, copy and random-number kernels of which at least three follow each other on a stream over "
        "equally many elements, without those of optimizer, attention and layout changes / step time",
        "advisor.patterns",
        _NEEDS,
        lambda lane: longest(_part(lane, "chain")),
    ),
    Metric("elementwise_chain_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("elementwise_chain_ops", "text", "The ops that launched them.", "the three with the most", needs=_NEEDS),
    Metric("elementwise_chains_per_step", "number", "Such chains per step.", "chains / steps", needs=_NEEDS),
    Metric("elementwise_chain_kernels", "number", "Kernels in a chain.", "mean of the chains' kernels", needs=_NEEDS),
    Metric(
        "chain_least_gain_ms",
        "ms",
        "Step time that fusing each chain gives back at least.",
        f"one kernel per chain, twice as long as its longest{_REPLAYED}",
        "twice: other inputs, and values that the backward pass needs, still have to be moved",
        _NEEDS,
    ),
    Metric(
        "chain_gain_ms",
        "ms",
        "Step time that fusing each chain gives back at most.",
        f"one kernel per chain, as long as its shortest{_REPLAYED}",
        "the shortest reads and writes the same number of values once: a fused kernel cannot do with less",
        _NEEDS,
    ),
)
def elementwise(lane: Lane) -> Mapping[str, Value]:
    """Chains of elementwise kernels."""
    if not lane.total_ns:
        return {}
    found = _part(lane, "chain")
    first = pl.int_range(pl.len()).over("run") == 0
    whole = pl.col("dur_ns").sum().over("run")
    slow, fast = (
        pl.when(first).then(pl.min_horizontal(whole, left.over("run"))).otherwise(0)
        for left in (2 * pl.col("dur_ns").max(), pl.col("dur_ns").min())
    )
    chains = found["run"].n_unique()
    values = (*_extent(lane, found), chains / lane.steps.height, found.height / max(1, chains))
    return dict(zip(_CHAINS, (*values, *gains_ms(lane, found, slow, fast)), strict=True))


@measures(
    Metric(
        "optimizer_share",
        "share",
        "Part of the step in which kernels of the optimizer run, one tensor at a time.",
        "time of kernels launched inside an Optimizer.step annotation that are not of a fused or multi-tensor kind / step",
        "advisor.patterns; kernel names",
        _NEEDS,
        lambda lane: longest(_single_tensor(lane)),
    ),
    Metric("optimizer_ms", "ms", "The same, per step.", "time of those kernels / steps", needs=_NEEDS),
    Metric("optimizer_ops", "text", "The ops that launched them.", "the three with the most", needs=_NEEDS),
    Metric("optimizer_kernels_per_step", "number", "Such kernels per step.", "kernels / steps", needs=_NEEDS),
    Metric(
        "optimizer_least_gain_ms",
        "ms",
        "Step time on the device that a fused optimizer gives back at least.",
        "those kernels replaced by one that moves 28 bytes per parameter at 60 % of the memory bandwidth, parameters being "
        "the elements that its ops cover (median over the ops); 65 % of their time where shapes or bandwidth are not "
        f"known{_REPLAYED}",
        "fused Adam reads the gradient and reads and writes parameter and two moments, all fp32; 65 %: SGD with momentum, "
        "20 bytes instead of 32 in three kernels",
        _NEEDS,
    ),
    Metric(
        "optimizer_gain_ms",
        "ms",
        "Step time on the device that a fused optimizer gives back at most.",
        "the same with 20 bytes at the full bandwidth; 20 % of their time where shapes or bandwidth are not "
        f"known{_REPLAYED}",
        "fused SGD with momentum reads the gradient and reads and writes parameter and momentum; 20 %: Adam, 28 bytes "
        "instead of up to 140 in twelve kernels",
        _NEEDS,
    ),
)
def optimizer(lane: Lane) -> Mapping[str, Value]:
    """The optimizer's kernels where it loops over tensors; zero where it does not."""
    if not lane.total_ns:
        return {}
    found = _single_tensor(lane)
    first = pl.int_range(pl.len()).over("window") == 0
    steps = max(1, found["window"].n_unique())
    slow, fast = (pl.when(first).then(left / steps).otherwise(0) for left in _update_ns(lane, found))
    values = (*_extent(lane, found), found.height / lane.steps.height, *gains_ms(lane, found, slow, fast))
    return dict(zip(_OPTIMIZER, values, strict=True))


_ATTENTION: Final = (
    *("unfused_attention_share", "unfused_attention_ms", "unfused_attention_ops"),
    *("attention_least_gain_ms", "attention_gain_ms"),
)
_CHAINS: Final = (
    *("elementwise_chain_share", "elementwise_chain_ms", "elementwise_chain_ops", "elementwise_chains_per_step"),
    *("elementwise_chain_kernels", "chain_least_gain_ms", "chain_gain_ms"),
)
_OPTIMIZER: Final = (
    *("optimizer_share", "optimizer_ms", "optimizer_ops", "optimizer_kernels_per_step"),
    *("optimizer_least_gain_ms", "optimizer_gain_ms"),
)


def _part(lane: Lane, part: str) -> pl.DataFrame:
    return lane.once(parts).filter(pl.col("part") == part)


def _single_tensor(lane: Lane) -> pl.DataFrame:
    return _part(lane, "optimizer").filter(pl.col("family") != "optimizer")


def _extent(lane: Lane, found: pl.DataFrame) -> tuple[float, float, str]:
    """Share of the step, ms per step, and the ops."""
    total = int(found["dur_ns"].sum())
    return total / lane.total_ns, lane.per_step_ms(total), largest(lane, found)


def _fused_ns(lane: Lane, found: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that do all of it."""
    now = float(found["dur_ns"].sum())
    work = found.filter(pl.col("family") == "gemm").with_columns(peak=_peak(lane))
    flops = 2 * work.select(pl.col("count") * pl.col("m").cast(pl.Float64) * pl.col("n") * pl.col("k") / pl.col("peak"))
    if not work.height or flops.to_series().null_count():
        return _FUSED_LEFT[0] * now, _FUSED_LEFT[1] * now
    least_ns = float(flops.to_series().sum()) / 1e3  # the peak is in TFLOP/s: 1e3 operations per ns
    slow, fast = (more * least_ns / rate for more, rate in zip(_MORE_WORK, _FUSED_RATES, strict=True))
    return slow, fast


def _update_ns(lane: Lane, found: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that make the same updates."""
    now = float(found["dur_ns"].sum())
    covered = found.group_by("op_name").agg(pl.sum("elements"), known=pl.col("elements").count() == pl.len())
    rate = lane.gpu.memory_bandwidth_gbs if lane.gpu else None  # GB/s is bytes per ns
    if not rate or not covered.height or not covered["known"].all():
        return _UPDATE_LEFT[0] * now, _UPDATE_LEFT[1] * now
    parameters = float(covered.select(pl.median("elements")).item())
    slow, fast = (
        min(now, parameters * b / (part * rate)) for b, part in zip(_UPDATE_BYTES, _UPDATE_RATES, strict=True)
    )
    return slow, fast


def _peak(lane: Lane) -> pl.Expr:
    """The device's peak for the type of each product in TFLOP/s, as fused attention computes it."""
    peaks = dict(lane.gpu.peak_tflops) if lane.gpu else {}
    if "fp32" in peaks:
        peaks["fp32"] = max(peaks["fp32"], peaks.get("tf32", 0.0) / _EMULATED)
    dtype = pl.coalesce("op_dtype", "element_type")
    return dtype.replace_strict(peaks, default=None, return_dtype=pl.Float64) if peaks else pl.lit(None, pl.Float64)
