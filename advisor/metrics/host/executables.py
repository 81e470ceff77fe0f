"""Programs that XLA compiled: as JAX dispatches them, one for the step or one for every op."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import number
from advisor.vocabulary.kinds import XLA_FRAMEWORKS

_MOST_NAMES: Final = 4
_CALL: Final = r"^PjitFunction\((?P<module>.+)\)$"
_RUN: Final = r"Executable::Execute(?:Helper|$)"
_ELSEWHERE: Final = Missing("xla_frameworks_only")


def _runs(view: DeviceView) -> pl.DataFrame:
    """A row per run of a compiled program: module, kernels (or ops without a device)."""
    return _host_runs(view) if view.device is None else _device_runs(view)


def _host_runs(view: DeviceView) -> pl.DataFrame:
    """As `_runs`, on the CPU: the module is the jitted function called last, and all have as many ops."""
    host = view.used_host.select("kind", "name", "start_ns").sort("start_ns").collect()
    calls = host.filter(matches(_CALL)).select("start_ns", module=pl.col("name").cast(pl.String).str.extract(_CALL))
    runs = host.filter(matches(_RUN)).select("start_ns")
    ops = host.filter(pl.col("kind") == "op").height / max(1, runs.height)
    return runs.join_asof(calls, on="start_ns").select("module", kernels=pl.lit(ops)).drop_nulls()


def _device_runs(view: DeviceView) -> pl.DataFrame:
    """As `_runs`, on a device: kernels of one module in a row on a stream."""
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("hlo_module").is_not_null())
    ordered = kernels.sort("stream", "start_ns").select("stream", module=pl.col("hlo_module").cast(pl.String))
    return ordered.group_by("stream", "module", run=pl.struct("stream", "module").rle_id()).agg(kernels=pl.len())


def _no_runs(view: DeviceView) -> Missing | None:
    if view.process.get("framework") != "jax":
        return _ELSEWHERE
    return None if view.once(_runs).height else Missing("nothing_to_compute_from")


def _most_often(view: DeviceView) -> str:
    often = view.once(_runs).group_by("module").len().sort("len", "module", descending=[True, False])
    rows = often.head(_MOST_NAMES).rows()
    return ", ".join(f"{name} ({number(calls / view.steps.height)})" for name, calls in rows)


def _compiled_share(view: DeviceView) -> float:
    rows, dur = view.once(kernels), pl.col("dur_ns")
    return float(rows.select(dur.filter(pl.col("hlo_module").is_not_null()).sum() / dur.sum()).item())


def _no_kernels(view: DeviceView) -> Missing | None:
    if view.process.get("framework") not in XLA_FRAMEWORKS:
        return _ELSEWHERE
    return None if view.once(kernels)["dur_ns"].sum() else Missing("nothing_to_compute_from")


measure = of_devices(__name__, needs=("device_ops.hlo_module",), unknown=_no_runs)
measure("executables_per_step", lambda view: view.once(_runs).height / view.steps.height).says(
    "Compiled programs that run per step, one after another.",
    "changes of the XLA module from kernel to kernel of a stream / steps: at least so many; without a device, calls of "
    "jitted functions that run a program / steps",
)
measure("executable_kinds", lambda view: view.once(_runs)["module"].n_unique()).says(
    "How many different compiled programs run.", "distinct XLA modules, or functions"
)
measure("kernels_per_executable", lambda view: float(view.once(_runs).select(pl.median("kernels")).item())).says(
    "Kernels of a compiled program, or ops without a device; one compiled step has tens or hundreds.",
    "median over programs in a row of their kernels; without a device, ops / programs",
)
measure("executable_names", _most_often, unit="text").says(
    "Which programs run most often.", "the four with the most runs"
)

of_kernels = of_devices(__name__, needs=("device_ops",), unknown=_no_kernels)
of_kernels("xla_share", _compiled_share).says(
    "Part of the kernel time that XLA compiled.", "time of kernels that belong to an XLA module / time of kernels"
)
