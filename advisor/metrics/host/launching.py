"""Waits for the device, launches that wait for their kernels, and what launching many at once saves."""

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps, idle_after_waits, launch_gaps
from advisor.analysis.device.places import as_places, ops_around
from advisor.analysis.device.time_by_name import longest_in_words
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.profile import END_NS
from advisor.whatif import Change, Interval, cheaper_launches, saved, together, without, without_waits

_VALUE_BYTES: Final = 1024  # a value is read, a tensor is moved
_LAUNCHES: Final = r"(?i)Launch(?:Cooperative)?Kernel"
# Host time per launch that a compiled step keeps, and a captured one: Llama 1B decodes on a B200 in 48.8 ms, compiled
# in 12.6 ms, with CUDA graphs in 8.1 ms (stas00/ml-engineering).
_COMPILED: Final = 0.3
_CAPTURED: Final = 0.1

measure = of_devices(__name__)
of_launches = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _sync_calls(view: DeviceView) -> str:
    idle = view.once(idle_after_waits).drop_nulls("call")
    ops = idle.select(ns="sync_ns", id=ops_around(view, idle["call"]))
    return longest_in_words(view, ops.join(view.host.select("id", "name"), on="id"))


def _unread(view: DeviceView) -> Change:
    read = view.ops.filter(pl.col("copy_kind") == "DtoH", pl.col("bytes") < _VALUE_BYTES)
    calls = pl.concat([view.host.filter(pl.col("kind") == "sync")["id"], read["launch"]])
    idle_ns = int(view.once(gaps)["sync_ns"].sum())
    return together(without_waits(idle_ns), without(calls=calls, ops=read))


of_launches(
    "syncs_per_step",
    lambda view: view.used_host.filter(pl.col("kind") == "sync").select("id").collect().height / view.steps.height,
).says(
    "Synchronising calls per step, on any thread.",
    "cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and blocking cudaMemcpy calls / steps",
)
of_launches("sync_calls", _sync_calls, unit="text").says(
    "What made the host wait before the device idled, the most idle time first; empty where it did not idle.",
    "idle time after synchronisation, summed by the outermost framework op around the call that waited",
)
of_launches.gain("reading", _unread).says(
    "Step time saved if nothing was read back from the device, and nothing waited for it."
)


def _launched_kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the steps that were launched one by one, with when their launch `returned`."""
    launches = view.host_like(_LAUNCHES, "runtime")
    returned = launches.select(launch="id", returned=END_NS)
    return view.used_ops.filter(pl.col("kind") == "kernel").join(returned, on="launch")


def _blocking(view: DeviceView) -> pl.DataFrame:
    return view.once(_launched_kernels).filter(pl.col("returned") >= END_NS)


measure(
    "blocking_launch_share",
    lambda view: view.once(_blocking).height / max(1, view.once(_launched_kernels).height),
    where=as_places(_launched_kernels, "device_ops", op="op"),
).says(
    "Part of the kernels whose launch returned only after the kernel had ended.",
    "kernels of the steps that ended before the kernel launch that started them returned / those with a recorded "
    "launch; 0 where none was recorded",
    "CUDA_LAUNCH_BLOCKING=1 makes every launch wait (CUDA C++ Programming Guide)",
)
measure.gain("blocking", lambda view: without(calls=view.once(_blocking)["launch"])).says(
    "Step time saved if launches did not wait."
)
measure("launched_kernels_per_step", lambda view: view.once(_launched_kernels).height / view.steps.height).says(
    "Kernels per step that were launched one by one.", "kernels with a recorded kernel launch / steps"
)


def _cheaper(view: DeviceView) -> Interval:
    """A compiled step at least, and a captured one at most."""
    waiting_ns = view.once(launch_gaps).total
    most_ns = waiting_ns + int(view.once(gaps)["queued_ns"].sum())
    change = cheaper_launches((_COMPILED, _CAPTURED), waiting_ns)
    return saved(view, change.at_most(most_ns, in_proportion=True))  # a faster host hastens more than these gaps


of_launches("launch_least_gain_ms", lambda view: view.once(_cheaper).least_ms).says(
    "Step time saved at least, if the step were compiled: three tenths of the host's time per launch."
)
of_launches("capture_gain_ms", lambda view: view.once(_cheaper).most_ms).says(
    "Step time saved if the step were captured in a CUDA graph."
)
