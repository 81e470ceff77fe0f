"""Synchronisation: how often the host waits for the device, and which ops make it wait."""

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps, idle_after_waits
from advisor.analysis.device.places import ops_around
from advisor.analysis.device.time_by_name import longest_in_words
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.whatif import Change, together, without, without_waits

_VALUE_BYTES: Final = 1024  # a value is read, a tensor is moved

measure = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _sync_calls(view: DeviceView) -> str:
    idle = view.once(idle_after_waits).drop_nulls("call")
    ops = idle.select(ns="sync_ns", id=ops_around(view, idle["call"]))
    return longest_in_words(view, ops.join(view.host.select("id", "name"), on="id"))


def _unread(view: DeviceView) -> Change:
    read = view.ops.filter(pl.col("copy_kind") == "DtoH", pl.col("bytes") < _VALUE_BYTES)
    calls = pl.concat([view.host.filter(pl.col("kind") == "sync")["id"], read["launch"]])
    idle_ns = int(view.once(gaps)["sync_ns"].sum())
    return together(without_waits(idle_ns), without(calls=calls, ops=read))


measure(
    "syncs_per_step",
    lambda view: view.used_host.filter(pl.col("kind") == "sync").select("id").collect().height / view.steps.height,
).says(
    "Synchronising calls per step, on any thread.",
    "cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and blocking cudaMemcpy calls / steps",
)
measure("sync_calls", _sync_calls, unit="text").says(
    "What made the host wait before the device idled, the most idle time first; empty where it did not idle.",
    "idle time after synchronisation, summed by the outermost framework op around the call that waited",
)
measure.gain("reading", _unread).says(
    "Step time saved if nothing was read back from the device, and nothing waited for it.",
    "replay without waits, synchronising calls, and copies to the host of under 1 KiB; where the replay of the "
    "unchanged steps is off by more than 5 %: idle time after synchronisation",
)
