"""Device memory: what was held at most, by whom, and calls of the driver that take or give it back."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.launches import LAUNCHED
from advisor.analysis.device.places import places
from advisor.analysis.device.timeline import ENGINE
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import FREES
from advisor.metrics.metric import Value, lacking, of_devices, tabulates
from advisor.model.clause import Missing
from advisor.model.intervals import above, begun, nearest, nest
from advisor.model.profile import matches
from advisor.whatif.change import Interval, saved, without

_MOST_ROWS: Final = 12
_KINDS: Final = ("op", "module", "annotation")
_OF_BLOCKS: Final = ["thread", "at_ns", "bytes", "address", "allocated_bytes", "framework_op", "region"]
_SCHEMA: Final = {"what": pl.String, "op": pl.String, "within": pl.String, "blocks": pl.Int64, "bytes": pl.Int64}


@tabulates("memory_peak")
def blocks_at_peak(view: DeviceView) -> pl.DataFrame:
    """The memory held at the peak, by what asked for it, the most first; empty where the blocks cannot be told apart.

    Columns: what (op; `others` for all smaller ones together; `earlier` for what was there before the recording), op
    (the outermost around the request, such as aten::conv2d), within (the class of its module, the backward pass, the
    optimizer, or XLA's and TensorFlow's region), blocks, bytes. What differs only in a number behind an underscore is
    one row. The bytes add up to the peak.
    """
    events = view.allocations.select(_OF_BLOCKS).drop_nulls(["allocated_bytes", "address"])
    events = events.sort("at_ns", maintain_order=True)
    if not events.height:
        return pl.DataFrame(schema=_SCHEMA)
    at = int(events["allocated_bytes"].to_numpy().argmax())
    last = events.head(at + 1).unique("address", keep="last", maintain_order=True).filter(pl.col("bytes") > 0)
    by = _requests(view, last).group_by("op", "within").agg(blocks=pl.len(), bytes=pl.sum("bytes"))
    by = by.sort("bytes", "op", "within", descending=[True, False, False], nulls_last=True)
    rows = [
        by.head(_MOST_ROWS).with_columns(what=pl.lit("op")),
        by.slice(_MOST_ROWS).select(pl.sum("blocks", "bytes"), what=pl.lit("others")),
        pl.DataFrame({"what": "earlier", "bytes": int(events["allocated_bytes"][at]) - int(by["bytes"].sum())}),
    ]
    every = pl.concat(rows, how="diagonal_relaxed").filter(pl.col("bytes") > 0)
    return every.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())


def _requests(view: DeviceView, blocks: pl.DataFrame) -> pl.DataFrame:
    """The blocks with `op` and `within`: as the recorder gives them, or by the ranges that were open on the thread."""
    around = _around(view, blocks)
    of_range = pl.when(around["is_op"]).then(around["op"].str.strip_prefix(ENGINE))
    return blocks.select(
        "bytes",
        op=pl.coalesce(pl.col("framework_op").cast(pl.String).str.replace_all(r"_\d+", "_*"), of_range),
        within=pl.coalesce(
            pl.col("region").cast(pl.String),
            around["module"].str.replace(r"_\d+$", ""),
            pl.when(around["engine"].is_not_null()).then(pl.lit("backward pass")),
            pl.when(around["optimizer"].is_not_null()).then(pl.lit("optimizer")),
        ),
    )


def _around(view: DeviceView, blocks: pl.DataFrame) -> pl.DataFrame:
    """What was open around each block's request: names of op, module, engine and optimizer, and is_op (of `op`)."""
    start = view.host["start_ns"].to_numpy()
    end = start + np.maximum(view.host["dur_ns"].to_numpy(), 1)  # one without length is open for the instant
    is_open = pl.Series(begun(blocks["at_ns"], start, end) > 0, dtype=pl.Boolean)  # on whatever thread
    ranges = view.host.select("thread", "start_ns", "dur_ns", "kind", "name").filter(is_open)
    rows = ranges.filter(pl.col("kind").is_in(_KINDS), pl.col("thread").is_in(blocks["thread"].unique().implode()))
    moments = blocks.select(
        "thread", start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), kind=pl.lit("block"), name=pl.lit("")
    )
    spans = pl.concat([rows.with_columns(pl.col("kind", "name").cast(pl.String)), moments])
    start = spans["start_ns"].to_numpy()
    # a block's instant follows the ranges that begin with it: they come first, and so are around it
    parent = nest(spans["thread"].fill_null(-1).to_numpy(), start, start + spans["dur_ns"].to_numpy())
    kind, name = spans["kind"], spans["name"].str.replace(r"^nn\.Module: ", "")
    is_op = (kind == "op").to_numpy()
    outermost = nearest(~(is_op & (above(is_op.astype(np.int64), parent) == 1)), parent)
    engine = name.str.starts_with(ENGINE).to_numpy()
    optimizer = name.str.starts_with("Optimizer.step").to_numpy()
    of_blocks = parent[rows.height :]
    around = {
        "op": above(outermost, of_blocks),
        "module": above(nearest((kind == "module").to_numpy(), parent), of_blocks),
        "engine": above(nearest(engine, parent), of_blocks),
        "optimizer": above(nearest(optimizer, parent), of_blocks),
    }
    names = {key: name.gather(at.clip(0)).set(pl.Series(at < 0), None) for key, at in around.items()}
    return pl.DataFrame({**names, "is_op": np.append(is_op, False)[around["op"]]})


