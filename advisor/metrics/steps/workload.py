"""What kind of work the job does, and what in the recording shows it."""

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.analysis.device.workload import Sign, signs, workload
from advisor.metrics.metric import of_devices, tabulates

of_devices(__name__, needs_steps=False)("workload", workload, unit="text").says(
    "The kind of work: `training`, `inference`, `serving`, `capture`, `benchmark` or `unknown`; several if they mix.",
    "training: ops or kernels of a backward pass, updates of weights; serving: steps, code or cache kernels of an "
    "engine; capture: half of the host's time or more lies in captures of CUDA graphs; benchmark: one kernel, run "
    "three times or more, takes 95 % of the kernel time; inference: at least 3 matrix products of PyTorch, none "
    "of which autograd numbers, or kernels and ranges of inference only",
    "own choice",
)


@tabulates("sign")
def of_workload(view: DeviceView) -> pl.DataFrame:
    """One row per sign of a kind of work: kind, code, example (a name from the recording)."""
    return pl.DataFrame(view.once(signs), schema=dict.fromkeys(Sign._fields, pl.String), orient="row")
