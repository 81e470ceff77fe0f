"""What collectives cost the host that calls for them, those that run on the host, and reductions that are repeated."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device import communication
from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.idle import gaps, launch_gaps, stalls
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, inside, spans, spent_ns
from advisor.analysis.job.job import Job
from advisor.inputs.names.calls import DDP_FORWARD, REDUCTION
from advisor.metrics.metric import lacking, of_devices, of_ranks
from advisor.model.intervals import EMPTY, Floats, Intervals, Ints
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_FLATTEN: Final = r"^aten::flatten_dense_tensors$"
_BROADCAST: Final = r"^(?:c10d::broadcast_|nccl:broadcast)"
_COALESCED: Final = rf"{_FLATTEN}|{_BROADCAST}|^(?:record_param_comms|aten::(?:unflatten_dense_tensors|copy_))$"
"""What a broadcast of several tensors consists of: torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced."""


_MOST_BETWEEN: Final = 1  # ops between calls that joining saves too: a copy, a division; a layer has more


def _flat_ops(view: DeviceView) -> pl.DataFrame:
    broadcasts = view.used_like(rf"{_FLATTEN}|{_BROADCAST}|^aten::unflatten_dense_tensors$", "op", "collective")
    return broadcasts.filter(inside(_buffer_broadcasts(view), broadcasts))


def _call_idle_ms(view: DeviceView) -> float:
    """At most what collectives cost the host; zero where none of their calls was recorded."""
    launching = view.once(communication.device_collectives)["launch"].drop_nulls().unique()
    if view.device is None or not launching.len():
        return 0.0
    calls = view.host.filter(matches(communication.C10D_CALLS) | pl.col("id").is_in(launching.implode()))
    idle = view.once(gaps).select(pl.sum("host_bound_ns") + pl.sum("queued_ns")).item()
    return min(view.used_ms(spans(calls)), view.per_step_ms(idle))


def _buffer_broadcasts(view: DeviceView) -> Intervals:
    """When the host broadcasts buffers at the start of DistributedDataParallel's forward passes."""
    # Ops from the first flatten of each forward pass; whether they are of a broadcast.
    forwards = view.host_like(DDP_FORWARD).sort("start_ns").select("thread", "start_ns", until_ns=END_NS, forward="id")
    ops = view.host.filter(pl.col("kind").is_in(["op", "collective"])) if forwards.height else view.host.clear()
    ops = ops.sort("start_ns").select("thread", "name", "start_ns", end_ns=END_NS, is_flat=matches(_COALESCED))
    ops = ops.join_asof(forwards, on="start_ns", by="thread", check_sortedness=False)
    first = pl.col("start_ns").filter(matches(_FLATTEN)).min().over("forward")
    ops = ops.filter(pl.col("start_ns") <= pl.col("until_ns")).filter(pl.col("start_ns") >= first)
    ops = ops.sort("forward", "start_ns", "is_flat", descending=[False, False, True])
    reach = pl.when("is_flat").then("end_ns").cum_max().forward_fill().over("forward")
    others = (reach.fill_null(0) <= pl.col("start_ns")).cum_sum().over("forward")  # until the first op of the model
    passes = ops.filter(others == 0).group_by("forward")
    broadcasts = passes.agg(pl.min("start_ns"), pl.max("end_ns"), sends=matches(_BROADCAST).any()).filter("sends")
    return Intervals.of(broadcasts["start_ns"], broadcasts["end_ns"])


def _loops(view: DeviceView) -> Intervals:
    """When the host calls for one collective right after another of the same operation."""
    if not view.collectives.height:
        return EMPTY
    facts = view.collectives.select(id="device_op", does=pl.col("op").cast(pl.String))
    ops = view.with_host(view.ops.select("id", "kind", "launch"), "launch", called_ns="start_ns")
    ops = ops.drop_nulls("called_ns").join(facts, on="id", how="left")
    order = ops.sort("called_ns", "id").with_row_index("place").filter(pl.col("kind") == "collective")
    pairs = order.with_columns(pl.col("place", "called_ns", "does").shift(-1).name.prefix("next_")).filter(
        pl.col("does") == pl.col("next_does"),
        pl.col("next_place") - pl.col("place") <= 1 + _MOST_BETWEEN,
        pl.col("next_called_ns") - pl.col("called_ns") <= LAUNCH_GAP_NS,
    )
    return Intervals.of(pairs["called_ns"], pairs["next_called_ns"])


