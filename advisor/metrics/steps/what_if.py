"""What changes would give back: the recorded steps replayed with one thing changed."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.replay import ELSE, replay, trusted_replay
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import Union

_SOURCE: Final = (
    "advisor.analysis.device.replay, after Daydream (USENIX ATC 2020); "
    "5 % as in ByteDance's straggler study (OSDI 2025)"
)
_NEEDS: Final = ("device_ops",)


REPLAY_ERROR = Metric(
    "replay_error",
    "How far the replay of the unchanged steps is from the recorded step time; savings rest on it.",
    "replayed step time / recorded step time - 1",
    _SOURCE,
    (*_NEEDS, "device_ops.launch"),
    unit="ratio",
)
INPUT_GAIN_MS = Metric(
    "input_gain_ms",
    "Step time saved if batches were always there in time.",
    "replay without the host's time in the data loader" + ELSE + "input_exposed_ms",
    _SOURCE,
)
INPUT_COPY_GAIN_MS = Metric(
    "input_copy_gain_ms",
    "Copies of a step that may run beside kernels once batches are there in time, where no replay tells.",
    "copies outside of kernels / used steps; 0 with a replay, which overlaps them itself, and without a device",
    "a step that waits for its batch has no kernels left to copy beside",
)
SYNC_GAIN_MS = Metric(
    "sync_gain_ms",
    "Step time saved if no call waited for the device.",
    "replay without waits" + ELSE + "sync_idle_ms",
    _SOURCE,
    (*_NEEDS, "device_ops.launch"),
)


@measures(REPLAY_ERROR, INPUT_GAIN_MS, INPUT_COPY_GAIN_MS, SYNC_GAIN_MS)
def what_if(view: DeviceView) -> Values:
    """Gains per step of single changes, each from the unchanged recording."""
    simulation, trusted = view.once(replay), view.once(trusted_replay)
    values: dict[Metric, Value] = {REPLAY_ERROR: None if simulation is None else simulation.error}
    if trusted is None:
        return values | _without_replay(view)
    return values | {
        INPUT_GAIN_MS: trusted.saved_ms(trusted.without_host(view.host_spans("input"))),
        INPUT_COPY_GAIN_MS: 0.0,
        SYNC_GAIN_MS: trusted.saved_ms(trusted.without_waits()),
    }


def _without_replay(view: DeviceView) -> dict[Metric, Value]:
    """Bounds from the gaps alone, where no replay can be trusted."""
    if view.device is None:
        waiting = (view.host_spans("input") - view.once(executed)).within(view.starts, view.ends)
        return {INPUT_GAIN_MS: view.per_step_ms(int(waiting.sum())), INPUT_COPY_GAIN_MS: 0.0}
    rows = view.once(gaps)
    return {
        INPUT_GAIN_MS: view.per_step_ms(int(rows["input_ns"].sum())),
        INPUT_COPY_GAIN_MS: view.per_step_ms(int(_bare_copies(view).within(view.starts, view.ends).sum())),
        SYNC_GAIN_MS: view.per_step_ms(int(rows["sync_ns"].sum())),
    }


def _bare_copies(view: DeviceView) -> Union:
    """When the device copies and runs nothing else."""
    is_copy = pl.col("kind") == "memcpy"
    return spans(view.ops.filter(is_copy)) - spans(view.ops.filter(~is_copy))
