"""The batches of PyTorch's data loader: short iterators, samples in memory, and processes that an epoch starts anew."""

from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import batches_of_epochs, lasting, requests_at_once, short_requests, waits
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.restarts import Restarts, restarts
from advisor.analysis.device.view import DeviceView, spans, spent_ns, started_in
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import SLOW_CALL_NS
from advisor.whatif import Change, sooner

_SEVERAL: Final = 2

measure = of_devices(__name__)


def _asking(view: DeviceView) -> pl.DataFrame:
    return view.host.join(view.once(short_requests), on="id", how="semi", maintain_order="left")


def _used(view: DeviceView) -> pl.DataFrame:
    """The short iterators that the used steps ask."""
    return _iterators(started_in(view.once(short_requests), view.starts, view.ends))


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.group_by("thread", "iterator").agg(
        pl.col("is_end", "trains", "of_workers").any(), batches=(~pl.col("is_end")).sum()
    )


def _median_batches(view: DeviceView) -> float:
    return _iterators(view.once(short_requests))["batches"].median() or 0.0  # type: ignore[return-value]


def _part(view: DeviceView, which: str) -> float:
    return view.once(_used)[which].mean() or 0.0  # type: ignore[return-value]


def _first_batch_part(view: DeviceView) -> float:
    epochs = batches_of_epochs(view).to_numpy()
    return 1 / max(1.0, float(np.median(epochs))) if len(epochs) >= _SEVERAL else 0.0


def _loaded(view: DeviceView, requests: pl.DataFrame) -> Change:
    """With the batches of these requests there in time."""
    return sooner(spans(requests), bound_ns=int(waits(view, requests).sum()))


measure("short_iterators", lambda view: view.once(_used).height, where=places(_asking), unit="count")
measure("short_iterator_batches", _median_batches)
measure("short_iterator_share", lambda view: int(waits(view, view.once(short_requests)).sum()) / view.total_ns)
measure.gain("short_iterator", lambda view: _loaded(view, view.once(short_requests)))
measure.gain("single_process", lambda view: _loaded(view, view.once(lasting)))
measure("first_batch_part", _first_batch_part)
for _name, _column, _meaning, _which in (
    ("iterators_drained", "is_end", "are asked for batches until they have no more", "a request that brings no batch"),
    ("iterators_of_workers", "of_workers", "get their batches from worker processes", "requests to processes"),
    ("iterators_train", "trains", "are epochs of the training", "a backward pass before their last request"),
):
    measure(_name, partial(_part, which=_column), unit="share")


_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

of_batches = of_devices(__name__)


def _requests(view: DeviceView) -> pl.DataFrame:
    return started_in(view.once(lasting).sort("start_ns"), view.starts, view.ends)


def _collating(view: DeviceView) -> float:
    requests = view.once(_requests)
    copies = spent_ns(requests, spans(view.host_like(_COLLATES, "op"))).to_numpy()
    return float(np.median(copies / np.maximum(1, requests["dur_ns"].to_numpy()))) if requests.height else 0.0


def _indexed(view: DeviceView) -> float:
    requests = view.once(_requests)
    takes = started_in(
        view.used_like(_TAKES, "op").drop("window").sort("start_ns"),
        requests["start_ns"].to_numpy(),
        (requests["start_ns"] + requests["dur_ns"]).to_numpy(),
    )
    apart = takes.select(pl.col("start_ns").diff().over("window"))["start_ns"].drop_nulls()
    samples = takes.height / max(1, requests.height)
    is_quick = samples >= _FEW_SAMPLES and float(np.median(apart.to_numpy())) <= SLOW_CALL_NS
    return samples if is_quick else 0.0


of_batches(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
)
of_batches("indexed_samples", _indexed)
of_batches("collating_part", _collating)


of_restarts = of_devices(__name__)


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


of_restarts(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
)
of_restarts("epoch_steps", _apart, unit="count")
of_restarts("worker_restart_ms", lambda view: view.per_step_ms(_anew_ns(view)))
of_restarts("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view)))
of_restarts("outlier_restart_part", _outlier_part)
