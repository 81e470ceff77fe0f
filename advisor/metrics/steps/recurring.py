"""Steps that do more than the others at regular intervals: validation, the next rollout, a target network."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.places import as_places, times_beyond
from advisor.analysis.device.view import DeviceView, host_bounds
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries
from advisor.model.intervals import Floats, Intervals

_SOURCE: Final = (
    "of the steps above the fence of outliers those that are two or more, as far from each other, and begin 1.2 times "
    "the ops of any other step or more, or the only reductions of gradients or updates of weights"
)
_MOST_NAMES: Final = 3
_TELLING_SHARE: Final = 0.1  # of the extra time


def _excess_ns(view: DeviceView) -> Floats:
    """By how much each step with more work exceeds the median of the others."""
    usual = float(np.median(_others(view)["dur_ns"].to_numpy())) if _recurring(view).height else 0.0
    return (_recurring(view)["dur_ns"].to_numpy() - usual).clip(0)


def _updates_alike(view: DeviceView) -> bool:
    if not _recurring(view).height:
        return False
    updates = np.bincount(view.used_like(OPTIMIZER_STEP)["window"].to_numpy(), minlength=view.steps.height)
    recurs = view.steps["recurs"].to_numpy()
    return bool(updates.min() > 0 and updates[recurs].max() <= updates[~recurs].max(initial=0))


def _recurring(view: DeviceView) -> pl.DataFrame:
    return view.steps.filter(pl.col("recurs"))


def _others(view: DeviceView) -> pl.DataFrame:
    return view.steps.filter(~pl.col("recurs"))


def _work(view: DeviceView) -> Entries:
    if not _recurring(view).height:
        return []
    both = (_recurring(view), _others(view))
    beyond = times_beyond(view, *((Intervals.of(*host_bounds(of)) - view.blocked, of.height) for of in both))
    large = beyond.drop_nulls("name").filter(pl.col("ns") >= _TELLING_SHARE * float(_excess_ns(view).mean()))
    return [{"name": name, "ms": ns / 1e6} for name, ns in large.head(_MOST_NAMES).rows()]


measure = of_devices(
    __name__, source=_SOURCE, unknown=lacking(no_marks=lambda view: not (view.has_marks and view.steps.height))
)
measure(
    "recurring_steps", lambda view: _recurring(view).height, where=as_places(_recurring, "steps"), unit="count"
).says("Steps that do more than the others, at regular intervals.", "count; they are used as the others are")
measure(
    "recurring_every",
    lambda view: next(iter(_recurring(view)["step"].sort().diff(null_behavior="drop")), 0),
    unit="count",
).says("How many steps lie from one step with more work to the next; 0 where there is none.", "count")
measure("recurring_excess_ms", lambda view: view.per_step_ms(float(_excess_ns(view).sum()))).says(
    "What steps with more work, at regular intervals, add to the mean step.",
    "sum over them of max(0, step - median of the other used steps) / used steps",
)
measure("recurring_work", _work, unit="names").says(
    "What runs longer in a step with more work than in another step, the most time first.",
    "ranges and ops by their own time per step, without waits for the device, less that in the other used steps; a"
    " tenth of the excess or more",
)
measure("updates_alike", lambda view: int(_updates_alike(view)), unit="count").says(
    "1 where every step updates the weights, and steps with more work no more often than others; else 0.",
    "1 if an optimizer of PyTorch steps in each used step, and in none with more work more often than in another",
)