_MOST_POINTS: Final = 600  # more than a chart has pixels for


def _totals(view: DeviceView) -> pl.DataFrame:
    """Rows of the whole recording with the allocator's running total: memory must suffice for steps left out, too."""
    return view.reserved.filter(pl.col("allocated_bytes").is_not_null())


def _fullest(view: DeviceView) -> pl.DataFrame:
    """The row of them at which most is held, the first of equals."""
    in_use = pl.col("allocated_bytes") + pl.col("stack_bytes").fill_null(0)
    return view.once(_totals).sort(in_use, "at_ns", descending=[True, False]).head(1)


def _peak_bytes(view: DeviceView) -> int:
    allocated, stack = view.once(_fullest).select("allocated_bytes", "stack_bytes").row(0)
    return int(allocated) + (stack or 0)


def _peak_share(view: DeviceView) -> Value:
    capacity, peak = view.facts.get("memory_bytes"), _peak_bytes(view)
    return peak / capacity if capacity and peak <= capacity else Missing("memory_size_unknown")


def _reserved_bytes(view: DeviceView) -> int | None:
    return int(view.once(_totals)["reserved_bytes"].fill_null(0).to_numpy().max()) or None


def _fragmentation(view: DeviceView) -> float | None:
    """Of what the allocator holds; of one that takes all at once, what is free and not in one piece."""
    totals, reserved = view.once(_totals), view.once(_reserved_bytes)
    if not reserved:
        return None
    if totals["fragmentation"].count():
        in_pieces = pl.col("fragmentation") * pl.col("available_bytes") / pl.col("reserved_bytes")
        share: float | None = view.once(_fullest).select(in_pieces).item()
        return share
    fullest = totals.filter(pl.col("reserved_bytes") == reserved).sort("at_ns", maintain_order=True).tail(1)
    return 1 - float(fullest["allocated_bytes"].item()) / reserved


def _place(view: DeviceView) -> pl.DataFrame:
    return view.once(_fullest).select(
        start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), table=pl.lit("allocations"), name=pl.lit("memory peak")
    )


measure = of_devices(
    __name__,
    needs=("device_ops", "allocations", "allocations.allocated_bytes"),
    needs_steps=False,
    unknown=lacking(no_allocation=lambda view: not view.once(_totals).height),
)

measure("peak_memory_bytes", _peak_bytes, where=_place).says(
    "Most device memory that was held at once, over the whole recording: by tensors, on TPUs by the stack too.",
    "max of the allocator's running total of allocated bytes, and of the stack's where that is told",
    "torch-tb-profiler's Peak Memory Usage",
)
measure("peak_memory_share", _peak_share, needs=("devices",), where=_place).says(
    "Most device memory that was held at once as a part of the device's memory.",
    "peak_memory_bytes / device memory",
    "torch-tb-profiler",
)
measure("reserved_memory_bytes", _reserved_bytes).says(
    "Most device memory that the caching allocator held.",
    "max of the allocator's running total of reserved bytes; of TensorFlow and JAX, which take it all at once, "
    "allocated + available",
)
measure("fragmentation", _fragmentation, unit="share").says(
    "Part of the reserved memory that no tensor used when most was reserved; where the allocator takes all memory "
    "at once, the part that was free, but in pieces, when most was allocated.",
    "1 - allocated / reserved, at the moment of most reserved bytes (the last of equals); of TensorFlow and JAX "
    "free memory outside its largest piece / reserved, at the peak",
    "the ratio of TensorFlow's and JAX's allocators is that of XProf's memory profile",
)