measure = of_devices(__name__)
measure("collective_call_idle_ms", _call_idle_ms).says(
    "Time per step for which the device idles at most because of the host's calls of collectives.",
    "min(union of c10d:: ops, record_param_comms and calls that launch collectives, host-bound and queued idle time)",
)
measure(
    "buffer_broadcast_idle_ms",
    lambda view: view.used_ms(_buffer_broadcasts(view) & (view.once(launch_gaps) | view.once(stalls))),
    where=as_places(_flat_ops, "host_ops"),
).says(
    "Time per step for which the device idles while the host broadcasts the module's buffers.",
    "host-bound idle time in DistributedDataParallel.forward from the first aten::flatten_dense_tensors to the end of"
    " the last flatten, broadcast, unflatten or copy before the first other op, if a broadcast is among them / steps",
    "PyTorch, torch/csrc/distributed/c10d/comm.cpp: broadcast_coalesced",
)
measure("collective_loop_idle_ms", lambda view: view.used_ms(_loops(view) & view.once(launch_gaps))).says(
    "Time per step for which the device idles while the host calls for one collective right after another.",
    "host-bound idle time in gaps of at most {launch_gap}, from the launch of one collective to that of the next of the"
    " same operation, if that is at most {launch_gap} later and launches at most one other device op between / steps",
)


_MPI: Final = matches("^MPI_")  # it exchanges what the host has, too: only a call that copies is about the device
_FEW_BYTES_NS: Final = 1_000_000
_MOST_MORE: Final = 0.1  # calls: a window may begin or end amid the calls of a step


def _idle_ms(view: DeviceView) -> float:
    calls, copies = view.once(communication.host_collectives), view.once(_copies)
    at = copies["called_ns"].drop_nulls().to_numpy()
    is_copying = pl.Series(spent_ns(calls, Intervals.of(at, at + 1)) > 0)
    waiting = spans(calls.filter(~_MPI | is_copying)) | spans(copies)
    return view.used_ms(waiting - view.device_spans("kernel", "collective"))


def _exposed(view: DeviceView) -> Intervals:
    """Host collectives that no computation of the host hides."""
    return communication.host_exposed(view, view.once(communication.host_collectives))


def _shortest(view: DeviceView) -> pl.DataFrame:
    """The shortest call at each place of a step: name, place, dur_ns."""
    place = pl.int_range(pl.len()).over("window", "name", order_by="start_ns")
    calls = view.once(communication.host_collectives).with_columns(place=place)
    return calls.group_by("name", "place").agg(pl.min("dur_ns"))


def _most_ms(job: Job, position: int) -> float | None:
    """What moving the data takes at most, by the rank that waits the least."""
    calls, ms = job.once(_in_calls)
    is_alike = np.abs(calls - calls[position]) <= max(1, _MOST_MORE * calls[position])
    return None if np.isnan(ms[position]) else float(np.nanmin(ms[is_alike]))


def _in_calls(job: Job) -> Floats:
    """How many host collectives each rank's used steps hold, ms per step in them, NaN without a step; (2, ranks)."""
    rows = list[tuple[int, float]]()
    for rank in job.ranks:
        steps = rank.steps.filter("used")["step"]
        calls = rank.calls.filter("on_host", pl.col("step").is_in(steps.implode()))
        times = Intervals.of(calls["start_ns"], calls["end_ns"])
        rows.append((calls.height, times.total / 1e6 / steps.len() if steps.len() else np.nan))
    return np.array(rows).T


def _copies(view: DeviceView) -> pl.DataFrame:
    """Copies between device and host for collectives on the host."""
    ranges = view.once(communication.host_collectives)
    copies = view.used_ops.filter(pl.col("copy_kind").cast(pl.String).is_in(["DtoH", "HtoD"]))
    copies = view.with_host(copies, "launch", thread="thread", called_ns="start_ns")
    if not ranges.height:
        return copies.clear()
    requests = spans(view.host_like("^c10d::")) | spans(ranges.filter(_MPI))
    at = copies["called_ns"].fill_null(-1).to_numpy()
    of_backend = pl.col("thread").is_in(ranges.filter(~_MPI)["thread"].unique().implode())
    return copies.filter(pl.Series(requests.covers(at), dtype=pl.Boolean) | of_backend)


