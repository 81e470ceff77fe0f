"""Iterators of PyTorch's data loader: which begin, bring a few batches, and end; and the input pipeline of tf.data.

That is put together from the long names of its iterators: which of them a step waits for.
"""

import re
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import executed, own_ns, training_ops
from advisor.analysis.device.loading_stages import batch
from advisor.analysis.device.view import DeviceView, bounds, inside, outermost, spans, started_in
from advisor.inputs.names.calls import HANDS_OVER, NODE, OWN_LOADING, POOL_TASK, TAKES_OVER, WORKERS_LOADING
from advisor.inputs.step_periods import PRODUCTS
from advisor.model.intervals import EMPTY, Intervals, Ints, begun, nest
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS

# A call of a whole pipeline that takes longer is slow: tf.data's own limit (TensorFlow guide on tf.data analysis)
SLOW_NS: Final = 50_000
# What an iterator's own time is spent on; a read is advanced if an iterator around it asks before it is asked
STAGES: Final = ("demanded read", "advanced read", "preprocessing")
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


def pipeline_waits(view: DeviceView) -> Intervals:
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
    calls = view.host_like(r"^PyFunc:", "op").filter(~pl.col("thread").is_in(requests["thread"].unique().implode()))
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
    through: dict[str | None, Intervals] = {None: pipeline_waits(view)}
    onward: dict[str | None, Intervals] = {}
    for name, parent in rows.select("iterator", "parent").rows():
        through[name] = at_work[name] & through[parent]
        onward[parent] = onward.get(parent, EMPTY) | through[name]
    return [(through[name] - onward.get(name, EMPTY)).total for name in rows["iterator"]]


def builds(view: DeviceView) -> Intervals:
    """When TensorFlow builds functions of pipelines: map, filter and their like trace theirs when a dataset is made.

    What is built before a thread's next eager op makes a dataset is a function of one.
    """
    is_build = matches(r"^tf\.function-graph_building$")
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


_SEED: Final = ("aten::item", "aten::random_", "aten::empty")  # of a new iterator, the last op first
_OF_SAMPLER: Final = r"^aten::(?:randperm|resolve_conj|resolve_neg)$"  # that draws the first batches for processes
_USE: Final = rf"{PRODUCTS}|^Torch-Compiled Region|^(?:## Call )?CompiledFxGraph"  # of a batch, by a model
_FEW_BATCHES: Final = 10  # own choice: of more, workers load nine tenths ahead of the loop
_SIZELESS: Final = r"^\w+::"  # PyTorch's names, of layers of any size; those of other frameworks are of one place
_FEW_CALLS: Final = 5  # own choice: one of so many runs while the workers wait
_FEW_OF_EPOCH: Final = 4  # the same for epochs of the training, whose loader is made once: three quarters
_SEVERAL: Final = 2
_AS_MANY: Final = 0.25  # own choice: a recording's edges cut a batch or two of few off
_LITTLE: Final = 0.01  # of the step: shorter waits set no pace
_ALWAYS: Final = 0.9  # own choice, of the time: workers that load for less wait for the loop
HAND_OVER_NS: Final = 2_000_000  # own measurement: a ready batch of 24 kB took 1.1 to 1.5 ms under the profiler
MOST_WORKERS: Final = 16  # that are advised, and after how many batches at the latest one is late
_END: Final = 0.1  # of the iterator's longest request so far: one that takes, or runs, less brings no batch

_EVENT: Final = ["thread", "name", "start_ns", "dur_ns"]
_OF_ITERATOR: Final = ["thread", "iterator"]
_NUMBER: Final = pl.col("iterator")
_IS_COMPLETE: Final = (_NUMBER > 0) & (pl.col("is_ended") | (_NUMBER.max().over("thread") > _NUMBER))


def lasting(view: DeviceView) -> pl.DataFrame:
    """The main process's requests for a batch that it loads itself, without those to short iterators."""
    return _without_short(view, OWN_LOADING)


def lasting_of_workers(view: DeviceView) -> pl.DataFrame:
    """Those for a batch of worker processes."""
    return _without_short(view, WORKERS_LOADING)


