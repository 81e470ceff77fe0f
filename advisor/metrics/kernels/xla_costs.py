"""What XLA's ops reach of the device's peaks, by its own cost analysis, where the profile holds both: of TPUs."""

from typing import Final

import polars as pl

from advisor.analysis.device.roofs import in_words
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_KNOWN: Final = 0.9  # of the kernels' time: what is said of all of them holds for so much
_SOURCE: Final = (
    "XProf: stats `flops` and `bytes_accessed` of an op, `peak_teraflops_per_second` and HBM rate of a plane"
)


def _ran(view: DeviceView) -> pl.DataFrame:
    return view.used_ops.filter(pl.col("kind") == "kernel")


def _with_roofs(view: DeviceView) -> pl.DataFrame:
    """Ops of known cost with `arithmetic_ns` and `roof_ns`: 1e3 FLOP/ns are a TFLOP/s, a GB/s is a byte per ns."""
    peak, rate = (pl.lit(view.facts.get(name) or None, pl.Float64) for name in ("peak_tflops", "memory_gbs"))
    known = view.once(_ran).filter(pl.col("xla_flops") >= 0, pl.col("accessed_bytes") >= 0, (peak * rate).is_not_null())
    arithmetic, moving = pl.col("xla_flops") / (peak * 1e3), pl.col("accessed_bytes") / rate
    return known.with_columns(
        arithmetic_ns=arithmetic, roof_ns=pl.min_horizontal(pl.max_horizontal(arithmetic, moving), "dur_ns")
    )


def _ns(rows: pl.DataFrame) -> int:
    return int(rows["dur_ns"].sum())


def _unknown(view: DeviceView) -> Missing | None:
    total, known = _ns(view.once(_ran)), _ns(view.once(_with_roofs))
    few = not known or known < _KNOWN * total
    return Missing("flops_unknown", share=known / max(1, total)) if few else None


def _slowest(view: DeviceView) -> str | None:
    name = pl.coalesce("hlo_category", "name").cast(pl.String).alias("name")
    kinds = view.once(_with_roofs).group_by(name).agg(pl.sum("dur_ns", "roof_ns"))
    gap_ns, reached = pl.col("dur_ns") - pl.col("roof_ns"), pl.col("roof_ns") / pl.col("dur_ns")
    below = kinds.with_columns(gap_ns=gap_ns, reached=reached).filter(gap_ns > 0)
    return in_words(view, below.sort("gap_ns", "name", descending=[True, False]))


measure = of_devices(__name__, needs=("device_ops",), unknown=_unknown)

measure(
    "xla_flops_of_peak_share", lambda view: float(view.once(_with_roofs)["arithmetic_ns"].sum()) / view.total_ns
).says(
    "Part of the step that XLA's ops would take at the device's peak: the utilisation of its FLOPs.",
    "sum of FLOPs by XLA's cost analysis / peak that the profile states / step time, where they are known for 90 % of "
    "the kernels' time",
    f"{_SOURCE}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)
measure(
    "xla_roof_reached",
    lambda view: float(view.once(_with_roofs)["roof_ns"].sum()) / _ns(view.once(_with_roofs)),
    unit="share",
).says(
    "What XLA's ops reach of the device's roof.",
    "sum over ops of the longer of FLOPs at the peak and bytes at the memory's rate, at most the op's time / sum of "
    "the ops' times",
    f"{_SOURCE}; bytes that stay on the chip count too, so an op may need less than its roof",
)
measure("xla_below_roof_ops", _slowest).says(
    "Which of XLA's ops lose most below the device's roof, with what they reach.",
    "the three kinds of ops with the most time above the roof",
)
