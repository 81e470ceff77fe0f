"""What data parallelism adds beside its reductions: copies of gradients out of buckets, synchronised batch norms."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.several import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.whatif import WORDS, faster, saved

_OUT_OF_BUCKET: Final = r"reducer::copy_bucket_to_grad$"
_NORM: Final = r"^aten::batch_norm_gather_stats_with_counts$"
_LEAST_PART: Final = 0.5  # of a copy's time that surely goes
_NEEDS: Final = ("device_ops", "device_ops.launch")


BUCKET_COPIES_PER_STEP = Metric(
    "bucket_copies_per_step",
    "Copies per step of gradients out of DistributedDataParallel's buckets.",
    "ranges torch.distributed.ddp.reducer::copy_bucket_to_grad in the used steps / steps",
    "PyTorch, torch/csrc/distributed/c10d/reducer.cpp: none with gradient_as_bucket_view",
)
BUCKET_COPY_MS = Metric(
    "bucket_copy_ms",
    "Time per step of the device in copies of gradients out of DistributedDataParallel's buckets.",
    "union of the device ops launched in those ranges / steps",
    needs=_NEEDS,
    where=lambda view: longest(_copies(view)),
)
BUCKET_COPY_LEAST_GAIN_MS = Metric(
    "bucket_copy_least_gain_ms",
    "Step time that gradients inside the buckets save at least.",
    f"these copies in half of their time{WORDS['faster']}",
    needs=_NEEDS,
)
BUCKET_COPY_GAIN_MS = Metric(
    "bucket_copy_gain_ms",
    "Step time that gradients inside the buckets save at most.",
    f"without these copies{WORDS['faster']}",
    needs=_NEEDS,
)
SYNCHRONISED_NORMS_PER_STEP = Metric(
    "synchronised_norms_per_step",
    "Batch norms per step whose statistics all ranks exchange.",
    "aten::batch_norm_gather_stats_with_counts in the used steps / steps",
    "PyTorch, torch/nn/modules/_functions.py: SyncBatchNorm gathers in each forward and reduces in each backward pass",
)


@measures(BUCKET_COPIES_PER_STEP, BUCKET_COPY_MS, BUCKET_COPY_LEAST_GAIN_MS, BUCKET_COPY_GAIN_MS, framework="pytorch")
def bucket_copies(view: DeviceView) -> Values:
    """Copies between buckets and gradients; zero where there are none."""
    if view.device is None:
        return {}
    rows = _copies(view)
    least, most = saved(view, faster(rows, pl.col("dur_ns") * _LEAST_PART, pl.lit(0)))
    return {
        BUCKET_COPIES_PER_STEP: view.used_like(_OUT_OF_BUCKET).height / view.steps.height,
        BUCKET_COPY_MS: extent(view, rows.with_columns(op_name=pl.lit(None, pl.String))).ms,
        BUCKET_COPY_LEAST_GAIN_MS: least,
        BUCKET_COPY_GAIN_MS: most,
    }


@measures(SYNCHRONISED_NORMS_PER_STEP, framework="pytorch")
def synchronised_norms(view: DeviceView) -> Values:
    """Batch norms that wait for all ranks."""
    if not view.host.select((pl.col("kind") == "op").any()).item():
        return Missing("no_host_op")
    return {SYNCHRONISED_NORMS_PER_STEP: view.used_like(_NORM).height / view.steps.height}


def _copies(view: DeviceView) -> pl.DataFrame:
    """The device ops that the copies' ranges launched, themselves or by the op within."""
    ranges = view.host_like(_OUT_OF_BUCKET).select(op="id")
    inner = view.host.join(ranges, left_on="parent", right_on="op", how="semi").select(op="id")
    ids = pl.concat([ranges, inner])["op"].implode()
    return view.used_ops.filter(pl.col("op").is_in(ids) | pl.col("launch").is_in(ids))
