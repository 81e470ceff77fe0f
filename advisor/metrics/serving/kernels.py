"""Kernels that inference repeats in every layer: writes to the cache, and norms after an all-reduce."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.kernels import kernels, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.engines import CACHE_WRITES
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches


def _cache_writes(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(matches(CACHE_WRITES))


def _attention_ns(view: DeviceView) -> int:
    return int(view.once(kernels).filter(pl.col("family") == "attention")["dur_ns"].sum())


def _norms_after_all_reduce(view: DeviceView) -> pl.DataFrame:
    """Kernels that normalise and are the next op of their stream after an all-reduce."""
    facts = view.collectives.select(id="device_op", does=pl.col("op").cast(pl.String))
    ops = view.used_ops.select("id", "stream", "start_ns").join(facts, on="id", how="left")
    before = pl.col("does").shift(1).over("stream", order_by="start_ns")
    after = ops.with_columns(before=before).filter(pl.col("before") == "all_reduce")
    return view.once(kernels).filter(
        pl.col("family").eq("normalisation") | matches(r"(?i)rms_?norm"), pl.col("id").is_in(after["id"].implode())
    )


def _unknown(view: DeviceView) -> Missing | None:
    return Missing("nothing_to_compute_from") if view.device is None else None


def _no_attention(view: DeviceView) -> Missing | None:
    return _unknown(view) or (None if view.once(_attention_ns) else Missing("no_attention_kernel"))


measure = of_devices(__name__, needs=("device_ops.name",), unknown=_unknown)
measure_writes = of_devices(__name__, needs=("device_ops.name",), unknown=_no_attention)

measure_writes(
    "cache_write_part",
    lambda view: spans(view.once(_cache_writes)).total / view.once(_attention_ns),
    where=lambda view: longest(view.once(_cache_writes)),
).says(
    "Time of the kernels that write keys and values to the cache, relative to attention.",
    "time of reshape_and_cache, store_kvcache and the like / time of fused attention",
)
measure_writes("cache_write_ms", lambda view: view.per_step_ms(spans(view.once(_cache_writes)).total)).says(
    "Time per step of the kernels that write keys and values to the cache.", "time of those kernels / steps"
)
measure(
    "allreduce_norms_per_step",
    lambda view: view.once(_norms_after_all_reduce).height / view.steps.height,
    where=lambda view: longest(view.once(_norms_after_all_reduce)),
).says(
    "Kernels per step that normalise what an all-reduce has just added up.",
    "kernels of layer or RMS norms that come next on the stream of an all-reduce / steps",
)
measure("allreduce_norms_ms", lambda view: view.per_step_ms(spans(view.once(_norms_after_all_reduce)).total)).says(
    "Time per step of the kernels that normalise what an all-reduce has just added up.", "time of those kernels / steps"
)
