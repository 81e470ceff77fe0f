"""The input pipeline of tf.data: which iterator the step waits for, and where the host's time for input goes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.tf_data import STAGES, bottleneck, builds, iterators, path_to, waits
from advisor.analysis.device.unknowns import undirected_copies
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value, tabulates
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS

_GUIDE: Final = "TensorFlow guide, Analyze tf.data performance with the TF Profiler"
_NOT_RECORDED: Final = Missing("no_iterators")
# What can be done about a transformation, after the guide's classes; the first that matches.
_CLASSES: Final = (
    ("source", r"^(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv|ListFiles|MatchingFiles)"),
    ("python", r"^(?:Generator|PyFunc|FlatMap|Interleave)$"),
    ("map", r"^(?:Map|Filter|Scan|GroupBy\w*|MapDefun)(?:V\d+)?$"),
    ("parallel", r"^(?:Parallel\w+|MapAndBatch|MapAndFilter)(?:V\d+)?$"),
    ("batch", r"^(?:Batch|PaddedBatch|DenseToRaggedBatch|Unbatch|Rebatch|DenseToSparseBatch)(?:V\d+)?$"),
    ("ahead", r"^Prefetch$"),
)
_PYTHON_OPS: Final = r":(?:Eager)?PyFunc(?:Stateless)?$"  # of py_function, numpy_function and from_generator
_PER_REPLICA: Final = "MultiDeviceIteratorGetNextFromShard"  # tf.distribute's own Generator asks it per device
_MOSTLY: Final = 0.5


def _slowest_calls(view: DeviceView) -> pl.DataFrame:
    slowest = bottleneck(view.once(iterators))
    name = pl.col("name").cast(pl.String).str.replace_all(r"\[\d+\]", "")
    calls = view.host.filter(pl.col("kind") == "pipeline").filter(name == slowest) if slowest else view.host.clear()
    return as_places(calls, "host_ops", op="id")


TF_DATA_BOTTLENECK = Metric(
    "tf_data_bottleneck",
    "The transformation of tf.data that holds up the others.",
    "the iterator with the most blocking time of its own",
    _GUIDE,
    unit="text",
)
TF_DATA_CLASS = Metric(
    "tf_data_class",
    "What kind of transformation that is, by what can be done: source, python, pyfunc, replica, map, parallel, "
    "batch, ahead, other.",
    "pyfunc where PyFunc ops run in half of the waiting for input; replica where it is a Generator without them "
    "and tf.distribute's MultiDeviceIterator is asked; else by its name; one that could run calls in parallel but "
    "runs one is a map",
    _GUIDE,
    unit="text",
)
TF_DATA_PATH = Metric(
    "tf_data_path",
    "The critical path of the pipeline: the transformations from the one that is asked down to the bottleneck.",
    "the parts of the iterator's long name",
    _GUIDE,
    unit="text",
)
TF_DATA_SHARE = Metric(
    "tf_data_share",
    "Part of the step that passes waiting for that transformation itself.",
    "time in the steps in which a request for input is open, the device does nothing, the iterator or one that "
    "asks it is at work, and none that it asks is, on any thread / step time",
    _GUIDE,
    where=_slowest_calls,
)
TF_DATA_PART = Metric(
    "tf_data_part", "How much of the waiting for input that is.", "the same / all such waiting", _GUIDE
)
TF_DATA_PYTHON_SHARE = Metric(
    "tf_data_python_share",
    "How much of the waiting for input passes while Python functions of the pipeline run.",
    "waiting for input in which a PyFunc op is open on any thread / all such waiting",
    _GUIDE,
)
TF_DATA_PYTHON_CALLS = Metric(
    "tf_data_python_calls",
    "How many Python functions of the pipeline are open at once while any is; they may take turns for Python's lock.",
    "time of PyFunc ops, of all threads together / time in which any is open; 0 where the steps wait for none",
)
TF_DATA_MS = time_of("tf_data_ms", TF_DATA_SHARE, "tf_data_share x step_mean_ms")
TF_DATA_PARALLELISM = Metric(
    "tf_data_parallelism",
    "How many calls of the bottleneck run at once.",
    "parallelism as recorded; 1 where it has none",
)
TF_DATA_SLOW_CALLS_PER_STEP = Metric(
    "tf_data_slow_calls_per_step",
    "Calls of whole pipelines per step that take more than 50 µs.",
    "calls of top iterators of more than 50 µs / steps of the recording",
    _GUIDE,
)


@measures(
    TF_DATA_BOTTLENECK,
    TF_DATA_CLASS,
    TF_DATA_PATH,
    TF_DATA_SHARE,
    TF_DATA_PART,
    TF_DATA_PYTHON_SHARE,
    TF_DATA_PYTHON_CALLS,
    TF_DATA_MS,
    TF_DATA_PARALLELISM,
    TF_DATA_SLOW_CALLS_PER_STEP,
)
def pipeline(view: DeviceView) -> Values:
    """The iterator that holds up the steps; where nothing waits, its share is zero."""
    rows = view.once(iterators)
    if not rows.height and _asks(view):
        return _NOT_RECORDED
    slow = int(rows.filter(pl.col("parent").is_null())["slow_calls"].sum()) / max(1, view.complete.height)
    slowest = bottleneck(rows)
    values = _no_waiting() if slowest is None else _waiting(view, rows.filter(pl.col("iterator") == slowest))
    return {**values, TF_DATA_SLOW_CALLS_PER_STEP: slow}


def _no_waiting() -> dict[Metric, Value]:
    """No time is waited; there may be no pipeline at all."""
    texts = (TF_DATA_BOTTLENECK, TF_DATA_CLASS, TF_DATA_PATH, TF_DATA_PARALLELISM)
    zeros = (TF_DATA_SHARE, TF_DATA_PART, TF_DATA_PYTHON_SHARE, TF_DATA_PYTHON_CALLS, TF_DATA_MS)
    return {**dict.fromkeys(texts, Missing("no_tf_data_wait")), **dict.fromkeys(zeros, 0.0)}


def _waiting(view: DeviceView, iterator: pl.DataFrame) -> dict[Metric, Value]:
    """What the steps wait for: the one iterator of these rows."""
    row = iterator.row(0, named=True)
    waiting = waits(view)
    python_share = (_ops(view, _PYTHON_OPS) & waiting).total / waiting.total
    inner = ["PyFunc"] if python_share >= _MOSTLY else []
    return {
        TF_DATA_BOTTLENECK: row["transformation"],
        TF_DATA_CLASS: _class(view, row["transformation"], row["parallelism"] or 1, python_share),
        TF_DATA_PATH: " > ".join([*path_to(row["iterator"]), *inner]),
        TF_DATA_SHARE: row["waited_ns"] / view.total_ns,
        TF_DATA_PART: row["waited_ns"] / waiting.total,
        TF_DATA_PYTHON_SHARE: python_share,
        TF_DATA_PYTHON_CALLS: _at_once(view, _PYTHON_OPS) if python_share else 0.0,
        TF_DATA_MS: view.per_step_ms(row["waited_ns"]),
        TF_DATA_PARALLELISM: float(row["parallelism"] or 1),
    }


def _class(view: DeviceView, transformation: str, parallelism: int, python_share: float) -> str:
    if python_share >= _MOSTLY:
        return "pyfunc"
    kind = _class_of_name(transformation, parallelism)
    return "replica" if kind == "python" and not python_share and _ops(view, _PER_REPLICA).total else kind


def _class_of_name(transformation: str, parallelism: int) -> str:
    """One that could run calls in parallel, and runs one, was not set to: tf.data fuses a map with its batch."""
    kind = next((kind for kind, pattern in _CLASSES if re.search(pattern, transformation)), "other")
    return "map" if kind == "parallel" and parallelism <= 1 else kind


def _ops(view: DeviceView, name: str) -> Union:
    """When an op runs on the host whose `name:type` matches."""
    return spans(view.host_like(name, "op"))


def _at_once(view: DeviceView, name: str) -> float:
    """On how many threads such an op runs, on average over the time in which one does."""
    ops = view.host_like(name, "op")
    busy_ns = sum(spans(of_thread).total for of_thread in ops.partition_by("thread"))
    return busy_ns / spans(ops).total if busy_ns else 0.0


def _asks(view: DeviceView) -> bool:
    """Whether a step asks tf.data for input."""
    asks = (pl.col("kind") == "input") & matches("IteratorGetNext")
    return bool(view.host.select(asks.any()).item())


STAGES_MS: Final = {
    stage: Metric(
        f"{stage.replace(' ', '_')}_ms",
        f"Time per step of the whole recording that tf.data's iterators spend on {meaning}, all threads together.",
        f"sum of the iterators' own time, of stage {stage} / steps",
        "XProf's input pipeline analyzer, host side; its fourth stage, the enqueue, is the copy to the device",
    )
    for stage, meaning in zip(
        STAGES,
        ("reading files when asked to", "reading files ahead of being asked", "everything but reading files"),
        strict=True,
    )
}
PIPELINE_BUILD_PART = Metric(
    "pipeline_build_part",
    "How much of the compilation builds functions of tf.data pipelines: map, filter and their like trace theirs anew.",
    "time of tf.function-graph_building after which the thread's next eager op makes a dataset "
    "(EagerLocalExecute: MapDataset) / time of all compilation; 0 without any",
    "TensorFlow traces a function of a dataset when the dataset is made; a tf.function that is traced is run next",
)


@measures(PIPELINE_BUILD_PART)
def pipelines_built(view: DeviceView) -> Values:
    """Pipelines that are made anew, as `model.predict` in a callback does at each call."""
    return {PIPELINE_BUILD_PART: view.once(builds).total / max(1, view.host_spans("compile").total)}


ENQUEUE_SHARE = Metric(
    "enqueue_share",
    "Part of the step in which the device waits for a copy from the host and nothing else runs on it.",
    "copies to the device outside kernels, collectives and other copies / step time; those that a program of XLA "
    "makes by itself are none of batches",
    "XProf's input pipeline analyzer, device side: host to device",
    ("device_ops",),
    where=lambda view: as_places(_to_device(view.used_ops), "device_ops", op="op"),
)


@measures(*STAGES_MS.values(), ENQUEUE_SHARE)
def stages(view: DeviceView) -> Values:
    """The four stages of the host's side of input."""
    return {**_host_stages(view), ENQUEUE_SHARE: _enqueue_share(view)}


