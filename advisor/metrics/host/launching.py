"""Waits for the device, calls that return only when their copies are done, and what launching many at once saves."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device import communication
from advisor.analysis.device.idle import gaps, idle_after_waits, launch_gaps
from advisor.analysis.device.places import as_places, device_places, ops_around, stretches
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import CAPTURE_BEGINS, GRAPH_LAUNCH
from advisor.metrics.metric import of_devices
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.vocabulary.parts import HOST_RANGES
from advisor.whatif.change import (
    Change,
    Interval,
    between,
    cheaper_launches,
    faster,
    saved,
    together,
    without,
    without_waits,
)

_VALUE_BYTES: Final = 1024  # a value is read, a tensor is moved
_LAUNCHES: Final = r"(?i)Launch(?:Cooperative)?Kernel"
# Host time per launch that a compiled step keeps, and a captured one: Llama 1B decodes on a B200 in 48.8 ms, compiled
# in 12.6 ms, with CUDA graphs in 8.1 ms (stas00/ml-engineering).
_COMPILED: Final = 0.3
_CAPTURED: Final = 0.1
_OF_A_LAUNCH_NS: Final = 20_000  # 5 to 20 us of host time per launch (HolisticTraceAnalysis, launch statistics)

measure = of_devices(__name__)
of_launches = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _sync_calls(view: DeviceView) -> Entries:
    idle = view.once(idle_after_waits).drop_nulls("call")
    ops = idle.select(id=ops_around(view, idle["call"]), ns="sync_ns").join(view.host.select("id", "name"), on="id")
    return view.largest(ops.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("ns")).rows())


def _unread(view: DeviceView) -> Change:
    read = view.ops.filter(pl.col("copy_kind") == "DtoH", pl.col("bytes") < _VALUE_BYTES)
    calls = pl.concat([view.host.filter(pl.col("kind") == "sync")["id"], read["launch"]])
    idle_ns = int(view.once(gaps)["sync_ns"].sum())
    return together(without_waits(idle_ns), without(calls=calls, ops=read))


of_launches.per_step("syncs", lambda view: view.used_host.filter(pl.col("kind") == "sync").select("id").collect()).says(
    "Synchronising calls per step, on any thread.",
    "cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize and blocking cudaMemcpy calls / steps",
)
of_launches("sync_calls", _sync_calls).says(
    "What made the host wait before the device idled, the most idle time first; empty where it did not idle.",
    "idle time after synchronisation, summed by the outermost framework op around the call that waited",
)
of_launches.gain("reading", _unread).says(
    "Step time saved if nothing was read back from the device, and nothing waited for it."
)


def _launched_kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the steps that were launched one by one, with when their launch `returned`."""
    launches = view.host_like(_LAUNCHES, "runtime")
    returned = launches.select(launch="id", returned=END_NS)
    return view.used_kernels.join(returned, on="launch")


def _blocking(view: DeviceView) -> pl.DataFrame:
    return view.once(_launched_kernels).filter(pl.col("returned") >= END_NS)


measure(
    "blocking_launch_share",
    lambda view: view.once(_blocking).height / max(1, view.once(_launched_kernels).height),
    where=as_places(_launched_kernels, "device_ops", op="op"),
).says(
    "Part of the kernels whose launch returned only after the kernel had ended.",
    "kernels of the steps that ended before the kernel launch that started them returned / those with a recorded "
    "launch; 0 where none was recorded",
    "CUDA_LAUNCH_BLOCKING=1 makes every launch wait (CUDA C++ Programming Guide)",
)
measure.gain("blocking", lambda view: without(calls=view.once(_blocking)["launch"])).says(
    "Step time saved if launches did not wait."
)
measure.per_step("launched_kernels", _launched_kernels).says(
    "Kernels per step that were launched one by one.", "kernels with a recorded kernel launch / steps"
)


def _launching(view: DeviceView) -> Intervals:
    """Calls that launch or wait, with short pauses between; those that copy pageable memory work for the copy."""
    launches = view.host_of(view.ops.filter(~communication.IS_PAGEABLE.fill_null(value=False))["launch"])
    return (spans(launches) | view.host_spans("sync")).bridged(_OF_A_LAUNCH_NS)


