"""Synchronisation: how often the host waits for the device, and which ops make it wait."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.idle import gaps, idle_after_waits
from advisor.analysis.device.places import ops_around
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.text import ms
from advisor.whatif import saved, without, without_waits

_NEEDS: Final = ("device_ops", "device_ops.launch")
_MOST_CALLS: Final = 3
_VALUE_BYTES: Final = 1024  # a value is read, a tensor is moved


SYNCS_PER_STEP = Metric(
    "syncs_per_step",
    "Synchronising calls per step, on any thread.",
    "cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and blocking cudaMemcpy calls / steps",
)
SYNC_CALLS = Metric(
    "sync_calls",
    "What made the host wait before the device idled, the most idle time first.",
    "idle time after synchronisation, summed by the outermost framework op around the call that waited",
    unit="text",
)


@measures(SYNCS_PER_STEP, SYNC_CALLS, needs=_NEEDS)
def syncs(view: DeviceView) -> Values:
    """Number of waits, and the ops behind those that left the device idle; an empty text where none did."""
    calls = view.used_host.filter(pl.col("kind") == "sync").select("id").collect()
    idle = view.once(idle_after_waits).drop_nulls("call")
    by_op = idle.with_columns(id=ops_around(view, idle["call"])).join(view.host.select("id", "name"), on="id")
    by_name = by_op.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("sync_ns"))
    top = by_name.sort("sync_ns", "name", descending=[True, False]).head(_MOST_CALLS)
    return {
        SYNCS_PER_STEP: calls.height / view.steps.height,
        SYNC_CALLS: ", ".join(f"{op} ({ms(view.per_step_ms(ns))})" for op, ns in top.rows()),
    }


READING_GAIN_MS = Metric(
    "reading_gain_ms",
    "Step time saved if nothing was read back from the device, and nothing waited for it.",
    "replay without waits, synchronising calls, and copies to the host of under 1 KiB; where the replay of the "
    "unchanged steps is off by more than 5 %: idle time after synchronisation",
    "advisor.whatif.replay",
)


@measures(READING_GAIN_MS, needs=_NEEDS)
def reading(view: DeviceView) -> Values:
    """What the replay gives back without waits and without the small copies that they are for."""
    read = view.ops.filter(pl.col("copy_kind") == "DtoH", pl.col("bytes") < _VALUE_BYTES)
    calls = pl.concat([view.host.filter(pl.col("kind") == "sync")["id"], read["launch"]])
    idle_ns = int(view.once(gaps)["sync_ns"].sum())
    return {READING_GAIN_MS: saved(view, without_waits(idle_ns), without(calls=calls, ops=read)).most_ms}
