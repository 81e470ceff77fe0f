"""What XLA's ops reach of the device's peak, by its own cost analysis, where the profile holds both: of TPUs."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_KNOWN: Final = 0.9  # of the kernels' time: what is said of all of them holds for so much
_SOURCE: Final = (
    "XProf: stats `flops` and `bytes_accessed` of an op, `peak_teraflops_per_second` and HBM rate of a plane"
)


def _ran(view: DeviceView) -> pl.DataFrame:
    return view.used_ops.filter(pl.col("kind") == "kernel")


def _known(view: DeviceView) -> pl.DataFrame:
    """Ops of known cost with `arithmetic_ns`, their FLOPs at the peak: 1e3 FLOP/ns are a TFLOP/s."""
    peak = pl.lit(view.facts.get("peak_tflops") or None, pl.Float64)
    known = view.once(_ran).filter(pl.col("xla_flops") >= 0, peak.is_not_null())
    return known.with_columns(arithmetic_ns=pl.col("xla_flops") / (peak * 1e3))


def _ns(rows: pl.DataFrame) -> int:
    return int(rows["dur_ns"].sum())


def _unknown(view: DeviceView) -> Missing | None:
    total, known = _ns(view.once(_ran)), _ns(view.once(_known))
    few = not known or known < _KNOWN * total
    return Missing("flops_unknown", share=known / max(1, total)) if few else None


measure = of_devices(__name__, needs=("device_ops",), unknown=_unknown)

measure("xla_flops_of_peak_share", lambda view: float(view.once(_known)["arithmetic_ns"].sum()) / view.total_ns).says(
    "Part of the step that XLA's ops would take at the device's peak: the utilisation of its FLOPs.",
    "sum of FLOPs by XLA's cost analysis / peak that the profile states / step time, where they are known for 90 % of "
    "the kernels' time",
    f"{_SOURCE}; PaLM (Chowdhery et al., 2022), model FLOPs utilisation",
)
