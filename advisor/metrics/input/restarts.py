"""Worker processes of PyTorch's data loader that each epoch starts anew, and what that costs."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.restarts import Restarts, restarts
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.metrics.old import Metric, Values, measures
from advisor.model.arrays import Ints
from advisor.model.intervals import Union
from advisor.vocabulary.kinds import DRIVER_CALLS

_SOURCE: Final = (
    "the request that ends an epoch takes over {worker_join}, because the processes end in it, the iterator of the "
    "next one draws a seed for its processes (aten::random_, in no other op), and a request to processes follows "
    "without a backward pass in between"
)


def _places(view: DeviceView) -> pl.DataFrame:
    at = np.flatnonzero(view.once(_restarts).waiting.within(view.starts, view.ends))
    return as_places(view.steps[at], "steps")


WORKER_RESTARTS = Metric(
    "worker_restarts",
    "Steps in which an epoch begins with new worker processes of the data loader.",
    "used steps in which the loop waits for the first batch of such processes",
    _SOURCE,
    where=_places,
    unit="count",
)
EPOCH_STEPS = Metric(
    "epoch_steps",
    "Steps from one epoch that begins with new worker processes to the next; 0 where fewer than two do.",
    "median of the distances",
    _SOURCE,
    unit="count",
)
WORKER_RESTART_MS = Metric(
    "worker_restart_ms",
    "Time per step in which the loader's processes end and the next epoch's are started.",
    "the request that ends an epoch, and from the first seed that the next iterator draws to its first request, "
    "outside device work and calls, in the used steps / used steps",
    _SOURCE,
)
FIRST_BATCH_WAIT_MS = Metric(
    "first_batch_wait_ms",
    "What waiting for the first batch of new worker processes adds to the mean step.",
    "sum over the first requests of max(0, wait outside device work and calls - median of the other steps' waits) / "
    "used steps",
    _SOURCE,
)
OUTLIER_RESTART_PART = Metric(
    "outlier_restart_part",
    "Part of what the long steps take longer that new worker processes of the data loader take.",
    "in the steps left out: worker processes end, start or are waited for at first / (steps - median of the used "
    "steps), 1 at most; 0 without any",
    _SOURCE,
)


@measures(WORKER_RESTARTS, EPOCH_STEPS, WORKER_RESTART_MS, FIRST_BATCH_WAIT_MS, OUTLIER_RESTART_PART)
def worker_restarts(view: DeviceView) -> Values:
    """What new processes of each epoch cost; zero where none start."""
    again = view.once(_restarts)
    begins = np.flatnonzero(again.waiting.within(view.starts, view.ends))
    numbers = view.steps["step"].to_numpy()[begins]
    anew = ((again.ending | again.starting) - _busy(view)).within(view.starts, view.ends)
    return {
        WORKER_RESTARTS: len(begins),
        EPOCH_STEPS: int(np.median(np.diff(numbers))) if len(numbers) > 1 else 0,
        WORKER_RESTART_MS: view.per_step_ms(float(anew.sum())),
        FIRST_BATCH_WAIT_MS: view.per_step_ms(float(_extra_wait_ns(view, again.waiting, begins).sum())),
        OUTLIER_RESTART_PART: _outlier_part(view, again),
    }


def _outlier_part(view: DeviceView, again: Restarts) -> float:
    starts, length = (view.outliers[column].to_numpy() for column in ("start_ns", "dur_ns"))
    beyond = (length - np.median(view.ends - view.starts)).clip(0).sum()
    anew = (again.ending | again.starting | again.waiting).within(starts, starts + length).sum()
    return float(min(anew / beyond, 1)) if beyond else 0.0


def _restarts(view: DeviceView) -> Restarts:
    return restarts(view.host)


def _busy(view: DeviceView) -> Union:
    return view.busy | view.host_spans("collective", *DRIVER_CALLS)


def _extra_wait_ns(view: DeviceView, first: Union, begins: Ints) -> Ints:
    """How much longer than in the other steps the loop waits for the first batches, in ns per step that begins."""
    asks = spans(view.host_like(WORKERS_LOADING, "input"))
    usual, waits = ((asks_ - _busy(view)).within(view.starts, view.ends) for asks_ in (asks, first))
    others = np.delete(usual, begins)
    beyond: Ints = (waits[begins] - (int(np.median(others)) if len(others) else 0)).clip(0)
    return beyond
