"""Steps that do more than the others at regular intervals: validation, the next rollout, a target network."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.time_by_name import times_by_name
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import OPTIMIZER_STEP
from advisor.metrics.several import Metric, Values, measures
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.text import ms

_SOURCE: Final = (
    "of the steps above the fence of outliers those that are two or more, as far from each other, and begin 1.2 times "
    "the ops of any other step or more, or the only reductions of gradients or updates of weights"
)
_MOST_NAMES: Final = 3
_TELLING_SHARE: Final = 0.1  # of the extra time


def _places(view: DeviceView) -> pl.DataFrame:
    return as_places(_recurring(view), "steps")


RECURRING_STEPS = Metric(
    "recurring_steps",
    "Steps that do more than the others, at regular intervals.",
    "count; they are used as the others are",
    _SOURCE,
    where=_places,
    unit="count",
)
RECURRING_EVERY = Metric(
    "recurring_every",
    "How many steps lie from one step with more work to the next; 0 where there is none.",
    "count",
    _SOURCE,
    unit="count",
)
RECURRING_EXCESS_MS = Metric(
    "recurring_excess_ms",
    "What steps with more work, at regular intervals, add to the mean step.",
    "sum over them of max(0, step - median of the other used steps) / used steps",
    _SOURCE,
)
RECURRING_WORK = Metric(
    "recurring_work",
    "What runs longer in a step with more work than in another step, the most time first.",
    "ranges and ops by their own time per step, without waits for the device, less that in the other used steps; a"
    " tenth of the excess or more",
    _SOURCE,
    unit="text",
)
UPDATES_ALIKE = Metric(
    "updates_alike",
    "1 where every step updates the weights, and steps with more work no more often than others; else 0.",
    "1 if an optimizer of PyTorch steps in each used step, and in none with more work more often than in another",
    _SOURCE,
    unit="count",
)


@measures(RECURRING_STEPS, RECURRING_EVERY, RECURRING_EXCESS_MS, RECURRING_WORK, UPDATES_ALIKE)
def recurring(view: DeviceView) -> Values:
    """What steps that regularly do more add to the mean step; zero where none does, unknown without steps."""
    steps, more = view.steps, _recurring(view)
    if not view.has_marks or not steps.height:
        return Missing("no_marks")
    if not more.height:
        zeros = dict.fromkeys((RECURRING_STEPS, RECURRING_EVERY, RECURRING_EXCESS_MS, UPDATES_ALIKE), 0)
        return zeros | {RECURRING_WORK: ""}
    excess = (more["dur_ns"].to_numpy() - float(np.median(_others(view)["dur_ns"].to_numpy()))).clip(0)
    return {
        RECURRING_STEPS: more.height,
        RECURRING_EVERY: int(np.diff(more["step"].sort().to_numpy())[0]),
        RECURRING_EXCESS_MS: float(excess.sum()) / steps.height / 1e6,
        RECURRING_WORK: _in_words(view, float(excess.mean())),
        UPDATES_ALIKE: int(_updates_alike(view)),
    }


def _updates_alike(view: DeviceView) -> bool:
    updates = np.bincount(view.used_like(OPTIMIZER_STEP)["window"].to_numpy(), minlength=view.steps.height)
    recurs = view.steps["recurs"].to_numpy()
    return bool(updates.min() > 0 and updates[recurs].max() <= updates[~recurs].max(initial=0))


def _recurring(view: DeviceView) -> pl.DataFrame:
    return view.steps.filter(pl.col("recurs"))


def _others(view: DeviceView) -> pl.DataFrame:
    return view.steps.filter(~pl.col("recurs"))


def _in_words(view: DeviceView, excess_ns: float) -> str:
    """`validate (210 ms), ...`: per step."""
    more, usual = (_busiest(view, steps) for steps in (_recurring(view), _others(view)))
    beyond = more.join(usual, on="name", how="left", suffix="_usual").select(
        "name", ns=pl.col("ns") - pl.col("ns_usual").fill_null(0)
    )
    top = beyond.filter(pl.col("ns") >= _TELLING_SHARE * excess_ns).sort("ns", "name", descending=[True, False])
    return ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in top.head(_MOST_NAMES).rows())


def _busiest(view: DeviceView, steps: pl.DataFrame) -> pl.DataFrame:
    """What ran on the training threads in these steps, without waits for the device: name, own time in ns per step."""
    start = steps["host_start_ns"].to_numpy()
    when = Intervals.of(start, start + steps["host_dur_ns"].to_numpy()) - view.blocked
    ran = times_by_name(view, when).drop_nulls("name")
    return ran.select("name", ns=pl.col("self_ns") / max(1, steps.height))
