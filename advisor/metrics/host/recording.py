"""What recording costs, the step without it, and steps that grow: as `advisor record` notes them."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device import recording_cost
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Missing
from advisor.model.profile import matches

_LOADING: Final = r"(?:Module|Function) Loading$"
"""CUPTI's records of the driver that loads code for its first use, which it does without the profiler too."""
measure = of_devices(__name__)


def _frames(view: DeviceView) -> int:
    kinds = view.once(recording_cost.recorded)
    return sum(kinds.get(kind, 0) for kind in recording_cost.FRAMES)


def _tracing_share(view: DeviceView) -> float:
    share, kinds = recording_cost.measured_share(view), view.once(recording_cost.recorded)
    estimate = recording_cost.step_cost_ns(view) if view.is_of_nsight else None
    usual = recording_cost.FRAME_NS * _frames(view) + recording_cost.OP_NS * sum(
        kinds.get(kind, 0) for kind in recording_cost.RECORDED
    )
    cost = estimate[1] * view.steps.height if estimate and estimate[0] else usual
    return min(cost / view.total_ns, 1 - (view.share(view.busy) or 0.0)) if share is None else share


def _own_work(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "overhead", ~matches(_LOADING))


measure(
    "profiler_share", lambda view: view.share(spans(view.once(_own_work)) - view.busy), where=places(_own_work)
).says(
    "Part of the step in which the profiler itself holds everything up.",
    "time of CUPTI's overhead records (Activity Buffer Request and the like, not the loading of modules and functions) "
    "while the device idles / step time",
)
measure("tracing_share", _tracing_share).says(
    "Part of the step that recording ops and Python calls costs the host: measured, else estimated.",
    "1 - unprofiled_step_ms / the recorder's median step with the profiler; where that is unknown, "
    "(1 µs x framework ops and runtime calls + 0.2 µs x Python calls of the steps) / step time, at most the part "
    "in which the device idles; under Nsight Systems not 1 µs, but the median between the bounds of 100 ops or more "
    "and those of the only op in each",
    "a lower estimate, PyTorch 2.13 and Python 3.11: 0.5 to 1.1 µs per op in six recordings of a loop of tiny "
    "ops, 1.7 in the median of 32 recordings of all kinds; 0.2 µs per Python call in one loop of 5,000; of a step "
    "under Nsight Systems 35 % was measured, and 37 % comes out (docs/public-recordings.md)",
)
measure("recorded_ratio", recording_cost.slowdown).says(
    "How many times as long recorded steps take as those before and after, if recording ops does not explain it.",
    "the recorder's median step with the profiler / the longer one of those before and after the recording, if these "
    "differ by less than half and 10 µs per op and call are less than the difference; else 1",
    "own choice",
)
measure("unprofiled_step_ms", recording_cost.unprofiled_ms).says(
    "Typical step time without the profiler, where `advisor record` timed it: what savings in ms are relative to.",
    "median of the steps before the recording, less its waits for other programs; without a device, the mean of that "
    "and of the median after it; at most the median of the recorded steps; unknown where those before exceed the "
    "recorded ones 1.5 times, or those before and after differ by as much",
    "own choice: 1.5; CUPTI may slow steps by 10-20 % after it stopped (pytorch 144455, 146604)",
)
measure("is_timed_alone", lambda view: float(not isinstance(recording_cost.unprofiled_ms(view), Missing))).says(
    "Whether the step without the profiler is known: 1 if so, else 0.", "as unprofiled_step_ms"
)
measure("unprofiled_whole_step_ms", recording_cost.unprofiled_whole_ms).says(
    "The mean step without the profiler with the uneven ones, if these add 5 % or more to it, not for other programs.",
    "unprofiled_step_ms + sum over uneven steps of (step - median) / all, if over twice the mean wait for a CPU for "
    "other programs, or if lines run in these alone; uneven above median + 3 x 1.4826 x MAD and 1.1 x the median",
    "own choice, as for the recorded steps",
)
measure("python_frames_per_step", lambda view: (_frames(view) + view.host["stack"].count()) / view.steps.height).says(
    "Python calls recorded per step, and ops with a stack.", "python and module ranges, ops with a stack / steps"
)


_ENDS: Final = 2  # pieces at either end: the first and the last tenth
_STEADY: Final = 0.7  # of pairs of pieces, those of which the later one is longer, less those of which it is shorter


def _pace_ends_ms(view: DeviceView) -> tuple[float, float]:
    """The step at the begin and at the end of the run; the former twice if it does not grow steadily."""
    pace = np.asarray(view.process["pace_ms"], np.float64)
    first, last = float(np.median(pace[:_ENDS])), float(np.median(pace[-_ENDS:]))
    earlier = [ms for ms in (view.process.get("before_ms"), view.process.get("after_ms")) if ms is not None]
    pace = np.asarray([*earlier, *pace])
    longer = np.sign(pace[None, :] - pace[:, None])[np.triu_indices(len(pace), 1)]
    is_steady = len(longer) > 0 and longer.mean() >= _STEADY
    return (first, last) if is_steady else (first, first)


of_pace = of_devices(__name__, unknown=lacking(short_pace=lambda view: not view.process.get("pace_ms")))
of_pace("step_growth", lambda view: view.once(_pace_ends_ms)[1] / view.once(_pace_ends_ms)[0], unit="ratio").says(
    "How many times as long a step takes at the end of a long run as at its begin, if it grows steadily; else 1.",
    "median step of the last tenth / of the first, without waits for a CPU because of other programs, of steps that "
    "`advisor record` samples last, 40 or more; 1 if the rank correlation with their order is below 0.7, of 20 "
    "pieces behind the medians of the steps timed before and after the recording",
    "Kendall's rank correlation",
)
of_pace("growth_first_ms", lambda view: view.once(_pace_ends_ms)[0]).says(
    "The step at the begin of that run.", "median of the first tenth of its steps"
)
of_pace("growth_last_ms", lambda view: view.once(_pace_ends_ms)[1]).says(
    "The step at the end of that run; growth_first_ms where it does not grow.", "median of the last tenth of its steps"
)
of_pace("growth_first_step", lambda view: view.process["pace_steps"][0], unit="count").says(
    "The number of the first step of that run.", "steps before it, those skipped included"
)
of_pace("growth_last_step", lambda view: view.process["pace_steps"][-1], unit="count").says(
    "The number of its last step.", "as growth_first_step"
)
