"""What XLA's ops reach of the device's peaks, by its own cost analysis, where the profile holds both: of TPUs."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.text import ms, percent

_KNOWN: Final = 0.9  # of the kernels' time: what is said of all of them holds for so much
_MOST: Final = 3
_SOURCE: Final = (
    "XProf: stats `flops` and `bytes_accessed` of an op, `peak_teraflops_per_second` and HBM rate of a plane"
)


XLA_FLOPS_OF_PEAK_SHARE = Metric(
    "xla_flops_of_peak_share",
    "Part of the step that XLA's ops would take at the device's peak: the utilisation of its FLOPs.",
    "sum of FLOPs by XLA's cost analysis / peak that the profile states / step time, where they are known for 90 % of "
    "the kernels' time",
    f"{_SOURCE}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)
XLA_ROOF_REACHED = Metric(
    "xla_roof_reached",
    "What XLA's ops reach of the device's roof.",
    "sum over ops of the longer of FLOPs at the peak and bytes at the memory's rate, at most the op's time / sum of "
    "the ops' times",
    f"{_SOURCE}; bytes that stay on the chip count too, so an op may need less than its roof",
    unit="share",
)
XLA_BELOW_ROOF_OPS = Metric(
    "xla_below_roof_ops",
    "Which of XLA's ops lose most below the device's roof, with what they reach.",
    "the three kinds of ops with the most time above the roof",
    unit="text",
)


@measures(XLA_FLOPS_OF_PEAK_SHARE, XLA_ROOF_REACHED, XLA_BELOW_ROOF_OPS, needs=("device_ops",))
def xla_costs(view: DeviceView) -> Values:
    """FLOPs and bytes of the step's ops against the peaks; unknown where the profile holds too few."""
    peak, rate = view.facts.get("peak_tflops"), view.facts.get("memory_gbs")
    ran = view.used_ops.filter(pl.col("kind") == "kernel")
    rows = _with_roofs(ran, peak, rate) if peak and rate else ran.clear()
    total, known = int(ran["dur_ns"].sum()), int(rows["dur_ns"].sum())
    if not known or known < _KNOWN * total:
        return Missing("flops_unknown", share=known / max(1, total))
    return {
        XLA_FLOPS_OF_PEAK_SHARE: float(rows["arithmetic_ns"].sum()) / view.total_ns,
        XLA_ROOF_REACHED: float(rows["roof_ns"].sum()) / known,
        XLA_BELOW_ROOF_OPS: _slowest(view, rows),
    }


def _with_roofs(ran: pl.DataFrame, peak_tflops: float, memory_gbs: float) -> pl.DataFrame:
    """Ops of known cost with `arithmetic_ns` and `roof_ns`: 1e3 FLOP/ns are a TFLOP/s, a GB/s is a byte per ns."""
    known = ran.filter(pl.col("xla_flops") >= 0, pl.col("accessed_bytes") >= 0)
    arithmetic, moving = pl.col("xla_flops") / (peak_tflops * 1e3), pl.col("accessed_bytes") / memory_gbs
    return known.with_columns(
        arithmetic_ns=arithmetic, roof_ns=pl.min_horizontal(pl.max_horizontal(arithmetic, moving), "dur_ns")
    )


def _slowest(view: DeviceView, rows: pl.DataFrame) -> str | None:
    """`loop fusion (83 % of the roof, 120 ms), ...`."""
    kind = pl.coalesce("hlo_category", "name").cast(pl.String).alias("kind")
    kinds = rows.group_by(kind).agg(pl.sum("dur_ns", "roof_ns")).with_columns(lost=pl.col("dur_ns") - pl.col("roof_ns"))
    most = kinds.filter(pl.col("lost") > 0).sort("lost", "kind", descending=[True, False]).head(_MOST)
    texts = [
        f"{name} ({percent(roof / ns)} of the roof, {ms(view.per_step_ms(ns))})"
        for name, ns, roof in most.select("kind", "dur_ns", "roof_ns").rows()
    ]
    return ", ".join(texts) or None
