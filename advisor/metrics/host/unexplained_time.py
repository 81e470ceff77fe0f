"""What the host ran in the time whose cause no rule knows."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import callbacks, running
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.time_by_name import in_words, times_by_name, top_three
from advisor.analysis.device.unknowns import unknown_idle
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import RESULT_WAIT
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.vocabulary.idle_causes import HOST_RANGES

_EXECUTORS: Final = rf"^[A-Z]\w*::|^PjitFunction\(|^run_backward |{RESULT_WAIT}"
"""Of XLA and of autograd: no work that a user can change, nor is a wait for them."""

_WAITS: Final = tuple(kind for kind in HOST_RANGES if kind != "gc")  # parts of a step without a device, too

measure = of_devices(__name__)


def _open(view: DeviceView) -> Intervals:
    if view.device is None:
        known = view.once(running) | view.host_spans("collective", *_WAITS) | spans(view.once(callbacks))
        return Intervals.of(view.starts, view.ends) - known
    if not view.once(unknown_idle):
        return EMPTY
    idle = view.once(gaps)
    return Intervals.of(idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy()) - view.host_spans(*HOST_RANGES)


def _calls(view: DeviceView) -> pl.DataFrame:
    """What a sentence about such a loss can name."""
    return top_three(times_by_name(view, view.once(_open)).filter(~pl.col("name").str.contains(_EXECUTORS)))


measure("open_calls", lambda view: in_words(view, view.once(_calls)), unit="text").says(
    "What the host ran in the time whose cause no rule may know, as far as it was recorded.",
    "the three ranges with the most time of their own, executors of XLA and autograd aside: without a device in the "
    "time outside of framework ops, input, compilation, collectives and callbacks; with one in its idle time, if the "
    "cause of 5 % of the step or more is unknown",
)
measure("open_calls_part", lambda view: int(view.once(_calls)["self_ns"].sum()) / max(1, view.once(_open).total)).says(
    "How much of the time whose cause no rule may know open_calls takes.",
    "time of open_calls / that time; 0 without any",
)
