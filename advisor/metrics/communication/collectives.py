"""Collectives of one rank: how many, of what size, how much of them computation hides, and why no more of them."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.communication import device_collectives, exposed_ms, host_collectives
from advisor.analysis.device.kernels import longest
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, spans, spent_ns
from advisor.inputs.names.kernels import PRODUCTS, family
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries, Missing, largest_first
from advisor.model.intervals import Intervals, Ints
from advisor.model.profile import END_NS, matches, rows_where

_ENOUGH: Final = 3
_BESIDE: Final = 0.5  # of a kernel's time that collectives must cover for it to count as slowed down
_IS_BESIDE: Final = pl.col("covered") >= _BESIDE * pl.col("dur_ns")
_NONE: Final = Missing("no_collective_on_device")
_SHAPE: Final = ["name", "grid", "block", "op_name", "shapes"]


def _bare(view: DeviceView) -> pl.DataFrame:
    """The collectives that some time of no kernel overlaps, with how much: `bare_ns`."""
    ops = view.once(device_collectives)
    bare = ops["dur_ns"] - spent_ns(ops, view.device_spans("kernel"))
    return ops.with_columns(bare.alias("bare_ns")).filter(pl.col("bare_ns") > 0)


def _kinds(view: DeviceView) -> pl.DataFrame:
    """How many collectives of which kind, the most frequent first: does, len."""
    on_host = view.once(host_collectives).select(
        does=pl.col("name").cast(pl.String).str.extract(r"^(\w+:\w+|MPI_\w+)").fill_null("unknown")
    )
    on_device = view.once(device_collectives).select(pl.col("does").fill_null("unknown"))
    return pl.concat([on_device, on_host]).group_by("does").len().sort("len", "does", descending=[True, False])


def _no_sizes(view: DeviceView) -> Missing | None:
    known = view.once(device_collectives)["size"]
    if not len(known):
        return _NONE
    missing = known.null_count()
    return Missing("sizes_partly_missing", missing=missing, collectives=len(known)) if missing else None


def _total_ms(view: DeviceView) -> float:
    return view.used_ms(spans(view.once(device_collectives)))


def _exposed_ms(view: DeviceView) -> float:
    return exposed_ms(view, view.once(device_collectives))


def _covered(view: DeviceView) -> pl.DataFrame:
    """The kernels of the used steps, with how long collectives run beside each: `covered`, in ns."""
    running = view.device_spans("collective")
    kernels = rows_where(view.used_ops, (pl.col("kind") == "kernel") & (pl.col("dur_ns") > 0))
    return kernels.with_columns(covered=spent_ns(kernels, running))


def _contention(view: DeviceView) -> tuple[float, float] | Missing:
    """What kernels take beside collectives, in ms per step, and what the same calls take alone; both 0 for none.

    By median times of equal kernels, of those with enough calls of both. A grid says how large a product's result is,
    not how long its sums are: without shapes, products are not compared.
    """
    alone, kernels = pl.col("covered") == 0, view.once(_covered)
    if not kernels.select(_IS_BESIDE.any()).item():
        return 0.0, 0.0
    known = view.with_host(kernels, "op", op_name="name", shapes="shapes")
    multiplies = pl.Series(family(known["name"]).cast(pl.String).is_in(PRODUCTS))
    equal = known.filter(pl.col("shapes").is_not_null() | ~multiplies).group_by(_SHAPE)
    times = equal.agg(
        calls=_IS_BESIDE.sum().cast(pl.Int64),
        others=alone.sum(),
        with_ns=pl.col("dur_ns").filter(_IS_BESIDE).median(),
        without_ns=pl.col("dur_ns").filter(alone).median(),
    )
    both = times.filter(pl.col("calls") >= _ENOUGH, pl.col("others") >= _ENOUGH)
    beside_ns, alone_ns = (float((both["calls"] * both[column]).sum()) for column in ("with_ns", "without_ns"))
    return (view.per_step_ms(beside_ns), view.per_step_ms(alone_ns)) if alone_ns else Missing("no_overlap_sample")


measure = of_devices(__name__)
of_sizes = of_devices(__name__, needs=("device_ops", "collectives.bytes"), unknown=_no_sizes)
of_device = of_devices(__name__, needs=("device_ops",))
of_kernels = of_devices(
    __name__,
    needs=("device_ops",),
    unknown=lacking(nothing_to_compute_from=lambda view: not view.once(_covered).height),
).parts_of(_contention)
measure("collectives_per_step", lambda view: float(view.once(_kinds)["len"].sum()) / view.steps.height).says(
    "Collectives per step, on the device and on the host.",
    "number of collective kernels and of gloo's or MPI's ranges in the steps / steps",
)
measure(
    "collective_calls",
    lambda view: [{"name": of, "count": calls / view.steps.height} for of, calls in view.once(_kinds).rows()] or _NONE,
).says("Which collectives, how often per step; the most frequent first.", "number by operation / steps")
measure("backend", lambda view: view.process.get("backend") or Missing("backend_unknown"), unit="text").says(
    "The backend of the collectives, as the process asked for it.", "init_process_group's backend"
)
of_sizes(
    "collective_bytes_per_step", lambda view: float(view.once(device_collectives)["size"].sum()) / view.steps.height
).says(
    "Bytes per step that this rank's collectives handle.",
    "sum of bytes (of gathers and scatters: the whole array) / steps",
    "nccl-tests, doc/PERFORMANCE.md",
)
of_sizes(
    "collective_median_bytes",
    lambda view: float(np.median(view.once(device_collectives)["size"].to_numpy())),
    unit="number",
).says("Bytes of the typical collective.", "median of the bytes of the collectives")
of_device("communication_ms", _total_ms, where=as_places(device_collectives, "device_ops", op="op")).says(
    "Time per step in which a collective runs on the device, hidden or not, waiting for other ranks included.",
    "union of the collectives inside the steps / steps",
)
of_device("exposed_communication_ms", _exposed_ms, where=as_places(_bare, "device_ops", op="op", by="bare_ns")).says(
    "Time per step in which a collective runs on the device and no other kernel does.",
    "(union of collectives and kernels - union of kernels) inside the steps / steps",
)
of_device(
    "overlap_share", lambda view: 1 - view.once(_exposed_ms) / view.once(_total_ms) if view.once(_total_ms) else _NONE
).says(
    "How much of the communication kernels hide.",
    "1 - exposed_communication_ms / communication_ms",
    "Holistic Trace Analysis, communication computation overlap",
)
of_kernels("contention_ms", lambda times: max(0.0, times[0] - times[1])).says(
    "Time per step by which kernels take longer while a collective runs beside them.",
    "sum over kernels (name, grid, block, op, shapes) of calls beside a collective (half of their time) x (their"
    " median - median alone) / steps; both medians of at least three calls; without shapes, no products, convolutions "
    "and attention",
    "Daydream (USENIX ATC 2020) on NCCL and kernels that share the multiprocessors",
)
of_kernels("contention_ratio", lambda times: times[0] / times[1] if times[1] else 1.0).says(
    "How many times as long kernels take beside a collective as alone.",
    "their time beside collectives / the same calls at the median alone",
)


_COMPUTES: Final = 0.25  # of the kernels' time: a stream with so much of it is one that the step computes on
_FEW: Final = 0.01  # of the ops
_GRAIN_NS: Final = 2_000  # some recordings hold whole microseconds: an op may seem to begin before the last one's end
_SHARDED: Final = r"(?i)\bfsdp|FullySharded|fully_shard|PartitionedParameter|zero_?(?:3|stage)|DeepSpeedZero"
_EXPERTS: Final = r"(?i)notify|dispatch|combine|device_sync|moe_?all_?to_?all"


def _longest_exposed(view: DeviceView) -> Entries:
    kinds = view.once(device_collectives).group_by("does", maintain_order=True)
    return largest_first((str(op or "of unknown kind"), exposed_ms(view, of_kind)) for (op,), of_kind in kinds)


def _on_compute_streams_ms(view: DeviceView) -> float:
    """Communication in the queue of the computation; where ops of one stream run at once, its number tells no order."""
    ops = view.once(device_collectives).filter(_computes(view))
    busy = rows_where(view.used_ops, pl.col("stream").is_in(ops["stream"].unique().implode()))
    behind = busy.sort("start_ns").select(over=END_NS.shift(1).over("stream") > pl.col("start_ns") + _GRAIN_NS)
    return 0.0 if int(behind["over"].sum()) > _FEW * busy.height else exposed_ms(view, ops)


def _gathers(view: DeviceView) -> pl.DataFrame:
    """The all-gathers of sharded parameters: those that do not run on a compute stream."""
    collectives = view.once(device_collectives)
    if not collectives.height or not view.host_like(_SHARDED).height:
        return collectives.clear()
    return collectives.filter((pl.col("does") == "all_gather") & ~_computes(view))


def _own_scatters(view: DeviceView) -> float:
    """How many reduce-scatters per step a program makes that shards by itself."""
    is_own = (pl.col("does") == "reduce_scatter") & (view.host_like(_SHARDED).height == 0)
    return view.once(device_collectives).filter(is_own).height / view.steps.height


def _late(view: DeviceView) -> pl.DataFrame:
    """The gathers that start at the end of the computation before them, and nothing but that held them up."""
    gathers = view.once(_gathers)
    if not gathers.height:
        return gathers
    work = _work(view)
    start, half = gathers["start_ns"].to_numpy(), gathers["dur_ns"].to_numpy() // 2
    alone = (work.within(start, start + half) == 0) & (work.before(start) > 0)
    return gathers.filter(pl.Series(alone & (work.last_end(start) > _ready_ns(view, gathers)), dtype=pl.Boolean))


def _without_work(view: DeviceView) -> Intervals:
    """When a late gather, or what prepares it, runs and nothing is computed."""
    late = view.once(_late)
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


def _work(view: DeviceView) -> Intervals:
    """When a compute stream has a kernel."""
    return spans(view.ops.filter(_computes(view), kind="kernel"))


def _computes(view: DeviceView) -> pl.Expr:
    """Whether a row's stream is one that the step computes on."""
    times = view.ops.filter(kind="kernel").group_by("stream").agg(pl.sum("dur_ns"))
    busiest = times.filter(pl.col("dur_ns") >= _COMPUTES * pl.col("dur_ns").sum())
    return pl.col("stream").is_in(busiest["stream"].implode())


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


