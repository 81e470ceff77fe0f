"""Programs that XLA compiled: as JAX dispatches them, one for the step or one for every op; what runs outside."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import number
from advisor.vocabulary.kinds import XLA_FRAMEWORKS

_MOST_NAMES: Final = 4
_NEEDS: Final = ("device_ops.hlo_module",)
_CALL: Final = r"^PjitFunction\((?P<module>.+)\)$"
_RUN: Final = r"Executable::Execute(?:Helper|$)"
_ELSEWHERE: Final = Missing("xla_frameworks_only")


EXECUTABLES_PER_STEP = Metric(
    "executables_per_step",
    "Compiled programs that run per step, one after another.",
    "changes of the XLA module from kernel to kernel of a stream / steps: at least so many; without a device, calls of "
    "jitted functions that run a program / steps",
)
EXECUTABLE_KINDS = Metric(
    "executable_kinds",
    "How many different compiled programs run.",
    "distinct XLA modules, or functions",
)
KERNELS_PER_EXECUTABLE = Metric(
    "kernels_per_executable",
    "Kernels of a compiled program, or ops without a device; one compiled step has tens or hundreds.",
    "median over programs in a row of their kernels; without a device, ops / programs",
)
EXECUTABLE_NAMES = Metric(
    "executable_names", "Which programs run most often.", "the four with the most runs", unit="text"
)


@measures(EXECUTABLES_PER_STEP, EXECUTABLE_KINDS, KERNELS_PER_EXECUTABLE, EXECUTABLE_NAMES, needs=_NEEDS)
def executables(view: DeviceView) -> Values:
    """What JAX dispatches; unknown of other frameworks, and where no kernel bears its module."""
    if view.process.get("framework") != "jax":
        return _ELSEWHERE
    runs = _runs(view) if view.device is not None else _host_runs(view)
    if not runs.height:
        return {}
    often = runs.group_by("module").len().sort("len", "module", descending=[True, False]).head(_MOST_NAMES)
    return {
        EXECUTABLES_PER_STEP: runs.height / view.steps.height,
        EXECUTABLE_KINDS: float(runs["module"].n_unique()),
        KERNELS_PER_EXECUTABLE: float(runs.select(pl.median("kernels")).item()),
        EXECUTABLE_NAMES: ", ".join(f"{name} ({number(calls / view.steps.height)})" for name, calls in often.rows()),
    }


def _host_runs(view: DeviceView) -> pl.DataFrame:
    """A row per program that runs on the CPU: module (the jitted function called last), kernels (ops, all alike)."""
    host = view.used_host.select("kind", "name", "start_ns").sort("start_ns").collect()
    calls = host.filter(matches(_CALL)).select("start_ns", module=pl.col("name").cast(pl.String).str.extract(_CALL))
    runs = host.filter(matches(_RUN)).select("start_ns")
    ops = host.filter(pl.col("kind") == "op").height / max(1, runs.height)
    return runs.join_asof(calls, on="start_ns").select("module", kernels=pl.lit(ops)).drop_nulls()


def _runs(view: DeviceView) -> pl.DataFrame:
    """A row per run of kernels of one module on a stream: module, kernels."""
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("hlo_module").is_not_null())
    ordered = kernels.sort("stream", "start_ns").select("stream", module=pl.col("hlo_module").cast(pl.String))
    return ordered.group_by("stream", "module", run=pl.struct("stream", "module").rle_id()).agg(kernels=pl.len())


XLA_SHARE = Metric(
    "xla_share",
    "Part of the kernel time that XLA compiled.",
    "time of kernels that belong to an XLA module / time of kernels",
)
OUTSIDE_COMPILATION_SHARE = Metric(
    "outside_compilation_share",
    "Part of the kernel time outside XLA's modules, in a job that uses XLA.",
    "1 - xla_share; 0 where XLA compiled nothing",
    "XProf's overview page, ops that run outside compilation",
    where=lambda view: longest(_uncompiled(view)),
)
OUTSIDE_COMPILATION_OPS = Metric(
    "outside_compilation_ops",
    "The ops that launched kernels outside XLA's modules.",
    "those with the most time, then the others",
    unit="text",
)


@measures(XLA_SHARE, OUTSIDE_COMPILATION_SHARE, OUTSIDE_COMPILATION_OPS, needs=("device_ops",))
def compilation(view: DeviceView) -> Values:
    """What XLA compiled of the kernels."""
    if view.process.get("framework") not in XLA_FRAMEWORKS:
        return _ELSEWHERE
    ran = view.once(kernels)
    total = int(ran["dur_ns"].sum())
    if not total:
        return {}
    outside = _uncompiled(view)
    share = float(outside["dur_ns"].sum()) / total
    return {
        XLA_SHARE: 1 - share,
        OUTSIDE_COMPILATION_SHARE: share if share < 1 else 0.0,
        OUTSIDE_COMPILATION_OPS: largest(view, outside),
    }


def _uncompiled(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("hlo_module").is_null())
