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
of_recording("steps", lambda view: view.steps.height if view.total_ns else 0, unit="count")
of_recording("steps_cut", lambda view: view.incomplete.filter(pl.col("left_out") == FILE_CUT).height, unit="count")
measure("step_ms", lambda view: float(np.median(view.steps["dur_ns"].to_numpy() / 1e6)))
measure("step_mean_ms", lambda view: float((view.steps["dur_ns"].to_numpy() / 1e6).mean()))
measure("complete_step_mean_ms", lambda view: float(view.complete["dur_ns"].to_numpy().mean() / 1e6))
measure("whole_step_mean_ms", _whole_ms)
measure("step_cv", _step_cv, unit="ratio")


def _input_ms(view: DeviceView) -> float:
    if view.device is None:
        return view.used_ms(view.host_spans("input") - view.once(executed))
    return saved(view, without(host=view.host_spans("input"), bound_ns=int(view.once(gaps)["input_ns"].sum()))).most_ms


def _copies_ms(view: DeviceView) -> float:
    if view.device is None or view.once(recorded):
        return 0.0
    is_copy = pl.col("kind") == "memcpy"
    return view.used_ms(spans(view.ops.filter(is_copy)) - spans(view.ops.filter(~is_copy)))


of_launches = of_devices(__name__, needs=("device_ops", "device_ops.launch"))
of_replay = of_launches.parts_of(lambda view: None if view.device is None else view.once(replay))
of_replay("replay_error", lambda steps: steps.error, unit="ratio")
of_replay("replayed_steps", lambda steps: steps.steps)
measure("awaited_part", awaits, unit="text")
measure("loader_slack_part", lambda view: 1.0 if awaits(view) else 1 - view.once(loading_part))
measure("input_gain_ms", _input_ms)
measure("input_copy_gain_ms", _copies_ms)
of_launches.gain("sync", lambda view: without_waits(int(view.once(gaps)["sync_ns"].sum())))


def _name(view: DeviceView) -> str | Missing:
    """As recorded; a name that is empty is replaced by the model that its figures tell."""
    return view.facts.get("name") or (view.gpu.model if view.gpu else None) or Missing("device_nameless")


def _names(view: DeviceView) -> Entries:
    names = view.visible["name"].cast(pl.String).fill_null("a device without a name")
    return [{"name": name} for name in names.unique().sort()]


of_recording("device_name", _name, unit="text", needs=("device_ops",))
of_recording(
    "capability", lambda view: view.facts.get("capability") or Missing("no_capability"), needs=("device_ops", "devices")
)
of_recording("gpu_listed", lambda view: int(view.gpu is not None), unit="count")
of_recording("program_error", lambda view: str(view.process.get("error") or ""), unit="text")
of_recording("profiler_warning", lambda view: str(view.process.get("warning") or ""), unit="text")
of_recording("outdated_profiler", lambda view: len(re.findall(OUTDATED, view.process.get("warning") or "")))
of_recording("interrupts", lambda view: int("KeyboardInterrupt" in (view.process.get("error") or "")))
of_recording("memory_errors", _memory_errors)
of_recording("driver_wait_ms", lambda view: (view.process.get("driver_wait_ns") or 0) / 1e6)
of_recording("devices_used", lambda view: view.devices, unit="count")

of_visible = of_devices(__name__, unknown=lacking(no_device_description=lambda view: not view.visible.height))
of_recording("worked_share", _worked)
measure("devices_visible", lambda view: view.visible.height or Missing("no_device_description"), unit="count")
measure("visible_devices", _names, unit="names")
measure("ran_on_cpu", _ran_on_cpu, unit="count")
measure("gpu_blocks", lambda view: view.gpu_blocks, unit="count")
measure("devices_working", lambda view: runs_of(view.working), unit="text")
of_visible("devices_idle", lambda view: view.visible.height - len(view.used), unit="count")
of_visible("devices_unused", lambda view: runs_of({*view.visible["device"]} - {*view.used}), unit="text")


of_devices(__name__, needs_steps=False)("workload", workload, unit="text")


@tabulates("sign")
def of_workload(view: DeviceView) -> pl.DataFrame:
    """One row per sign of a kind of work: kind, code, example (a name from the recording)."""
    return pl.DataFrame(view.once(signs), schema=dict.fromkeys(Sign._fields, pl.String), orient="row")