@tabulates("memory")
def memory_curve(view: DeviceView) -> pl.DataFrame:
    """Memory over the recording: start_ns, allocated_bytes, reserved_bytes; the fullest moment of each of 600 spans."""
    events = view.allocations.select("at_ns", "allocated_bytes", "reserved_bytes")
    totals = events.drop_nulls("allocated_bytes").sort("at_ns", maintain_order=True)
    at = pl.col("at_ns")
    length = ((at.max() - at.min()) // _MOST_POINTS).clip(1)
    spans = totals.group_by(((at - at.min()) // length).alias("span"), maintain_order=True)
    return spans.agg(
        start_ns=at.sort_by("allocated_bytes").last(),
        allocated_bytes=pl.max("allocated_bytes"),
        reserved_bytes=pl.max("reserved_bytes"),
    ).drop("span")


_NAME: Final = pl.col("name").cast(pl.String)
_HOST_MEMORY: Final = r"(?i)host"
_REMAINDER: Final = 0.3  # of the calls' cost: memory that grows with the shapes is still taken (own choice)


def _calls(view: DeviceView) -> pl.DataFrame:
    """Calls of the used steps that take or free device memory; pinned host memory is another matter."""
    return view.used_host.filter(pl.col("kind") == "allocator").collect().filter(~matches(_HOST_MEMORY))


def _frees(view: DeviceView) -> pl.DataFrame:
    return view.once(_calls).filter(_NAME.str.contains(FREES))


def _amid_launches(view: DeviceView) -> int:
    is_plain = pl.lit(view.process.get("framework") == "cuda")  # frameworks keep what they take in first passes
    takes = (pl.col("kind") == "allocator") & ~matches(f"{FREES}|{_HOST_MEMORY}") & is_plain
    calls = view.used_host.filter(takes | LAUNCHED).sort("start_ns").select(takes=takes).collect()["takes"]
    return int((calls & ~calls.shift(1, fill_value=True)).sum())


def _in_ops_part(view: DeviceView) -> float:
    frees = view.once(_frees)
    in_ops = view.with_host(frees, "parent", around="kind").filter(pl.col("around") == "op")
    return in_ops.height / max(1, frees.height)


def _gains(view: DeviceView) -> Interval:
    calls = view.once(_calls)
    idle_ns = int(view.once(gaps)["allocator_ns"].sum()) if calls.height else 0
    return saved(view, without(calls=calls["id"], bound_ns=(idle_ns, idle_ns)).surely(1 - _REMAINDER))


of_calls = of_devices(__name__, needs=("device_ops", "device_ops.launch"))

of_calls.per_step("allocator_calls", _calls, where=places(_calls, op="parent")).says(
    "Calls per step that take device memory from the driver or give it back.",
    "cudaMalloc, cudaFree, hipMalloc, hipFree and the like, not those for host memory / steps",
)
of_calls.per_step("allocator_frees", _frees).says(
    "Calls per step that give device memory back; each waits until the device has nothing left to do.",
    "calls with free or unmap in their name / steps",
)
of_calls("allocations_amid_launches", _amid_launches, unit="count").says(
    "How often a program without a framework takes device memory between launches.", "runs of such calls after a launch"
)
of_calls("allocator_frees_in_ops_part", _in_ops_part).says(
    "How many of the calls that give memory back are made inside ordinary framework ops.",
    "those of them inside an op of the framework / all of them; 0 where there are none",
    "a caching allocator frees nothing inside an op unless memory is full; without caching ops free their own",
)
of_calls(
    "allocator_calls", lambda view: view.largest(view.once(_calls).group_by(_NAME).agg(pl.sum("dur_ns")).rows())
).says(
    "Which calls take device memory from the driver or give it back, the most time first.",
    "their time per step, summed by name",
)
of_calls.saving("allocator", _gains).says("doing without the driver's calls for device memory")
