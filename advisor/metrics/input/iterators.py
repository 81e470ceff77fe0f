"""Iterators of PyTorch's data loader that bring a few batches each: validation in each step, `next(iter(loader))`."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import batches_of_epochs, lasting, short_requests, waits
from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans, started_in
from advisor.metrics.old import Metric, Values, measures
from advisor.whatif import saved, sooner

_SEVERAL: Final = 2
_SOURCE: Final = (
    "an iterator begins with a request right after the seed that it draws (aten::empty, random_, item); it ends where "
    "a request takes, or runs, under a tenth of one before, or where the next one begins; with worker processes also "
    "requests, each with a model's ops and no backward pass after it, up to one in which nothing is loaded, and after "
    "which no model runs before the next; short: two or more of fewer "
    "than ten batches, or than four if a backward pass runs before its last request"
)


def _places(view: DeviceView) -> pl.DataFrame:
    return places(view, view.host.join(view.once(short_requests), on="id", how="semi", maintain_order="left"))


SHORT_ITERATORS = Metric(
    "short_iterators",
    "Iterators of few batches that the steps make of their data loaders.",
    "those that begin in a used step",
    _SOURCE,
    where=_places,
    unit="count",
)
SHORT_ITERATOR_BATCHES = Metric(
    "short_iterator_batches",
    "Batches that such an iterator brings.",
    "median of the requests to each, without the one at its end; 0 without any",
    _SOURCE,
)
SHORT_ITERATOR_SHARE = Metric(
    "short_iterator_share",
    "Part of the step that loads batches of short iterators, or waits for them, and nothing else goes on.",
    "time of requests to them, and if worker processes load, from the seed on that is drawn before these start up "
    "to the next op, outside device work and calls / step time",
    _SOURCE,
)
SHORT_ITERATOR_GAIN_MS = Metric(
    "short_iterator_gain_ms",
    "Step time saved if batches of short iterators were in memory.",
    "replay without these requests, or without a replay their time outside device work and calls / used steps",
    _SOURCE,
)
SINGLE_PROCESS_GAIN_MS = Metric(
    "single_process_gain_ms",
    "Step time saved if the batches that the main process loads for other iterators were there in time.",
    "replay without its requests to iterators that are not short, or without a replay their time outside device work "
    "and calls / used steps",
    "workers load ahead of the loop, but not before an iterator begins",
)
FIRST_BATCH_PART = Metric(
    "first_batch_part",
    "Part of the batches that are the first of an iterator, which no process loads ahead.",
    "1 / median of the batches of iterators that are not short, and begin and end in the recording; 0 "
    "with fewer than two",
    _SOURCE,
)
ITERATORS_DRAINED = Metric(
    "iterators_drained",
    "How many of the short iterators are asked for batches until they have no more.",
    "those with a request that brings no batch / short iterators; 0 without any",
    _SOURCE,
    unit="share",
)
ITERATORS_OF_WORKERS = Metric(
    "iterators_of_workers",
    "How many of the short iterators get their batches from worker processes.",
    "those with requests to processes / short iterators; 0 without any",
    _SOURCE,
    unit="share",
)
ITERATORS_TRAIN = Metric(
    "iterators_train",
    "How many of the short iterators are epochs of the training.",
    "those with a backward pass before their last request / short iterators; 0 without any",
    _SOURCE,
    unit="share",
)


@measures(
    SHORT_ITERATORS,
    SHORT_ITERATOR_BATCHES,
    SHORT_ITERATOR_SHARE,
    SHORT_ITERATOR_GAIN_MS,
    SINGLE_PROCESS_GAIN_MS,
    FIRST_BATCH_PART,
    ITERATORS_DRAINED,
    ITERATORS_OF_WORKERS,
    ITERATORS_TRAIN,
)
def short_iterators(view: DeviceView) -> Values:
    """What short iterators load, and others; zero without any."""
    requests, epochs = view.once(short_requests), batches_of_epochs(view).to_numpy()
    iterators = _iterators(started_in(requests, view.starts, view.ends))
    return {
        SHORT_ITERATORS: iterators.height,
        SHORT_ITERATOR_BATCHES: _iterators(requests)["batches"].median() or 0.0,  # type: ignore[dict-item]
        SHORT_ITERATOR_SHARE: int(waits(view, requests).sum()) / view.total_ns,
        SHORT_ITERATOR_GAIN_MS: _gain_ms(view, requests),
        SINGLE_PROCESS_GAIN_MS: _gain_ms(view, view.once(lasting)),
        FIRST_BATCH_PART: 1 / max(1.0, float(np.median(epochs))) if len(epochs) >= _SEVERAL else 0.0,
        ITERATORS_DRAINED: iterators["is_end"].mean() or 0.0,  # type: ignore[dict-item]
        ITERATORS_OF_WORKERS: iterators["of_workers"].mean() or 0.0,  # type: ignore[dict-item]
        ITERATORS_TRAIN: iterators["trains"].mean() or 0.0,  # type: ignore[dict-item]
    }


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.group_by("thread", "iterator").agg(
        pl.col("is_end", "trains", "of_workers").any(), batches=(~pl.col("is_end")).sum()
    )


def _gain_ms(view: DeviceView, requests: pl.DataFrame) -> float:
    return saved(view, sooner(spans(requests), bound_ns=int(waits(view, requests).sum()))).most_ms
