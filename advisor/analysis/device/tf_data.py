"""The input pipeline of tf.data, put together from the long names of its iterators: which of them a step waits for."""

import re
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import own_ns
from advisor.analysis.device.view import DeviceView, spans
from advisor.model.intervals import EMPTY, Intervals, nest
from advisor.model.profile import END_NS, matches

SLOW_NS: Final = 50_000
"""A call of a whole pipeline that takes longer is slow: tf.data's own limit (TensorFlow guide on tf.data analysis)."""

STAGES: Final = ("demanded read", "advanced read", "preprocessing")
"""What an iterator's own time is spent on; a read is advanced if an iterator around it asks before it is asked."""

_PREFIX: Final = "Iterator::"
_READS: Final = r"^(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv|IgnoreErrors)(?:V\d+)?$"
_AHEAD: Final = (
    r"::(?:Prefetch|ParallelInterleave\w*|LegacyParallelInterleave\w*|ParallelMap\w*|MapAndBatch|MemoryReader)::"
)
_DEMANDED, _ADVANCED, _OTHER = (pl.lit(stage) for stage in STAGES)
_BY_ITERATOR: Final = pl.when(pl.col("iterator").str.contains(_AHEAD)).then(_ADVANCED).otherwise(_DEMANDED)
_STAGE: Final = pl.when(pl.col("transformation").str.contains(_READS)).then(_BY_ITERATOR).otherwise(_OTHER)
_PARALLELISM: Final = r'"(?:parallelism|num_parallel_calls)":(\d{1,9})'
_REQUEST: Final = "IteratorGetNext"
_FUNCTION: Final = r"^PyFunc:"
_GRAPH_BUILDING: Final = r"^tf\.function-graph_building$"
_EAGER: Final = r"^EagerLocalExecute: "
_MAKES_DATASET: Final = r"^EagerLocalExecute: \w+Dataset(?:V\d+)?$"
_ROOT: Final = "Root"  # the model around a pipeline: it is no transformation
_COLUMNS: Final = {
    "iterator": pl.String,
    "parent": pl.String,
    "transformation": pl.String,
    "stage": pl.String,
    "calls": pl.Int64,
    "slow_calls": pl.Int64,
    "total_ns": pl.Int64,
    "self_ns": pl.Int64,
    "waited_ns": pl.Int64,
    "parallelism": pl.Int64,
}


def iterators(view: DeviceView) -> pl.DataFrame:
    """One row per iterator of the worker's pipelines, those that ask before those that are asked.

    `iterator` is the long name (`Iterator::Root::Prefetch::Map`; pipelines of one form are one), `parent` that of the
    one that asks it, null at the top. `self_ns` is the time of all calls outside those of other iterators on the same
    thread, over the whole recording. `waited_ns` is the part of the used steps that waits for input and ends up with
    this iterator: it is open, or was asked by one that is, and none further down is open on any thread. `parallelism`
    is the highest recorded.
    """
    calls = _calls(view)
    if not calls.height:
        return pl.DataFrame(schema=_COLUMNS)
    rows = _totals(calls).with_columns(stage=_STAGE)
    waits_ns = _waits_ns(view, calls, rows)
    return rows.with_columns(waited_ns=pl.Series(waits_ns, dtype=pl.Int64)).select(
        pl.col(name).cast(dtype) for name, dtype in _COLUMNS.items()
    )


def waits(view: DeviceView) -> Intervals:
    """When, inside the used steps, a request for input is open and the device does nothing."""
    requests = view.host_spans("input") & view.windows
    return requests - view.busy


def requests_ahead(view: DeviceView) -> pl.DataFrame:
    """The steps' requests, where what they wait for, or Python, is known to work ahead on other threads; else none."""
    slowest = bottleneck(view.once(iterators))
    is_ahead = slowest is not None and re.search(_AHEAD, f"{slowest}::") is not None
    requests = view.host_like(_REQUEST, "input")
    return requests if is_ahead or view.once(functions_period_ns) else requests.clear()


def functions_period_ns(view: DeviceView) -> int:
    """From one batch to the next of functions of Python in a pipeline that loads ahead, if none waits; 0: not seen."""
    requests = view.host_like(_REQUEST, "input")
    calls = view.host_like(_FUNCTION, "op").filter(~pl.col("thread").is_in(requests["thread"].unique().implode()))
    ahead = view.host_like(_AHEAD, "pipeline")
    if not (requests.height and ahead.height and 2 * calls.height > requests.height):
        return 0
    edges = pl.concat([calls.select(at="start_ns", more=1), calls.select(at=END_NS, more=-1)]).sort("at", "more")
    at_once = int(edges["more"].cum_sum().to_numpy().max())
    return int(calls["dur_ns"].sum() / at_once / min(calls.height, requests.height))  # the edges cut some calls off