def loaded_ahead(view: DeviceView) -> pl.DataFrame:
    """The requests to what loads ahead: worker processes, threads of Python, tf.data that calls Python or is late."""
    requests = _to_workers_or_threads(view)
    if requests.height:
        return requests
    return view.once(requests_ahead if view.once(functions_period_ns) else late_requests)


def _to_workers_or_threads(view: DeviceView) -> pl.DataFrame:
    requests = view.once(lasting_of_workers)
    return requests if requests.height else view.once(handovers)


def handovers(view: DeviceView) -> pl.DataFrame:
    """The requests for input, where most of their time is a wait for a thread or process that Python's library knows.

    None of PyTorch's loader, or of tf.data.
    """
    requests = view.host.filter(pl.col("kind") == "input")
    takes = spans(view.once(training_ops).filter(matches(TAKES_OVER))) & spans(requests)
    of_pytorch = view.host_like(f"{OWN_LOADING}|{WORKERS_LOADING}", "input")
    is_most = not of_pytorch.height and 2 * takes.total > spans(requests).total
    return requests if is_most else requests.clear()


def thread_period_ns(view: DeviceView) -> int:
    """From one batch to the next of the threads that make them and hand them over, if they never wait; 0: not seen.

    A thread makes one from where it handed the last one over, or as a task of a pool. Threads that make more or fewer
    than the steps take make something else.
    """
    requests = view.once(handovers)
    calls = view.host_like(f"{HANDS_OVER}|{POOL_TASK}", "python").filter(
        ~pl.col("thread").is_in(requests["thread"].unique().implode())
    )
    since = pl.col("start_ns") - END_NS.shift(1).over("thread")
    makes = pl.when(matches(HANDS_OVER)).then(since).otherwise("dur_ns")
    turns = calls.sort("thread", "start_ns").select("thread", ns=makes).drop_nulls()
    by_thread = turns.group_by("thread").agg(pl.mean("ns"))["ns"]
    as_many = abs(calls.height - requests.height) <= max(_SEVERAL, _AS_MANY * requests.height)
    return int(1 / (1 / by_thread.clip(1)).sum()) if len(by_thread) and as_many else 0


def late_requests(view: DeviceView) -> pl.DataFrame:
    """Those that wait for their batch, where what loads ahead sets the pace of the used steps; else none.

    They do where the waits come back: with n workers in every step, or in every n-th. Workers that were counted and
    do not always load bring batches in time, however long it takes to get these.
    """
    requests = pl.concat([_to_workers_or_threads(view), view.once(requests_ahead)]).sort("start_ns")
    requests = requests.filter(pl.col("start_ns").is_between(int(view.starts[0]), int(view.ends[-1])))
    late = requests.filter(pl.col("dur_ns") > HAND_OVER_NS)
    number = requests["start_ns"].search_sorted(late["start_ns"])
    apart = np.diff(np.concatenate(([-1], number.to_numpy(), [requests.height])))
    of = view.once(batch)
    always = not (of and of.workers) or of.busy_part >= _ALWAYS
    waited = waits(view, late)
    pace = always and np.count_nonzero(waited) >= _SEVERAL and apart.max() <= MOST_WORKERS
    return late if pace and int(waited.sum()) > _LITTLE * view.total_ns else late.clear()


def _without_short(view: DeviceView, names: str) -> pl.DataFrame:
    requests = view.host_like(names, "input")
    return requests.join(view.once(short_requests), on="id", how="anti", maintain_order="left")


def short_requests(view: DeviceView) -> pl.DataFrame:
    """The requests to iterators of fewer than ten batches, or four where they train.

    Columns: id, thread, iterator, start_ns, dur_ns, is_end, trains, of_workers. An iterator begins with its first
    request, or if worker processes load, before these start. It ends with a request that brings no batch (`is_end`), or
    where the next one begins. What follows the end is for an iterator around it.
    `trains`: a backward pass runs before its last request. Epochs of worker processes that train are none of these:
    `restarts` tells them.
    """
    requests = view.once(_requests)
    short = requests.join(_short(_iterators(requests)), on=_OF_ITERATOR, maintain_order="left")
    return short.filter(~pl.col("trains") | ~pl.col("of_workers")).drop("nodes")


