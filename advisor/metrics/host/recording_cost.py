"""What recording itself adds to the steps."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import (
    OP_NS,
    RECORDED,
    measured_share,
    recorded,
    slowdown,
    unprofiled_long_ms,
    unprofiled_ms,
)
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.vocabulary.limits import LONG_SHARE

_FRAME_NS: Final = 200  # what recording a call of a Python function costs the host

measure = of_devices(__name__)


def _frames(view: DeviceView) -> int:
    kinds = view.once(recorded)
    return kinds.get("python", 0) + kinds.get("module", 0)


def _tracing_share(view: DeviceView) -> float:
    share, kinds = measured_share(view), view.once(recorded)
    cost = _FRAME_NS * _frames(view) + OP_NS * sum(kinds.get(kind, 0) for kind in RECORDED)
    return min(cost / view.total_ns, 1 - (view.share(view.busy) or 0.0)) if share is None else share


def _unprofiled_whole_ms(view: DeviceView) -> float | Missing | None:
    typical, long_ms = unprofiled_ms(view), unprofiled_long_ms(view)
    if isinstance(typical, Missing) or isinstance(long_ms, Missing):
        return typical
    return typical + long_ms if long_ms >= LONG_SHARE * typical else None


measure(
    "profiler_share",
    lambda view: view.share(view.host_spans("overhead") - view.busy),
    where=places(lambda view: view.host.filter(pl.col("kind") == "overhead")),
).says(
    "Part of the step in which the profiler itself holds everything up.",
    "time of CUPTI's overhead records (Activity Buffer Request, Lazy Function Loading and the like) while the "
    "device idles / step time",
)
measure("tracing_share", _tracing_share).says(
    "Part of the step that recording ops and Python calls costs the host: measured, else estimated.",
    "1 - unprofiled_step_ms / the recorder's median step with the profiler; where that is unknown, "
    "(1 µs x framework ops and runtime calls + 0.2 µs x Python calls of the steps) / step time, at most the part "
    "in which the device idles",
    "a lower estimate, PyTorch 2.13 and Python 3.11: 0.5 to 1.1 µs per op in six recordings of a loop of tiny "
    "ops, 1.7 in the median of 32 recordings of all kinds; 0.2 µs per Python call in one loop of 5,000",
)
measure("recorded_ratio", slowdown).says(
    "How many times as long recorded steps take as those before and after, if recording ops does not explain it.",
    "the recorder's median step with the profiler / the longer one of those before and after the recording, if these "
    "differ by less than half and 10 µs per op and call are less than the difference; else 1",
    "own choice",
)
measure("unprofiled_step_ms", unprofiled_ms).says(
    "Typical step time without the profiler, where `advisor record` timed it: what savings in ms are relative to.",
    "median of the steps before the recording, less its waits for other programs; without a device, the mean of that "
    "and of the median after it; at most the median of the recorded steps; unknown where those before exceed the "
    "recorded ones 1.5 times, or those before and after differ by as much",
    "own choice: 1.5; CUPTI may slow steps by 10-20 % after it stopped (pytorch 144455, 146604)",
)
measure("unprofiled_long_ms", unprofiled_long_ms).says(
    "What uneven steps add to the mean step without the profiler.",
    "sum over the uneven ones of (step - median) / all steps timed without the profiler; uneven above median + 3 x "
    "1.4826 x MAD and 1.1 x the median; where that was not noted, whole_step_mean_ms - step_mean_ms of the recording",
    "own choice, as for the recorded steps",
)
measure("unprofiled_whole_step_ms", _unprofiled_whole_ms).says(
    "The mean step without the profiler with the uneven ones, if these add 5 % or more to it.",
    "unprofiled_step_ms + unprofiled_long_ms",
)
measure("python_frames_per_step", lambda view: _frames(view) / view.steps.height).says(
    "Python calls recorded per step.", "python and module ranges / steps"
)
