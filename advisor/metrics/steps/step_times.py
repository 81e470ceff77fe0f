"""How long the steps take, and how even they are."""

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, of_devices, tabulates
from advisor.vocabulary.limits import LONG_SHARE


def _step_cv(view: DeviceView) -> Value:
    times = view.steps["dur_ns"].to_numpy()
    return float(times.std(ddof=1) / times.mean()) if len(times) > 1 else None


def _whole_ms(view: DeviceView) -> float | None:
    mean_ms, used_ms = (float(of["dur_ns"].to_numpy().mean()) / 1e6 for of in (view.lasting, view.steps))
    return mean_ms if mean_ms >= (1 + LONG_SHARE) * used_ms else None


@tabulates("recorded_step")
def recorded_steps(view: DeviceView) -> pl.DataFrame:
    """One row per step that was recorded whole: step, name, start_ns, step_ms, left_out.

    The last one is why it is not used, null where it is.
    """
    return view.complete.select("step", "name", "start_ns", "left_out", step_ms=pl.col("dur_ns") / 1e6)


of_recording = of_devices(__name__, needs_steps=False)
measure = of_devices(__name__)
of_recording("steps", lambda view: view.steps.height if view.total_ns else 0, unit="count").says(
    "Steps used.", "number of steps left after `--steps`"
)
of_recording("steps_cut", lambda view: view.cut, unit="count").says(
    "Steps left out because the file ends early.", "marked steps that may lack device work"
)
measure("step_ms", lambda view: float(np.median(view.steps["dur_ns"].to_numpy() / 1e6))).says(
    "Typical step time.", "median over the used steps of (next step's start - its own start)"
)
measure("step_mean_ms", lambda view: float((view.steps["dur_ns"].to_numpy() / 1e6).mean())).says(
    "Mean step time. Shares and savings are parts of it.", "sum of the periods / steps"
)
measure("complete_step_mean_ms", lambda view: float(view.complete["dur_ns"].to_numpy().mean() / 1e6)).says(
    "Mean step time with the steps left out as uneven: what the saving of such steps is relative to.",
    "sum of the complete steps / their number",
)
measure("whole_step_mean_ms", _whole_ms).says(
    "Mean step time with the uneven steps, if these add 5 % or more to it: shares and savings are parts of it then.",
    "sum of the used and uneven steps, without a first one that starts up, / their number",
)
measure("step_cv", _step_cv, unit="ratio").says(
    "Unevenness of the steps.", "sample standard deviation / mean of the step times"
)