def requests_at_once(view: DeviceView, requests: pl.DataFrame) -> int:
    """How many of them a step makes before a model runs on any of their batches: two, of two zipped loaders."""
    used = _with_uses(view, started_in(requests, view.starts, view.ends))
    together = used.group_by("window", "thread", "uses", "nodes").len()["len"]
    return int(together.median() or 1) if used["uses"].n_unique() > 1 else 1  # type: ignore[arg-type]


def slowed_part(view: DeviceView) -> float:
    """The part of ops outside of requests by which they take longer than the fastest of their kind; 0 with a device.

    Beside what loads, threads that share an op spin until the last of them has had a core.
    """
    requests = view.host.filter(pl.col("kind") == "input")
    if view.device is not None or not requests.height:
        return 0.0
    ops = view.once(training_ops).filter(pl.col("kind") == "op", pl.col("shapes").is_not_null() | ~matches(_SIZELESS))
    alike = started_in(outermost(ops.filter(~inside(spans(requests), ops))), view.starts, view.ends)
    times = alike.group_by("name", "shapes").agg(pl.sum("dur_ns"), least_ns=pl.len() * pl.min("dur_ns"), of=pl.len())
    ns, least_ns = times.filter(pl.col("of") >= _FEW_CALLS).select("dur_ns", "least_ns").sum().row(0)
    return 1 - least_ns / ns if ns else 0.0


def waits(view: DeviceView, requests: pl.DataFrame, windows: tuple[Ints, Ints] | None = None) -> Ints:
    """Time of the requests in which neither the device nor a call is at work, in ns.

    In each used step as the device has it, or in each window (starts, ends).
    """
    busy = view.busy | view.once(executed) | view.host_spans("collective", *DRIVER_CALLS)
    starts, ends = windows or (view.starts, view.ends)
    return (busy | spans(requests)).within(starts, ends) - busy.within(starts, ends)


def batches_of_epochs(view: DeviceView) -> pl.Series:
    """How many batches each iterator brings that is not short, and begins and ends in the recording."""
    iterators = _iterators(view.once(_requests))
    return iterators.filter(_IS_COMPLETE).join(_short(iterators), on=_OF_ITERATOR, how="anti")["batches"]


def _short(iterators: pl.DataFrame) -> pl.DataFrame:
    """Those of few batches: thread, iterator, trains.

    The recording cuts the first and the last one off. The last is short if most are. The first may be around the
    others, unless they train. A single one is none: a loop over a few batches may be all that was recorded.
    """
    is_short = pl.col("batches") < pl.when("trains").then(_FEW_OF_EPOCH).otherwise(_FEW_BATCHES)
    known = _IS_COMPLETE & is_short
    most, several = known.sum() > (_IS_COMPLETE & ~is_short).sum(), known.sum() >= _SEVERAL
    train = (pl.col("trains") & known).sum() > (~pl.col("trains") & known).sum()
    short = iterators.filter(several & is_short & (_IS_COMPLETE | ((_NUMBER > 0) & most) | train))
    return short.select(*_OF_ITERATOR, "trains")


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    """One row per iterator: thread, iterator, batches, is_ended, trains."""
    return requests.group_by(_OF_ITERATOR).agg(
        batches=(~pl.col("is_end")).sum(),
        is_ended=pl.col("is_end").any(),
        trains=pl.col("nodes").max() > pl.col("nodes").min(),
    )


def _requests(view: DeviceView) -> pl.DataFrame:
    """The requests to each iterator up to its end; to those before the first that begins, as to an iterator 0.

    `nodes` is how many nodes of backward passes ran before.
    """
    rows = _with_evaluations(_with_uses(view, _with_begins(view)))
    rows = rows.with_columns(iterator=pl.col("begins").cum_sum().over("thread"))
    so_far = {column: pl.col(column).cum_max().shift(1).over(_OF_ITERATOR) for column in ("dur_ns", "ops")}
    is_less = pl.any_horizontal(pl.col(column) < _END * longest for column, longest in so_far.items())
    is_end = pl.when("of_workers").then("is_end").otherwise(is_less)  # a batch of theirs may be there already
    rows = rows.with_columns(is_end=is_end.fill_null(value=False))
    ended = pl.col("is_end").cum_sum().shift(1, fill_value=0).over(_OF_ITERATOR)
    columns = ["id", *_OF_ITERATOR, "start_ns", "dur_ns", "is_end", "of_workers", "nodes"]
    return rows.filter(ended == 0).select(columns)


