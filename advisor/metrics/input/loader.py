"""The data loader inside the main process: what of the wait for input more processes would take away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import places
from advisor.analysis.device.steps import DeviceView, spans
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.profile import matches
from advisor.vocabulary import DRIVER_CALLS

_LOADS: Final = r"(?i)load|batch|data|input|next|fetch|feed|iter|read|record|sample|queue"
_FRAME: Final = r"\$(\S+:\d+) (.+)"  # as XPlane names Python's calls
_OWN_PROCESS: Final = "_SingleProcessDataLoaderIter"


def _single(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "input", matches(re.escape(_OWN_PROCESS)))


UNNAMED_INPUT = Metric(
    "unnamed_input",
    "text",
    "What the steps wait for as for input, where nothing in its name says that it loads anything; else empty.",
    "name of the input ranges with the most time in the used steps, if it holds none of "
    "load, batch, data, dataset, input, next, fetch, feed, iter, read, record, sample, queue",
    "JAX has no loader: the reader tells it by its place before the first dispatch of a step",
)
SINGLE_PROCESS_INPUT_SHARE = Metric(
    "single_process_input_share",
    "share",
    "Part of the step in which the main process itself loads the next batch and nothing else goes on.",
    "time of enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ outside device work and calls / step time",
    "the range that PyTorch's DataLoader records when num_workers is 0",
    where=lambda view: places(view, _single(view)),
)

LOADING_MS = Metric(
    "loading_ms",
    "ms",
    "Time that the main process takes to load the batches of a step.",
    "union of enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ in the used steps / used steps",
    "the range that PyTorch's DataLoader records when num_workers is 0",
)
WORKERS_NEEDED = Metric(
    "workers_needed",
    "count",
    "Loader processes that keep up with the rest of the step.",
    "loading_ms / (step time - single_process_input_share * step time), rounded up",
    "a worker loads one batch in loading_ms; the loop asks for one as often as the rest of the step takes",
)


@measures(
    UNNAMED_INPUT,
    SINGLE_PROCESS_INPUT_SHARE,
    LOADING_MS,
    WORKERS_NEEDED,
)
def loader(view: DeviceView) -> Mapping[Metric, Value]:
    """Loading in the main process; zero where worker processes load, or no loader was recorded."""
    if not view.total_ns:
        return {}
    busy = view.busy | view.host_spans("collective", *DRIVER_CALLS)
    single = spans(_single(view))
    wait_ns = int(((busy | single).within(view.starts, view.ends) - busy.within(view.starts, view.ends)).sum())
    load_ns = int(single.within(view.starts, view.ends).sum())
    return {
        UNNAMED_INPUT: _unnamed(view),
        SINGLE_PROCESS_INPUT_SHARE: wait_ns / view.total_ns,
        LOADING_MS: load_ns / 1e6 / view.steps.height,
        WORKERS_NEEDED: -(-load_ns // (view.total_ns - wait_ns)) if wait_ns < view.total_ns else None,
    }


def _unnamed(view: DeviceView) -> str:
    inputs = (
        view.used_host.filter(pl.col("kind") == "input").group_by(pl.col("name").cast(pl.String)).agg(pl.sum("dur_ns"))
    )
    most = inputs.sort("dur_ns", "name", descending=[True, False])["name"].first()
    if not isinstance(most, str) or re.search(_LOADS, most):
        return ""
    frame = re.fullmatch(_FRAME, most)
    return f"{frame[2]} ({frame[1]})" if frame else most