of_device(
    "overlap_room_ms", lambda view: view.used_ms(view.device_spans("kernel") - spans(view.once(device_collectives)))
).says(
    "Kernel time per step beside which no collective runs: overlap can hide at most so much more.",
    "(union of kernels - union of collectives) inside the steps / steps",
)
of_device("exposed_collectives", _longest_exposed, unit="names").says(
    "Which collectives no kernel hides, with their exposed time per step; the longest first.",
    "exposed_communication_ms by operation; those with the most, then the others",
)
of_device("compute_stream_communication_ms", _on_compute_streams_ms).says(
    "Exposed time per step of collectives that run on a stream of the kernels: nothing can overlap them there.",
    "exposed time of collectives on streams with at least a quarter of the kernels' time / steps; zero where ops of"
    " such a stream overlap each other, as in a replayed graph, which shows its launcher's stream for all",
)
of_device.per_step("gathers", _gathers).says(
    "All-gathers of sharded parameters per step.",
    "all_gather kernels outside the compute streams / steps; zero where no range names FSDP or ZeRO",
)
of_device("own_scatters_per_step", _own_scatters).says(
    "Reduce-scatters per step of a program that shards by itself.",
    "reduce_scatter kernels / steps; zero where a range names FSDP or ZeRO",
)
of_device("late_gather_share", lambda view: view.once(_late).height / max(1, view.once(_gathers).height)).says(
    "Part of the all-gathers of parameters that start only when the layer before is done, and could start sooner.",
    "gathers whose call was made and whose stream had no other communication while the last kernel before them ran, and"
    " that started after its end with nothing computed beside their first half / gathers",
)
of_device("late_gather_ms", lambda view: view.used_ms(_without_work(view)), where=longest(_late)).says(
    "Time per step without computation because of all-gathers of sharded parameters that start late.",
    "time from the end of the computation before each late gather until its end in which no compute stream has a"
    " kernel: the gather, and the copies that prepare it / steps",
)
of_device("expert_transfer_ms", lambda view: exposed_ms(view, _exchanges(view, "all_to_all"))).says(
    "Exposed time per step of the exchange of tokens between experts, waiting within it included.",
    "exposed time of dispatch and combine kernels / steps",
)
of_device("expert_wait_ms", lambda view: exposed_ms(view, _exchanges(view, "barrier"))).says(
    "Exposed time per step in which the exchange only waits for the last rank.",
    "exposed time of the kernels in which ranks tell each other how many tokens come (notify), a few bytes, / steps",
    "DeepEP, csrc/kernels: notify_dispatch ends when every rank has arrived",
)
of_device("expert_wait_most_ms", _expert_most_ms).says(
    "Exposed time per step in which the exchange of tokens between experts waits at most.",
    "expert_wait_ms + sum of max(0, exposed - shortest call of the kernel) / steps",
)
