"""What data parallelism adds beside its reductions: copies of gradients out of buckets, synchronised batch norms."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.communication import per_step_ms
from advisor.analysis.device.kernels import longest
from advisor.analysis.device.unknowns import no_ops
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.whatif import WORDS, faster, saved

_OUT_OF_BUCKET: Final = r"reducer::copy_bucket_to_grad$"
_NORM: Final = r"^aten::batch_norm_gather_stats_with_counts$"
_LEAST_PART: Final = 0.5  # of a copy's time that surely goes


def _copies(view: DeviceView) -> pl.DataFrame:
    """The device ops that the copies' ranges launched, themselves or by the op within."""
    ranges = view.host_like(_OUT_OF_BUCKET).select(op="id")
    inner = view.host.join(ranges, left_on="parent", right_on="op", how="semi").select(op="id")
    ids = pl.concat([ranges, inner])["op"].implode()
    return view.used_ops.filter(pl.col("op").is_in(ids) | pl.col("launch").is_in(ids))


def _gains_ms(view: DeviceView) -> tuple[float, float]:
    return saved(view, faster(view.once(_copies), pl.col("dur_ns") * _LEAST_PART, pl.lit(0)))


of_devices(__name__, framework="pytorch")(
    "bucket_copies_per_step",
    "Copies per step of gradients out of DistributedDataParallel's buckets.",
    "ranges torch.distributed.ddp.reducer::copy_bucket_to_grad in the used steps / steps",
    lambda view: None if view.device is None else view.used_like(_OUT_OF_BUCKET).height / view.steps.height,
    source="PyTorch, torch/csrc/distributed/c10d/reducer.cpp: none with gradient_as_bucket_view",
)
measure = of_devices(__name__, framework="pytorch", needs=("device_ops", "device_ops.launch"))
measure(
    "bucket_copy_ms",
    "Time per step of the device in copies of gradients out of DistributedDataParallel's buckets.",
    "union of the device ops launched in those ranges / steps",
    lambda view: per_step_ms(view, spans(view.once(_copies))),
    where=lambda view: longest(view.once(_copies)),
)
measure.saving(
    "bucket_copy",
    "gradients inside the buckets",
    (f"these copies in half of their time{WORDS['faster']}", f"without these copies{WORDS['faster']}"),
    _gains_ms,
)
of_devices(__name__, framework="pytorch", unknown=no_ops)(
    "synchronised_norms_per_step",
    "Batch norms per step whose statistics all ranks exchange.",
    "aten::batch_norm_gather_stats_with_counts in the used steps / steps",
    lambda view: view.used_like(_NORM).height / view.steps.height,
    source="PyTorch, torch/nn/modules/_functions.py: SyncBatchNorm gathers in each forward and reduces in each "
    "backward pass",
)
