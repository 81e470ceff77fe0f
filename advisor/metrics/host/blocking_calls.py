"""Copies and memsets whose call returns only when they are done: the host cannot launch what follows."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.text import ms
from advisor.vocabulary.idle_causes import HOST_RANGES
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.whatif import ELSE, Change, between, saved, without

_COPY: Final = r"^(?:cuda|hip|cu)Memcpy(?:[A-Z0-9]\w*)?$"
_MEMSET: Final = r"^(?:cuda|hip|cu)Memset(?:[A-Z0-9]\w*)?$"
_STAGED_BYTES: Final = 65_536  # the driver takes a pageable copy of up to this size over at once, and the call returns
_MOST_CALLS: Final = 3
_NEEDS: Final = ("device_ops", "device_ops.launch")
_SOURCE: Final = "CUDA runtime API, API synchronization behavior; nsys analyze, cuda_memcpy_sync and cuda_memset_sync"


def _launched_by(view: DeviceView, ops: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Those device ops whose launching call is called so and not asynchronous, with its name (`called`)."""
    calls = view.host_of(ops["launch"])
    runtime = calls.filter(pl.col("kind").is_in(["runtime", "sync"])).select(
        launch="id", called=pl.col("name").cast(pl.String)
    )
    blocks = pl.col("called").str.contains(pattern) & ~pl.col("called").str.contains("Async|Batch|Peer")
    return ops.join(runtime.filter(blocks), on="launch", maintain_order="left")


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
    calls = spans(view.host_of(ops["launch"]))
    late = pl.col("host_bound_ns") + pl.col("sync_ns")
    short = view.once(gaps).filter(late.is_between(1, LAUNCH_GAP_NS))  # in a longer one the host does something else
    dry = view.busy.last_end(short["start_ns"].to_numpy())
    after = short.filter(inside(calls, pl.DataFrame({"start_ns": np.maximum(dry - 1, 0)})))
    waiting = Union.of(after["start_ns"].to_numpy(), after["due_ns"].to_numpy()) if after.height else EMPTY
    idle = waiting - view.host_spans(*HOST_RANGES)  # what has a cause of its own is not theirs
    computing = view.device_spans("kernel", "collective")
    return (calls | spans(ops) | idle) - computing


def _returning(ops: pl.DataFrame, cost_ns: float) -> Change:
    """Those calls return at once; no more is saved than they cost."""
    return without(calls=ops["launch"], bound_ns=cost_ns).at_most(cost_ns)


def _hidden(ops: pl.DataFrame, cost_ns: float) -> Change:
    """Those calls return at once, and at most kernels hide what they do as well."""
    return between(_returning(ops, cost_ns), without(calls=ops["launch"], ops=ops, bound_ns=cost_ns).at_most(cost_ns))


SYNC_COPIES_PER_STEP = Metric(
    "sync_copies_per_step",
    "Copies between host and device per step whose call returns only when they are done.",
    "copies launched by cudaMemcpy, cuMemcpyHtoD and the like, without those within the device and those of up to "
    "64 KiB from pageable memory / steps",
    _SOURCE,
)
SYNC_COPY_COST_SHARE = Metric(
    "sync_copy_cost_share",
    "Part of the step in which nothing computes because of copies that block their thread.",
    "time in those calls, in their copies, and in gaps of up to {launch_gap} after them until the next launch, "
    "without what kernels and collectives cover / step time",
    _SOURCE,
    where=lambda view: device_places(view, _copies(view)),
)
SYNC_COPY_BYTES_PER_STEP = Metric(
    "sync_copy_bytes_per_step",
    "Bytes per step that copies that block their thread move.",
    "sum / steps",
)
SYNC_COPY_CALLS = Metric(
    "sync_copy_calls",
    "The calls of copies that block their thread, the longest copies first.",
    "copy time per step by call",
    unit="text",
)
SYNC_COPY_LEAST_GAIN_MS = Metric(
    "sync_copy_least_gain_ms",
    "Step time saved if copies returned at once.",
    f"replay in which they take no time and wait for nothing, up to their cost{ELSE}0",
    "advisor.whatif.replay",
)
SYNC_COPY_GAIN_MS = Metric(
    "sync_copy_gain_ms",
    "Step time saved if copies returned at once and kernels hid them as well.",
    f"the same with copies that take no time, up to their cost{ELSE}sync_copy_cost_share x step_mean_ms",
    "advisor.whatif.replay",
)


