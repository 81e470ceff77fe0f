"""What blocking launches and the profiler itself add to the steps, and how the worker uses its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.cpu_waits import cpu_waits, delay_share, noted_share
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.recording_cost import OP_NS, RECORDED, measured_share, recorded, slowdown, unprofiled_ms
from advisor.analysis.device.replay import trusted_replay
from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.profile import END_NS

_FRAME_NS: Final = 200  # what recording a call of a Python function costs the host
_LAUNCHES: Final = r"(?i)Launch(?:Cooperative)?Kernel"


BLOCKING_LAUNCH_SHARE = Metric(
    "blocking_launch_share",
    "share",
    "Part of the kernels whose launch returned only after the kernel had ended.",
    "kernels of the steps that ended before the kernel launch that started them returned / those with a recorded "
    "launch; 0 where none was recorded",
    "CUDA_LAUNCH_BLOCKING=1 makes every launch wait (CUDA C++ Programming Guide)",
    where=lambda view: as_places(_launched(view), "device_ops", op="op"),
)
BLOCKING_GAIN_MS = Metric(
    "blocking_gain_ms",
    "ms",
    "Step time saved if launches did not wait.",
    "replay without the blocking launches' time; where no replay can be trusted: 0",
    "advisor.analysis.device.replay",
)
LAUNCHED_KERNELS_PER_STEP = Metric(
    "launched_kernels_per_step",
    "number",
    "Kernels per step that were launched one by one.",
    "kernels with a recorded kernel launch / steps",
)


@measures(BLOCKING_LAUNCH_SHARE, BLOCKING_GAIN_MS, LAUNCHED_KERNELS_PER_STEP)
def blocking_launches(view: DeviceView) -> Mapping[Metric, Value]:
    """Launches that wait for their kernels."""
    if not view.total_ns:
        return {}
    launched = _launched(view)
    blocking = launched.filter(pl.col("returned") >= END_NS)
    return {
        BLOCKING_LAUNCH_SHARE: blocking.height / launched.height if launched.height else 0.0,
        LAUNCHED_KERNELS_PER_STEP: launched.height / view.steps.height,
        BLOCKING_GAIN_MS: _unblocked_ms(view, blocking),
    }


def _launched(view: DeviceView) -> pl.DataFrame:
    """Kernels of the steps that were launched one by one, with when their launch `returned`."""
    launches = view.host_like(_LAUNCHES, "runtime")
    returned = launches.select(launch="id", returned=END_NS)
    return view.used_ops.filter(pl.col("kind") == "kernel").join(returned, on="launch")


def _unblocked_ms(view: DeviceView, blocking: pl.DataFrame) -> float:
    trusted = view.once(trusted_replay)
    if trusted is None or not blocking.height:
        return 0.0
    return trusted.saved_ms(trusted.without_calls(blocking["launch"].to_numpy()))


PROFILER_SHARE = Metric(
    "profiler_share",
    "share",
    "Part of the step in which the profiler itself holds everything up.",
    "time of CUPTI's overhead records (Activity Buffer Request, Lazy Function Loading and the like) while the "
    "device idles / step time",
    where=lambda view: places(view, view.host.filter(pl.col("kind") == "overhead")),
)
TRACING_SHARE = Metric(
    "tracing_share",
    "share",
    "Part of the step that recording ops and Python calls costs the host: measured, else estimated.",
    "1 - unprofiled_step_ms / the recorder's median step with the profiler; where that is unknown, "
    "(1 µs x framework ops and runtime calls + 0.2 µs x Python calls of the steps) / step time, at most the part "
    "in which the device idles",
    "a lower estimate, PyTorch 2.13 and Python 3.11: 0.5 to 1.1 µs per op in six recordings of a loop of tiny ops, "
    "1.7 in the median of 32 recordings of all kinds; 0.2 µs per Python call in one loop of 5,000",
)
RECORDED_RATIO = Metric(
    "recorded_ratio",
    "ratio",
    "How many times as long recorded steps take as those before and after, if recording ops does not explain it.",
    "the recorder's median step with the profiler / the longer one of those before and after the recording, if these "
    "differ by less than half and 10 µs per op and call are less than the difference; else 1",
    "own choice",
)
UNPROFILED_STEP_MS = Metric(
    "unprofiled_step_ms",
    "ms",
    "Typical step time without the profiler, where `advisor record` timed it: what savings in ms are relative to.",
    "median of the steps before the recording, less its waits for other programs; without a device, the mean of that "
    "and of the median after it; at most the median of the recorded steps; unknown where those before exceed the "
    "recorded ones 1.5 times, or those before and after differ by as much",
    "own choice: 1.5; CUPTI may slow steps by 10-20 % after it stopped (pytorch 144455, 146604)",
)
RUN_DELAY_SHARE = Metric(
    "run_delay_share",
    "share",
    "Part of the recorded step in which the host's threads waited for a CPU. With `advisor record`: because of other "
    "programs. Without it: a lower bound, from ops that do no work; 0 where there are too few of these.",
    "run_delay_ms of the recorded steps, at most what the used steps exceed the recorder's median without it by, / "
    "step time; else of views and their like, which take a "
    "microsecond or a few, waits / (waits + other time): those of over 0.1 ms and 20 medians, if five or more, less "
    "two standard errors of their number, as long each as the mean of all but the longest; 0 if they come more often "
    "than every 0.2 ms of such ops",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; of it, as much as the job did not "
    "get of its cores; 0.1 ms: of 100,000 views and their like in 31 public recordings one takes longer; own choice: "
    "the other numbers",
)
WAITING_VIEWS = Metric(
    "waiting_views",
    "count",
    "Views and other ops without work that took so long that their thread cannot have had a CPU; 0 where `advisor "
    "record` noted such waits.",
    "ops as in run_delay_share that take over 0.1 ms and 20 medians",
)
LONGEST_WAITING_VIEW_MS = Metric("longest_waiting_view_ms", "ms", "The longest of them.", "its duration")
OWN_DELAY_SHARE = Metric(
    "own_delay_share",
    "share",
    "Part of the recorded step in which the thread that ends it waited for a CPU because the job has more to run than "
    "it has cores.",
    "own_delay_ms of the recorded steps / step time, at most 1; 0 where `advisor record` noted none",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; without run_delay_ms",
)
PYTHON_FRAMES_PER_STEP = Metric(
    "python_frames_per_step", "number", "Python calls recorded per step.", "python and module ranges / steps"
)


@measures(RUN_DELAY_SHARE, OWN_DELAY_SHARE, WAITING_VIEWS, LONGEST_WAITING_VIEW_MS)
def cpu_shortage(view: DeviceView) -> Mapping[Metric, Value]:
    """What the host's threads wait for a CPU; zero where nothing tells."""
    if not view.total_ns:
        return {}
    sample = view.once(cpu_waits)
    return {
        RUN_DELAY_SHARE: delay_share(view),
        OWN_DELAY_SHARE: noted_share(view, "own_delay_ms"),
        WAITING_VIEWS: sample.waits if sample else 0,
        LONGEST_WAITING_VIEW_MS: sample.longest_ns / 1e6 if sample else 0.0,
    }


