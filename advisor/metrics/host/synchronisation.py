"""Synchronisation: how often the host waits for the device, and which ops make it wait."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps, idle_after_waits
from advisor.analysis.device.places import ops_around
from advisor.analysis.device.replay import trusted_replay
from advisor.analysis.device.time_by_name import longest_in_words
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices

_VALUE_BYTES: Final = 1024  # a value is read, a tensor is moved

measure = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _sync_calls(view: DeviceView) -> str:
    idle = view.once(idle_after_waits).drop_nulls("call")
    ops = idle.select(ns="sync_ns", id=ops_around(view, idle["call"]))
    return longest_in_words(view, ops.join(view.host.select("id", "name"), on="id"))


def _reading_gain_ms(view: DeviceView) -> float:
    trusted = view.once(trusted_replay)
    if trusted is None:
        return view.per_step_ms(int(view.once(gaps)["sync_ns"].sum()))
    read = view.ops.filter(pl.col("copy_kind") == "DtoH", pl.col("bytes") < _VALUE_BYTES)
    waiting = view.host.filter(pl.col("kind") == "sync")["id"]
    calls = pl.concat([waiting, read["launch"].drop_nulls()]).to_numpy()
    ids = read["id"].to_numpy()
    unread = trusted.without_waits().without_calls(calls).with_durations(ids, np.zeros_like(ids))
    return trusted.saved_ms(unread)


measure(
    "syncs_per_step",
    "Synchronising calls per step, on any thread.",
    "cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and blocking cudaMemcpy calls / steps",
    lambda view: view.used_host.filter(pl.col("kind") == "sync").select("id").collect().height / view.steps.height,
)
measure(
    "sync_calls",
    "What made the host wait before the device idled, the most idle time first; empty where it did not idle.",
    "idle time after synchronisation, summed by the outermost framework op around the call that waited",
    _sync_calls,
    unit="text",
)
measure(
    "reading_gain_ms",
    "Step time saved if nothing was read back from the device, and nothing waited for it.",
    "replay without waits, synchronising calls, and copies to the host of under 1 KiB; where the replay of the "
    "unchanged steps is off by more than 5 %: idle time after synchronisation",
    _reading_gain_ms,
    source="advisor.analysis.device.replay",
)
