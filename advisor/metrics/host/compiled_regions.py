"""Code that torch.compile compiled: its regions, what the host does between them, its guards, and late loading."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.places import places, stretches
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.model.profile import END_NS
from advisor.whatif import Interval, saved, without

_REGION: Final = r"^Torch-Compiled Region: (\d+)/(\d+)"
_LOOKUP: Final = r"^TorchDynamo Cache Lookup$"
_ENDS_FORWARD: Final = rf"{OPTIMIZER_STEP}|^Optimizer\.zero_grad#|{BACKWARD}"
_LOADING: Final = r"^(?:cu|hip)(?:Module|Library)Load"
_REST: Final = 0.5  # of the host's work between regions, at most, once nothing breaks them


COMPILED_REGIONS_PER_STEP = Metric(
    "compiled_regions_per_step",
    "Runs of regions that torch.compile compiled, per step.",
    "ranges Torch-Compiled Region: F/R in the used steps / steps",
    "recent PyTorch marks each run of a compiled frame F in its version R",
)
COMPILED_FRAMES = Metric(
    "compiled_frames",
    "How many different frames torch.compile's regions are: a graph break divides a function into several.",
    "distinct F",
)
LATER_VERSIONS = Metric(
    "later_versions",
    "How many of the regions that run are later versions: for other shapes, other values or another module.",
    "distinct F/R with R above 0",
)
BETWEEN_REGIONS_SHARE = Metric(
    "between_regions_share",
    "Part of the step in which the device waits because the host works between two compiled regions of a forward pass.",
    "device idle in host-bound gaps of at most {launch_gap}, between regions of different frames in a row on a "
    "thread, in one step, with no backward op and no optimizer between them / step time",
    where=lambda view: stretches(_between(view), "between compiled regions"),
)
BETWEEN_REGIONS_LEAST_GAIN_MS = Metric(
    "between_regions_least_gain_ms",
    "Step time saved at least if one region took their place.",
    "replay with half of the host's work between them; where no replay can be trusted, nothing",
    "half: own choice; what breaks a graph still has to be done",
)
BETWEEN_REGIONS_GAIN_MS = Metric(
    "between_regions_gain_ms",
    "Step time saved at most if one compiled region took the place of several.",
    "replay without that work; where no replay can be trusted, between_regions_share x step_mean_ms",
)
GUARD_SHARE = Metric(
    "guard_share",
    "Part of the step in which the device waits while torch.compile checks its guards.",
    "device idle in host-bound gaps of at most {launch_gap} during TorchDynamo Cache Lookup / step time",
    where=lambda view: places(view, view.used_like(_LOOKUP)),
)
GUARD_MS = Metric(
    "guard_ms",
    "Time of the host per step in which torch.compile checks its guards.",
    "sum of their lengths / steps",
)
GUARD_GAIN_MS = Metric(
    "guard_gain_ms",
    "Step time saved at most without torch.compile's checks of guards.",
    "replay without that time; where no replay can be trusted, guard_share x step_mean_ms",
)
_BETWEEN: Final = (BETWEEN_REGIONS_SHARE, BETWEEN_REGIONS_LEAST_GAIN_MS, BETWEEN_REGIONS_GAIN_MS)
_GUARDS: Final = (GUARD_SHARE, GUARD_MS, GUARD_GAIN_MS)


@measures(COMPILED_REGIONS_PER_STEP, COMPILED_FRAMES, LATER_VERSIONS, framework="pytorch")
def regions(view: DeviceView) -> Values:
    """What of the step torch.compile compiled; zero where nothing."""
    rows = _regions(view)
    return {
        COMPILED_REGIONS_PER_STEP: rows.height / view.steps.height,
        COMPILED_FRAMES: float(rows["frame"].n_unique()),
        LATER_VERSIONS: float(rows.filter(pl.col("version") != "0").select("frame", "version").n_unique()),
    }


@measures(*_BETWEEN, *_GUARDS, framework="pytorch", needs=("device_ops", "device_ops.launch"))
def breaks(view: DeviceView) -> Values:
    """What runs between compiled regions, and what deciding for one costs; zero where nothing is compiled."""
    if why := unknown_waits(view):
        return why
    between, lookups = _between(view), spans(view.used_like(_LOOKUP))
    idle_ns = _waiting_ns(view, between)
    least, most = _saved(view, between, idle_ns, _REST)
    return {
        BETWEEN_REGIONS_SHARE: idle_ns / view.total_ns,
        BETWEEN_REGIONS_LEAST_GAIN_MS: least,
        BETWEEN_REGIONS_GAIN_MS: most,
        **_guards(view, lookups),
    }


def _guards(view: DeviceView, lookups: Union) -> dict[Metric, Value]:
    idle_ns = _waiting_ns(view, lookups)
    return {
        GUARD_SHARE: idle_ns / view.total_ns,
        GUARD_MS: view.per_step_ms(lookups.total),
        GUARD_GAIN_MS: _saved(view, lookups, idle_ns, 0.0).most_ms,
    }


LATE_LOADS_SHARE = Metric(
    "late_loads_share",
    "Part of the step in which code is loaded onto the device and nothing runs there.",
    "device idle during cuModuleLoad, cuLibraryLoad and the like (HIP: the same) of the used steps / step time",
    "CUDA's lazy loading brings each kernel at its first call",
    where=lambda view: places(view, view.used_like(_LOADING)),
)
LATE_LOADS_PER_STEP = Metric(
    "late_loads_per_step",
    "Calls per step that load code onto the device.",
    "calls / steps",
)
LATE_LOADS_STEPS_SHARE = Metric(
    "late_loads_steps_share",
    "Part of the used steps that have calls that load code onto the device.",
    "used steps with one / used steps",
)


@measures(LATE_LOADS_SHARE, LATE_LOADS_PER_STEP, LATE_LOADS_STEPS_SHARE, needs=("device_ops",))
def late_loads(view: DeviceView) -> Values:
    """Loading in steps that are used, which first uses before them should have done."""
    if not view.has_marks:
        return Missing("no_marks")
    calls = view.used_like(_LOADING)
    loading = spans(calls)
    idle = loading.total - (loading & view.busy).total
    return {
        LATE_LOADS_SHARE: idle / view.total_ns,
        LATE_LOADS_PER_STEP: calls.height / view.steps.height,
        LATE_LOADS_STEPS_SHARE: calls["window"].n_unique() / view.steps.height,
    }


def _regions(view: DeviceView) -> pl.DataFrame:
    """The runs of compiled regions in the used steps, with `frame` and `version`."""
    rows = view.used_like(_REGION)
    groups = (
        rows.select("name")
        .unique()
        .with_columns(
            frame=pl.col("name").cast(pl.String).str.extract(_REGION, 1),
            version=pl.col("name").cast(pl.String).str.extract(_REGION, 2),
        )
    )
    return rows.join(groups, on="name", how="left", maintain_order="left")


def _between(view: DeviceView) -> Union:
    """From the end of one region to the start of the next, of another frame, in the same forward pass of a step.

    Of a recording without marks nothing is said: what lies between two regions may be the next iteration's.
    """
    rows = _regions(view).sort("thread", "start_ns")
    if not view.has_marks or not rows.height:
        return EMPTY
    end = END_NS.cum_max().shift().over("thread", "window")
    is_other = pl.col("frame") != pl.col("frame").shift().over("thread", "window")
    gaps = rows.select(begin=end, end="start_ns", is_other=is_other).filter("is_other", pl.col("begin") < pl.col("end"))
    begin, until = gaps["begin"].to_numpy(), gaps["end"].to_numpy()
    ends = np.sort(view.used_like(_ENDS_FORWARD)["start_ns"].to_numpy())
    of_forward = np.searchsorted(ends, until) == np.searchsorted(ends, begin)
    return Union.of(begin[of_forward], until[of_forward])


def _waiting_ns(view: DeviceView, work: Union) -> int:
    """How long the device waits for launches meanwhile."""
    return int((work & view.once(launch_gaps)).within(view.starts, view.ends).sum()) if work.total else 0


def _saved(view: DeviceView, work: Union, idle_ns: int, rest: float) -> Interval:
    return saved(view, without(host=work if idle_ns else EMPTY, rest=(rest, 0.0), bound_ns=idle_ns))
