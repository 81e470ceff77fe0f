"""How long the steps take, and how even they are."""

from __future__ import annotations

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, tabulates
from advisor.metrics.several import Metric, Values, measures
from advisor.model.missing import Missing

STEPS = Metric("steps", "Steps used.", "number of steps left after `--steps`", unit="count")
STEPS_CUT = Metric(
    "steps_cut", "Steps left out because the file ends early.", "marked steps that may lack device work", unit="count"
)
STEP_MS = Metric("step_ms", "Typical step time.", "median over the used steps of (next step's start - its own start)")
STEP_MEAN_MS = Metric(
    "step_mean_ms", "Mean step time. Shares and savings are parts of it.", "sum of the periods / steps"
)
MARK_MS = Metric(
    "mark_ms",
    "How long the range is that marks a step: less than the step where the loop does more than the range holds.",
    "mean over the used steps of the range's length on the host",
)
COMPLETE_STEP_MEAN_MS = Metric(
    "complete_step_mean_ms",
    "Mean step time with the steps left out as uneven: what the saving of such steps is relative to.",
    "sum of the complete steps / their number",
)
STEP_CV = Metric(
    "step_cv", "Unevenness of the steps.", "sample standard deviation / mean of the step times", unit="ratio"
)
HOST_ACTIVE_MS = Metric(
    "host_active_ms",
    "Host work per step: the step cannot get shorter than this while the host does the same work.",
    "mean over steps of (the host's own period - time it was blocked in calls that wait for the device)",
    needs=("host_ops",),
)


@measures(
    STEPS, STEPS_CUT, STEP_MS, STEP_MEAN_MS, MARK_MS, COMPLETE_STEP_MEAN_MS, STEP_CV, HOST_ACTIVE_MS, needs_steps=False
)
def step_times(view: DeviceView) -> Values:
    """Step times and the host's part in them."""
    times = view.steps["dur_ns"].to_numpy() / 1e6
    counts = {STEPS: view.steps.height if times.any() else 0, STEPS_CUT: view.cut}
    if not times.any():
        return counts
    mean = float(times.mean())
    return {
        **counts,
        STEP_MS: float(np.median(times)),
        STEP_MEAN_MS: mean,
        MARK_MS: _mark_ms(view),
        COMPLETE_STEP_MEAN_MS: float(view.complete["dur_ns"].to_numpy().mean() / 1e6),
        STEP_CV: float(times.std(ddof=1)) / mean if len(times) > 1 else None,
        HOST_ACTIVE_MS: _host_active_ms(view),
    }


def _mark_ms(view: DeviceView) -> Value:
    mean = view.steps["mark_ns"].cast(pl.Float64).mean()
    return mean / 1e6 if isinstance(mean, float) else Missing("no_marks")


def _host_active_ms(view: DeviceView) -> float | None:
    """Blocked: any runtime call while the device is busy, if it takes longer than launching ever should."""
    start = view.steps["host_start_ns"].to_numpy()
    end = start + view.steps["host_dur_ns"].to_numpy()
    blocked = view.blocked.within(start, end)
    return view.per_step_ms(float((end - start - blocked).sum())) if len(start) else None


@tabulates("recorded_step")
def recorded_steps(view: DeviceView) -> pl.DataFrame:
    """One row per step that was recorded whole: step, name, start_ns, step_ms, left_out.

    The last one is why it is not used, null where it is.
    """
    return view.complete.select("step", "name", "start_ns", "left_out", step_ms=pl.col("dur_ns") / 1e6)
