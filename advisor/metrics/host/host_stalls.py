"""Host work that leaves the device idle on end: ops that run on the CPU, other work, logging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import (
    logging_frames,
    optimizer_work,
    saving_frames,
    thread_waits,
    training_ops,
    waiting_function,
    waits_for_results,
)
from advisor.analysis.device.idle import launch_gaps, stalls
from advisor.analysis.device.places import places
from advisor.analysis.device.time_by_name import in_words, times_by_range
from advisor.analysis.device.unknowns import no_frames, unknown_waits
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import RESULT_WAIT
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.whatif import ELSE, saved, without

_LONG_OP_NS: Final = 50_000  # views and sizes take a few us; what takes longer computes
_REST_ON_DEVICE: Final = (0.25, 0.0)
_REST_OF_STALL: Final = (0.5, 0.0)
_METADATA: Final = (  # computes nothing: views, sizes, memory that is set aside
    r"^aten::(?:\w*view\w*|reshape|as_strided\w*|slice|select|narrow|t|transpose|permute|expand\w*|(?:un)?squeeze_?|detach_?"
    r"|alias|(?:new_)?empty\w*|resize\w*|set_|unbind|split\w*|chunk|(?:un)?flatten\w*|to|_to_copy|lift_fresh|item"
    r"|_local_scalar_dense|result_type|is_\w+|record_stream)$"
)
_LEAST_BYTES: Final = 1024  # a scalar is read, a tensor is moved
_NEEDS: Final = ("device_ops", "device_ops.launch", "host_ops")
_SILENT_SHARE: Final = 0.05  # of the recording, as for idle time of unknown cause


HOST_OP_SHARE = Metric(
    "host_op_share",
    "Part of the step in which the device idles while framework ops compute on the CPU.",
    "idle time in host-bound gaps during aten ops of 50 µs or more that hold neither calls nor other ops, views, "
    "allocations and the loader's aside / step time",
    "TensorFlow's op placement and XProf's host compute, seen from the device's side",
    where=lambda view: places(view, view.once(_cpu_ops)),
)
HOST_OP_NAMES = Metric(
    "host_op_names",
    "Which framework ops compute on the CPU while the device idles, the most idle time first.",
    "idle time during them, summed by name",
    unit="text",
)
HOST_OP_LEAST_GAIN_MS = Metric(
    "host_op_least_gain_ms",
    "Step time saved at least if the ops that compute on the CPU ran on the device.",
    f"replay with a quarter of their time left{ELSE}0",
    "own choice: a device is rarely less than four times as fast, and the launch comes on top",
)
HOST_OP_GAIN_MS = Metric(
    "host_op_gain_ms",
    "Step time that this saves at most.",
    f"replay without them{ELSE}host_op_share x step_mean_ms",
)
BOUNCED_COPIES_PER_STEP = Metric(
    "bounced_copies_per_step",
    "Copies per step that bring to the host as many bytes as another one takes back to the device.",
    "sum over sizes of at least 1 KiB of min(copies DtoH, copies HtoD) in each step / steps",
)
_HOST_OPS: Final = (HOST_OP_SHARE, HOST_OP_NAMES, HOST_OP_LEAST_GAIN_MS, HOST_OP_GAIN_MS)


@measures(*_HOST_OPS, BOUNCED_COPIES_PER_STEP, needs=_NEEDS)
def host_ops(view: DeviceView) -> Values:
    """Framework ops on the CPU that the device waits for."""
    if why := unknown_waits(view):
        return dict.fromkeys(_HOST_OPS, why)
    waiting, ops = view.once(launch_gaps) | view.once(stalls), view.once(_cpu_ops)
    idle = spans(ops) & waiting
    start = ops["start_ns"].to_numpy()
    by_name = (
        ops.with_columns(ns=pl.Series(waiting.within(start, start + ops["dur_ns"].to_numpy())))
        .group_by(name=pl.col("name").cast(pl.String))
        .agg(self_ns=pl.sum("ns"))
        .sort("self_ns", "name", descending=[True, False])
    )
    work = spans(ops) if idle.total else EMPTY
    least, most = saved(view, without(host=work, rest=_REST_ON_DEVICE, bound_ns=idle.total))
    return {
        HOST_OP_SHARE: idle.total / view.total_ns,
        HOST_OP_NAMES: in_words(view, by_name),
        HOST_OP_LEAST_GAIN_MS: least,
        HOST_OP_GAIN_MS: most,
        BOUNCED_COPIES_PER_STEP: _bounced(view),
    }


STALL_CAUSES = Metric(
    "stall_causes",
    "What the host did while the device idled for over {launch_gap} on end, as far as it was recorded.",
    "the three outermost ranges with the most time in host-bound gaps of over {launch_gap}, of those that lie in them "
    "for half of their time or more; otherwise by their own time; and the time in which none was open",
    unit="text",
)
STALL_FIRST_USE_PART = Metric(
    "stall_first_use_part",
    "How much of the idle time of over {launch_gap} on end passes in launches of kernels in their first use.",
    "host-bound gaps of over {launch_gap} while a call that launches is open, or the op right around it outside other "
    "ops / all of them; 0 without such gaps",
    "no launch takes 1 ms but that which loads the kernel's code (lazy loading, CUDA C++ Programming Guide), fills "
    "a library's caches or chooses an algorithm",
)
STALL_LEAST_GAIN_MS = Metric(
    "stall_least_gain_ms",
    "Step time saved if half of the host's work in gaps of over {launch_gap} went elsewhere.",
    f"replay with half of the host's time in those gaps, but for first uses of kernels{ELSE}0",
    "half: own choice",
)
STALL_GAIN_MS = Metric(
    "stall_gain_ms",
    "Step time saved if all of the host's work in gaps of over {launch_gap} went elsewhere.",
    f"replay without the host's time in those gaps, but for first uses of kernels{ELSE}the gaps without those",
)


STALL_UPDATE_PART = Metric(
    "stall_update_part",
    "How much of the idle time of over {launch_gap} on end passes while the host updates parameters.",
    "host-bound gaps of over {launch_gap} inside `Optimizer.step#`, behind its closure's backward pass if there is one"
    " / all of them; 0 without such gaps",
)


@measures(STALL_CAUSES, STALL_FIRST_USE_PART, STALL_UPDATE_PART, STALL_LEAST_GAIN_MS, STALL_GAIN_MS, needs=_NEEDS)
def stalling(view: DeviceView) -> Values:
    """Long gaps in which the host does something else than launching."""
    if why := unknown_waits(view):
        return why
    idle = view.once(stalls)
    ran = times_by_range(view, idle)
    silent = int(ran.filter(pl.col("name").is_null())["self_ns"].sum()) / view.total_ns
    if view.steps.height == 1 and silent >= _SILENT_SHARE:
        return Missing("silent_host", share=silent)
    if why := _awaited(view, idle):
        return why
    again = idle - spans(_launching(view, once=True))
    least, most = saved(view, without(host=again, rest=_REST_OF_STALL, bound_ns=again.total))
    return {
        STALL_CAUSES: in_words(view, ran),
        STALL_FIRST_USE_PART: (spans(_launching(view)) & idle).total / idle.total if idle.total else 0.0,
        STALL_UPDATE_PART: (view.once(optimizer_work) & idle).total / idle.total if idle.total else 0.0,
        STALL_LEAST_GAIN_MS: least,
        STALL_GAIN_MS: most,
    }


def _awaited(view: DeviceView, idle: Union) -> Missing | None:
    """Most of the time, the host waits for a result: what it waits for launches late, and is not the host's work.

    Where no step is marked, a host that waits for another thread or for a socket may have nothing to do.
    """
    waiting = idle & view.once(waits_for_results)
    resting = idle & view.once(thread_waits)
    if not view.has_marks and _is_most(resting, idle):
        return Missing("thread_wait", share=resting.total / view.total_ns, range=waiting_function(view, resting))
    if not _is_most(waiting, idle):
        return None
    longest = view.host_like(RESULT_WAIT, "python", "annotation").sort("dur_ns", descending=True)
    return Missing("result_wait", share=waiting.total / view.total_ns, range=str(longest["name"][0]))


def _is_most(part: Union, total: Union) -> bool:
    return bool(part.total and 2 * part.total >= total.total)


def _launching(view: DeviceView, *, once: bool = False) -> pl.DataFrame:
    """Calls that launched something (a kernel's first use, `once`), and the framework ops right around them."""
    ops = view.ops.select("name", "start_ns", "launch")
    ops = ops.sort("start_ns").unique("name", keep="first") if once else ops
    calls = view.host_of(ops["launch"])
    around = view.host_of(calls["parent"]).filter(pl.col("kind") == "op")
    inner = view.host.lazy().filter(pl.col("kind") == "op").select("parent").collect()
    return pl.concat([calls, around.filter(~pl.col("id").is_in(inner["parent"].implode()))])


LOGGING_SHARE = Metric(
    "logging_share",
    "Part of the step that passes in logging.",
    "time in frames of logging, tqdm, wandb, mlflow, TensorBoard writers and print, with a device only while it "
    "idles / step time",
    where=lambda view: places(view, logging_frames(view)),
)


SAVING_SHARE = Metric(
    "saving_share",
    "Part of the step that passes in saving files.",
    "time in torch.save, safetensors, torch.distributed.checkpoint, numpy.save, json.dump and pickle.dump, with a "
    "device only while it idles / step time",
    where=lambda view: places(view, saving_frames(view)),
)


@measures(SAVING_SHARE)
def saving(view: DeviceView) -> Values:
    """Saving, where Python's frames were recorded."""
    return _in_frames(view, SAVING_SHARE, saving_frames)


@measures(LOGGING_SHARE)
def logging(view: DeviceView) -> Values:
    """Logging, where Python's frames were recorded."""
    return _in_frames(view, LOGGING_SHARE, logging_frames)


def _in_frames(view: DeviceView, metric: Metric, rows: Callable[[DeviceView], pl.DataFrame]) -> Mapping[Metric, Value]:
    """The metric's part of the step in these frames."""
    if why := no_frames(view):
        return {metric: why}
    frames = spans(rows(view))
    return {metric: view.share(frames if view.device is None else frames - view.busy)}


def _bounced(view: DeviceView) -> Value:
    copies = view.used_ops.filter(pl.col("copy_kind").cast(pl.String).is_in(["DtoH", "HtoD"]))
    if copies["bytes"].null_count():
        return Missing("no_copy_sizes")
    there, back = (pl.col("copy_kind").cast(pl.String) == kind for kind in ("DtoH", "HtoD"))
    pairs = (
        copies.filter(pl.col("bytes") >= _LEAST_BYTES)
        .group_by("window", "bytes")
        .agg(n=pl.min_horizontal(there.sum(), back.sum()))
    )
    return float(pairs["n"].sum()) / view.steps.height


def _cpu_ops(view: DeviceView) -> pl.DataFrame:
    """Framework ops of 50 µs or more on the training threads that contain neither calls nor other ops."""
    ops = view.once(training_ops)
    long = ops.filter(pl.col("kind") == "op", pl.col("dur_ns") >= _LONG_OP_NS).filter(matches("^aten::"))
    computing = long.filter(~matches(_METADATA), ~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    return computing.filter(~inside(view.host_spans("input", "compile"), computing))
