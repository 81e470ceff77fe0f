"""Why communication is not hidden: its stream computes too, gathers wait for a layer, ranks are late."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.communication import computation, device_collectives, exposed_ms, per_step_ms
from advisor.analysis.device.kernels import longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.several import Metric, Values, measures
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals
from advisor.model.profile import END_NS, matches, rows_where
from advisor.text import ms

_COMPUTES: Final = 0.25  # of the kernels' time: a stream with so much of it is one that the step computes on
_FEW: Final = 0.01  # of the ops
_GRAIN_NS: Final = 2_000  # some recordings hold whole microseconds: an op may seem to begin before the last one's end
_MOST_NAMES: Final = 3
_NEEDS: Final = ("device_ops",)
_SHARDED: Final = r"(?i)\bfsdp|FullySharded|fully_shard|PartitionedParameter|zero_?(?:3|stage)|DeepSpeedZero"
_EXPERTS: Final = r"(?i)notify|dispatch|combine|device_sync|moe_?all_?to_?all"


OVERLAP_ROOM_MS = Metric(
    "overlap_room_ms",
    "Kernel time per step beside which no collective runs: overlap can hide at most so much more.",
    "(union of kernels - union of collectives) inside the steps / steps",
)
EXPOSED_COLLECTIVES = Metric(
    "exposed_collectives",
    "Which collectives no kernel hides, with their exposed time per step; the longest first.",
    "exposed_communication_ms by operation; the three with the most",
    unit="text",
)


@measures(OVERLAP_ROOM_MS, EXPOSED_COLLECTIVES, needs=_NEEDS)
def exposed_work(view: DeviceView) -> Values:
    """What could hide communication, and what is not hidden."""
    ops = view.once(device_collectives)
    free = (view.once(computation) - spans(ops)).within(view.starts, view.ends).sum()
    times = [(exposed_ms(view, of_kind), str(op)) for (op,), of_kind in ops.group_by("does", maintain_order=True)]
    longest = sorted((time for time in times if time[0]), reverse=True)[:_MOST_NAMES]
    names = ", ".join(f"{'of unknown kind' if op == 'None' else op} ({ms(time)})" for time, op in longest)
    return {OVERLAP_ROOM_MS: view.per_step_ms(float(free)), EXPOSED_COLLECTIVES: names or None}


COMPUTE_STREAM_COMMUNICATION_MS = Metric(
    "compute_stream_communication_ms",
    "Exposed time per step of collectives that run on a stream of the kernels: nothing can overlap them there.",
    "exposed time of collectives on streams with at least a quarter of the kernels' time / steps; zero where ops of"
    " such a stream overlap each other, as in a replayed graph, which shows its launcher's stream for all",
)


@measures(COMPUTE_STREAM_COMMUNICATION_MS, needs=_NEEDS)
def on_compute_streams(view: DeviceView) -> Values:
    """Communication in the queue of the computation."""
    ops = view.once(device_collectives).filter(_computes(view))
    busy = rows_where(view.used_ops, pl.col("stream").is_in(ops["stream"].unique().implode()))
    return {COMPUTE_STREAM_COMMUNICATION_MS: 0.0 if _overlapping(busy) else exposed_ms(view, ops)}


GATHERS_PER_STEP = Metric(
    "gathers_per_step",
    "All-gathers of sharded parameters per step.",
    "all_gather kernels outside the compute streams / steps; zero where no range names FSDP or ZeRO",
)
LATE_GATHER_SHARE = Metric(
    "late_gather_share",
    "Part of the all-gathers of parameters that start only when the layer before is done, and could start sooner.",
    "gathers whose call was made and whose stream had no other communication while the last kernel before them ran, and"
    " that started after its end with nothing computed beside their first half / gathers",
)
LATE_GATHER_MS = Metric(
    "late_gather_ms",
    "Time per step without computation because of all-gathers of sharded parameters that start late.",
    "time from the end of the computation before each late gather until its end in which no compute stream has a"
    " kernel: the gather, and the copies that prepare it / steps",
    where=lambda view: longest(_late(view)),
)


@measures(GATHERS_PER_STEP, LATE_GATHER_SHARE, LATE_GATHER_MS, needs=_NEEDS)
def prefetching(view: DeviceView) -> Values:
    """Whether parameters are gathered ahead of the layer that needs them."""
    collectives = view.once(device_collectives)
    if not collectives.height or not view.host_like(_SHARDED).height:
        return dict.fromkeys((GATHERS_PER_STEP, LATE_GATHER_SHARE, LATE_GATHER_MS), 0.0)
    gathers, late = _gathers(view), _late(view)
    return {
        GATHERS_PER_STEP: gathers.height / view.steps.height,
        LATE_GATHER_SHARE: late.height / gathers.height if gathers.height else 0.0,
        LATE_GATHER_MS: per_step_ms(view, _without_work(view, late)),
    }


def _gathers(view: DeviceView) -> pl.DataFrame:
    """The all-gathers that do not run on a compute stream."""
    return view.once(device_collectives).filter((pl.col("does") == "all_gather") & ~_computes(view))


def _late(view: DeviceView) -> pl.DataFrame:
    gathers = _gathers(view)
    return gathers.filter(_waits_for_computation(view, gathers))


def _without_work(view: DeviceView, late: pl.DataFrame) -> Intervals:
    """When a late gather, or what prepares it, runs and nothing is computed."""
    work = _work(view)
    start, end = late["start_ns"].to_numpy(), late.select(END_NS).to_series().to_numpy()
    return Intervals.of(work.last_end(start), end) - work


EXPERT_TRANSFER_MS = Metric(
    "expert_transfer_ms",
    "Exposed time per step of the exchange of tokens between experts, waiting within it included.",
    "exposed time of dispatch and combine kernels / steps",
)
EXPERT_WAIT_MS = Metric(
    "expert_wait_ms",
    "Exposed time per step in which the exchange only waits for the last rank.",
    "exposed time of the kernels in which ranks tell each other how many tokens come (notify), a few bytes, / steps",
    "DeepEP, csrc/kernels: notify_dispatch ends when every rank has arrived",
)
EXPERT_WAIT_MOST_MS = Metric(
    "expert_wait_most_ms",
    "Exposed time per step in which the exchange of tokens between experts waits at most.",
    "expert_wait_ms + sum of max(0, exposed - shortest call of the kernel) / steps",
)


@measures(EXPERT_TRANSFER_MS, EXPERT_WAIT_MS, EXPERT_WAIT_MOST_MS, needs=_NEEDS)
def experts(view: DeviceView) -> Values:
    """What expert parallelism exchanges, and what of it is waiting; zero where no such kernel ran."""
    ops = view.once(device_collectives).filter(matches(_EXPERTS))
    waits, transfers = ops.filter(pl.col("does") == "barrier"), ops.filter(pl.col("does") == "all_to_all")
    waiting_ms, exchange_ms = exposed_ms(view, waits), exposed_ms(view, transfers)
    shortest_ns = transfers.select(pl.min("dur_ns").over("name").sum()).item() or 0
    return {
        EXPERT_TRANSFER_MS: exchange_ms,
        EXPERT_WAIT_MS: waiting_ms,
        EXPERT_WAIT_MOST_MS: waiting_ms + max(0.0, exchange_ms - view.per_step_ms(shortest_ns)),
    }


def _kernels(view: DeviceView) -> pl.DataFrame:
    return view.ops.filter(pl.col("kind") == "kernel")


def _work(view: DeviceView) -> Intervals:
    """When a compute stream has a kernel."""
    return spans(_kernels(view).filter(_computes(view)))


def _computes(view: DeviceView) -> pl.Expr:
    """Whether a row's stream is one that the step computes on."""
    times = _kernels(view).group_by("stream").agg(pl.sum("dur_ns"))
    busiest = times.filter(pl.col("dur_ns") >= _COMPUTES * pl.col("dur_ns").sum())
    return pl.col("stream").is_in(busiest["stream"].implode())


