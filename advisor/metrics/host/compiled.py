"""Compiled code: regions of torch.compile with what lies between them, and programs of XLA."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.places import stretches
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS, matches
from advisor.text import number
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.whatif import Change, saved, without

_REGION: Final = r"^Torch-Compiled Region: (\d+)/(\d+)"
_ENDS_FORWARD: Final = rf"{OPTIMIZER_STEP}|^Optimizer\.zero_grad#|{BACKWARD}"
_REST: Final = 0.5  # of the host's work between regions, at most, once nothing breaks them

measure = of_devices(__name__, framework="pytorch")
of_waits = of_devices(__name__, framework="pytorch", needs=("device_ops", "device_ops.launch"), unknown=unknown_waits)


def _regions(view: DeviceView) -> pl.DataFrame:
    """The runs of compiled regions in the used steps, with `frame` and `version`."""
    rows = view.used_like(_REGION)
    name = pl.col("name").cast(pl.String)
    groups = rows.select("name").unique()
    groups = groups.with_columns(frame=name.str.extract(_REGION, 1), version=name.str.extract(_REGION, 2))
    return rows.join(groups, on="name", how="left", maintain_order="left")


def _between(view: DeviceView) -> Intervals:
    """From the end of one region to the start of the next, of another frame, in the same forward pass of a step.

    Of a recording without marks nothing is said: what lies between two regions may be the next iteration's.
    """
    rows = view.once(_regions).sort("thread", "start_ns")
    if not view.has_marks or not rows.height:
        return EMPTY
    end = END_NS.cum_max().shift().over("thread", "window")
    is_other = pl.col("frame") != pl.col("frame").shift().over("thread", "window")
    gaps = rows.select(begin=end, end="start_ns", is_other=is_other).filter("is_other", pl.col("begin") < pl.col("end"))
    begin, until = gaps["begin"].to_numpy(), gaps["end"].to_numpy()
    ends = np.sort(view.used_like(_ENDS_FORWARD)["start_ns"].to_numpy())
    of_forward = np.searchsorted(ends, until) == np.searchsorted(ends, begin)
    return Intervals.of(begin[of_forward], until[of_forward])


def _waiting(view: DeviceView) -> Intervals:
    """When the device waits for launches between regions."""
    work = view.once(_between)
    return work & view.once(launch_gaps) if work.total else EMPTY


def _joined(view: DeviceView) -> Change:
    """With half of the work, at least, gone that the device waits for."""
    idle_ns = int(_waiting(view).within(view.starts, view.ends).sum())
    return without(host=view.once(_between) if idle_ns else EMPTY, rest=(_REST, 0.0), bound_ns=idle_ns)


measure("compiled_regions_per_step", lambda view: view.once(_regions).height / view.steps.height).says(
    "Runs of regions that torch.compile compiled, per step.",
    "ranges Torch-Compiled Region: F/R in the used steps / steps",
    "recent PyTorch marks each run of a compiled frame F in its version R",
)
measure("compiled_frames", lambda view: view.once(_regions)["frame"].n_unique()).says(
    "How many different frames torch.compile's regions are: a graph break divides a function into several.",
    "distinct F",
)
measure(
    "later_versions",
    lambda view: view.once(_regions).filter(pl.col("version") != "0").select("frame", "version").n_unique(),
).says(
    "How many of the regions that run are later versions: for other shapes, other values or another module.",
    "distinct F/R with R above 0",
)
of_waits(
    "between_regions_share",
    lambda view: view.share(_waiting(view)),
    where=stretches(_between, "between compiled regions"),
).says(
    "Part of the step in which the device waits because the host works between two compiled regions of a forward pass.",
    "device idle in host-bound gaps of at most {launch_gap}, between regions of different frames in a row on a "
    "thread, in one step, with no backward op and no optimizer between them / step time",
)
of_waits.saving("between_regions", lambda view: saved(view, _joined(view))).says(
    "one compiled region in the place of several"
)


_MOST_NAMES: Final = 4
_JITTED: Final = r"^PjitFunction\((?P<module>.+)\)$"
_RUN: Final = r"Executable::Execute(?:Helper|$)"
_ELSEWHERE: Final = Missing("xla_frameworks_only")


def _runs(view: DeviceView) -> pl.DataFrame:
    """A row per run of a compiled program: module, kernels (or ops without a device)."""
    return _host_runs(view) if view.device is None else _device_runs(view)


def _host_runs(view: DeviceView) -> pl.DataFrame:
    """As `_runs`, on the CPU: the module is the jitted function called last, and all have as many ops."""
    host = view.used_host.select("kind", "name", "start_ns").sort("start_ns").collect()
    calls = host.filter(matches(_JITTED)).select("start_ns", module=pl.col("name").cast(pl.String).str.extract(_JITTED))
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


of_programs = of_devices(__name__, needs=("device_ops.hlo_module",), unknown=_no_runs)
of_programs("executables_per_step", lambda view: view.once(_runs).height / view.steps.height).says(
    "Compiled programs that run per step, one after another.",
    "changes of the XLA module from kernel to kernel of a stream / steps: at least so many; without a device, calls of "
    "jitted functions that run a program / steps",
)
of_programs("executable_kinds", lambda view: view.once(_runs)["module"].n_unique()).says(
    "How many different compiled programs run.", "distinct XLA modules, or functions"
)
of_programs("kernels_per_executable", lambda view: float(view.once(_runs).select(pl.median("kernels")).item())).says(
    "Kernels of a compiled program, or ops without a device; one compiled step has tens or hundreds.",
    "median over programs in a row of their kernels; without a device, ops / programs",
)
of_programs("executable_names", _most_often, unit="text").says(
    "Which programs run most often.", "the four with the most runs"
)

of_kernels = of_devices(__name__, needs=("device_ops",), unknown=_no_kernels)
of_kernels("xla_share", _compiled_share).says(
    "Part of the kernel time that XLA compiled.", "time of kernels that belong to an XLA module / time of kernels"
)
