"""What data parallelism adds beside its reductions: copies of gradients out of buckets, synchronised batch norms."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing

_OUT_OF_BUCKET: Final = r"reducer::copy_bucket_to_grad$"
_NORM: Final = r"^aten::batch_norm_gather_stats_with_counts$"
_LEAST_PART: Final = 0.5  # of a copy's time that surely goes


def _copies(view: DeviceView) -> pl.DataFrame:
    """The device ops that the copies' ranges launched, themselves or by the op within."""
    ranges = view.host_like(_OUT_OF_BUCKET).select(op="id")
    inner = view.host.join(ranges, left_on="parent", right_on="op", how="semi").select(op="id")
    ids = pl.concat([ranges, inner])["op"].implode()
    return view.used_ops.filter(pl.col("op").is_in(ids) | pl.col("launch").is_in(ids))


def _no_ops(view: DeviceView) -> Missing | None:
    return None if view.host.select((pl.col("kind") == "op").any()).item() else Missing("no_host_op")


def _copy_ms(view: DeviceView) -> float:
    return extent(view, _copies(view).with_columns(op_name=pl.lit(None, pl.String))).ms


measure = of_devices(__name__, framework="pytorch")
of_launches = of_devices(__name__, framework="pytorch", needs=("device_ops", "device_ops.launch"))
measure(
    "bucket_copies_per_step",
    lambda view: None if view.device is None else view.used_like(_OUT_OF_BUCKET).height / view.steps.height,
).says(
    "Copies per step of gradients out of DistributedDataParallel's buckets.",
    "ranges torch.distributed.ddp.reducer::copy_bucket_to_grad in the used steps / steps",
    "PyTorch, torch/csrc/distributed/c10d/reducer.cpp: none with gradient_as_bucket_view",
)
of_launches("bucket_copy_ms", _copy_ms, where=lambda view: longest(_copies(view))).says(
    "Time per step of the device in copies of gradients out of DistributedDataParallel's buckets.",
    "union of the device ops launched in those ranges / steps",
)
of_launches.faster("bucket_copy", _copies, (0.5, 0.0)).says(
    "keeping gradients inside the buckets", "these copies in half of their time", "without these copies"
)
of_devices(__name__, framework="pytorch", unknown=_no_ops)(
    "synchronised_norms_per_step", lambda view: view.used_like(_NORM).height / view.steps.height
).says(
    "Batch norms per step whose statistics all ranks exchange.",
    "aten::batch_norm_gather_stats_with_counts in the used steps / steps",
    "PyTorch, torch/nn/modules/_functions.py: SyncBatchNorm gathers in each forward and reduces in each backward pass",
)
