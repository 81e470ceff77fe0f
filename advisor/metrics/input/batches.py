"""What a batch of PyTorch's data loader is made of in the main process: samples taken from tensors in memory."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import lasting, requests_at_once
from advisor.analysis.device.view import DeviceView, spans, spent_ns, started_in
from advisor.metrics.metric import of_devices
from advisor.vocabulary.limits import SLOW_CALL_NS

_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

measure = of_devices(__name__)


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


measure(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
).says(
    "Batches that the main process loads in a step of one loader.",
    "requests to its data loaders, without those to short iterators / steps / max(1, batches_at_once)",
)
measure("indexed_samples", _indexed).says(
    "Samples, or tensors of them, that the loader takes one by one from tensors in memory for a batch.",
    "aten::select in the loader's ranges / requests, if there are 8 or more and they typically follow each other "
    "within {slow_call}; else 0",
    "no file is read, nor anything decoded, in {slow_call}: TensorDataset, for example",
)
measure("collating_part", _collating).says(
    "Part of the loading in which the main process copies samples into a batch.",
    "median over the loader's requests of the time in aten::stack and aten::cat; 0 without any",
)
