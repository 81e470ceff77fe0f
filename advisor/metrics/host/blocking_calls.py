"""Copies and memsets whose call returns only when they are done: the host cannot launch what follows."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.links import at_link, unhidden_ns
from advisor.analysis.device.places import device_places
from advisor.analysis.device.time_by_name import longest_in_words
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import Value, of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.vocabulary.idle_causes import HOST_RANGES
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.whatif import Change, between, saved, without

_COPY: Final = r"^(?:cuda|hip|cu)Memcpy(?:[A-Z0-9]\w*)?$"
_MEMSET: Final = r"^(?:cuda|hip|cu)Memset(?:[A-Z0-9]\w*)?$"
_FLAG_BYTES: Final = 64  # what is no larger is read to decide what comes next: the call is there to wait
_STAGED_BYTES: Final = 65_536  # the driver takes a pageable copy of up to this size over at once, and the call returns


def _launched_by(view: DeviceView, ops: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Those device ops whose launching call is called so and not asynchronous, with its name (`called`)."""
    calls = view.host_of(ops["launch"])
    runtime = calls.filter(pl.col("kind").is_in(["runtime", "sync"])).select(
        launch="id", called=pl.col("name").cast(pl.String)
    )
    blocks = pl.col("called").str.contains(pattern) & ~pl.col("called").str.contains("Async|Batch|Peer")
    return ops.join(runtime.filter(blocks), on="launch", maintain_order="left")


def _copies(view: DeviceView) -> pl.DataFrame:
    """Copies that block the host: not flags it reads, those in the device, nor small pageable ones."""
    way = pl.col("copy_kind").cast(pl.String)
    staged = (way == "HtoD") & (pl.col("source_memory") == "pageable") & (pl.col("bytes") <= _STAGED_BYTES)
    flag = (way == "DtoH") & (pl.col("bytes") <= _FLAG_BYTES)
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", (way != "DtoD").fill_null(value=True))
    return _launched_by(view, copies.filter(~(staged | flag).fill_null(value=False)), _COPY)


def _memsets(view: DeviceView) -> pl.DataFrame:
    """Memsets that block the host: of pinned host memory and of managed memory."""
    blocks = pl.col("target_memory").is_in(["pinned", "managed"]).fill_null(value=False)
    return _launched_by(view, view.used_ops.filter(pl.col("kind") == "memset", blocks), _MEMSET)


def _cost(view: DeviceView, ops: pl.DataFrame) -> Intervals:
    """When nothing computes because of these ops: during their calls, while they run, and in short gaps after them."""
    if not ops.height:
        return EMPTY
    calls = spans(view.host_of(ops["launch"]))
    late = pl.col("host_bound_ns") + pl.col("sync_ns")
    short = view.once(gaps).filter(late.is_between(1, LAUNCH_GAP_NS))  # in a longer one the host does something else
    dry = view.busy.last_end(short["start_ns"].to_numpy())
    after = short.filter(inside(calls, pl.DataFrame({"start_ns": np.maximum(dry - 1, 0)})))
    waiting = Intervals.of(after["start_ns"].to_numpy(), after["due_ns"].to_numpy()) if after.height else EMPTY
    idle = waiting - view.host_spans(*HOST_RANGES)  # what has a cause of its own is not theirs
    computing = view.device_spans("kernel", "collective")
    return (calls | spans(ops) | idle) - computing


def _copy_cost(view: DeviceView) -> Intervals:
    return _cost(view, view.once(_copies))


def _memset_cost(view: DeviceView) -> Intervals:
    return _cost(view, view.once(_memsets))


def _returning(view: DeviceView, ops: pl.DataFrame, cost: Intervals, hidden: pl.DataFrame | None = None) -> Change:
    """Those calls return at once, and kernels hide these of the ops; no more is saved than the calls cost."""
    cost_ns = float(cost.within(view.starts, view.ends).sum())
    return without(calls=ops["launch"], ops=hidden, bound_ns=cost_ns).at_most(cost_ns)


def _asynchronous(view: DeviceView) -> Change:
    """They return at once, and kernels hide them as far as there are kernels."""
    copies, cost = view.once(_copies), view.once(_copy_cost)
    change = between(_returning(view, copies, cost), _returning(view, copies, cost, hidden=copies))
    linked = at_link(view, copies)
    rest_ns = 0.0 if isinstance(linked, Missing) else unhidden_ns(view, linked)
    return change.at_most(max(0.0, change.limit_ns - rest_ns))


def _bytes_per_step(view: DeviceView) -> Value:
    sizes = view.once(_copies)["bytes"]
    return Missing("no_copy_sizes") if sizes.null_count() else float(sizes.sum()) / view.steps.height


def _longest_calls(view: DeviceView, ops: pl.DataFrame) -> str:
    name = pl.concat_str("called", pl.lit(", "), pl.col("name").cast(pl.String))
    return longest_in_words(view, ops.select(name=name, ns="dur_ns"), "; ")


measure = of_devices(
    __name__,
    source="CUDA runtime API, API synchronization behavior; nsys analyze, cuda_memcpy_sync and cuda_memset_sync",
    needs=("device_ops", "device_ops.launch"),
)
measure("sync_copies_per_step", lambda view: view.once(_copies).height / view.steps.height).says(
    "Copies between host and device per step whose call returns only when they are done.",
    "copies launched by cudaMemcpy, cuMemcpyHtoD and the like, without those within the device, those of up to 64 B to "
    "the host and those of up to 64 KiB from pageable memory / steps",
)
measure("sync_copy_cost_share", lambda view: view.share(view.once(_copy_cost)), where=device_places(_copies)).says(
    "Part of the step in which nothing computes because of copies that block their thread.",
    "time in those calls, in their copies, and in gaps of up to {launch_gap} after them until the next launch, "
    "without what kernels and collectives cover / step time",
)
measure("sync_copy_bytes_per_step", _bytes_per_step).says(
    "Bytes per step that copies that block their thread move.", "sum / steps"
)
measure("sync_copy_calls", lambda view: _longest_calls(view, view.once(_copies)), unit="text").says(
    "The calls of copies that block their thread, the longest copies first.", "copy time per step by call"
)
measure.saving("sync_copy", lambda view: saved(view, _asynchronous(view))).says(
    "the use of asynchronous calls for copies that block their thread"
)
measure("sync_memsets_per_step", lambda view: view.once(_memsets).height / view.steps.height).says(
    "Memsets per step whose call returns only when they are done.",
    "memsets of pinned or managed memory that cudaMemset, cuMemsetD8 and the like launched / steps",
)
measure("sync_memset_cost_share", lambda view: view.share(view.once(_memset_cost)), where=device_places(_memsets)).says(
    "Part of the step in which nothing computes because of memsets that block their thread.",
    "as sync_copy_cost_share, of those memsets",
)
measure("sync_memset_calls", lambda view: _longest_calls(view, view.once(_memsets)), unit="text").says(
    "The calls of memsets that block their thread, the longest first.", "memset time per step by call"
)
measure.gain("sync_memset", lambda view: _returning(view, view.once(_memsets), view.once(_memset_cost))).says(
    "Step time saved if memsets returned at once."
)
