"""Copies and memsets whose call returns only when they are done: the host cannot launch what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import device_places, inside, minus
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.replay import trusted_replay
from advisor.analysis.device.steps import DeviceView, spans
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.text import ms
from advisor.vocabulary import LAUNCH_GAP_NS

_COPY: Final = r"^(?:cuda|hip|cu)Memcpy(?:[A-Z0-9]\w*)?$"
_MEMSET: Final = r"^(?:cuda|hip|cu)Memset(?:[A-Z0-9]\w*)?$"
_STAGED_BYTES: Final = 65_536  # the driver takes a pageable copy of up to this size over at once, and the call returns
_NAMED: Final = 3
_NEEDS: Final = ("device_ops", "device_ops.launch")
_SOURCE: Final = "CUDA runtime API, API synchronization behavior; nsys analyze, cuda_memcpy_sync and cuda_memset_sync"
_ELSE: Final = "; where the replay of the unchanged steps is off by more than 5 %: "


def _launched_by(view: DeviceView, ops: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Those device ops whose launching call is called so and not asynchronous, with its name (`called`)."""
    calls = view.host.filter(pl.col("id").is_in(ops["launch"].drop_nulls().implode()))
    named = calls.filter(pl.col("kind").is_in(["runtime", "sync"])).select(
        launch="id", called=pl.col("name").cast(pl.String)
    )
    is_one = pl.col("called").str.contains(pattern) & ~pl.col("called").str.contains("Async|Batch|Peer")
    return ops.join(named.filter(is_one), on="launch", maintain_order="left")


def _copies(view: DeviceView) -> pl.DataFrame:
    """Copies that block the host: not those within the device, nor small ones from pageable memory."""
    way = pl.col("copy_kind").cast(pl.String)
    staged = (way == "HtoD") & (pl.col("source_memory") == "pageable") & (pl.col("bytes") <= _STAGED_BYTES)
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", (way != "DtoD").fill_null(value=True))
    return _launched_by(view, copies.filter(~staged.fill_null(value=False)), _COPY)


def _memsets(view: DeviceView) -> pl.DataFrame:
    """Memsets that block the host: of pinned host memory and of managed memory."""
    blocks = pl.col("target_memory").is_in(["pinned", "managed"]).fill_null(value=False)
    return _launched_by(view, view.used_ops.filter(pl.col("kind") == "memset", blocks), _MEMSET)


def _cost(view: DeviceView, ops: pl.DataFrame) -> Union:
    """When nothing computes because of these ops: during their calls, while they run, and in short gaps after them."""
    if not ops.height:
        return EMPTY
    calls = spans(_calls(view, ops))
    late = pl.col("host_bound_ns") + pl.col("sync_ns")
    found = view.once(gaps).filter(late.is_between(1, LAUNCH_GAP_NS))  # in a longer one the host does something else
    dry = view.busy.last_end(found["start_ns"].to_numpy())
    after = found.filter(inside(calls, pl.DataFrame({"start_ns": np.maximum(dry - 1, 0)})))
    idle = Union.of(after["start_ns"].to_numpy(), after["end_ns"].to_numpy()) if after.height else EMPTY
    computing = spans(view.ops.filter(pl.col("kind").is_in(["kernel", "collective"])))
    return minus(calls | spans(ops) | idle, computing)


def _calls(view: DeviceView, ops: pl.DataFrame) -> pl.DataFrame:
    return view.host.filter(pl.col("id").is_in(ops["launch"].unique().implode()))


def _gains(view: DeviceView, ops: pl.DataFrame, share: float) -> tuple[float, float]:
    """Step time given back if those calls returned at once; and if, on top, kernels hid what they do."""
    trusted = view.once(trusted_replay)
    if not ops.height:
        return 0.0, 0.0
    if trusted is None:
        return 0.0, view.per_step_ms(share * view.total_ns)
    returning = trusted.without_calls(ops["launch"].unique().to_numpy())
    hidden = returning.with_durations(ops["id"].to_numpy(), np.zeros(ops.height, np.int64))
    least = trusted.saved_ms(returning)
    return least, max(least, trusted.saved_ms(hidden))


