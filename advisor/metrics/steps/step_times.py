"""How long the steps take, how even they are, what one change saves, and the kind of work and device."""

import re
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.launches import FAILURE, LAUNCHED
from advisor.analysis.device.recording_cost import others_lengthen
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.device.workload import Sign, signs, workload
from advisor.inputs.loops import TAKES_MEMORY
from advisor.inputs.names.calls import FULL, OF_CPU, OF_GPU, OUTDATED
from advisor.inputs.step_periods import FILE_CUT
from advisor.metrics.metric import Value, lacking, of_devices, tabulates
from advisor.model.clause import Entries, Missing
from advisor.text import runs_of
from advisor.vocabulary.limits import LONG_SHARE
from advisor.whatif.change import awaits, recorded, saved, without, without_waits
from advisor.whatif.dependencies import loading_part, replay

_OUT_OF_MEMORY: Final = 2


def _ran_on_cpu(view: DeviceView) -> int:
    of_cpu, of_gpu, of_pytorch = (view.host_like(names, "op").height > 0 for names in (OF_CPU, OF_GPU, "^aten::"))
    took_memory = of_pytorch and not of_gpu and bool(view.allocations["bytes"].gt(0).any())
    return int(view.device is None and not view.gpu_blocks and (of_cpu or took_memory))


def _memory_errors(view: DeviceView) -> int:
    messages = len(re.findall(FULL, view.process.get("error") or ""))
    refused = view.host_like(TAKES_MEMORY).filter(FAILURE == _OUT_OF_MEMORY)["start_ns"]
    last_ns = view.host.filter(LAUNCHED)["start_ns"].max()
    return messages + int((refused > last_ns).sum() if last_ns is not None else len(refused))


def _step_cv(view: DeviceView) -> Value:
    times = view.steps["dur_ns"].to_numpy()
    return float(times.std(ddof=1) / times.mean()) if len(times) > 1 else None


def _whole_ms(view: DeviceView) -> float | None:
    mean_ms, used_ms = (float(of["dur_ns"].to_numpy().mean()) / 1e6 for of in (view.lasting, view.steps))
    is_even = mean_ms < (1 + LONG_SHARE) * used_ms or others_lengthen(view, mean_ms - used_ms, "run_delay_ms")
    return None if is_even else mean_ms


@tabulates("recorded_step")
def recorded_steps(view: DeviceView) -> pl.DataFrame:
    """One row per step that was recorded whole: step, name, start_ns, step_ms, left_out.

    The last one is why it is not used, null where it is.
    """
    return view.complete.select("step", "name", "start_ns", "left_out", step_ms=pl.col("dur_ns") / 1e6)


def _worked(view: DeviceView) -> float:
    share = view.share(view.busy)
    return view.busy.total / max(1, view.recorded_ns) if share is None else share


of_recording = of_devices(__name__, needs_steps=False)
measure = of_devices(__name__)
of_recording("steps", lambda view: view.steps.height if view.total_ns else 0, unit="count").says(
    "Steps used.", "number of steps left after `--steps`"
)
of_recording(
    "steps_cut", lambda view: view.incomplete.filter(pl.col("left_out") == FILE_CUT).height, unit="count"
).says("Steps left out because the file ends early.", "marked steps that may lack device work")
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
    "Mean step time with the uneven steps, if these add 5 % or more to it, not because of other programs: shares and "
    "savings are parts of it then.",
    "sum of the used and uneven steps, without a first one that starts up, / their number",
)
measure("step_cv", _step_cv, unit="ratio").says(
    "Unevenness of the steps.", "sample standard deviation / mean of the step times"
)


_SOURCE: Final = (
    "advisor.whatif.replay, after Daydream (USENIX ATC 2020); 5 % as in ByteDance's straggler study (OSDI 2025)"
)


def _input_ms(view: DeviceView) -> float:
    if view.device is None:
        return view.used_ms(view.host_spans("input") - view.once(executed))
    return saved(view, without(host=view.host_spans("input"), bound_ns=int(view.once(gaps)["input_ns"].sum()))).most_ms


def _copies_ms(view: DeviceView) -> float:
    if view.device is None or view.once(recorded):
        return 0.0
    is_copy = pl.col("kind") == "memcpy"
    return view.used_ms(spans(view.ops.filter(is_copy)) - spans(view.ops.filter(~is_copy)))


of_changed = of_devices(__name__, source=_SOURCE)
of_launches = of_devices(__name__, source=_SOURCE, needs=("device_ops", "device_ops.launch"))
of_replay = of_launches.parts_of(lambda view: None if view.device is None else view.once(replay))
of_replay("replay_error", lambda steps: steps.error, unit="ratio").says(
    "How far the replay of the unchanged steps is from the recorded step time; savings rest on it.",
    "replayed step time / recorded step time - 1",
)
of_replay("replayed_steps", lambda steps: steps.steps).says(
    "How many of the used steps are replayed for savings.",
    "longest run of consecutive used steps; of a long recording the first of them, with 100,000 calls at most",
)
measure("awaited_part", awaits, unit="text").says(
    "The part of the step in which the host waits for what sets the pace, so that what is faster saves nothing: "
    "`input` for batches of a loader's workers, `host_busy` for anything else; else empty.",
    "input: one of each 16 requests for a batch of workers, and two in all, last over 2 ms, together 1 % of the "
    "steps, and the workers always load. host_busy: in three quarters of the steps the longest time without a call is "
    "before the same call, half of it idle for over {launch_gap}, and the period from one of these calls to the next "
    "gets longer by less than half of what the work between does: least squares, three standard errors, 8 steps",
    "own model: work takes as long after a long call as after a short one, a wait takes less",
)
measure("loader_slack_part", lambda view: 1.0 if awaits(view) else 1 - view.once(loading_part)).says(
    "The part of the step that changes to anything else can save before the data loader sets the pace; 1 where it does "
    "already, or nobody counted what it takes.",
    "1 - what workers, or threads that load ahead, take for the batches of a step / step time",
    "counted by `advisor record`: (fetch without waits for a core that the job itself has + sending) / workers, or "
    "receiving, if longer; Python's calls that hand over, or are tasks of a pool; functions of Python in tf.data",
)
of_changed("input_gain_ms", _input_ms).says("Step time saved if batches were always there in time.")
of_changed("input_copy_gain_ms", _copies_ms).says(
    "Copies of a step that may run beside kernels once batches are there in time, where no replay tells."
)
of_launches.gain("sync", lambda view: without_waits(int(view.once(gaps)["sync_ns"].sum()))).says(
    "Step time saved if no call waited for the device."
)


