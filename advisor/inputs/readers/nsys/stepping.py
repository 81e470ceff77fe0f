"""Which NVTX ranges are the training steps."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.links import as_steps, containing, profiler_steps, ranges_by_name
from advisor.model.intervals import Union
from advisor.text import percent

_REPEATS: Final = 3
_ENOUGH_SHARE: Final = 0.8  # of the device's work between the first and the last: what a step is made of, is no step
_FEWEST_OPS: Final = 10  # device ops per range: fewer are no training step, unless a CUDA graph is among them
_RANGES: Final = ["annotation", "step"]
WARM_UP: Final = r"(?i)\bwarm[ _-]?(?:ing[ _-]?)?up"
"""Names of ranges for what is done once, before the work that counts."""


class Chosen(NamedTuple):
    """The ranges taken for steps (see `advisor.inputs.links.steps`), and how; empty where the profile tells them."""

    steps: pl.DataFrame
    how: str


def choose(host: pl.DataFrame, device: pl.DataFrame, pattern: str | None) -> Chosen:
    """The steps of one process: those named, else `ProfilerStep#N`, else the ranges that repeat and hold the work.

    The last are the ranges of one thread whose names, digits apart, are alike; at least three of them, inside no other
    range that repeats; which launched ten device ops or more on average, or CUDA graphs, and at least 80 % of what
    kept the device busy between the first of them and the last. Where several kinds do, the one that covers most of the
    device's busy time, and one that is called warm-up only where no other does. A range that is repeated inside a
    step, an attention call say, launches too little of it.

    Args:
        host: The process's host ops, with `id` and `parent`.
        device: Its device ops, with `launch`.
        pattern: Regular expression of the ranges to take.

    Raises:
        UsageError: `pattern` is no regular expression.
    """
    if pattern is not None:
        steps = ranges_by_name(host, pattern)
        return Chosen(steps, "" if steps.height else f"a process has no range called like --step-range {pattern}")
    steps = profiler_steps(host)
    if steps.height:
        return Chosen(steps, "")
    return _repeating(host, device)


def _repeating(host: pl.DataFrame, device: pl.DataFrame) -> Chosen:
    launched = (
        device.select("start_ns", "dur_ns", "graph", row="launch")
        .drop_nulls("row")
        .join(host.select(row="id", call_start="start_ns", call_end=pl.col("start_ns") + pl.col("dur_ns")), on="row")
    )
    best, most, everything = Chosen(profiler_steps(host.clear()), ""), (False, 0), _busy(device)
    for (label,), ranges in _candidates(host).group_by("label", maintain_order=True):
        steps = as_steps(ranges)
        if steps.height < _REPEATS:
            continue
        covered, between, enough = _coverage(steps, launched)
        rank = (re.search(WARM_UP, label) is None, covered)
        if enough and covered and rank > most and covered >= _ENOUGH_SHARE * between:
            how = (
                f'steps are the {steps.height} NVTX ranges "{label}" of one thread, which launched '
                f"{percent(covered / between)} of the device's work between the first and the last, "
                f"{percent(covered / everything)} of all; others: --step-range"
            )
            best, most = Chosen(steps, how), rank
    return best


def _candidates(host: pl.DataFrame) -> pl.DataFrame:
    """Ranges of people's own that repeat on a thread and lie in no other such range, with their `label`."""
    ranges = host.filter(pl.col("kind").is_in(_RANGES) & ~pl.col("nccl").fill_null(value=False))
    label = pl.col("name").cast(pl.String).str.replace_all(r"\d+", "#")
    repeated = ranges.with_columns(label=label).filter(pl.len().over("label", "thread") >= _REPEATS)
    if not repeated.height:
        return repeated
    end = pl.col("start_ns") + pl.col("dur_ns")
    # Ranges of one thread nest: whoever begins before the furthest end so far lies within.
    outer = repeated.sort("thread", "start_ns", "dur_ns", descending=[False, False, True], nulls_last=True).filter(
        (pl.col("start_ns") >= end.cum_max().shift(1).over("thread")).fill_null(value=True)
    )
    several = outer.filter(pl.len().over("label", "thread") >= _REPEATS)
    threads = several.group_by("label", "thread").len().sort("len", "thread", descending=[True, False], nulls_last=True)
    return several.join(threads.unique("label", keep="first"), on=["label", "thread"], how="semi", nulls_equal=True)


def _coverage(steps: pl.DataFrame, launched: pl.DataFrame) -> tuple[int, int, bool]:
    """Busy time of the device from launches inside the ranges, and from all between the first and the last, in ns.

    And whether the ranges launched enough to be steps.
    """
    first = steps["host_start_ns"][0]
    last = int((steps["host_start_ns"] + steps["host_dur_ns"]).to_numpy().max())
    inside = launched.filter(containing(steps, launched["call_start"], launched["call_end"]).is_not_null())
    between = launched.filter((launched["call_start"] >= first) & (launched["call_end"] <= last))
    graphs = inside["graph"].count() >= steps.height
    return _busy(inside), _busy(between), inside.height >= _FEWEST_OPS * steps.height or graphs


def _busy(ops: pl.DataFrame) -> int:
    start = ops["start_ns"].to_numpy()
    return Union.of(start, start + ops["dur_ns"].to_numpy().astype(np.int64)).total
