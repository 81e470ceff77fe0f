"""Iterators of PyTorch's data loader that bring a few batches each: validation in each step, `next(iter(loader))`."""

from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import batches_of_epochs, lasting, short_requests, waits
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans, started_in
from advisor.metrics.metric import of_devices
from advisor.whatif import Change, sooner

_SEVERAL: Final = 2
_SOURCE: Final = (
    "an iterator begins with a request right after the seed that it draws (aten::empty, random_, item); it ends where "
    "a request takes, or runs, under a tenth of one before, or where the next one begins; with worker processes also "
    "requests, each with a model's ops and no backward pass after it, up to one in which nothing is loaded, and after "
    "which no model runs before the next; short: two or more of fewer "
    "than ten batches, or than four if a backward pass runs before its last request"
)

measure = of_devices(__name__, source=_SOURCE)


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


measure("short_iterators", lambda view: view.once(_used).height, where=places(_asking), unit="count").says(
    "Iterators of few batches that the steps make of their data loaders.", "those that begin in a used step"
)
measure("short_iterator_batches", _median_batches).says(
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
    measure(_name, partial(_part, which=_column), unit="share").says(
        f"How many of the short iterators {_meaning}.", f"those with {_which} / short iterators; 0 without any"
    )