def _with_evaluations(rows: pl.DataFrame) -> pl.DataFrame:
    """With `is_end`, of requests to processes, and with more `begins`: an evaluation by workers that stay has no seed.

    Its batches go through a model, and no backward pass runs. The request that ends it brings none: nothing is loaded
    in it, and no model runs before the next one, whose batch is for the loop around it.
    """
    learns, used = (pl.col(column).shift(-1).over("thread") > pl.col(column) for column in ("nodes", "uses"))
    evaluates = (used & ~learns).fill_null(value=False)
    before = evaluates.shift(1).over("thread")
    is_end = pl.col("of_workers") & (pl.col("ops") == 0) & ~used & ~learns & before
    rows = rows.with_columns(is_end=is_end.fill_null(value=False), evaluates=evaluates)
    rows = rows.with_columns(
        run=pl.col("evaluates").rle_id().over("thread"),
        ends=pl.col("is_end").shift(-1, fill_value=False).over("thread"),
    )
    starts = pl.col("evaluates") & ~pl.col("evaluates").shift(1, fill_value=True).over("thread")
    return rows.with_columns(begins=pl.col("begins") | (starts & pl.col("ends").any().over("thread", "run")))


def _with_uses(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """With how many `nodes` of backward passes, and `uses` of batches by a model, started before each request."""
    start = rows["start_ns"].to_numpy()
    starts = {"nodes": view.host_like(NODE), "uses": view.host_like(_USE)}
    before = {name: np.searchsorted(np.sort(ops["start_ns"].to_numpy()), start) for name, ops in starts.items()}
    return rows.with_columns(**{name: pl.Series(number, dtype=pl.Int64) for name, number in before.items()})


def _with_begins(view: DeviceView) -> pl.DataFrame:
    """The requests with the number of `ops` in each, and whether an iterator `begins` with it: right after its seed.

    A request `of_workers` that does starts with that seed, because processes start between the two. Each lasts up to
    the next op, because processes of an iterator that nobody keeps are joined there.
    """
    requests = view.host_like(f"{OWN_LOADING}|{WORKERS_LOADING}", "input").select("id", *_EVENT)
    of_threads = pl.col("thread").is_in(requests["thread"].unique().implode())
    ops = view.host.lazy().filter(pl.col("kind") == "op", of_threads).select("id", *_EVENT).collect()
    is_within = inside(spans(requests), ops)
    order = outermost(pl.concat([requests, ops.filter(~is_within)])).filter(~matches(_OF_SAMPLER))
    order = order.with_columns(end_ns=END_NS)
    rows = _after_seeds(order).join(requests, on="id", how="semi", maintain_order="left")
    within = begun(ops.filter(is_within)["start_ns"], *bounds(rows))
    begin_ns = pl.when(pl.col("begins") & pl.col("of_workers")).then("seed_ns").otherwise("start_ns")
    end_ns = pl.when("of_workers").then(pl.coalesce("next_ns", "end_ns")).otherwise("end_ns")
    return rows.with_columns(ops=pl.Series(within, dtype=pl.Int64), start_ns=begin_ns, dur_ns=end_ns - begin_ns)


def _after_seeds(rows: pl.DataFrame) -> pl.DataFrame:
    """With `begins`, whether a row comes right after one seed or two, when that is drawn, and the next op."""
    name, start = pl.col("name").cast(pl.String), pl.col("start_ns")
    seeds = [
        pl.all_horizontal(name.shift(i).over("thread") == op for i, op in enumerate(_SEED, first)).fill_null(
            value=False
        )
        for first in (1, 1 + len(_SEED))
    ]
    once, twice = (start.shift(number * len(_SEED)).over("thread") for number in (1, 2))
    seed_ns = pl.when(seeds[0] & seeds[1]).then(twice).otherwise(once)
    return rows.with_columns(
        begins=seeds[0], seed_ns=seed_ns, next_ns=start.shift(-1).over("thread"), of_workers=matches(WORKERS_LOADING)
    )