def _host_stages(view: DeviceView) -> Mapping[Metric, Value]:
    rows = view.once(iterators)
    if not rows.height and _asks(view):
        return dict.fromkeys(STAGES_MS.values(), _NOT_RECORDED)
    steps = max(1, view.complete.height)
    times_ns = dict(rows.group_by("stage").agg(pl.sum("self_ns")).rows())
    return {metric: times_ns.get(stage, 0) / 1e6 / steps for stage, metric in STAGES_MS.items()}


def _to_device(ops: pl.DataFrame) -> pl.DataFrame:
    """Copies of batches: what a program of XLA fetches by itself, it keeps in host memory."""
    is_batch = pl.col("hlo_module").is_null()
    return ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").cast(pl.String) == "HtoD", is_batch)


def _enqueue_share(view: DeviceView) -> Value:
    if reason := undirected_copies(view):
        return reason
    copies = _to_device(view.ops)["id"]
    others = spans(view.ops.filter(~pl.col("id").is_in(copies.implode())))
    busy = view.busy.within(view.starts, view.ends).sum()
    return float(busy - others.within(view.starts, view.ends).sum()) / view.total_ns


@tabulates("iterator")
def iterator_table(view: DeviceView) -> pl.DataFrame:
    """One row per iterator of tf.data, those that ask before those that are asked; the graph of the pipeline.

    Columns: iterator, parent (iterator; null: asked by the step), transformation, stage, calls, slow_calls, total_ms,
    self_ms (outside other iterators, per thread), waited_ms (of the used steps), parallelism, critical (on the path to
    the bottleneck), bottleneck.
    """
    rows = view.once(iterators)
    slowest = bottleneck(rows) or ""
    return rows.select(
        *("iterator", "parent", "transformation", "stage", "calls", "slow_calls"),
        *((pl.col(f"{name}_ns") / 1e6).alias(f"{name}_ms") for name in ("total", "self", "waited")),
        "parallelism",
        critical=(pl.lit(slowest) == pl.col("iterator"))
        | pl.lit(slowest).str.starts_with(pl.concat_str(pl.col("iterator"), pl.lit("::"))),
        bottleneck=pl.col("iterator") == slowest,
    )


