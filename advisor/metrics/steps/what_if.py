"""What changes would give back: the recorded steps replayed with one thing changed."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import executed
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value, of_devices
from advisor.model.intervals import Intervals
from advisor.whatif import is_replayed, replay_error, replayed_steps, saved, sooner, without_waits

_SOURCE: Final = (
    "advisor.whatif.replay, after Daydream (USENIX ATC 2020); 5 % as in ByteDance's straggler study (OSDI 2025)"
)


def _input_ms(view: DeviceView) -> float:
    if view.device is None:
        waiting = (view.host_spans("input") - view.once(executed)).within(view.starts, view.ends)
        return view.per_step_ms(int(waiting.sum()))
    return saved(view, sooner(view.host_spans("input"), bound_ns=int(view.once(gaps)["input_ns"].sum()))).most_ms


def _copies_ms(view: DeviceView) -> float:
    if view.device is None or is_replayed(view):
        return 0.0
    return view.per_step_ms(int(_bare_copies(view).within(view.starts, view.ends).sum()))


def _on_device(value: Callable[[DeviceView], Value]) -> Callable[[DeviceView], Value]:
    return lambda view: None if view.device is None else value(view)


def _bare_copies(view: DeviceView) -> Intervals:
    """When the device copies and runs nothing else."""
    is_copy = pl.col("kind") == "memcpy"
    return spans(view.ops.filter(is_copy)) - spans(view.ops.filter(~is_copy))


measure = of_devices(__name__, source=_SOURCE)
of_launches = of_devices(__name__, source=_SOURCE, needs=("device_ops", "device_ops.launch"))
of_launches("replay_error", _on_device(replay_error), unit="ratio").says(
    "How far the replay of the unchanged steps is from the recorded step time; savings rest on it.",
    "replayed step time / recorded step time - 1",
)
of_launches("replayed_steps", _on_device(replayed_steps)).says(
    "How many of the used steps are replayed for savings.",
    "longest run of consecutive used steps; of a long recording the first of them, with 100,000 calls at most",
)
measure("input_gain_ms", _input_ms).says("Step time saved if batches were always there in time.")
measure("input_copy_gain_ms", _copies_ms).says(
    "Copies of a step that may run beside kernels once batches are there in time, where no replay tells."
)
of_launches.gain("sync", lambda view: without_waits(int(view.once(gaps)["sync_ns"].sum()))).says(
    "Step time saved if no call waited for the device."
)