def _cheaper(view: DeviceView) -> Interval:
    """A compiled step at least, and a captured one at most."""
    during = view.once(_launching) if view.process.get("framework") == "cuda" else None
    waiting_ns = (view.once(launch_gaps) if during is None else view.once(launch_gaps) & during).total
    most_ns = waiting_ns + int(view.once(gaps)["queued_ns"].sum())
    change = cheaper_launches((_COMPILED, _CAPTURED), waiting_ns, during)
    return saved(view, change.at_most(most_ns, in_proportion=True))  # a faster host hastens more than these gaps


of_launches.saving("launch", _cheaper).says("compiling the step, or capturing it in a CUDA graph,")


_COPY: Final = r"^(?:cuda|hip|cu)Memcpy(?:[A-Z0-9]\w*)?$"
_MEMSET: Final = r"^(?:cuda|hip|cu)Memset(?:[A-Z0-9]\w*)?$"
_FLAG_BYTES: Final = 64  # what is no larger is read to decide what comes next: the call is there to wait
_READ_PART: Final = 0.3
_STAGED_BYTES: Final = 65_536  # the driver takes a pageable copy of up to this size over at once, and the call returns


def _launched_by(view: DeviceView, ops: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Those device ops whose launching call is called so and not asynchronous, with its name (`called`)."""
    calls = view.host_of(ops["launch"])
    runtime = calls.filter(pl.col("kind").is_in(["runtime", "sync"])).select(launch="id", called="name")
    runtime = runtime.cast({"called": pl.String})
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
    calls = spans(view.host_of(ops["launch"]))
    late = pl.col("host_bound_ns") + pl.col("sync_ns")
    short = view.once(gaps).filter(late.is_between(1, LAUNCH_GAP_NS))  # in a longer one the host does something else
    dry = view.busy.last_end(short["start_ns"].to_numpy())
    after = short.filter(inside(calls, pl.DataFrame({"start_ns": np.maximum(dry - 1, 0)})))
    waiting = Intervals.of(after["start_ns"], after["due_ns"])
    idle = waiting - view.host_spans(*HOST_RANGES)  # what has a cause of its own is not theirs
    computing = view.device_spans("kernel", "collective")
    return (calls | spans(ops) | idle) - computing


def _copy_cost(view: DeviceView) -> Intervals:
    return _cost(view, view.once(_copies))


def _memset_cost(view: DeviceView) -> Intervals:
    return _cost(view, view.once(_memsets))


def _returning(view: DeviceView, ops: pl.DataFrame, cost: Intervals, hidden: pl.DataFrame | None = None) -> Change:
    """Those calls return at once, and kernels hide these of the ops; no more is saved than the calls cost."""
    cost_ns = view.used_ns(cost)
    return without(calls=ops["launch"], ops=hidden, bound_ns=cost_ns).at_most(cost_ns)


def _asynchronous(view: DeviceView) -> Change:
    """They return at once, and kernels hide them as far as there are kernels."""
    copies, cost = view.once(_copies), view.once(_copy_cost)
    change = between(_returning(view, copies, cost), _returning(view, copies, cost, hidden=copies))
    linked = communication.at_link(view, copies)
    rest_ns = 0.0 if isinstance(linked, Missing) else communication.unhidden_ns(view, linked)
    return change.at_most(max(0.0, change.limit_ns - rest_ns))


def _unblocked(view: DeviceView) -> Interval:
    """At least three tenths of what is saved if only the calls return at once, for the host reads results.

    Or what pageable copies lose from pinned memory, at the highest rate that a copy of the recording has. Of work that
    is done once less what pinning takes at most.
    """
    both, copies = saved(view, _asynchronous(view)), view.once(_copies)
    pinned = communication.at_fastest_rate(copies)
    pinned_ms = saved(view, faster(copies, pinned, pinned)).least_ms
    least_ms = max(_READ_PART * both.least_ms, pinned_ms) - view.per_step_ms(communication.pinning_ns(view, copies)[1])
    return Interval(min(both.most_ms, max(0.0, least_ms)), both.most_ms)


def _longest_calls(view: DeviceView, ops: pl.DataFrame) -> Entries:
    name = pl.concat_str(pl.col("name").cast(pl.String), pl.lit(" by "), "called")
    return view.largest(ops.group_by(name).agg(pl.sum("dur_ns")).rows())


of_copies = of_devices(
    __name__,
    source="CUDA runtime API, API synchronization behavior; nsys analyze, cuda_memcpy_sync and cuda_memset_sync",
    needs=("device_ops", "device_ops.launch"),
)
of_copies.per_step("sync_copies", _copies).says(
    "Copies between host and device per step whose call returns only when they are done.",
    "copies launched by cudaMemcpy, cuMemcpyHtoD and the like, without those within the device, those of up to 64 B to "
    "the host and those of up to 64 KiB from pageable memory / steps",
)
of_copies.share("sync_copy_cost_share", _copy_cost, where=device_places(_copies)).says(
    "Part of the step in which nothing computes because of copies that block their thread.",
    "time in those calls, in their copies, and in gaps of up to {launch_gap} after them until the next launch, "
    "without what kernels and collectives cover / step time",
)
of_copies("sync_copy_bytes_per_step", lambda view: communication.bytes_per_step(view, view.once(_copies))).says(
    "Bytes per step that copies that block their thread move.", "sum / steps"
)
of_copies("sync_copy_calls", lambda view: _longest_calls(view, view.once(_copies))).says(
    "The calls of copies that block their thread, the longest copies first.", "copy time per step by call"
)
of_copies.saving("sync_copy", _unblocked).says("the use of asynchronous calls for copies that block their thread")
of_copies.per_step("sync_memsets", _memsets).says(
    "Memsets per step whose call returns only when they are done.",
    "memsets of pinned or managed memory that cudaMemset, cuMemsetD8 and the like launched / steps",
)
of_copies.share("sync_memset_cost_share", _memset_cost, where=device_places(_memsets)).says(
    "Part of the step in which nothing computes because of memsets that block their thread.",
    "as sync_copy_cost_share, of those memsets",
)
of_copies("sync_memset_calls", lambda view: _longest_calls(view, view.once(_memsets))).says(
    "The calls of memsets that block their thread, the longest first.", "memset time per step by call"
)
of_copies.gain("sync_memset", lambda view: _returning(view, view.once(_memsets), view.once(_memset_cost))).says(
    "Step time saved if memsets returned at once."
)


_SEVERAL: Final = 2  # steps in which a program may record all of its graphs; one more later, for an evaluation say
_COMPILED_CODE: Final = "^aten::|^Torch-Compiled Region|CompiledFunction"


def _recaptures(view: DeviceView) -> Intervals:
    """When the device waits for graphs that are recorded, if some follow the second step or an earlier one's launch."""
    begins, launches = (view.host_like(name).sort("start_ns") for name in (CAPTURE_BEGINS, GRAPH_LAUNCH))
    start, launch = begins["start_ns"].to_numpy(), launches["start_ns"].to_numpy()
    repeated = launch[np.diff(np.searchsorted(start, launch), prepend=0) == 0]
    if (start > min([*repeated, *view.starts[_SEVERAL:]], default=np.inf)).sum() < _SEVERAL:
        return EMPTY
    ends = launches.select("start_ns", end=END_NS)
    rows = begins.join_asof(ends, on="start_ns", strategy="forward").drop_nulls("end")
    rows = view.with_host(rows.with_columns(ops_around(view, rows["id"], _COMPILED_CODE)), "around", opens="start_ns")
    return Intervals.of(rows["opens"], rows["end"]) - view.busy


measure.time("recapture", _recaptures, where=stretches(_recaptures, "recording of a graph")).says(
    "in which the device idles while the host records CUDA graphs again",
    "device idle from the begin of the compiled code around each capture to the end of the next launch of a graph, if "
    "two captures follow the second step or a launch of an earlier graph",
)
