"""Steps that were left out because they took too long or compiled: what they cost on average, and what made them long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.hostwork import busiest, minus
from advisor.intervals import EMPTY, Ints, Union
from advisor.lens import Lane, spans
from advisor.metrics.registry import Metric, Value, measures
from advisor.text import ms

_SAVING: Final = r"torch/serialization\.py\(\d+\): save|torch\.save|[Cc]heckpoint"
_CAUSES: Final = {
    "compute": "longer kernels",
    "collective": "waiting for other ranks",
    "compile": "compilation",
    "gc": "garbage collection",
    "checkpoint": "saving a checkpoint",
    "allocator": "taking or freeing device memory",
    "input": "waiting for the data loader",
    "unknown": "other host work",
}
_NAMED: Final = 3
_TELLING_SHARE: Final = 0.1  # of the excess: causes below are not named
_SOURCE: Final = "steps are uneven above median + 3 x 1.4826 x MAD of the complete steps, or where compilation ran in them"


def _places(lane: Lane) -> pl.DataFrame:
    return lane.uneven.sort("dur_ns", "start_ns", descending=[True, False]).select(
        "step", "start_ns", "dur_ns", table=pl.lit("steps"), name=pl.format("{} ({})", "name", "left_out")
    )


@measures(
    Metric(
        "outliers_share",
        "share",
        "What the steps left out as uneven add to the mean step.",
        "sum over them of max(0, step - median of the used steps) / complete steps / step_mean_ms",
        _SOURCE,
        where=_places,
    ),
    Metric("outlier_steps", "count", "Steps left out for their length, without compilation in them.", "count", _SOURCE),
    Metric(
        "outlier_excess_ms",
        "ms",
        "What those steps add to the mean step, apart from waiting for input.",
        "sum over them of (step - median - input time beyond the used steps' mean) / complete steps",
        _SOURCE,
        where=_places,
    ),
    Metric(
        "outlier_ratio",
        "ratio",
        "How many times the typical step the longest of them takes.",
        "longest step left out for its length / median of the used steps; 1 where there is none",
        _SOURCE,
    ),
    Metric(
        "outlier_causes",
        "text",
        "What made those steps long, the most time first.",
        "time by cause (as in the breakdown, saving a checkpoint told by name or copies to the host) beyond the used "
        "steps' mean; the host's other work by the ranges that ran",
        _SOURCE,
    ),
    Metric(
        "outlier_input_ms",
        "ms",
        "What waiting for input in those steps adds to the mean step.",
        "sum over them of input time beyond the used steps' mean, at most their excess / complete steps",
        _SOURCE,
    ),
    Metric(
        "compiling_steps",
        "count",
        "Steps in which code was compiled although a step without compilation had come before.",
        "steps with a compilation range after the first complete step without one",
    ),
    Metric(
        "compiling_excess_ms",
        "ms",
        "What those steps add to the mean step.",
        "sum over them of max(0, step - median of the steps without compilation) / complete steps",
        where=_places,
    ),
)
def uneven(lane: Lane) -> Mapping[str, Value]:
    """What uneven steps cost; zero where every complete step is used and none compiles."""
    if not lane.steps.height:
        return {}
    whole = lane.steps.height + lane.uneven.height
    compiled = _compiled(lane, lane.uneven)
    typical = float(np.median(lane.steps["dur_ns"].to_numpy()))
    long = lane.uneven.filter(~compiled)
    excess = (lane.uneven["dur_ns"].to_numpy() - typical).clip(0)
    beyond = _beyond(lane, long)
    beyond_input = np.minimum(beyond["input"], excess[~compiled.to_numpy()])
    return {
        "outliers_share": float(excess.sum()) / whole / (lane.total_ns / lane.steps.height) if lane.total_ns else None,
        "outlier_steps": long.height,
        "outlier_excess_ms": float((excess[~compiled.to_numpy()] - beyond_input).sum()) / whole / 1e6,
        "outlier_ratio": float(long["dur_ns"].max()) / typical if long.height and typical else 1.0,
        "outlier_causes": _in_words(lane, long, beyond),
        "outlier_input_ms": float(beyond_input.sum()) / whole / 1e6,
        **_compiling(lane, whole),
    }


def _compiling(lane: Lane, whole: int) -> dict[str, Value]:
    """Steps that compile after the first that did not; before it, compilation is start-up."""
    steps = pl.concat([lane.steps, lane.uneven]).sort("start_ns")
    compiled = _compiled(lane, steps).to_numpy()
    late = compiled & (np.cumsum(~compiled) > 0)
    length = steps["dur_ns"].to_numpy()
    typical = float(np.median(length[~compiled])) if late.any() else 0.0
    return {
        "compiling_steps": int(late.sum()),
        "compiling_excess_ms": float((length[late] - typical).clip(0).sum()) / whole / 1e6,
    }


def _compiled(lane: Lane, steps: pl.DataFrame) -> pl.Series:
    start = steps["host_start_ns"].to_numpy()
    within = lane.host_spans("compile").within(start, start + steps["host_dur_ns"].to_numpy())
    return pl.Series(within > 0, dtype=pl.Boolean)


def _beyond(lane: Lane, steps: pl.DataFrame) -> dict[str, Ints]:
    """By cause, the time in each of `steps` beyond the mean of the used steps, in ns; the first cause owns an instant."""
    usual, found = dict(_owned(lane, lane.steps)), dict(_owned(lane, steps))
    return {cause: np.maximum(found[cause] - int(usual[cause].mean()), 0) for cause in found}


def _owned(lane: Lane, steps: pl.DataFrame) -> Iterator[tuple[str, Ints]]:
    starts = steps["start_ns"].to_numpy()
    ends = starts + steps["dur_ns"].to_numpy()
    covered, before = EMPTY, np.zeros(len(starts), np.int64)
    for cause, when in _when(lane):
        covered = covered | when
        so_far = covered.within(starts, ends)
        yield cause, so_far - before
        before = so_far
    yield "unknown", ends - starts - before


def _when(lane: Lane) -> Iterator[tuple[str, Union]]:
    """When each cause acts, by priority."""
    kind, name = pl.col("kind"), pl.col("name").cast(pl.String)
    yield "compute", spans(lane.ops.filter(kind == "kernel"))
    yield "collective", spans(lane.ops.filter(kind == "collective")) | lane.host_spans("collective")
    yield "compile", lane.host_spans("compile")
    yield "gc", lane.host_spans("gc")
    saving = spans(lane.host.filter(kind.is_in(["python", "annotation"]), name.str.contains(_SAVING)))
    yield "checkpoint", saving | spans(lane.ops.filter(pl.col("copy_kind") == "DtoH"))
    yield "allocator", lane.host_spans("allocator")
    yield "input", lane.host_spans("input")


def _in_words(lane: Lane, steps: pl.DataFrame, beyond: Mapping[str, Ints]) -> str:
    """`saving a checkpoint (130 ms), ...`: time in all of those steps."""
    sums = sorted(((int(time.sum()), cause) for cause, time in beyond.items()), reverse=True)
    told = [(ns, cause) for ns, cause in sums if ns > _TELLING_SHARE * sum(ns for ns, _ in sums)][:_NAMED]
    return ", ".join(f"{_named(lane, steps, cause)} ({ms(ns / 1e6)})" for ns, cause in told)


def _named(lane: Lane, steps: pl.DataFrame, cause: str) -> str:
    """The cause in words; of other host work, what ran, or that nothing of it was recorded."""
    if cause != "unknown":
        return _CAUSES[cause]
    start = steps["start_ns"].to_numpy()
    rest = Union.of(start, start + steps["dur_ns"].to_numpy())
    for _, when in _when(lane):
        rest = minus(rest, when)
    top = busiest(lane, rest).head(1)["name"].to_list()
    return f"{_CAUSES[cause]}: {top[0]}" if top and top[0] is not None else "nothing that was recorded"
