"""What collectives cost the host that calls for them, and for how long the device idles meanwhile."""

from typing import Final

import polars as pl

from advisor.analysis.device.communication import C10D_CALLS, device_collectives, per_step_ms
from advisor.analysis.device.idle import gaps, launch_gaps, stalls
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import DDP_FORWARD
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_FLATTEN: Final = r"^aten::flatten_dense_tensors$"
_BROADCAST: Final = r"^(?:c10d::broadcast_|nccl:broadcast)"
_COALESCED: Final = rf"{_FLATTEN}|{_BROADCAST}|^(?:record_param_comms|aten::(?:unflatten_dense_tensors|copy_))$"
"""What a broadcast of several tensors consists of: torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced."""

_FLAT: Final = rf"{_FLATTEN}|{_BROADCAST}|^aten::unflatten_dense_tensors$"

_MOST_BETWEEN: Final = 1  # ops between calls that joining saves too: a copy, a division; a layer has more


def _flat_ops(view: DeviceView) -> pl.DataFrame:
    broadcasts = view.used_like(_FLAT, "op", "collective")
    return broadcasts.filter(inside(_buffer_broadcasts(view), broadcasts))


def _call_ms(view: DeviceView) -> float:
    """What collectives cost the host; zero where none of their calls was recorded."""
    launching = view.once(device_collectives)["launch"].drop_nulls().unique()
    if view.device is None or not launching.len():
        return 0.0
    calls = view.host.filter(matches(C10D_CALLS) | pl.col("id").is_in(launching.implode()))
    return per_step_ms(view, spans(calls))


def _call_idle_ms(view: DeviceView) -> float:
    if not view.once(_call_ms):
        return 0.0
    idle = view.once(gaps).select(pl.sum("host_bound_ns") + pl.sum("queued_ns")).item()
    return min(view.once(_call_ms), view.per_step_ms(idle))


def _broadcast_idle_ms(view: DeviceView) -> float:
    sends = _buffer_broadcasts(view)
    return per_step_ms(view, (sends & view.once(launch_gaps)) | (sends & view.once(stalls)))


def _buffer_broadcasts(view: DeviceView) -> Intervals:
    """When the host broadcasts buffers at the start of DistributedDataParallel's forward passes."""
    ops = _in_forwards(view).sort("forward", "start_ns", "is_flat", descending=[False, False, True])
    reach = pl.when("is_flat").then("end_ns").cum_max().forward_fill().over("forward")
    others = (reach.fill_null(0) <= pl.col("start_ns")).cum_sum().over("forward")  # until the first op of the model
    passes = ops.filter(others == 0).group_by("forward")
    broadcasts = passes.agg(pl.min("start_ns"), pl.max("end_ns"), sends=matches(_BROADCAST).any()).filter("sends")
    return Intervals.of(broadcasts["start_ns"].to_numpy(), broadcasts["end_ns"].to_numpy())


def _in_forwards(view: DeviceView) -> pl.DataFrame:
    """Ops from the first flatten of each forward pass: name, start_ns, end_ns, is_flat (of a broadcast), `forward`."""
    end = END_NS
    forwards = view.host_like(DDP_FORWARD).sort("start_ns").select("thread", "start_ns", until_ns=end, forward="id")
    ops = view.host.filter(pl.col("kind").is_in(["op", "collective"])) if forwards.height else view.host.clear()
    ops = ops.sort("start_ns").select("thread", "name", "start_ns", end_ns=end, is_flat=matches(_COALESCED))
    ops = ops.join_asof(forwards, on="start_ns", by="thread", check_sortedness=False)
    first = pl.col("start_ns").filter(matches(_FLATTEN)).min().over("forward")
    return ops.filter(pl.col("start_ns") <= pl.col("until_ns")).filter(pl.col("start_ns") >= first)


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
    return Intervals.of(pairs["called_ns"].to_numpy(), pairs["next_called_ns"].to_numpy())


measure = of_devices(__name__)
measure("collective_call_ms", lambda view: view.once(_call_ms)).says(
    "Time per step that the host spends in calls of collectives for the device, as far as they were recorded.",
    "union of c10d:: ops, record_param_comms and the calls that launch collectives, inside the steps / steps",
)
measure("collective_call_idle_ms", _call_idle_ms).says(
    "Time per step for which the device idles at most because of the host's calls of collectives.",
    "min(collective_call_ms, host-bound and queued idle time per step)",
)
measure("buffer_broadcast_idle_ms", _broadcast_idle_ms, where=as_places(_flat_ops, "host_ops")).says(
    "Time per step for which the device idles while the host broadcasts the module's buffers.",
    "host-bound idle time in DistributedDataParallel.forward from the first aten::flatten_dense_tensors to the end of"
    " the last flatten, broadcast, unflatten or copy before the first other op, if a broadcast is among them / steps",
    "PyTorch, torch/csrc/distributed/c10d/comm.cpp: broadcast_coalesced",
)
measure("collective_loop_idle_ms", lambda view: per_step_ms(view, _loops(view) & view.once(launch_gaps))).says(
    "Time per step for which the device idles while the host calls for one collective right after another.",
    "host-bound idle time in gaps of at most {launch_gap}, from the launch of one collective to that of the next of the"
    " same operation, if that is at most {launch_gap} later and launches at most one other device op between / steps",
)
