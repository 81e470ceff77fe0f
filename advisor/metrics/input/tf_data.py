"""The input pipeline of tf.data: which iterator the step waits for, and where the host's time for input goes."""

import re
from functools import partial
from typing import Any, Final

import polars as pl

from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.tf_data import STAGES, bottleneck, builds, iterators, path_to, waits
from advisor.analysis.device.view import DeviceView, spans, spent_ns
from advisor.metrics.metric import lacking, of_devices, tabulates
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS

# What can be done about a transformation, after the guide's classes; the first that matches.
_CLASSES: Final = (
    ("source", r"^(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv|ListFiles|MatchingFiles)"),
    ("python", r"^(?:Generator|PyFunc|FlatMap|Interleave)$"),
    ("map", r"^(?:Map|Filter|Scan|GroupBy\w*|MapDefun)(?:V\d+)?$"),
    ("parallel", r"^(?:Parallel\w+|MapAndBatch|MapAndFilter)(?:V\d+)?$"),
    ("batch", r"^(?:Batch|PaddedBatch|DenseToRaggedBatch|Unbatch|Rebatch|DenseToSparseBatch)(?:V\d+)?$"),
    ("ahead", r"^Prefetch$"),
)
_GUIDE: Final = "TensorFlow guide, Analyze tf.data performance with the TF Profiler"
_PYTHON_OPS: Final = r":(?:Eager)?PyFunc(?:Stateless)?$"  # of py_function, numpy_function and from_generator
_DECODES: Final = r":Decode(?:AndCrop)?(?:Jpeg|Png|Image|Bmp|Gif|WebP|Wav)$"
_PER_REPLICA: Final = "MultiDeviceIteratorGetNextFromShard"  # tf.distribute's own Generator asks it per device
_OP_TYPE: Final = pl.col("name").cast(pl.String).str.extract(r":(\w+)$")
_MOSTLY: Final = 0.5


def _slowest_calls(view: DeviceView) -> pl.DataFrame:
    name = pl.col("name").cast(pl.String).str.replace_all(r"\[\d+\]", "")
    return view.host.filter(pl.col("kind") == "pipeline").filter(name == view.once(_slowest).get("iterator", ""))


def _unrecorded(view: DeviceView) -> Missing | None:
    """Why no iterator is known, though a step asks tf.data for input."""
    asks = (pl.col("kind") == "input") & matches("IteratorGetNext")
    is_silent = not view.once(iterators).height and view.host.select(asks.any()).item()
    return Missing("no_iterators") if is_silent else None


def _slowest(view: DeviceView) -> dict[str, Any]:
    """The row of the iterator that holds up the steps; empty where nothing waits, or there is no pipeline."""
    rows = view.once(iterators)
    slowest = bottleneck(rows)
    return rows.row(by_predicate=pl.col("iterator") == slowest, named=True) if slowest else {}


def _waited_ns(view: DeviceView) -> int:
    return int(view.once(_slowest).get("waited_ns", 0))


def _share_of(view: DeviceView, name: str) -> float:
    waiting = view.once(waits)
    return (_ops(view, name) & waiting).total / waiting.total if view.once(_slowest) else 0.0


_python_share: Final = partial(_share_of, name=_PYTHON_OPS)


def _busiest_op(view: DeviceView) -> tuple[str, float]:
    """The type of op that runs longest while the steps wait for input, all threads together, and in what part of it."""
    waiting = view.once(waits)
    ops = view.host.filter(pl.col("kind") == "op").select("start_ns", "dur_ns", type=_OP_TYPE).drop_nulls("type")
    if not waiting.total or not (rows := ops.with_columns(spent_ns(ops, waiting)).filter(pl.col("ns") > 0)).height:
        return "", 0.0
    busiest = rows.group_by("type").agg(pl.sum("ns")).sort("ns", "type")["type"][-1]
    return busiest, (spans(rows.filter(pl.col("type") == busiest)) & waiting).total / waiting.total


def _path(view: DeviceView) -> str:
    inner = ["PyFunc"] if view.once(_python_share) >= _MOSTLY else []
    return " > ".join([*path_to(view.once(_slowest)["iterator"]), *inner])


def _class(view: DeviceView) -> str:
    python_share = view.once(_python_share)
    if python_share >= _MOSTLY:
        return "pyfunc"
    slowest = view.once(_slowest)
    kind = next((kind for kind, pattern in _CLASSES if re.search(pattern, slowest["transformation"])), "other")
    if kind == "parallel" and (slowest["parallelism"] or 1) <= 1:
        return "map"  # it was not set to run in parallel: tf.data fuses a map with its batch
    return "replica" if kind == "python" and not python_share and _ops(view, _PER_REPLICA).total else kind


def _ops(view: DeviceView, name: str) -> Intervals:
    """When an op runs on the host whose `name:type` matches."""
    return spans(view.host_like(name, "op"))


def _at_once(view: DeviceView, name: str) -> float:
    """On how many threads such an op runs, on average over the time in which one does."""
    ops = view.host_like(name, "op")
    busy_ns = sum(spans(of_thread).total for of_thread in ops.partition_by("thread"))
    return busy_ns / spans(ops).total if busy_ns else 0.0


def _stage_ms(view: DeviceView, stage: str) -> float:
    times_ns = view.once(iterators).filter(pl.col("stage") == stage)["self_ns"]
    return int(times_ns.sum()) / 1e6 / max(1, view.complete.height)


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


def _launches(view: DeviceView) -> pl.DataFrame:
    executes = matches("^ExecutorState::Process")
    return view.host.filter(pl.col("kind").is_in(DRIVER_CALLS) | executes)