def _calls(view: DeviceView) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String)
    calls = view.host.filter(pl.col("kind") == "pipeline").filter(name.str.starts_with(_PREFIX))
    iterator = name.str.replace_all(r"\[\d+\]", "")
    parallelism = pl.col("details").cast(pl.String).str.extract(_PARALLELISM).cast(pl.Int64)
    return calls.select("thread", "start_ns", "dur_ns", iterator=iterator, parallelism=parallelism)


def _totals(calls: pl.DataFrame) -> pl.DataFrame:
    """A row per iterator with its calls, parent and own time; parents first."""
    start = calls["start_ns"].to_numpy()
    around = nest(calls["thread"].to_numpy(), start, start + calls["dur_ns"].to_numpy())
    nested = calls.with_row_index("id").with_columns(parent=pl.Series(around).replace(-1, None))
    by_iterator = calls.with_columns(own=own_ns(nested).clip(0)).group_by("iterator")
    rows = by_iterator.agg(
        calls=pl.len(),
        slow_calls=(pl.col("dur_ns") > SLOW_NS).sum(),
        total_ns=pl.sum("dur_ns"),
        self_ns=pl.sum("own"),
        parallelism=pl.max("parallelism"),
    )
    parent = pl.col("iterator").str.extract(r"(?s)^(.*)::[^:]+$")  # no name is its own
    known = parent.is_in(rows["iterator"].implode())
    return rows.with_columns(
        parent=pl.when(known).then(parent),
        transformation=pl.col("iterator").str.extract(r"([^:]+)$"),
        depth=pl.col("iterator").str.count_matches("::"),
    ).sort("depth", "iterator")


def _waits_ns(view: DeviceView, calls: pl.DataFrame, rows: pl.DataFrame) -> list[int]:
    """Per iterator, the waiting that ends up with it: what reaches it and none of those that it asks.

    It passes an iterator on whose behalf another is at work, though its own call has returned: threads ask ahead.
    """
    at_work = {name: spans(of_name) for (name,), of_name in calls.group_by("iterator")}
    for name, parent in rows.select("iterator", "parent").reverse().drop_nulls().rows():
        at_work[parent] = at_work[parent] | at_work[name]
    through: dict[str | None, Intervals] = {None: waits(view)}
    onward: dict[str | None, Intervals] = {}
    for name, parent in rows.select("iterator", "parent").rows():
        through[name] = at_work[name] & through[parent]
        onward[parent] = onward.get(parent, EMPTY) | through[name]
    return [(through[name] - onward.get(name, EMPTY)).total for name in rows["iterator"]]


def builds(view: DeviceView) -> Intervals:
    """When TensorFlow builds functions of pipelines: map, filter and their like trace theirs when a dataset is made.

    What is built before a thread's next eager op makes a dataset is a function of one.
    """
    is_build = matches(_GRAPH_BUILDING)
    compiles = view.host.filter(pl.col("kind") == "compile")
    rows = pl.concat([compiles, view.host_like(_EAGER, "op", "annotation")]).sort("thread", "start_ns")
    end = pl.when(is_build).then(END_NS).cum_max().forward_fill().over("thread")
    inner = ~is_build & (pl.col("start_ns") < end.fill_null(0))
    outer = rows.filter(~inner).with_columns(makes=pl.when(matches(_EAGER)).then(matches(_MAKES_DATASET)))
    return spans(outer.with_columns(pl.col("makes").backward_fill().over("thread")).filter(is_build, "makes"))


def bottleneck(rows: pl.DataFrame) -> str | None:
    """The iterator with most of the waiting, None where nothing waits; the model at the top is none to change."""
    slow = rows.filter(pl.col("waited_ns") > 0, pl.col("transformation") != _ROOT)
    return slow.sort("waited_ns", "iterator", descending=[True, False])["iterator"].first() if slow.height else None  # type: ignore[return-value]  # a column of text


def path_to(iterator: str) -> list[str]:
    """The transformations from the one that is asked first down to this one."""
    return [part for part in iterator.removeprefix(_PREFIX).split("::") if part != _ROOT]
