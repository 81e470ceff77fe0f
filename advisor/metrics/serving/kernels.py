"""Kernels that inference repeats in every layer: writes to the cache, and norms after an all-reduce."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernels import kernels, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.engines import CACHE_WRITES
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches

_NEEDS: Final = ("device_ops.name",)


def cache_writes(view: DeviceView) -> pl.DataFrame:
    """Kernels that write to the cache of keys and values."""
    return view.once(kernels).filter(matches(CACHE_WRITES))


CACHE_WRITE_PART = Metric(
    "cache_write_part",
    "Time of the kernels that write keys and values to the cache, relative to attention.",
    "time of reshape_and_cache, store_kvcache and the like / time of fused attention",
    where=lambda view: longest(view.once(cache_writes)),
)
CACHE_WRITE_MS = Metric(
    "cache_write_ms",
    "Time per step of the kernels that write keys and values to the cache.",
    "time of those kernels / steps",
)


@measures(CACHE_WRITE_PART, CACHE_WRITE_MS, needs=_NEEDS)
def writes(view: DeviceView) -> Values:
    """Writes to the cache; zero where none was recorded, unknown where attention is in no kernel of its own."""
    if view.device is None:
        return {}
    rows = view.once(cache_writes)
    attention_ns = int(view.once(kernels).filter(pl.col("family") == "attention")["dur_ns"].sum())
    if not attention_ns:
        return Missing("no_attention_kernel")
    time = spans(rows).total
    return {CACHE_WRITE_PART: time / attention_ns, CACHE_WRITE_MS: view.per_step_ms(time)}


def norms_after_all_reduce(view: DeviceView) -> pl.DataFrame:
    """Kernels that normalise and are the next op of their stream after an all-reduce."""
    facts = view.collectives.select(id="device_op", does=pl.col("op").cast(pl.String))
    ops = view.used_ops.select("id", "stream", "start_ns").join(facts, on="id", how="left")
    before = pl.col("does").shift(1).over("stream", order_by="start_ns")
    after = ops.with_columns(before=before).filter(pl.col("before") == "all_reduce")
    return view.once(kernels).filter(
        pl.col("family").eq("normalisation") | matches(r"(?i)rms_?norm"), pl.col("id").is_in(after["id"].implode())
    )


ALLREDUCE_NORMS_PER_STEP = Metric(
    "allreduce_norms_per_step",
    "Kernels per step that normalise what an all-reduce has just added up.",
    "kernels of layer or RMS norms that come next on the stream of an all-reduce / steps",
    where=lambda view: longest(view.once(norms_after_all_reduce)),
)
ALLREDUCE_NORMS_MS = Metric(
    "allreduce_norms_ms",
    "Time per step of the kernels that normalise what an all-reduce has just added up.",
    "time of those kernels / steps",
)


@measures(ALLREDUCE_NORMS_PER_STEP, ALLREDUCE_NORMS_MS, needs=_NEEDS)
def norms(view: DeviceView) -> Values:
    """Norms that one kernel could compute with the all-reduce before them."""
    if view.device is None:
        return {}
    rows = view.once(norms_after_all_reduce)
    return {
        ALLREDUCE_NORMS_PER_STEP: rows.height / view.steps.height,
        ALLREDUCE_NORMS_MS: view.per_step_ms(spans(rows).total),
    }
