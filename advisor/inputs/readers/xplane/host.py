"""Host planes: what ran on the threads (kinds by names.yaml), which range asked for which, and what allocators did."""

import json
import re
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.inputs.names.calls import alternatives
from advisor.inputs.readers.xplane.names import HLO_COLLECTIVE
from advisor.inputs.readers.xplane.plane import Events, Plane, either
from advisor.model.intervals import Ints, Mask, nest
from advisor.model.profile import HOST_OP_KINDS, TEXT, matches
from advisor.vocabulary.limits import table

REQUEST: Final = r"^IteratorGetNext\w*Op::DoCompute$"
EXECUTES: Final = "ExecutorState::Process"
REGION_OPENS: Final = "ThreadpoolListener::StartRegion"
REGION_CLOSES: Final = "ThreadpoolListener::StopRegion"
REGION_REQUEST: Final = "ThreadpoolListener::Record"
ALLOCATES: Final = "MemoryAllocation"
FREES: Final = "MemoryDeallocation"
# What `advisor record` itself runs in the program: calls of its hook and what they call. XPlane has no paths of files.
RECORDER_HOOK: Final = r"^\$hook\.py:\d+ _advance$"
RECORDER: Final = (
    r"^\$(?:hook\.py:\d+ (?:_tick|_advance|_phases|_is_of_steps)|marker\.py:\d+ (?:ends_step|is_surer|_[a-z]\w+)"
    r"|phases\.py:\d+ (?:step|is_over|_\w+)|profilers\.py:\d+ (?:mark|_?end_mark|stop|clock|watched|__\w+__)"
    r"|clock\.py:\d+ (?:add|steps|__\w+__)|(?:(?:jax|tf)_steps|xplane)\.py:\d+ \w+)$"
)
_KINDS: Final[list[dict[str, Any]]] = table(__file__, "names")["kinds"]
# What is told of an iterator, and of a call of a tf.function, in the order it is written down.
_FACTS: Final = (
    *("id", "parent_id", "name", "parallelism", "num_parallel_calls", "autotune", "deterministic", "buffer_limit"),
    *("buffer_size", "batch_size", "cycle_length", "block_length", "tf_function_call", "tracing_count"),
)
_TEXTS: Final = frozenset({"name", "autotune", "deterministic", "tf_function_call"})
# The spelling that `dtypes` has everywhere.
_DTYPES: Final = {"half": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double"}
_TENSOR = re.compile(r"([A-Za-z]\w{0,40})?\[([\d,]*)\]")  # bounded: a text may be one word of megabytes

_OF_ALLOCATIONS: Final = {
    *("allocator_name", "bytes_allocated", "bytes_reserved", "bytes_available", "fragmentation"),
    *("allocation_bytes", "addr", "tf_op", "region_type", "index_on_host"),
}
# The stats that are read of ranges on the host
OF_RANGES: Final = {
    *("group_id", "correlation_id", "is_eager", "shape", "tensor_shapes", "hlo_op", "memcpy_details", "step_num"),
    *("hlo_module", "run_id", "_pt", "_p", "_ct", "_c", "iter_num"),
    *_FACTS,
}
_ROLES: Final = (REGION_OPENS, REGION_CLOSES, REGION_REQUEST, EXECUTES, ALLOCATES, FREES)
_REQUEST, _END = "request", "end"
_UNSEEN: Final = (REGION_OPENS, REGION_CLOSES, REGION_REQUEST, _END)  # they tell what belongs together, and are no work
_MOST_UNSEEN: Final = 64  # in a row
_LONGEST_FACT: Final = 500  # characters of an iterator's or a function's name
_THREADS: Final = {"thread": pl.Int64, "name": pl.String}
_GPU_ALLOCATOR: Final = r"(?i)^(?:[G\x00]PU_|gpu_async_|xla_gpu_)(\d{1,9})"  # TensorFlow 2.4 on Windows loses the G


def host(plane: Plane) -> dict[str, pl.DataFrame]:
    """Tables of one plane: ranges in the order of the file, for `linked` to complete, allocations, names of threads."""
    names, ranges, allocations = _names(plane), list[pl.DataFrame](), list[pl.DataFrame]()
    threads = np.array([line.id for line in plane.lines] or [0], np.int64)
    for events in plane.events(range(len(plane.lines)), OF_RANGES | _OF_ALLOCATIONS):
        of_events = {"thread": threads[events.line], "start_ns": events.start_ns, "dur_ns": events.dur_ns}
        about = names[events.what].with_columns(pl.Series(name, values) for name, values in of_events.items())
        of_memory = about["role"].is_in([ALLOCATES, FREES]).fill_null(value=False).to_numpy()
        ranges.append(_ranges(events, about, np.flatnonzero(~of_memory)))
        allocations.append(_allocations(events, about, np.flatnonzero(of_memory)))
    titles = pl.DataFrame([(line.id, line.name) for line in plane.lines], schema=_THREADS, orient="row")
    titles = titles.with_columns(pl.col("name").str.replace(r"/-?\d+$", ""))  # which repeats the thread's own number
    tables = {"ranges": pl.concat(ranges), "allocations": pl.concat(allocations)}
    return tables | {"threads": titles.filter(pl.col("name") != "")}


def _names(plane: Plane) -> pl.DataFrame:
    """A row per name of the plane's events: name, kind, role (for the links), whether advisor's own, eager op."""
    name = pl.col("text")
    role = pl.when(name.is_in(_ROLES)).then(name).when(name.str.contains(REQUEST)).then(pl.lit(_REQUEST))
    frame = pl.DataFrame({"text": pl.Series([*plane.names.names, ""], dtype=pl.String)})
    kinds = (pl.when(name.str.contains(alternatives(row["names"]))).then(pl.lit(row["kind"])) for row in _KINDS)
    return frame.select(
        name=name.cast(TEXT),
        kind=pl.coalesce(*kinds, pl.lit("annotation")).cast(HOST_OP_KINDS),
        recorder=name.str.contains(RECORDER) & name.str.contains(RECORDER_HOOK).any(),
        role=role.when(name.str.contains(r"^end: ")).then(pl.lit(_END)).cast(pl.Enum([*_ROLES, _REQUEST, _END])),
        eager_op=name.str.contains(r"^EagerLocalExecute: "),
    )


def _ranges(events: Events, about: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    columns = {
        "correlation": events.number("correlation_id"),
        "group": events.number("group_id"),
        "step_num": events.number("step_num"),
        "run": events.number("run_id"),
        "program": events.text("hlo_module"),
        "eager": events.number("is_eager").cast(pl.Boolean, strict=False),
        "execution": events.number("id") * 31 + events.number("iter_num"),  # one go of TensorFlow's executor
        "details": _details(events),
        # One number for a hand-over between threads, of its kind and its own; null where the event bears none.
        "producer": events.number("_p") * 31 + events.number("_pt"),
        "consumer": events.number("_c") * 31 + events.number("_ct"),
        "hlo": events.text("hlo_op"),
        "copies": events.text("memcpy_details"),
        "inputs": either(events.text("shape"), events.text("tensor_shapes")),
    }
    frame = pl.DataFrame({**about.to_dict(), **columns})[rows]
    free = pl.col("kind").is_in(["annotation", "op"])
    is_call = free & (pl.col("correlation") > 0)
    waits = matches(r"\basync:0\b", "copies").fill_null(value=False)
    kinds = {
        "step": pl.col("step_num").is_not_null() & (pl.col("kind") == "annotation"),
        "sync": is_call & waits,
        "runtime": is_call,
        "collective": free & matches(HLO_COLLECTIVE, "hlo"),
        "op": free & pl.col("hlo").is_not_null(),
    }
    return frame.with_columns(
        *inputs(frame["inputs"]).get_columns(),
        eager=pl.when((pl.col("kind") == "op") & pl.col("eager_op")).then(pl.lit(True)).otherwise("eager"),  # noqa: FBT003
        kind=pl.coalesce(*(pl.when(of).then(pl.lit(kind, HOST_OP_KINDS)) for kind, of in kinds.items()), "kind"),
    ).drop("hlo", "copies", "inputs", "eager_op")


def _details(events: Events) -> pl.Series:
    """JSON of what is told of iterators and of calls of tf.functions."""
    has = events.stats.has
    is_root = has("id") & has("name")  # an iterator that no other asks
    rows = np.flatnonzero(has("parent_id") | has("tf_function_call") | is_root)
    if not len(rows):
        return pl.repeat(None, len(events.line), dtype=TEXT, eager=True)
    columns = {key: (events.text if key in _TEXTS else events.number)(key).gather(rows) for key in _FACTS}
    each = {key: columns[key].unique() for key in _TEXTS}  # which is spelt once, as far as a fact goes
    for key, known in each.items():
        spelt = known.cast(pl.String).str.head(_LONGEST_FACT)
        columns[key] = columns[key].replace_strict(known, spelt, return_dtype=pl.String)
    distinct = pl.DataFrame(columns)
    plain = {key: pl.col(key).str.replace_all(r'["\\\x00-\x1f]', "?") for key in _TEXTS}
    quoted = [
        pl.format(f'"{key}":"{{}}"', plain[key]) if key in _TEXTS else pl.format(f'"{key}":{{}}', pl.col(key))
        for key in _FACTS
    ]
    inner = pl.concat_str(quoted, separator=",", ignore_nulls=True)
    written = distinct.select(pl.concat_str(pl.lit("{"), inner, pl.lit("}"))).to_series()
    at = np.full(len(events.line), len(rows))
    at[rows] = np.arange(len(rows))
    return pl.concat([written.cast(TEXT), pl.Series([None], dtype=TEXT)]).gather(at)


def linked(ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds `parent`, and `asked_by`: the row that handed the work over from another thread. What is no work goes."""
    # The start of a region lasts until the region's end; the ends go.
    role = pl.col("role")
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    regions = (
        ranges.select("thread", "start_ns", "role", row=row)
        .filter(role.is_in([REGION_OPENS, REGION_CLOSES]))
        .sort("thread", "start_ns", "row")
        .with_columns(next=pl.col("start_ns").shift(-1), ends=role.shift(-1), other=pl.col("thread").shift(-1))
        .filter(role == REGION_OPENS, pl.col("ends") == REGION_CLOSES, pl.col("other") == pl.col("thread"))
    )
    if regions.height:
        dur = ranges["dur_ns"].to_numpy().copy()
        dur[regions["row"].to_numpy()] = (regions["next"] - regions["start_ns"]).to_numpy()
        ranges = ranges.with_columns(dur_ns=pl.Series(dur))
    ranges = ranges.filter((role != REGION_CLOSES).fill_null(value=True))
    start = ranges["start_ns"].to_numpy()
    parent = nest(ranges["thread"].to_numpy(), start, start + ranges["dur_ns"].to_numpy())
    requester = _requester(ranges.select("producer", "consumer", "execution", "role"))
    unseen = ranges["role"].is_in(_UNSEEN).fill_null(value=False).to_numpy()
    visible = ~unseen & ~ranges["recorder"].to_numpy()
    around = np.where(requester < 0, parent, requester)  # where an unseen one leads to
    requester = np.where((requester < 0) & (parent >= 0) & unseen[parent], parent, requester)
    place = np.where(visible, np.cumsum(visible) - 1, -1)
    columns = {"parent": _visible(parent, parent, visible), "asked_by": _visible(requester, around, visible)}
    return (
        ranges.drop("producer", "consumer", "execution", "role", "recorder")
        .with_columns(pl.Series(key, np.where(at < 0, -1, place[at])).replace(-1, None) for key, at in columns.items())
        .filter(pl.Series(visible))
    )


def _requester(ranges: pl.DataFrame) -> Ints:
    """Row of the event that handed over what each consumer does, -1 where there is none.

    Events of one hand-over bear one number. A request for input on a thread of its own bears none, but the number of
    the executor's run that it belongs to.
    """
    rows = ranges.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
    by = np.full(ranges.height, -1)
    role = pl.col("role")
    executes, requests = (rows.filter(role == of).select("row", key="execution") for of in (EXECUTES, _REQUEST))
    others = (rows.select("row", key=side) for side in ("producer", "consumer"))
    for givers, takers in ((executes, requests), others):
        first = givers.drop_nulls().unique("key", keep="first").select("key", by="row")
        pairs = takers.drop_nulls().join(first, on="key").filter(pl.col("by") != pl.col("row"))
        by[pairs["row"].to_numpy()] = pairs["by"].to_numpy()
    return by


def _visible(at: Ints, around: Ints, visible: Mask) -> Ints:
    """The nearest seen range around each row that `at` names, itself included; -1 where there is none."""
    at = at.copy()
    for _ in range(_MOST_UNSEEN):
        if not len(hidden := np.flatnonzero((at >= 0) & ~visible[at])):
            return at
        at[hidden] = around[at[hidden]]
    at[(at >= 0) & ~visible[at]] = -1  # they lead in a circle
    return at


def _allocations(events: Events, about: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    columns = {
        "at_ns": about["start_ns"],
        "thread": about["thread"],
        "role": about["role"],
        "allocator": events.text("allocator_name"),
        "bytes": events.number("allocation_bytes"),
        "address": events.number("addr"),
        "allocated_bytes": events.number("bytes_allocated"),
        "stack_bytes": events.number("bytes_reserved"),
        "available_bytes": events.number("bytes_available"),
        "fragmentation": events.number("fragmentation", pl.Float64),
        "framework_op": events.text("tf_op"),
        "region": events.text("region_type"),
        "index": events.number("index_on_host"),
    }
    allocator = pl.col("allocator").cast(pl.String)
    number = pl.when(~allocator.str.contains(r"(?i)host|cpu")).then(allocator.str.extract(_GPU_ALLOCATOR))
    return pl.DataFrame({key: series.gather(rows) for key, series in columns.items()}).select(
        pl.exclude("role", "index", "bytes", "allocator"),
        bytes=pl.when(pl.col("role") == FREES).then(-pl.col("bytes")).otherwise("bytes"),
        device=pl.coalesce(number.cast(pl.Int32, strict=False), pl.col("index").cast(pl.Int32, strict=False)),
    )


def inputs(shapes: pl.Series) -> pl.DataFrame:
    """`(half[4,384];int32[])` as JSON: `shapes` is [[4,384],[]], `dtypes` ["c10::Half","int32"]; a row each."""
    texts = shapes.unique()
    tensors = [_TENSOR.findall(text or "") for text in texts]
    sides = [",".join(f"[{sides.strip(',')}]" for _, sides in of) for of in tensors]
    dtypes = [json.dumps([_DTYPES.get(dtype, dtype) for dtype, _ in of], separators=(",", ":")) for of in tensors]
    written = {
        "shapes": [f"[{of}]" if of else None for of in sides],
        "dtypes": [of if of != "[]" else None for of in dtypes],
    }
    return pl.DataFrame(
        {name: shapes.replace_strict(texts, pl.Series(of, dtype=pl.String).cast(TEXT)) for name, of in written.items()}
    )
