"""Copies and memsets whose call returns only when they are done: the host cannot launch what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.intervals import EMPTY, Union
from advisor.lanes.gaps import gaps
from advisor.lanes.hostwork import LONG_GAP_NS, device_places, inside, minus
from advisor.lanes.lens import Lane, spans
from advisor.lanes.replay import trusted_replay
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.text import ms

_COPY: Final = r"^(?:cuda|hip|cu)Memcpy(?:[A-Z0-9]\w*)?$"
_MEMSET: Final = r"^(?:cuda|hip|cu)Memset(?:[A-Z0-9]\w*)?$"
_STAGED_BYTES: Final = 65_536  # the driver takes a pageable copy of up to this size over at once, and the call returns
_NAMED: Final = 3
_NEEDS: Final = ("device_ops", "device_ops.launch")
_SOURCE: Final = "CUDA runtime API, API synchronization behavior; nsys analyze, cuda_memcpy_sync and cuda_memset_sync"
_ELSE: Final = "; where the replay of the unchanged steps is off by more than 5 %: "


def _launched_by(lane: Lane, ops: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Those device ops whose launching call is called so and not asynchronous, with its name (`called`)."""
    calls = lane.host.filter(pl.col("id").is_in(ops["launch"].drop_nulls().implode()))
    named = calls.filter(pl.col("kind").is_in(["runtime", "sync"])).select(
        launch="id", called=pl.col("name").cast(pl.String)
    )
    is_one = pl.col("called").str.contains(pattern) & ~pl.col("called").str.contains("Async|Batch|Peer")
    return ops.join(named.filter(is_one), on="launch", maintain_order="left")


def _copies(lane: Lane) -> pl.DataFrame:
    """Copies that block the host: not those within the device, nor small ones from pageable memory."""
    way = pl.col("copy_kind").cast(pl.String)
    staged = (way == "HtoD") & (pl.col("source_memory") == "pageable") & (pl.col("bytes") <= _STAGED_BYTES)
    copies = lane.used_ops.filter(pl.col("kind") == "memcpy", (way != "DtoD").fill_null(value=True))
    return _launched_by(lane, copies.filter(~staged.fill_null(value=False)), _COPY)


def _memsets(lane: Lane) -> pl.DataFrame:
    """Memsets that block the host: of pinned host memory and of managed memory."""
    blocks = pl.col("target_memory").is_in(["pinned", "managed"]).fill_null(value=False)
    return _launched_by(lane, lane.used_ops.filter(pl.col("kind") == "memset", blocks), _MEMSET)


def _cost(lane: Lane, ops: pl.DataFrame) -> Union:
    """When nothing computes because of these ops: during their calls, while they run, and in short gaps after them."""
    if not ops.height:
        return EMPTY
    calls = spans(_calls(lane, ops))
    late = pl.col("host_bound_ns") + pl.col("sync_ns")
    found = lane.once(gaps).filter(late.is_between(1, LONG_GAP_NS))  # in a longer one the host does something else
    dry = lane.busy.last_end(found["start_ns"].to_numpy())
    after = found.filter(inside(calls, pl.DataFrame({"start_ns": np.maximum(dry - 1, 0)})))
    idle = Union.of(after["start_ns"].to_numpy(), after["end_ns"].to_numpy()) if after.height else EMPTY
    computing = spans(lane.ops.filter(pl.col("kind").is_in(["kernel", "collective"])))
    return minus(calls | spans(ops) | idle, computing)


def _calls(lane: Lane, ops: pl.DataFrame) -> pl.DataFrame:
    return lane.host.filter(pl.col("id").is_in(ops["launch"].unique().implode()))


def _gains(lane: Lane, ops: pl.DataFrame, share: float) -> tuple[float, float]:
    """Step time given back if those calls returned at once; and if, on top, kernels hid what they do."""
    trusted = lane.once(trusted_replay)
    if not ops.height:
        return 0.0, 0.0
    if trusted is None:
        return 0.0, lane.per_step_ms(share * lane.total_ns)
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
        lambda lane: device_places(lane, _copies(lane)),
    ),
    Metric("sync_copy_bytes_per_step", "number", "Bytes that they copy per step.", "sum / steps", needs=_NEEDS),
    Metric("sync_copy_calls", "text", "The calls, the longest copies first.", "copy time per step by call", "", _NEEDS),
    Metric(
        "sync_copy_least_gain_ms",
        "ms",
        "Step time given back if those calls returned at once.",
        f"replay in which they take no time and wait for nothing{_ELSE}0",
        "advisor.lanes.replay",
        _NEEDS,
    ),
    Metric(
        "sync_copy_gain_ms",
        "ms",
        "Step time given back if kernels hid the copies as well.",
        f"the same with copies that take no time{_ELSE}sync_copy_cost_share x step_mean_ms",
        "advisor.lanes.replay",
        _NEEDS,
    ),
)
def synchronous_copies(lane: Lane) -> Mapping[str, Value]:
    """Copies that block the host; zero where there are none."""
    if not lane.total_ns:
        return {}
    found = _copies(lane)
    share = lane.share(_cost(lane, found)) or 0.0
    least, most = _gains(lane, found, share)
    return {
        "sync_copies_per_step": found.height / lane.steps.height,
        "sync_copy_cost_share": share,
        "sync_copy_bytes_per_step": Missing("the copies bear no sizes")
        if found["bytes"].null_count()
        else float(found["bytes"].sum()) / lane.steps.height,
        "sync_copy_calls": _named(lane, found),
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
        lambda lane: device_places(lane, _memsets(lane)),
    ),
    Metric("sync_memset_calls", "text", "The calls, the longest first.", "memset time per step by call", "", _NEEDS),
    Metric(
        "sync_memset_gain_ms",
        "ms",
        "Step time given back if those calls returned at once.",
        f"replay in which they take no time and wait for nothing{_ELSE}sync_memset_cost_share x step_mean_ms",
        "advisor.lanes.replay",
        _NEEDS,
    ),
)
def synchronous_memsets(lane: Lane) -> Mapping[str, Value]:
    """Memsets that block the host; zero where there are none."""
    if not lane.total_ns:
        return {}
    found = _memsets(lane)
    share = lane.share(_cost(lane, found)) or 0.0
    least, most = _gains(lane, found, share)
    return {
        "sync_memsets_per_step": found.height / lane.steps.height,
        "sync_memset_cost_share": share,
        "sync_memset_calls": _named(lane, found),
        "sync_memset_gain_ms": least if lane.once(trusted_replay) else most,
    }


def _named(lane: Lane, found: pl.DataFrame) -> str:
    label = pl.concat_str("called", pl.lit(", "), pl.col("name").cast(pl.String))
    top = found.group_by(label=label).agg(pl.sum("dur_ns")).sort("dur_ns", "label", descending=[True, False])
    return "; ".join(f"{name} ({ms(lane.per_step_ms(ns))})" for name, ns in top.head(_NAMED).rows())
