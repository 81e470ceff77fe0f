"""The one kernel that takes most of the device's time; of a program on a CPU, the one kind of op."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.roofs import calls
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernel_words import kernel_name
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import percent

_GRAPH: Final = r"^CUDA graph \d"  # a row of Nsight Systems for all that a graph runs
_KNOWN: Final = 0.5  # of its time: for less, what its ops reach of the roof says little of it


def _groups(view: DeviceView) -> pl.DataFrame:
    """Kernels with what they are called in common; on a CPU all matrix products are one. A graph is no kernel."""
    name = pl.col("name").cast(pl.String)
    rows = view.once(kernels).filter(~name.str.contains(_GRAPH))
    is_product = (pl.col("family") == "gemm") & pl.lit(view.device is None)
    return rows.with_columns(called=pl.when(is_product).then(pl.lit("matrix products")).otherwise(name))


def _largest(view: DeviceView) -> str:
    times = view.once(_groups).group_by("called").agg(pl.sum("dur_ns"))
    called: str = times.sort("dur_ns", "called", descending=[True, False])["called"][0]
    return called


def _dominant(view: DeviceView) -> pl.DataFrame:
    return view.once(_groups).filter(pl.col("called") == view.once(_largest))


def _part(view: DeviceView) -> float:
    """Of all that the device does, exchanges and copies too; of a CPU, of the ops that compute."""
    every = view.once(kernels) if view.device is None else view.used_ops
    return float(view.once(_dominant)["dur_ns"].sum()) / float(every["dur_ns"].sum())


def _least_reached(view: DeviceView) -> float:
    """As if ops of unknown work had none."""
    rows = view.once(_dominant)
    roof_ns = view.once(calls).filter(pl.col("id").is_in(rows["op"].implode()))["roof_ns"].sum()
    return min(1.0, float(roof_ns) / float(rows["dur_ns"].sum()))


def _rate(view: DeviceView) -> str | None:
    rows = view.once(_dominant)
    known = rows.filter(pl.col("op").is_in(view.once(calls)["id"].implode()))
    is_known = float(known["dur_ns"].sum()) >= _KNOWN * float(rows["dur_ns"].sum())
    return f"{percent(view.once(_least_reached))} of the device's roof" if is_known else None


def _symbol(view: DeviceView) -> str:
    return kernel_name(view.once(_largest)).partition("<")[0].rpartition("::")[2]


def _family(view: DeviceView) -> str | None:
    family: str = view.once(_dominant)["family"].cast(pl.String)[0]
    return None if family == "other" or view.device is None else family


def _unknown(view: DeviceView) -> Missing | None:
    return None if view.once(_groups)["dur_ns"].sum() else Missing("nothing_to_compute_from")


measure = of_devices(__name__, unknown=_unknown)

measure.kernels("dominant_kernel", _dominant, gives=("share", "ms")).says(
    "in the one kernel that takes the most time (on a CPU: op, all matrix products being one)",
    "kernels of the name with the most time",
)
measure("dominant_kernel_part", _part).says(
    "Part of the device's work that is this kernel.",
    "its time / time of all kernels, collectives and copies; on a CPU of all ops that compute",
)
measure("dominant_kernel_name", lambda view: kernel_name(view.once(_largest)), unit="text").says(
    "What this kernel is called.", "its name without templates"
)
measure("dominant_kernel_symbol", _symbol, unit="text").says(
    "The function that a profiler of kernels has to look for.", "the last part of the name"
)
measure("dominant_kernel_family", _family, unit="text").says(
    "What this kernel computes.", "as its name tells; see `advisor kernels`", "advisor/inputs/names/kernels.yaml"
)
measure("dominant_kernel_least_reached", _least_reached, unit="share").says(
    "What the ops that launch this kernel reach of the device's roof at least.",
    "sum of the least times that the peaks allow for its ops / its time; ops of unknown work count as none",
    "dense peaks of the hardware table; formulas of torch.utils.flop_counter and TraceLens",
)
measure("dominant_kernel_rate", _rate, unit="text").says(
    "What the dominant kernel reaches, in words.", "null where the work is known for less than half of its time"
)