INPUT_DURING_LAUNCH_SHARE = Metric(
    "input_during_launch_share",
    "Part of the step in which the device idles, TensorFlow launches, and tf.data works on other threads.",
    "idle time in calls and `ExecutorState::Process` during which an iterator of tf.data is at work / step time",
    "XProf's overview page: kernel launch may be held up by tf.data; here seen on the threads",
    where=lambda view: places(view, view.host.filter(_launching())),
)
INPUT_DURING_LAUNCH_PART = Metric(
    "input_during_launch_part",
    "How much of TensorFlow's launching passes while tf.data works on other threads.",
    "the same / idle time in calls and `ExecutorState::Process`",
)


@measures(INPUT_DURING_LAUNCH_SHARE, INPUT_DURING_LAUNCH_PART)
def contention(view: DeviceView) -> Values:
    """Launching that competes with tf.data for processors."""
    if view.device is None:
        return Missing("no_device_used")
    waits = spans(view.host.filter(_launching())) - (view.busy | view.host_spans("input"))
    launching = waits & Union.of(view.starts, view.ends)
    both = (launching & view.host_spans("pipeline")).total
    return {
        INPUT_DURING_LAUNCH_SHARE: both / view.total_ns,
        INPUT_DURING_LAUNCH_PART: both / launching.total if launching.total else 0.0,
    }


def _launching() -> pl.Expr:
    executes = matches("^ExecutorState::Process")
    return pl.col("kind").is_in(DRIVER_CALLS) | executes
