"""Code that torch.compile compiled: its regions, what the host does between them, its guards, and late loading."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.places import places, stretches
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS
from advisor.whatif import Change, saved, without

_REGION: Final = r"^Torch-Compiled Region: (\d+)/(\d+)"
_LOOKUP: Final = r"^TorchDynamo Cache Lookup$"
_ENDS_FORWARD: Final = rf"{OPTIMIZER_STEP}|^Optimizer\.zero_grad#|{BACKWARD}"
_LOADING: Final = r"^(?:cu|hip)(?:Module|Library)Load"
_REST: Final = 0.5  # of the host's work between regions, at most, once nothing breaks them

measure = of_devices(__name__, framework="pytorch")
of_waits = of_devices(__name__, framework="pytorch", needs=("device_ops", "device_ops.launch"), unknown=unknown_waits)
of_loads = of_devices(
    __name__, needs=("device_ops",), unknown=lambda view: None if view.has_marks else Missing("no_marks")
)


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


def _lookups(view: DeviceView) -> Intervals:
    return spans(view.used_like(_LOOKUP))


def _waiting(view: DeviceView, work: Intervals) -> Intervals:
    """When the device waits for launches meanwhile."""
    return work & view.once(launch_gaps) if work.total else EMPTY


def _shorter(view: DeviceView, work: Intervals, rest: float) -> Change:
    """With this part, at least, left of the work that the device waits for."""
    idle_ns = int(_waiting(view, work).within(view.starts, view.ends).sum())
    return without(host=work if idle_ns else EMPTY, rest=(rest, 0.0), bound_ns=idle_ns)


def _loads(view: DeviceView) -> pl.DataFrame:
    return view.used_like(_LOADING)


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
    lambda view: view.share(_waiting(view, view.once(_between))),
    where=lambda view: stretches(view.once(_between), "between compiled regions"),
).says(
    "Part of the step in which the device waits because the host works between two compiled regions of a forward pass.",
    "device idle in host-bound gaps of at most {launch_gap}, between regions of different frames in a row on a "
    "thread, in one step, with no backward op and no optimizer between them / step time",
)
of_waits.saving("between_regions", lambda view: saved(view, _shorter(view, view.once(_between), _REST))).says(
    "one compiled region in the place of several",
    "replay with half of the host's work between them; where no replay can be trusted, nothing",
    "replay without that work; where no replay can be trusted, between_regions_share x step_mean_ms",
    "half: own choice; what breaks a graph still has to be done",
    "",
)
of_waits(
    "guard_share",
    lambda view: view.share(_waiting(view, view.once(_lookups))),
    where=lambda view: places(view, view.used_like(_LOOKUP)),
).says(
    "Part of the step in which the device waits while torch.compile checks its guards.",
    "device idle in host-bound gaps of at most {launch_gap} during TorchDynamo Cache Lookup / step time",
)
of_waits("guard_ms", lambda view: view.per_step_ms(view.once(_lookups).total)).says(
    "Time of the host per step in which torch.compile checks its guards.", "sum of their lengths / steps"
)
of_waits.gain("guard", lambda view: _shorter(view, view.once(_lookups), 0.0)).says(
    "Step time saved at most without torch.compile's checks of guards.",
    "replay without that time; where no replay can be trusted, guard_share x step_mean_ms",
)
of_loads(
    "late_loads_share",
    lambda view: (spans(view.once(_loads)) - view.busy).total / view.total_ns,
    where=lambda view: places(view, view.once(_loads)),
).says(
    "Part of the step in which code is loaded onto the device and nothing runs there.",
    "device idle during cuModuleLoad, cuLibraryLoad and the like (HIP: the same) of the used steps / step time",
    "CUDA's lazy loading brings each kernel at its first call",
)
of_loads("late_loads_per_step", lambda view: view.once(_loads).height / view.steps.height).says(
    "Calls per step that load code onto the device.", "calls / steps"
)
of_loads("late_loads_steps_share", lambda view: view.once(_loads)["window"].n_unique() / view.steps.height).says(
    "Part of the used steps that have calls that load code onto the device.", "used steps with one / used steps"
)
