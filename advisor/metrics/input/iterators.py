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

measure = of_devices(__name__)


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
)
measure(
    "short_iterator_batches",
    lambda view: _iterators(view.once(short_requests)).select(pl.median("batches")).item() or 0.0,
)
measure("short_iterator_share", lambda view: int(waits(view, view.once(short_requests)).sum()) / view.total_ns)
measure.gain("short_iterator", lambda view: _loaded(view, view.once(short_requests)))
measure.gain("single_process", lambda view: _loaded(view, view.once(lasting)))
measure("first_batch_part", _first_batch_part)
for _name, _which in (("drained", "is_end"), ("of_workers", "of_workers"), ("train", "trains")):
    measure(f"iterators_{_name}", lambda view, which=_which: view.once(_used)[which].mean() or 0.0, unit="share")  # type: ignore[misc]


_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_MOSTLY: Final = 0.5  # own choice: of the loading
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer


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


measure(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
)
measure("indexed_samples", _indexed)
measure("collating_part", _collating)


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


def _anew_ns(view: DeviceView) -> float:
    again = view.once(_restarts)
    return float(_idle_ns(view, again.ending | again.starting).sum())


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


of_starts = of_devices(__name__, needs_steps=False)
of_starts("worker_start_ms", lambda view: _start_ns(view) / 1e6)
of_starts("worker_start_share", lambda view: _start_ns(view) / max(1, view.recorded_ns))
measure(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
)
measure("epoch_steps", _apart, unit="count")
measure("worker_restart_ms", lambda view: view.per_step_ms(_anew_ns(view)))
measure("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view)))
measure("outlier_restart_part", _outlier_part)


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
of_bottleneck = of_devices(__name__, unknown=lacking(_unrecorded, _no_wait))
of_pipelines = of_devices(__name__, unknown=_unrecorded)
of_slowest = of_bottleneck.parts_of(_slowest)
of_slowest("tf_data_bottleneck", lambda row: row["transformation"], unit="text")
of_bottleneck("tf_data_class", _class, unit="text")
of_bottleneck("tf_data_path", _path, unit="text")
of_slowest("tf_data_parallelism", lambda row: row["parallelism"] or 1)
of_pipelines(
    "tf_data_share", lambda view: _waited_ns(view) / view.total_ns, where=as_places(_slowest_calls, "host_ops", op="id")
)
of_pipelines("tf_data_part", lambda view: _waited_ns(view) / max(1, view.once(pipeline_waits).total))
of_pipelines("tf_data_python_share", _python_share)
of_bottleneck("tf_data_op", lambda view: view.once(_busiest_op)[0], unit="text")
of_bottleneck("tf_data_op_share", lambda view: view.once(_busiest_op)[1])
of_pipelines("tf_data_decode_share", partial(_share_of, name=_DECODES))
of_pipelines(
    "tf_data_python_calls", lambda view: _at_once(view, _PYTHON_OPS) if view.once(_python_share) else 0.0, unit="number"
)
for _stage in STAGES:
    of_pipelines(f"{_stage.replace(' ', '_')}_ms", partial(_stage_ms, stage=_stage))

measure("pipeline_build_part", lambda view: view.once(builds).total / max(1, view.host_spans("compile").total))

of_launches = of_devices(__name__, unknown=lacking(no_device_used=lambda view: view.device is None))
of_launches(
    "input_during_launch_share", lambda view: view.once(_contended).total / view.total_ns, where=places(_launches)
)
of_launches("input_during_launch_part", lambda view: view.once(_contended).total / max(1, view.once(_launching).total))