def _overlapping(ops: pl.DataFrame) -> bool:
    """Whether ops of one stream run at once: then the stream's number does not tell their order."""
    behind = ops.sort("start_ns").select(over=END_NS.shift(1).over("stream") > pl.col("start_ns") + _GRAIN_NS)
    return int(behind["over"].sum()) > _FEW * ops.height


def _waits_for_computation(view: DeviceView, gathers: pl.DataFrame) -> pl.Series:
    """Whether each gather starts at the end of the computation before it, and nothing but that held it up."""
    work = _work(view)
    start, half = gathers["start_ns"].to_numpy(), gathers["dur_ns"].to_numpy() // 2
    alone = (work.within(start, start + half) == 0) & (work.before(start) > 0)
    return pl.Series(alone & (work.last_end(start) > _ready_ns(view, gathers)), dtype=pl.Boolean)


def _ready_ns(view: DeviceView, ops: pl.DataFrame) -> Ints:
    """When each op's call was made and its stream was free, as far as both are known; 0 where neither is.

    A kernel of its stream that no communication is only prepares it: FSDP copies the shards into one buffer.
    """
    ends = view.ops.filter(pl.col("kind") == "collective").select("stream", freed_ns=END_NS).sort("freed_ns")
    rows = ops.with_row_index("row").sort("start_ns")
    freed = rows.join_asof(
        ends, left_on="start_ns", right_on="freed_ns", by="stream", check_sortedness=False, coalesce=False
    )
    both = view.with_host(freed, "launch", called_ns="start_ns").sort("row")
    return both.select(pl.max_horizontal("freed_ns", "called_ns").fill_null(0)).to_series().to_numpy()
