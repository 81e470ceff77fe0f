"""What changes would give back: the recorded steps replayed with one thing changed."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.several import Metric, Values, measures
from advisor.model.intervals import Intervals
from advisor.whatif import ELSE, is_replayed, replay_error, saved, sooner, without_waits

_SOURCE: Final = (
    "advisor.whatif.replay, after Daydream (USENIX ATC 2020); 5 % as in ByteDance's straggler study (OSDI 2025)"
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
    if view.device is None:
        waiting = (view.host_spans("input") - view.once(executed)).within(view.starts, view.ends)
        return {INPUT_GAIN_MS: view.per_step_ms(int(waiting.sum())), INPUT_COPY_GAIN_MS: 0.0}
    rows, error = view.once(gaps), replay_error(view)
    in_time = sooner(view.host_spans("input"), bound_ns=int(rows["input_ns"].sum()))
    bare_ns = int(_bare_copies(view).within(view.starts, view.ends).sum())
    return {
        REPLAY_ERROR: error,
        INPUT_GAIN_MS: saved(view, in_time).most_ms,
        INPUT_COPY_GAIN_MS: 0.0 if is_replayed(view) else view.per_step_ms(bare_ns),
        SYNC_GAIN_MS: saved(view, without_waits(int(rows["sync_ns"].sum()))).most_ms,
    }


def _bare_copies(view: DeviceView) -> Intervals:
    """When the device copies and runs nothing else."""
    is_copy = pl.col("kind") == "memcpy"
    return spans(view.ops.filter(is_copy)) - spans(view.ops.filter(~is_copy))