@measures(PROFILER_SHARE, TRACING_SHARE, RECORDED_RATIO, PYTHON_FRAMES_PER_STEP, UNPROFILED_STEP_MS)
def profiling(view: DeviceView) -> Mapping[Metric, Value]:
    """What profiling adds to the recorded steps."""
    if not view.total_ns:
        return {}
    kinds = view.once(recorded)
    frames = kinds.get("python", 0) + kinds.get("module", 0)
    cost = _FRAME_NS * frames + OP_NS * sum(kinds.get(kind, 0) for kind in RECORDED)
    idle = 1 - (view.share(view.busy) or 0.0)
    share = measured_share(view)
    return {
        PROFILER_SHARE: view.share(view.host_spans("overhead") - view.busy),
        TRACING_SHARE: min(cost / view.total_ns, idle) if share is None else share,
        RECORDED_RATIO: slowdown(view),
        UNPROFILED_STEP_MS: unprofiled_ms(view),
        PYTHON_FRAMES_PER_STEP: frames / view.steps.height,
    }


DEVICES_USED = Metric(
    "devices_used", "count", "Devices that the worker ran anything on.", "number of devices with device ops"
)
DATA_PARALLEL_CALLS_PER_STEP = Metric(
    "data_parallel_calls_per_step",
    "number",
    "Forward passes of torch.nn.DataParallel per step.",
    "ranges named DataParallel.forward / steps",
    "torch-tb-profiler's rule on DataParallel",
    where=lambda view: places(view, _replicated(view)),
)


@measures(DEVICES_USED, DATA_PARALLEL_CALLS_PER_STEP)
def devices(view: DeviceView) -> Mapping[Metric, Value]:
    """How the worker spreads its work over devices."""
    if not view.total_ns:
        return {}
    return {
        DEVICES_USED: view.devices,
        DATA_PARALLEL_CALLS_PER_STEP: _replicated(view).height / view.steps.height,
    }


def _replicated(view: DeviceView) -> pl.DataFrame:
    return view.used_like(r"^DataParallel\.forward$")