measure(
    "host_collective_ms", lambda view: view.per_step_ms(spans(view.once(communication.host_collectives)).total)
).says("Time per step in which a collective runs on the host (gloo, MPI).", "union of those ranges / steps")
measure("host_collective_idle_ms", _idle_ms, needs=("device_ops",)).says(
    "Time per step in which the device runs no kernel, and a host collective or a copy for it is under way.",
    "(union of those ranges, of MPI's those that copy, and copies - kernels and collectives of the device) inside the "
    "steps / steps",
)
measure(
    "host_collective_exposed_ms",
    lambda view: view.used_ms(view.once(_exposed)),
    where=as_places(communication.host_collectives, "host_ops"),
).says(
    "Time per step in which a collective runs on the host and no framework op on another thread.",
    "(union of those ranges - union of the ops of other threads, c10d's own left out) inside the steps / steps",
)
measure(
    "host_transfer_exposed_ms",
    lambda view: view.per_step_ms(
        min(view.used_ns(view.once(_exposed)), int(view.once(_shortest)["dur_ns"].sum()) * view.steps.height)
    ),
).says(
    "Time per step in which collectives on the host may do more than wait for other ranks, and no op computes.",
    "min(host_collective_exposed_ms, sum over the places of a step of the shortest call there)",
    "no less was needed than the shortest call; what is longer waits, for a late rank or for a CPU",
)
measure(
    "short_host_reductions_per_step",
    lambda view: view.once(_shortest).filter(matches(REDUCTION), pl.col("dur_ns") < _FEW_BYTES_NS).height,
).says(
    "Reductions per step on the host that move few bytes.",
    "places of a step whose shortest all_reduce or reduce_scatter takes less than 1 ms",
    "1-3 GB/s with Gloo: 1 ms is enough for 1 to 3 MB",
)
of_ranks(__name__)("host_transfer_most_ms", _most_ms).says(
    "Time per step in host collectives on the rank that spends the least in them: the others wait for the rest.",
    "min over the ranks of (union of those ranges inside the used steps / steps), of ranks whose calls are as "
    "many, give or take one or a tenth",
    "who comes last does not wait: moving the data takes no longer than that rank's calls, whatever the clocks say",
)


_FORWARD: Final = r"^(?:DistributedDataParallel\.forward|FSDP::root_pre_forward)$"
_REDUCING: Final = r"^autograd::engine::evaluate_function: torch::autograd::AccumulateGrad$|^FSDP::post_backward_reduce"
_ACCUMULATING: Final = r"^torch::autograd::AccumulateGrad$|^FSDP::post_backward_reduce"
_UPDATE: Final = r"^Optimizer\.(?:step|zero_grad)#|^aten::_amp_foreach_non_finite_check_and_unscale_$"
_KEY: Final = ["update", "forward"]


def _repeated(view: DeviceView) -> pl.DataFrame:
    return view.once(_passes).filter("repeated")


def _passes_per_update(view: DeviceView) -> float:
    passes = view.once(_passes)
    if not _repeated(view).height:
        return float(passes.height > 0)
    complete = passes.filter(pl.col("update") >= 0)  # the recording may begin within an update
    of_updates = (complete if complete.height else passes).group_by("update").agg(pl.col("repeated").sum())["repeated"]
    return 1 + float(np.median(of_updates.to_numpy()))


def _passes(view: DeviceView) -> pl.DataFrame:
    """A row per backward pass that reduces: its forward pass, the update it is for, and whether a later one repeats it.

    `start_ns` is when its first reduction is requested, `end_ns` when the next forward pass begins. Those before the
    first recorded update are for an update -1.
    """
    begins = np.sort(view.host_like(_FORWARD)["start_ns"].to_numpy())
    updates = np.sort(view.host_like(_UPDATE)["start_ns"].to_numpy())
    if not len(begins) or not len(updates):
        return pl.DataFrame(schema={**dict.fromkeys([*_KEY, "start_ns", "end_ns"], pl.Int64), "repeated": pl.Boolean})
    requests = _numbered(_within(view, r"^c10d::_?(?:all_?reduce|reduce_scatter)", _REDUCING), begins, updates)
    adds = _numbered(_within(view, r"^aten::(?:_foreach_)?add_$", _ACCUMULATING), begins, updates).select(_KEY).unique()
    passes = requests.group_by(_KEY).agg(pl.min("start_ns"), sizes=pl.col("shapes").cast(pl.String).sort())
    passes = passes.join(adds.with_columns(adds=True), on=_KEY, how="left").sort(_KEY)
    ends = np.append(begins, np.iinfo(np.int64).max)[passes["forward"].to_numpy() + 1]
    first, last = (pl.col("forward") == edge("forward").over("update") for edge in (pl.min, pl.max))
    is_added = pl.col("adds").fill_null(value=False)
    alike = pl.col("sizes").n_unique().over("update") == 1
    return passes.with_columns(end_ns=pl.Series(ends), repeated=(is_added ^ first).all().over("update") & alike & ~last)


