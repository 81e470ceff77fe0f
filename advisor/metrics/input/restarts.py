"""Worker processes of PyTorch's data loader that each epoch starts anew, and what that costs."""

from typing import Final

import numpy as np

from advisor.analysis.device.places import as_places
from advisor.analysis.device.restarts import Restarts, restarts
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals
from advisor.vocabulary.kinds import DRIVER_CALLS

_SOURCE: Final = (
    "the request that ends an epoch takes over {worker_join}, because the processes end in it, the iterator of the "
    "next one draws a seed for its processes (aten::random_, in no other op), and a request to processes follows "
    "without a backward pass in between"
)

measure = of_devices(__name__, source=_SOURCE)


def _restarts(view: DeviceView) -> Restarts:
    return restarts(view.host)


def _begins(view: DeviceView) -> Ints:
    """The used steps, by row, in which the loop waits for the first batch of new processes."""
    begins: Ints = np.flatnonzero(view.once(_restarts).waiting.within(view.starts, view.ends))
    return begins


def _apart(view: DeviceView) -> int:
    numbers = view.steps["step"].to_numpy()[view.once(_begins)]
    return int(np.median(np.diff(numbers))) if len(numbers) > 1 else 0


def _idle_ns(view: DeviceView, when: Intervals) -> Ints:
    """Of each used step the time then, in ns, outside device work and calls."""
    return (when - (view.busy | view.host_spans("collective", *DRIVER_CALLS))).within(view.starts, view.ends)


def _anew_ns(view: DeviceView) -> float:
    again = view.once(_restarts)
    return float(_idle_ns(view, again.ending | again.starting).sum())


def _extra_wait_ns(view: DeviceView) -> float:
    """How much longer than in the other steps the loop waits for the first batches."""
    begins = view.once(_begins)
    usual = _idle_ns(view, spans(view.host_like(WORKERS_LOADING, "input")))
    others = np.delete(usual, begins)
    typical = int(np.median(others)) if len(others) else 0
    return float((_idle_ns(view, view.once(_restarts).waiting)[begins] - typical).clip(0).sum())


def _outlier_part(view: DeviceView) -> float:
    again = view.once(_restarts)
    starts, length = (view.outliers[column].to_numpy() for column in ("start_ns", "dur_ns"))
    beyond = (length - np.median(view.ends - view.starts)).clip(0).sum()
    anew = (again.ending | again.starting | again.waiting).within(starts, starts + length).sum()
    return float(min(anew / beyond, 1)) if beyond else 0.0


measure(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
).says(
    "Steps in which an epoch begins with new worker processes of the data loader.",
    "used steps in which the loop waits for the first batch of such processes",
)
measure("epoch_steps", _apart, unit="count").says(
    "Steps from one epoch that begins with new worker processes to the next; 0 where fewer than two do.",
    "median of the distances",
)
measure("worker_restart_ms", lambda view: view.per_step_ms(_anew_ns(view))).says(
    "Time per step in which the loader's processes end and the next epoch's are started.",
    "the request that ends an epoch, and from the first seed that the next iterator draws to its first request, "
    "outside device work and calls, in the used steps / used steps",
)
measure("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view))).says(
    "What waiting for the first batch of new worker processes adds to the mean step.",
    "sum over the first requests of max(0, wait outside device work and calls - median of the other steps' waits) / "
    "used steps",
)
measure("outlier_restart_part", _outlier_part).says(
    "Part of what the long steps take longer that new worker processes of the data loader take.",
    "in the steps left out: worker processes end, start or are waited for at first / (steps - median of the used "
    "steps), 1 at most; 0 without any",
)
