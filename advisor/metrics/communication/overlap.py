"""Why communication is not hidden: its stream computes too, gathers wait for a layer, ranks are late."""

from typing import Final

import polars as pl

from advisor.analysis.device.communication import computation, device_collectives, exposed_ms, per_step_ms
from advisor.analysis.device.kernels import longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS, matches, rows_where
from advisor.text import ms

_COMPUTES: Final = 0.25  # of the kernels' time: a stream with so much of it is one that the step computes on
_FEW: Final = 0.01  # of the ops
_GRAIN_NS: Final = 2_000  # some recordings hold whole microseconds: an op may seem to begin before the last one's end
_MOST_NAMES: Final = 3
_SHARDED: Final = r"(?i)\bfsdp|FullySharded|fully_shard|PartitionedParameter|zero_?(?:3|stage)|DeepSpeedZero"
_EXPERTS: Final = r"(?i)notify|dispatch|combine|device_sync|moe_?all_?to_?all"


def _room_ms(view: DeviceView) -> float:
    free = view.once(computation) - spans(view.once(device_collectives))
    return view.per_step_ms(float(free.within(view.starts, view.ends).sum()))


def _longest_exposed(view: DeviceView) -> str | None:
    kinds = view.once(device_collectives).group_by("does", maintain_order=True)
    times = [(exposed_ms(view, of_kind), str(op)) for (op,), of_kind in kinds]
    most = sorted((time for time in times if time[0]), reverse=True)[:_MOST_NAMES]
    return ", ".join(f"{'of unknown kind' if op == 'None' else op} ({ms(time)})" for time, op in most) or None


def _on_compute_streams_ms(view: DeviceView) -> float:
    """Communication in the queue of the computation."""
    ops = view.once(device_collectives).filter(_computes(view))
    busy = rows_where(view.used_ops, pl.col("stream").is_in(ops["stream"].unique().implode()))
    return 0.0 if _overlapping(busy) else exposed_ms(view, ops)


def _gathers(view: DeviceView) -> pl.DataFrame:
    """The all-gathers of sharded parameters: those that do not run on a compute stream."""
    collectives = view.once(device_collectives)
    if not collectives.height or not view.host_like(_SHARDED).height:
        return collectives.clear()
    return collectives.filter((pl.col("does") == "all_gather") & ~_computes(view))


def _late(view: DeviceView) -> pl.DataFrame:
    gathers = view.once(_gathers)
    return gathers.filter(_waits_for_computation(view, gathers)) if gathers.height else gathers


def _without_work(view: DeviceView) -> Intervals:
    """When a late gather, or what prepares it, runs and nothing is computed."""
    late = view.once(_late)
    if not late.height:
        return EMPTY
    work = _work(view)
    start, end = late["start_ns"].to_numpy(), late.select(END_NS).to_series().to_numpy()
    return Intervals.of(work.last_end(start), end) - work


def _exchanges(view: DeviceView, does: str) -> pl.DataFrame:
    """What expert parallelism exchanges, or its waiting for the last rank."""
    return view.once(device_collectives).filter(matches(_EXPERTS), pl.col("does") == does)


def _expert_most_ms(view: DeviceView) -> float:
    waits, transfers = _exchanges(view, "barrier"), _exchanges(view, "all_to_all")
    shortest_ns = transfers.select(pl.min("dur_ns").over("name").sum()).item() or 0
    return exposed_ms(view, waits) + max(0.0, exposed_ms(view, transfers) - view.per_step_ms(shortest_ns))


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


measure = of_devices(__name__, needs=("device_ops",))
measure("overlap_room_ms", _room_ms).says(
    "Kernel time per step beside which no collective runs: overlap can hide at most so much more.",
    "(union of kernels - union of collectives) inside the steps / steps",
)
measure("exposed_collectives", _longest_exposed, unit="text").says(
    "Which collectives no kernel hides, with their exposed time per step; the longest first.",
    "exposed_communication_ms by operation; the three with the most",
)
measure("compute_stream_communication_ms", _on_compute_streams_ms).says(
    "Exposed time per step of collectives that run on a stream of the kernels: nothing can overlap them there.",
    "exposed time of collectives on streams with at least a quarter of the kernels' time / steps; zero where ops of"
    " such a stream overlap each other, as in a replayed graph, which shows its launcher's stream for all",
)
measure("gathers_per_step", lambda view: view.once(_gathers).height / view.steps.height).says(
    "All-gathers of sharded parameters per step.",
    "all_gather kernels outside the compute streams / steps; zero where no range names FSDP or ZeRO",
)
measure("late_gather_share", lambda view: view.once(_late).height / max(1, view.once(_gathers).height)).says(
    "Part of the all-gathers of parameters that start only when the layer before is done, and could start sooner.",
    "gathers whose call was made and whose stream had no other communication while the last kernel before them ran, and"
    " that started after its end with nothing computed beside their first half / gathers",
)
measure("late_gather_ms", lambda view: per_step_ms(view, _without_work(view)), where=longest(_late)).says(
    "Time per step without computation because of all-gathers of sharded parameters that start late.",
    "time from the end of the computation before each late gather until its end in which no compute stream has a"
    " kernel: the gather, and the copies that prepare it / steps",
)
measure("expert_transfer_ms", lambda view: exposed_ms(view, _exchanges(view, "all_to_all"))).says(
    "Exposed time per step of the exchange of tokens between experts, waiting within it included.",
    "exposed time of dispatch and combine kernels / steps",
)
measure("expert_wait_ms", lambda view: exposed_ms(view, _exchanges(view, "barrier"))).says(
    "Exposed time per step in which the exchange only waits for the last rank.",
    "exposed time of the kernels in which ranks tell each other how many tokens come (notify), a few bytes, / steps",
    "DeepEP, csrc/kernels: notify_dispatch ends when every rank has arrived",
)
measure("expert_wait_most_ms", _expert_most_ms).says(
    "Exposed time per step in which the exchange of tokens between experts waits at most.",
    "expert_wait_ms + sum of max(0, exposed - shortest call of the kernel) / steps",
)
