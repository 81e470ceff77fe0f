"""The batches of PyTorch's loader, short iterators, samples in memory and new processes; the pipeline of tf.data.

Of tf.data: which iterator the step waits for, and where the host's time for input goes.
"""

import re
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import (
    STAGES,
    batches_of_epochs,
    bottleneck,
    builds,
    iterators,
    lasting,
    path_to,
    pipeline_waits,
    requests_at_once,
    short_requests,
    waits,
)
from advisor.analysis.device.loading_stages import own_part
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.steady_steps import Restarts, restarts
from advisor.analysis.device.view import DeviceView, bounds, spans, spent_ns, started_in
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.metrics.metric import lacking, of_devices, tabulates
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals, Ints
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import SLOW_CALL_NS
from advisor.whatif.change import Change, without

_SEVERAL: Final = 2
_SOURCE: Final = (
    "an iterator begins with a request right after the seed that it draws (aten::empty, random_, item); it ends where "
    "a request takes, or runs, under a tenth of one before, or where the next one begins; with worker processes also "
    "requests, each with a model's ops and no backward pass after it, up to one in which nothing is loaded, and after "
    "which no model runs before the next; short: two or more of fewer "
    "than ten batches, or than four if a backward pass runs before its last request"
)

measure = of_devices(__name__, source=_SOURCE)


def _used(view: DeviceView) -> pl.DataFrame:
    """The short iterators that the used steps ask."""
    return _iterators(started_in(view.once(short_requests), view.starts, view.ends))


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.group_by("thread", "iterator").agg(
        pl.col("is_end", "trains", "of_workers").any(), batches=(~pl.col("is_end")).sum()
    )


def _first_batch_part(view: DeviceView) -> float:
    epochs = batches_of_epochs(view).to_numpy()
    return 1 / max(1.0, float(np.median(epochs))) if len(epochs) >= _SEVERAL else 0.0


def _loaded(view: DeviceView, requests: pl.DataFrame) -> Change:
    """With the batches of these requests there in time."""
    return without(host=spans(requests), bound_ns=int(waits(view, requests).sum()))


measure(
    "short_iterators",
    lambda view: view.once(_used).height,
    where=places(lambda view: view.host.join(view.once(short_requests), on="id", how="semi", maintain_order="left")),
    unit="count",
).says("Iterators of few batches that the steps make of their data loaders.", "those that begin in a used step")
measure(
    "short_iterator_batches",
    lambda view: _iterators(view.once(short_requests)).select(pl.median("batches")).item() or 0.0,
).says(
    "Batches that a short iterator of a data loader brings.",
    "median of the requests to each, without the one at its end; 0 without any",
)
measure("short_iterator_share", lambda view: int(waits(view, view.once(short_requests)).sum()) / view.total_ns).says(
    "Part of the step that loads batches of short iterators, or waits for them, and nothing else goes on.",
    "time of requests to them, and if worker processes load, from the seed on that is drawn before these start up "
    "to the next op, outside device work and calls / step time",
)
measure.gain("short_iterator", lambda view: _loaded(view, view.once(short_requests))).says(
    "Step time saved if batches of short iterators were in memory."
)
measure.gain("single_process", lambda view: _loaded(view, view.once(lasting))).says(
    "Step time saved if the batches that the main process loads for other iterators were there in time."
)
measure("first_batch_part", _first_batch_part).says(
    "Part of the batches that are the first of an iterator, which no process loads ahead.",
    "1 / median of the batches of iterators that are not short, and begin and end in the recording; 0 "
    "with fewer than two",
)
for _name, _column, _meaning, _which in (
    ("iterators_drained", "is_end", "are asked for batches until they have no more", "a request that brings no batch"),
    ("iterators_of_workers", "of_workers", "get their batches from worker processes", "requests to processes"),
    ("iterators_train", "trains", "are epochs of the training", "a backward pass before their last request"),
):
    measure(_name, lambda view, which=_column: view.once(_used)[which].mean() or 0.0, unit="share").says(  # type: ignore[misc]
        f"How many of the short iterators {_meaning}.", f"those with {_which} / short iterators; 0 without any"
    )


_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_MOSTLY: Final = 0.5  # own choice: of the loading
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

of_batches = of_devices(__name__)


def _requests(view: DeviceView) -> pl.DataFrame:
    return started_in(view.once(lasting).sort("start_ns"), view.starts, view.ends)


def _collating(view: DeviceView) -> float:
    requests = view.once(_requests)
    copies = spent_ns(requests, spans(view.host_like(_COLLATES, "op"))).to_numpy()
    return float(np.median(copies / np.maximum(1, requests["dur_ns"].to_numpy()))) if requests.height else 0.0


def _indexed(view: DeviceView) -> float:
    if view.once(own_part) >= _MOSTLY:
        return 0.0
    requests = view.once(_requests)
    takes = started_in(view.used_like(_TAKES, "op").drop("window").sort("start_ns"), *bounds(requests))
    samples = takes.height / max(1, requests.height)
    loading_ns = float(requests.select(pl.median("dur_ns").fill_null(0)).item())
    is_quick = samples >= _FEW_SAMPLES and (1 - view.once(_collating)) * loading_ns <= samples * SLOW_CALL_NS
    return samples if is_quick else 0.0


