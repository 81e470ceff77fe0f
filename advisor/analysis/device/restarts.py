"""Where an epoch begins with new worker processes of PyTorch's data loader: `persistent_workers=False`."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.view import spans
from advisor.inputs.names.calls import NODE, WORKERS_LOADING
from advisor.model.intervals import Intervals, Ints, begun
from advisor.model.profile import matches
from advisor.vocabulary.limits import WORKER_JOIN_NS

_DRAW: Final = r"^aten::random_$"
_RANDOM: Final = r"^aten::rand(?:int|perm|n|_like|$)"  # ops of the program that draw within them
_DRAWS: Final = 2  # of an iterator: a seed for its workers and one for its sampler


class Restarts(NamedTuple):
    """When workers end, when the next epoch's start, and when the loop waits for their first batch.

    Each of the three has one interval per epoch that begins, except that an epoch without time in between lacks that.
    `first` is when those of the first recorded epoch start; empty where they were there before.
    """

    ending: Intervals
    starting: Intervals
    waiting: Intervals
    first: Intervals


def restarts(host: pl.DataFrame) -> Restarts:
    """The beginnings of epochs at which the loader starts its processes anew, of one worker's host ops.

    PyTorch's loader shows it in three ways. The request that ends an epoch takes long, because the processes are joined
    in it: where they stay it takes microseconds. The next iterator draws a seed for its processes before it starts
    them, and so between two requests. The next request is to processes again. In between no backward pass runs, as it
    does after a request that brings a batch.
    """
    host = host.select("kind", "name", "start_ns", "dur_ns")
    asks = spans(host.filter(pl.col("kind") == "input"))
    to_workers = spans(host.filter((pl.col("kind") == "input") & matches(WORKERS_LOADING)))
    draws = np.sort(host.filter(matches(_DRAW))["start_ns"].to_numpy())
    draws = draws[~spans(host.filter(matches(_RANDOM))).covers(draws)]
    ends, starts = asks.ends[:-1], asks.starts[1:]
    until, before = np.searchsorted(draws, starts), np.searchsorted(draws, ends)
    joins = (ends - asks.starts[:-1] > WORKER_JOIN_NS) & to_workers.covers(asks.starts[:-1])
    trains = begun(host.filter(matches(NODE))["start_ns"], ends, starts) > 0
    at = np.flatnonzero((until > before) & joins & to_workers.covers(starts) & ~trains)
    seeds: Ints = draws[np.maximum(before, until - _DRAWS)[at]]
    earliest = asks.starts[:1][to_workers.covers(asks.starts[:1])]
    first = draws[draws < earliest.max(initial=0)][-_DRAWS:][:1]
    return Restarts(
        Intervals.of(asks.starts[at], asks.ends[at]),
        Intervals.of(seeds, asks.starts[at + 1]),
        Intervals.of(asks.starts[at + 1], asks.ends[at + 1]),
        Intervals.of(first, earliest[: len(first)]),
    )