@measures(
    SYNC_COPIES_PER_STEP,
    SYNC_COPY_COST_SHARE,
    SYNC_COPY_BYTES_PER_STEP,
    SYNC_COPY_CALLS,
    SYNC_COPY_LEAST_GAIN_MS,
    SYNC_COPY_GAIN_MS,
    needs=_NEEDS,
)
def synchronous_copies(view: DeviceView) -> Values:
    """Copies that block the host; zero where there are none."""
    copies = _copies(view)
    share = view.share(_cost(view, copies)) or 0.0
    least, most = saved(view, _hidden(copies, share * view.total_ns))
    return {
        SYNC_COPIES_PER_STEP: copies.height / view.steps.height,
        SYNC_COPY_COST_SHARE: share,
        SYNC_COPY_BYTES_PER_STEP: Missing("no_copy_sizes")
        if copies["bytes"].null_count()
        else float(copies["bytes"].sum()) / view.steps.height,
        SYNC_COPY_CALLS: _longest_calls(view, copies),
        SYNC_COPY_LEAST_GAIN_MS: least,
        SYNC_COPY_GAIN_MS: most,
    }


SYNC_MEMSETS_PER_STEP = Metric(
    "sync_memsets_per_step",
    "Memsets per step whose call returns only when they are done.",
    "memsets of pinned or managed memory that cudaMemset, cuMemsetD8 and the like launched / steps",
    _SOURCE,
)
SYNC_MEMSET_COST_SHARE = Metric(
    "sync_memset_cost_share",
    "Part of the step in which nothing computes because of memsets that block their thread.",
    "time in those calls, in their memsets, and in gaps of up to {launch_gap} after them until the next launch, "
    "without what kernels and collectives cover / step time",
    _SOURCE,
    where=lambda view: device_places(view, _memsets(view)),
)
SYNC_MEMSET_CALLS = Metric(
    "sync_memset_calls",
    "The calls of memsets that block their thread, the longest first.",
    "memset time per step by call",
    unit="text",
)
SYNC_MEMSET_GAIN_MS = Metric(
    "sync_memset_gain_ms",
    "Step time saved if memsets returned at once.",
    "replay in which they take no time and wait for nothing, up to their cost"
    f"{ELSE}sync_memset_cost_share x step_mean_ms",
    "advisor.whatif.replay",
)


@measures(SYNC_MEMSETS_PER_STEP, SYNC_MEMSET_COST_SHARE, SYNC_MEMSET_CALLS, SYNC_MEMSET_GAIN_MS, needs=_NEEDS)
def synchronous_memsets(view: DeviceView) -> Values:
    """Memsets that block the host; zero where there are none."""
    memsets = _memsets(view)
    share = view.share(_cost(view, memsets)) or 0.0
    return {
        SYNC_MEMSETS_PER_STEP: memsets.height / view.steps.height,
        SYNC_MEMSET_COST_SHARE: share,
        SYNC_MEMSET_CALLS: _longest_calls(view, memsets),
        SYNC_MEMSET_GAIN_MS: saved(view, _returning(memsets, share * view.total_ns)).most_ms,
    }


def _longest_calls(view: DeviceView, ops: pl.DataFrame) -> str:
    label = pl.concat_str("called", pl.lit(", "), pl.col("name").cast(pl.String))
    top = ops.group_by(label=label).agg(pl.sum("dur_ns")).sort("dur_ns", "label", descending=[True, False])
    return "; ".join(f"{name} ({ms(view.per_step_ms(ns))})" for name, ns in top.head(_MOST_CALLS).rows())