of_batches(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
).says(
    "Batches that the main process loads in a step of one loader.",
    "requests to its data loaders, without those to short iterators / steps / max(1, batches_at_once)",
)
of_batches("indexed_samples", _indexed).says(
    "Samples, or tensors of them, that the loader takes one by one from tensors in memory for a batch.",
    "aten::select in the loader's ranges / requests, if there are 8 or more, and loading without copies takes up to "
    "{slow_call} for each, and stacks of `advisor record` show no lines of the program for half of it; else 0",
    "no file is read, nor anything decoded, in {slow_call}: TensorDataset, for example",
)
of_batches("collating_part", _collating).says(
    "Part of the loading in which the main process copies samples into a batch.",
    "median over the loader's requests of the time in aten::stack and aten::cat; 0 without any",
)


_ANEW: Final = (
    "the request that ends an epoch takes over {worker_join}, because the processes end in it, the iterator of the "
    "next one draws a seed for its processes (aten::random_, in no other op), and a request to processes follows "
    "without a backward pass in between"
)

of_restarts = of_devices(__name__, source=_ANEW)


def _restarts(view: DeviceView) -> Restarts:
    return restarts(view.host)


def _begins(view: DeviceView) -> Ints:
    """The used steps, by row, in which the loop waits for the first batch of new processes."""
    return np.flatnonzero(view.once(_restarts).waiting.within(view.starts, view.ends))


def _apart(view: DeviceView) -> int:
    numbers = view.steps["step"].to_numpy()[view.once(_begins)]
    return int(np.median(np.diff(numbers))) if len(numbers) > 1 else 0


def _idle_ns(view: DeviceView, when: Intervals) -> Ints:
    """Of each used step the time then, in ns, outside device work and calls."""
    return (when - (view.busy | view.host_spans("collective", *DRIVER_CALLS))).within(view.starts, view.ends)


def _extra_wait_ns(view: DeviceView) -> float:
    """How much longer than in the other steps the loop waits for the first batches."""
    begins = view.once(_begins)
    usual = _idle_ns(view, spans(view.host_like(WORKERS_LOADING, "input")))
    others = np.delete(usual, begins)
    typical = int(np.median(others)) if len(others) else 0
    return float((_idle_ns(view, view.once(_restarts).waiting)[begins] - typical).clip(0).sum())


def _outlier_part(view: DeviceView) -> float:
    again = view.once(_restarts)
    starts, ends = bounds(view.outliers)
    beyond = (ends - starts - np.median(view.ends - view.starts)).clip(0).sum()
    anew = (again.ending | again.starting | again.waiting).within(starts, ends).sum()
    return float(min(anew / beyond, 1)) if beyond else 0.0


def _start_ns(view: DeviceView) -> int:
    return (view.once(_restarts).first - view.busy).total


of_starts = of_devices(__name__, source=_ANEW, needs_steps=False)
of_starts("worker_start_ms", lambda view: _start_ns(view) / 1e6).says(
    "Time before the first batch in which the data loader starts its worker processes.",
    "from the first seed that the first iterator draws to its first request, outside device work; 0 where the "
    "processes were there before",
)
of_starts("worker_start_share", lambda view: _start_ns(view) / max(1, view.recorded_ns)).says(
    "Part of the recording in which the data loader starts its worker processes.", "worker_start_ms / the recording"
)
of_restarts(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
).says(
    "Steps in which an epoch begins with new worker processes of the data loader.",
    "used steps in which the loop waits for the first batch of such processes",
)
of_restarts("epoch_steps", _apart, unit="count").says(
    "Steps from one epoch that begins with new worker processes to the next; 0 where fewer than two do.",
    "median of the distances",
)
of_restarts(
    "worker_restart_ms",
    lambda v: v.per_step_ms(float(_idle_ns(v, v.once(_restarts).ending | v.once(_restarts).starting).sum())),
).says(
    "Time per step in which the loader's processes end and the next epoch's are started.",
    "the request that ends an epoch, and from the first seed that the next iterator draws to its first request, "
    "outside device work and calls, in the used steps / used steps",
)
of_restarts("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view))).says(
    "What waiting for the first batch of new worker processes adds to the mean step.",
    "sum over the first requests of max(0, wait outside device work and calls - median of the other steps' waits) / "
    "used steps",
)
of_restarts("outlier_restart_part", _outlier_part).says(
    "Part of what the long steps take longer that new worker processes of the data loader take.",
    "in the steps left out: worker processes end, start or are waited for at first / (steps - median of the used "
    "steps), 1 at most; 0 without any",
)


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
    waiting = view.once(pipeline_waits)
    return (_ops(view, name) & waiting).total / waiting.total if view.once(_slowest) else 0.0


_python_share: Final = partial(_share_of, name=_PYTHON_OPS)


def _busiest_op(view: DeviceView) -> tuple[str, float]:
    """The type of op that runs longest while the steps wait for input, all threads together, and in what part of it."""
    waiting = view.once(pipeline_waits)
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
of_pipelines("tf_data_part", lambda view: _waited_ns(view) / max(1, view.once(pipeline_waits).total)).says(
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
of_pipelines("tf_data_files", lambda view: view.used_like(":ReadFile$", "op").height / view.steps.height).says(
    "Files that the pipeline opens and reads whole for a step.", "ops `ReadFile` in the used steps / steps"
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

of_tf_data = of_devices(__name__)
of_tf_data("pipeline_build_part", lambda view: view.once(builds).total / max(1, view.host_spans("compile").total)).says(
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