def _within(view: DeviceView, names: str, ranges: str) -> pl.DataFrame:
    """Ops of such names in ranges of such names, on any thread."""
    ops = view.host_like(names)
    return ops.filter(inside(spans(view.host_like(ranges)), ops))


def _numbered(ops: pl.DataFrame, begins: Ints, updates: Ints) -> pl.DataFrame:
    """The ops with the numbers of the update and the forward pass before each, without those before the first pass."""
    start = ops["start_ns"].to_numpy()
    numbers = {
        name: np.searchsorted(at, start, side="right") - 1 for name, at in zip(_KEY, (updates, begins), strict=True)
    }
    numbered = ops.with_columns(**{name: pl.Series(of, dtype=pl.Int64) for name, of in numbers.items()})
    return numbered.filter(pl.col("forward") >= 0)


def _repeated_ms(view: DeviceView) -> float:
    """Time per step in which reductions that a later pass repeats run, and nothing computes."""
    repeated = _repeated(view)
    when = Intervals.of(repeated["start_ns"], repeated["end_ns"])
    if view.device is None:
        ranges = view.once(communication.host_collectives).filter(matches(REDUCTION))
        return view.used_ms(communication.host_exposed(view, ranges.filter(inside(when, ranges))))
    calls = view.host.filter(inside(when & spans(view.host_like(_REDUCING)), view.host))["id"]
    ops = view.once(communication.device_collectives)
    return communication.exposed_ms(view, ops.filter(pl.col("launch").is_in(calls.implode())))


of_passes = of_devices(
    __name__, framework="pytorch", unknown=lacking(no_host_op=lambda view: not (view.host["kind"] == "op").any())
)
of_passes("reducing_passes_per_update", _passes_per_update).says(
    "Backward passes per update of the weights of which each reduces the same gradients: above 1, one would do.",
    "between calls of Optimizer.step or zero_grad, or a check of scaled gradients: forward passes of"
    " DistributedDataParallel or fully_shard after which c10d:: reductions of the same number and sizes run in "
    "AccumulateGrad or FSDP::post_backward_reduce, the first without and all others with additions to gradients; the "
    "median over updates; 1 where the first adds too, because these may be gradients of other weights; 0 where no "
    "pass reduces",
    "PyTorch, DistributedDataParallel.no_sync",
)
of_passes("repeated_reduction_ms", lambda view: _repeated_ms(view) if _repeated(view).height else 0.0).says(
    "Time per step in which gradients are reduced that a later backward pass reduces again, and nothing computes.",
    "of reductions in all but the last of the passes that reducing_passes_per_update counts: as "
    "exposed_communication_ms on the device, as host_collective_exposed_ms on the host",
)


_LARGE_BYTES: Final = 1 << 20  # losses and counts that are logged have less
_WEIGHTS: Final = r"^Optimizer\.(?:step|zero_grad)#"


def _forward_reductions(view: DeviceView) -> float:
    """Reductions between an update of weights and the backward pass after it; zero where nothing shows an update."""
    is_large = pl.col("does").is_in(["all_reduce", "reduce_scatter"]) & (pl.col("size") >= _LARGE_BYTES)
    calls = view.host_of(view.once(communication.device_collectives).filter(is_large)["launch"])
    at = calls["start_ns"].to_numpy()
    updates = np.sort(spans(view.host_like(_WEIGHTS)).ends)
    backward = np.sort(view.host_like(BACKWARD)["start_ns"].to_numpy())
    if not len(updates) or not len(backward):
        return 0.0
    number = np.searchsorted(updates, at, side="right")
    since = np.where(number > 0, updates[np.maximum(number - 1, 0)], np.iinfo(np.int64).max)
    follows = np.append(backward, np.iinfo(np.int64).min)[np.searchsorted(backward, since)]
    return int((at < follows).sum()) / view.steps.height


of_devices(__name__, needs=("device_ops",))("forward_reductions_per_step", _forward_reductions).says(
    "Reductions of 1 MiB and more per step that a forward pass needs: of activations, never of gradients.",
    "all_reduce and reduce_scatter kernels of that size that are called between the end of an Optimizer.step or "
    "zero_grad and the first op of a backward pass after it / steps",
    "Megatron-LM (2019): two all-reduces in the forward pass of a layer whose products are split among ranks",
)
