"""What a batch of PyTorch's data loader is made of in the main process: samples taken from tensors in memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import lasting, requests_at_once
from advisor.analysis.device.view import DeviceView, spans, started_in
from advisor.metrics.old import Metric, Values, measures
from advisor.vocabulary.limits import SLOW_CALL_NS

_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

BATCHES_PER_STEP = Metric(
    "batches_per_step",
    "Batches that the main process loads in a step of one loader.",
    "requests to its data loaders, without those to short iterators / steps / max(1, batches_at_once)",
)
INDEXED_SAMPLES = Metric(
    "indexed_samples",
    "Samples, or tensors of them, that the loader takes one by one from tensors in memory for a batch.",
    "aten::select in the loader's ranges / requests, if there are 8 or more and they typically follow each other "
    "within {slow_call}; else 0",
    "no file is read, nor anything decoded, in {slow_call}: TensorDataset, for example",
)
COLLATING_PART = Metric(
    "collating_part",
    "Part of the loading in which the main process copies samples into a batch.",
    "median over the loader's requests of the time in aten::stack and aten::cat; 0 without any",
)


@measures(BATCHES_PER_STEP, INDEXED_SAMPLES, COLLATING_PART)
def batches(view: DeviceView) -> Values:
    """How batches are made; zero where no loader of the main process was recorded."""
    requests = started_in(view.once(lasting).sort("start_ns"), view.starts, view.ends)
    return {
        BATCHES_PER_STEP: requests.height / view.steps.height / requests_at_once(view, requests),
        INDEXED_SAMPLES: _indexed(view, requests),
        COLLATING_PART: _collating(view, requests),
    }


def _collating(view: DeviceView, requests: pl.DataFrame) -> float:
    start, length = (requests[column].to_numpy() for column in ("start_ns", "dur_ns"))
    copies = spans(view.host_like(_COLLATES, "op")).within(start, start + length)
    return float(np.median(copies / np.maximum(1, length))) if len(start) else 0.0


def _indexed(view: DeviceView, requests: pl.DataFrame) -> float:
    takes = started_in(
        view.used_like(_TAKES, "op").drop("window").sort("start_ns"),
        requests["start_ns"].to_numpy(),
        (requests["start_ns"] + requests["dur_ns"]).to_numpy(),
    )
    apart = takes.select(pl.col("start_ns").diff().over("window"))["start_ns"].drop_nulls()
    samples = takes.height / max(1, requests.height)
    is_quick = samples >= _FEW_SAMPLES and float(np.median(apart.to_numpy())) <= SLOW_CALL_NS
    return samples if is_quick else 0.0
