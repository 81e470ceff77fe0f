"""How a serving engine decodes: what waits between and in the steps that write one token per request."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import GRAPH_LAUNCH
from advisor.inputs.names.engines import DECODING
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals

_PAUSE: Final = 10
"""Times the median gap, above which no request was there to decode."""


def decode_steps(view: DeviceView) -> pl.DataFrame:
    """The rows of `steps_by_phase` that decode, in order."""
    return view.once(steps_by_phase).filter(pl.col("phase").is_in(DECODING))


def decode_time(view: DeviceView) -> Intervals:
    """When the device is in a step that decodes, the wait for the next one's first op included."""
    rows = view.once(decode_steps)
    return Intervals.of(rows["first"].to_numpy(), (rows["first"] + rows["period_ns"]).to_numpy())


def gaps_between(view: DeviceView) -> tuple[Ints, Ints]:
    """When the last op of a decode step has ended and the first of the next has not begun: (starts, ends) in ns.

    Only of steps that follow each other: their requests were there all the time. A gap that is ten times as long as the
    median is a pause, in which the server may have had no request.
    """
    rows = view.once(decode_steps).filter(pl.col("next_phase").is_in(DECODING))
    opens, closes = rows["last"].to_numpy(), (rows["first"] + rows["period_ns"]).to_numpy()
    length = closes - opens
    real = length > 0
    usual = real & (length <= _PAUSE * np.median(length[real])) if real.any() else real
    return opens[usual], closes[usual]


def idle_between(view: DeviceView) -> Intervals:
    """When the device idles in those gaps."""
    return Intervals.of(*view.once(gaps_between)) - view.busy


def graph_launches(view: DeviceView) -> Intervals:
    """When a call is open that launches a CUDA graph."""
    return spans(view.host_like(GRAPH_LAUNCH))