def _names(view: DeviceView) -> Entries:
    names = view.visible["name"].cast(pl.String).fill_null("a device without a name")
    return [{"name": name} for name in names.unique().sort()]


of_recording(
    "device_name",
    lambda view: view.facts.get("name") or (view.gpu.model if view.gpu else None) or Missing("device_nameless"),
    unit="text",
    needs=("device_ops",),
).says("Name of the device as its driver reports it.", "as recorded")
of_recording(
    "capability", lambda view: view.facts.get("capability") or Missing("no_capability"), needs=("device_ops", "devices")
).says("CUDA compute capability; on AMD the gfx version.", "major + minor / 10, as recorded")
of_recording("gpu_listed", lambda view: int(view.gpu is not None), unit="count").says(
    "Whether the hardware table has this GPU: 0 where only its compute capability tells what it can do.",
    "1 if it is certain which entry of the table it is, else 0",
)
of_recording("program_error", lambda view: str(view.process.get("error") or ""), unit="text").says(
    "The error that ends what the program printed to its standard error, without secrets.",
    "the first of its last five lines that names an exception, a signal or a missing file, as Nsight Systems keeps it; "
    "with the innermost line of the program's own in the traceback",
)
of_recording("profiler_warning", lambda view: str(view.process.get("warning") or ""), unit="text").says(
    "What the profiler warned of that may be why work of the GPU is missing; empty where it warned of nothing.",
    "the first of the gravest messages on CUDA, the driver or permissions, as Nsight Systems keeps it; that CUDA "
    "was not traced, where it names the parts that it traces, and not CUDA",
)
of_recording("outdated_profiler", lambda view: len(re.findall(OUTDATED, view.process.get("warning") or ""))).says(
    "Whether the profiler says that it is older than the driver.",
    "1 if its warning is that it does not know it, else 0",
)
of_recording("interrupts", lambda view: int("KeyboardInterrupt" in (view.process.get("error") or ""))).says(
    "Whether Ctrl-C or its signal stopped the program.", "1 if its error is Python's KeyboardInterrupt, else 0"
)
of_recording("memory_errors", _memory_errors).says(
    "Whether full memory of the device ended the program.",
    "times that its error says `out of memory` or the like + calls for memory of the device that return this error "
    "after the last launch",
    "CUDA Runtime API: cudaErrorMemoryAllocation is 2, as CUDA_ERROR_OUT_OF_MEMORY of its driver is",
)
of_recording("driver_wait_ms", lambda view: (view.process.get("driver_wait_ns") or 0) / 1e6).says(
    "How long the program has waited in the driver for one call when the recording ends.",
    "time in which its only calls of the operating system are waits, three by the driver or more, as Nsight Systems "
    "records them",
)
of_recording("devices_used", lambda view: view.devices, unit="count").says(
    "Devices that the worker ran anything on.", "number of devices with device ops"
)

of_visible = of_devices(__name__, unknown=lacking(no_device_description=lambda view: not view.visible.height))
of_recording("worked_share", _worked).says(
    "Part of the step, or of the recording where no step is used, in which anything runs on the device.",
    "union of the device ops / step time, or recorded_ms",
)
measure("devices_visible", lambda view: view.visible.height or Missing("no_device_description"), unit="count").says(
    "Devices that the worker's process sees.",
    "devices that the profile describes",
    "XProf's overview page, run environment",
)
measure("visible_devices", _names, unit="names").says(
    "What the devices are called that the worker's process sees.", "as recorded"
)
measure("ran_on_cpu", _ran_on_cpu, unit="count").says(
    "Whether the worker ran its ops on the CPU, as far as the recording proves it.",
    "1 if no memory of a device was taken, and a CPU alone runs some op, or PyTorch's took memory and a GPU alone none",
)
measure("gpu_blocks", lambda view: view.gpu_blocks, unit="count").says(
    "How many blocks of memory the worker took from devices, whatever else was recorded of them.",
    "the allocator's events of a device with bytes above 0",
)
measure("devices_working", lambda view: runs_of(view.working), unit="text").says(
    "The devices on which the worker's process ran kernels.", "numbers of the devices with kernels"
)
of_visible("devices_idle", lambda view: view.visible.height - len(view.used), unit="count").says(
    "How many of the devices that the worker's process sees it ran nothing on.",
    "devices_visible - devices with any op, copies too",
)
of_visible("devices_unused", lambda view: runs_of({*view.visible["device"]} - {*view.used}), unit="text").says(
    "Which of the devices that the worker's process sees it ran nothing on.", "numbers of the devices without any op"
)


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