def _launching(view: DeviceView) -> Intervals:
    idle = spans(view.once(_launches)) - (view.busy | view.host_spans("input"))
    return idle & view.windows


def _contended(view: DeviceView) -> Intervals:
    return view.once(_launching) & view.host_spans("pipeline")


_no_wait: Final = lacking(no_tf_data_wait=lambda view: not view.once(_slowest))
of_bottleneck = of_devices(__name__, source=_GUIDE, unknown=lacking(_unrecorded, _no_wait))
of_pipelines = of_devices(__name__, source=_GUIDE, unknown=_unrecorded)
of_slowest = of_bottleneck.parts_of(_slowest)
of_slowest("tf_data_bottleneck", lambda row: row["transformation"], unit="text").says(
    "The transformation of tf.data that holds up the others.", "the iterator with the most blocking time of its own"
)
of_bottleneck("tf_data_class", _class, unit="text").says(
    "What kind of transformation holds up the others, by what can be done: source, python, pyfunc, replica, map, "
    "parallel, batch, ahead, other.",
    "pyfunc where PyFunc ops run in half of the waiting for input; replica where it is a Generator without them "
    "and tf.distribute's MultiDeviceIterator is asked; else by its name; one that could run calls in parallel but "
    "runs one is a map",
)
of_bottleneck("tf_data_path", _path, unit="text").says(
    "The critical path of the pipeline: the transformations from the one that is asked down to the bottleneck.",
    "the parts of the iterator's long name",
)
of_slowest("tf_data_parallelism", lambda row: row["parallelism"] or 1).says(
    "How many calls of the bottleneck run at once.", "parallelism as recorded; 1 where it has none", ""
)
of_pipelines(
    "tf_data_share", lambda view: _waited_ns(view) / view.total_ns, where=as_places(_slowest_calls, "host_ops", op="id")
).says(
    "Part of the step that waits for the transformation of tf.data that holds up the others.",
    "time in the steps in which a request for input is open, the device does nothing, the iterator or one that "
    "asks it is at work, and none that it asks is, on any thread / step time",
)
of_pipelines("tf_data_part", lambda view: _waited_ns(view) / max(1, view.once(waits).total)).says(
    "How much of the waiting for input passes in the transformation that holds up the others.",
    "the same / all such waiting",
)
of_pipelines("tf_data_python_share", _python_share).says(
    "How much of the waiting for input passes while Python functions of the pipeline run.",
    "waiting for input in which a PyFunc op is open on any thread / all such waiting",
)
of_bottleneck("tf_data_op", lambda view: view.once(_busiest_op)[0], unit="text").says(
    "The type of op that runs longest while the step waits for input.",
    "of the ops `name:Type` on all threads, the type with most time in that waiting; empty where none runs in it",
)
of_bottleneck("tf_data_op_share", lambda view: view.once(_busiest_op)[1]).says(
    "How much of the waiting for input passes while an op of that type runs.",
    "waiting for input in which one is open on any thread / all such waiting",
)
of_pipelines("tf_data_decode_share", partial(_share_of, name=_DECODES)).says(
    "How much of the waiting for input passes while images or sound are decoded.",
    "waiting for input in which such an op (DecodeJpeg) is open on any thread / all such waiting",
)
of_pipelines(
    "tf_data_python_calls", lambda view: _at_once(view, _PYTHON_OPS) if view.once(_python_share) else 0.0, unit="number"
).says(
    "How many Python functions of the pipeline are open at once while any is; they may take turns for Python's lock.",
    "time of PyFunc ops, of all threads together / time in which any is open; 0 where the steps wait for none",
    "",
)
for _stage, _work in zip(
    STAGES,
    ("reading files when asked to", "reading files ahead of being asked", "everything but reading files"),
    strict=True,
):
    of_pipelines(f"{_stage.replace(' ', '_')}_ms", partial(_stage_ms, stage=_stage)).says(
        f"Time per step of the whole recording that tf.data's iterators spend on {_work}, all threads together.",
        f"sum of the iterators' own time, of stage {_stage} / steps",
        "XProf's input pipeline analyzer, host side; its fourth stage, the enqueue, is the copy to the device",
    )

measure = of_devices(__name__)
measure("pipeline_build_part", lambda view: view.once(builds).total / max(1, view.host_spans("compile").total)).says(
    "How much of the compilation builds functions of tf.data pipelines: map, filter and their like trace theirs anew.",
    "time of tf.function-graph_building after which the thread's next eager op makes a dataset "
    "(EagerLocalExecute: MapDataset) / time of all compilation; 0 without any",
    "TensorFlow traces a function of a dataset when the dataset is made; a tf.function that is traced is run next",
)

of_launches = of_devices(__name__, unknown=lacking(no_device_used=lambda view: view.device is None))
of_launches(
    "input_during_launch_share", lambda view: view.once(_contended).total / view.total_ns, where=places(_launches)
).says(
    "Part of the step in which the device idles, TensorFlow launches, and tf.data works on other threads.",
    "idle time in calls and `ExecutorState::Process` during which an iterator of tf.data is at work / step time",
    "XProf's overview page: kernel launch may be held up by tf.data; here seen on the threads",
)
of_launches(
    "input_during_launch_part", lambda view: view.once(_contended).total / max(1, view.once(_launching).total)
).says(
    "How much of TensorFlow's launching passes while tf.data works on other threads.",
    "the same / idle time in calls and `ExecutorState::Process`",
)