@measures(
    Metric(
        "sync_copies_per_step",
        "number",
        "Copies between host and device per step whose call returns only when they are done.",
        "copies launched by cudaMemcpy, cuMemcpyHtoD and the like, without those within the device and those of up to "
        "64 KiB from pageable memory / steps",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "sync_copy_cost_share",
        "share",
        "Part of the step in which nothing computes because of them.",
        "time in those calls, in their copies, and idle for up to 1 ms after them, without what kernels and "
        "collectives cover / step time",
        _SOURCE,
        _NEEDS,
        lambda view: device_places(view, _copies(view)),
    ),
    Metric("sync_copy_bytes_per_step", "number", "Bytes that they copy per step.", "sum / steps", needs=_NEEDS),
    Metric("sync_copy_calls", "text", "The calls, the longest copies first.", "copy time per step by call", "", _NEEDS),
    Metric(
        "sync_copy_least_gain_ms",
        "ms",
        "Step time given back if those calls returned at once.",
        f"replay in which they take no time and wait for nothing{_ELSE}0",
        "advisor.analysis.device.replay",
        _NEEDS,
    ),
    Metric(
        "sync_copy_gain_ms",
        "ms",
        "Step time given back if kernels hid the copies as well.",
        f"the same with copies that take no time{_ELSE}sync_copy_cost_share x step_mean_ms",
        "advisor.analysis.device.replay",
        _NEEDS,
    ),
)
def synchronous_copies(view: DeviceView) -> Mapping[str, Value]:
    """Copies that block the host; zero where there are none."""
    if not view.total_ns:
        return {}
    found = _copies(view)
    share = view.share(_cost(view, found)) or 0.0
    least, most = _gains(view, found, share)
    return {
        "sync_copies_per_step": found.height / view.steps.height,
        "sync_copy_cost_share": share,
        "sync_copy_bytes_per_step": Missing("no_copy_sizes")
        if found["bytes"].null_count()
        else float(found["bytes"].sum()) / view.steps.height,
        "sync_copy_calls": _named(view, found),
        "sync_copy_least_gain_ms": least,
        "sync_copy_gain_ms": most,
    }


@measures(
    Metric(
        "sync_memsets_per_step",
        "number",
        "Memsets per step whose call returns only when they are done.",
        "memsets of pinned or managed memory that cudaMemset, cuMemsetD8 and the like launched / steps",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "sync_memset_cost_share",
        "share",
        "Part of the step in which nothing computes because of them.",
        "time in those calls, in their memsets, and idle for up to 1 ms after them, without what kernels and "
        "collectives cover / step time",
        _SOURCE,
        _NEEDS,
        lambda view: device_places(view, _memsets(view)),
    ),
    Metric("sync_memset_calls", "text", "The calls, the longest first.", "memset time per step by call", "", _NEEDS),
    Metric(
        "sync_memset_gain_ms",
        "ms",
        "Step time given back if those calls returned at once.",
        f"replay in which they take no time and wait for nothing{_ELSE}sync_memset_cost_share x step_mean_ms",
        "advisor.analysis.device.replay",
        _NEEDS,
    ),
)
def synchronous_memsets(view: DeviceView) -> Mapping[str, Value]:
    """Memsets that block the host; zero where there are none."""
    if not view.total_ns:
        return {}
    found = _memsets(view)
    share = view.share(_cost(view, found)) or 0.0
    least, most = _gains(view, found, share)
    return {
        "sync_memsets_per_step": found.height / view.steps.height,
        "sync_memset_cost_share": share,
        "sync_memset_calls": _named(view, found),
        "sync_memset_gain_ms": least if view.once(trusted_replay) else most,
    }


def _named(view: DeviceView, found: pl.DataFrame) -> str:
    label = pl.concat_str("called", pl.lit(", "), pl.col("name").cast(pl.String))
    top = found.group_by(label=label).agg(pl.sum("dur_ns")).sort("dur_ns", "label", descending=[True, False])
    return "; ".join(f"{name} ({ms(view.per_step_ms(ns))})" for name, ns in top.head(_NAMED).rows())
