"""The batches of PyTorch's data loader: short iterators, samples in memory, and processes that an epoch starts anew."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import batches_of_epochs, lasting, requests_at_once, short_requests, waits
from advisor.analysis.device.loading_stages import own_part
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.steady_steps import Restarts, restarts
from advisor.analysis.device.view import DeviceView, bounds, spans, spent_ns, started_in
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals, Ints
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import SLOW_CALL_NS
from advisor.whatif.change import Change, without

_SEVERAL: Final = 2
_SOURCE: Final = (
    "an iterator begins with a request right after the seed that it draws (aten::empty, random_, item); it ends where "
    "a request takes, or runs, under a tenth of one before, or where the next one begins; with worker processes also "
    "requests, each with a model's ops and no backward pass after it, up to one in which nothing is loaded, and after "
    "which no model runs before the next; short: two or more of fewer "
    "than ten batches, or than four if a backward pass runs before its last request"
)

measure = of_devices(__name__, source=_SOURCE)


def _used(view: DeviceView) -> pl.DataFrame:
    """The short iterators that the used steps ask."""
    return _iterators(started_in(view.once(short_requests), view.starts, view.ends))


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.group_by("thread", "iterator").agg(
        pl.col("is_end", "trains", "of_workers").any(), batches=(~pl.col("is_end")).sum()
    )


def _first_batch_part(view: DeviceView) -> float:
    epochs = batches_of_epochs(view).to_numpy()
    return 1 / max(1.0, float(np.median(epochs))) if len(epochs) >= _SEVERAL else 0.0


def _loaded(view: DeviceView, requests: pl.DataFrame) -> Change:
    """With the batches of these requests there in time."""
    return without(host=spans(requests), bound_ns=int(waits(view, requests).sum()))


measure(
    "short_iterators",
    lambda view: view.once(_used).height,
    where=places(lambda view: view.host.join(view.once(short_requests), on="id", how="semi", maintain_order="left")),
    unit="count",
).says("Iterators of few batches that the steps make of their data loaders.", "those that begin in a used step")
measure(
    "short_iterator_batches",
    lambda view: _iterators(view.once(short_requests)).select(pl.median("batches")).item() or 0.0,
).says(
    "Batches that a short iterator of a data loader brings.",
    "median of the requests to each, without the one at its end; 0 without any",
)
measure("short_iterator_share", lambda view: int(waits(view, view.once(short_requests)).sum()) / view.total_ns).says(
    "Part of the step that loads batches of short iterators, or waits for them, and nothing else goes on.",
    "time of requests to them, and if worker processes load, from the seed on that is drawn before these start up "
    "to the next op, outside device work and calls / step time",
)
measure.gain("short_iterator", lambda view: _loaded(view, view.once(short_requests))).says(
    "Step time saved if batches of short iterators were in memory."
)
measure.gain("single_process", lambda view: _loaded(view, view.once(lasting))).says(
    "Step time saved if the batches that the main process loads for other iterators were there in time."
)
measure("first_batch_part", _first_batch_part).says(
    "Part of the batches that are the first of an iterator, which no process loads ahead.",
    "1 / median of the batches of iterators that are not short, and begin and end in the recording; 0 "
    "with fewer than two",
)
for _name, _column, _meaning, _which in (
    ("iterators_drained", "is_end", "are asked for batches until they have no more", "a request that brings no batch"),
    ("iterators_of_workers", "of_workers", "get their batches from worker processes", "requests to processes"),
    ("iterators_train", "trains", "are epochs of the training", "a backward pass before their last request"),
):
    measure(_name, lambda view, which=_column: view.once(_used)[which].mean() or 0.0, unit="share").says(  # type: ignore[misc]
        f"How many of the short iterators {_meaning}.", f"those with {_which} / short iterators; 0 without any"
    )


_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_MOSTLY: Final = 0.5  # own choice: of the loading
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

of_batches = of_devices(__name__)


def _requests(view: DeviceView) -> pl.DataFrame:
    return started_in(view.once(lasting).sort("start_ns"), view.starts, view.ends)


def _collating(view: DeviceView) -> float:
    requests = view.once(_requests)
    copies = spent_ns(requests, spans(view.host_like(_COLLATES, "op"))).to_numpy()
    return float(np.median(copies / np.maximum(1, requests["dur_ns"].to_numpy()))) if requests.height else 0.0


def _indexed(view: DeviceView) -> float:
    if view.once(own_part) >= _MOSTLY:
        return 0.0
    requests = view.once(_requests)
    takes = started_in(view.used_like(_TAKES, "op").drop("window").sort("start_ns"), *bounds(requests))
    samples = takes.height / max(1, requests.height)
    loading_ns = float(requests.select(pl.median("dur_ns").fill_null(0)).item())
    is_quick = samples >= _FEW_SAMPLES and (1 - view.once(_collating)) * loading_ns <= samples * SLOW_CALL_NS
    return samples if is_quick else 0.0


of_batches(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
).says(
    "Batches that the main process loads in a step of one loader.",
    "requests to its data loaders, without those to short iterators / steps / max(1, batches_at_once)",
)
of_batches("indexed_samples", _indexed).says(
    "Samples, or tensors of them, that the loader takes one by one from tensors in memory for a batch.",
    "aten::select in the loader's ranges / requests, if there are 8 or more, and loading without copies takes up to "
    "{slow_call} for each, and stacks of `advisor record` show no lines of the program for half of it; else 0",
    "no file is read, nor anything decoded, in {slow_call}: TensorDataset, for example",
)
of_batches("collating_part", _collating).says(
    "Part of the loading in which the main process copies samples into a batch.",
    "median over the loader's requests of the time in aten::stack and aten::cat; 0 without any",
)


_ANEW: Final = (
    "the request that ends an epoch takes over {worker_join}, because the processes end in it, the iterator of the "
    "next one draws a seed for its processes (aten::random_, in no other op), and a request to processes follows "
    "without a backward pass in between"
)

of_restarts = of_devices(__name__, source=_ANEW)


def _restarts(view: DeviceView) -> Restarts:
    return restarts(view.host)


def _begins(view: DeviceView) -> Ints:
    """The used steps, by row, in which the loop waits for the first batch of new processes."""
    return np.flatnonzero(view.once(_restarts).waiting.within(view.starts, view.ends))


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
    starts, ends = bounds(view.outliers)
    beyond = (ends - starts - np.median(view.ends - view.starts)).clip(0).sum()
    anew = (again.ending | again.starting | again.waiting).within(starts, ends).sum()
    return float(min(anew / beyond, 1)) if beyond else 0.0


def _start_ns(view: DeviceView) -> int:
    return (view.once(_restarts).first - view.busy).total


of_starts = of_devices(__name__, source=_ANEW, needs_steps=False)
of_starts("worker_start_ms", lambda view: _start_ns(view) / 1e6).says(
    "Time before the first batch in which the data loader starts its worker processes.",
    "from the first seed that the first iterator draws to its first request, outside device work; 0 where the "
    "processes were there before",
)
of_starts("worker_start_share", lambda view: _start_ns(view) / max(1, view.recorded_ns)).says(
    "Part of the recording in which the data loader starts its worker processes.", "worker_start_ms / the recording"
)
of_restarts(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
).says(
    "Steps in which an epoch begins with new worker processes of the data loader.",
    "used steps in which the loop waits for the first batch of such processes",
)
of_restarts("epoch_steps", _apart, unit="count").says(
    "Steps from one epoch that begins with new worker processes to the next; 0 where fewer than two do.",
    "median of the distances",
)
of_restarts("worker_restart_ms", lambda view: view.per_step_ms(_anew_ns(view))).says(
    "Time per step in which the loader's processes end and the next epoch's are started.",
    "the request that ends an epoch, and from the first seed that the next iterator draws to its first request, "
    "outside device work and calls, in the used steps / used steps",
)
of_restarts("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view))).says(
    "What waiting for the first batch of new worker processes adds to the mean step.",
    "sum over the first requests of max(0, wait outside device work and calls - median of the other steps' waits) / "
    "used steps",
)
of_restarts("outlier_restart_part", _outlier_part).says(
    "Part of what the long steps take longer that new worker processes of the data loader take.",
    "in the steps left out: worker processes end, start or are waited for at first / (steps - median of the used "
    "steps), 1 at most; 0 without any",
)
