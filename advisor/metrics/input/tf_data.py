"""The input pipeline of tf.data: which iterator the step waits for, and where the host's time for input goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import undirected_copies
from advisor.analysis.device.steps import DeviceView, spans
from advisor.analysis.device.tf_data import STAGES, bottleneck, iterators, path_to, waits
from advisor.metrics.metric import Metric, Value, measures, tabulates
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import named

_GUIDE: Final = "TensorFlow guide, Analyze tf.data performance with the TF Profiler"
_NONE: Final = Missing("no_iterators")
# What can be done about a transformation, after the guide's classes; the first that matches.
_CLASSES: Final = (
    ("source", r"^(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv|ListFiles|MatchingFiles)"),
    ("python", r"^(?:Generator|PyFunc|FlatMap|Interleave)$"),
    ("map", r"^(?:Map|Filter|Scan|GroupBy\w*|MapDefun)(?:V\d+)?$"),
    ("parallel", r"^(?:Parallel\w+|MapAndBatch|MapAndFilter)(?:V\d+)?$"),
    ("batch", r"^(?:Batch|PaddedBatch|DenseToRaggedBatch|Unbatch|Rebatch|DenseToSparseBatch)(?:V\d+)?$"),
)
_PYTHON_OPS: Final = r":(?:Eager)?PyFunc(?:Stateless)?$"  # of py_function, numpy_function and from_generator
_PER_REPLICA: Final = "MultiDeviceIteratorGetNextFromShard"  # asked by tf.distribute's own Generator per device
_MOSTLY: Final = 0.5


def _slowest_calls(view: DeviceView) -> pl.DataFrame:
    blamed = bottleneck(view.once(iterators))
    name = pl.col("name").cast(pl.String).str.replace_all(r"\[\d+\]", "")
    mine = view.host.filter(pl.col("kind") == "pipeline").filter(name == blamed) if blamed else view.host.clear()
    return mine.sort("dur_ns", "start_ns", descending=[True, False]).select(
        "step", "start_ns", "dur_ns", op="id", table=pl.lit("host_ops"), name=pl.col("name").cast(pl.String)
    )


@measures(
    Metric(
        "tf_data_bottleneck",
        "text",
        "The transformation of tf.data that holds up the others.",
        "the iterator with the most blocking time of its own",
        _GUIDE,
    ),
    Metric(
        "tf_data_class",
        "text",
        "What kind of transformation that is, by what can be done: source, python, pyfunc, replica, map, parallel, "
        "batch, other.",
        "pyfunc where PyFunc ops run in half of the waiting for input; replica where it is a Generator without them "
        "and tf.distribute's MultiDeviceIterator is asked; else by its name; one that could run calls in parallel but "
        "runs one is a map",
        _GUIDE,
    ),
    Metric(
        "tf_data_path",
        "text",
        "The critical path of the pipeline: the transformations from the one that is asked down to the bottleneck.",
        "the parts of the iterator's long name",
        _GUIDE,
    ),
    Metric(
        "tf_data_share",
        "share",
        "Part of the step that passes waiting for that transformation itself.",
        "time in the steps in which a request for input is open, the device does nothing, the iterator or one that "
        "asks it is at work, and none that it asks is, on any thread / step time",
        _GUIDE,
        where=_slowest_calls,
    ),
    Metric(
        "tf_data_part", "share", "How much of the waiting for input that is.", "the same / all such waiting", _GUIDE
    ),
    Metric(
        "tf_data_python_share",
        "share",
        "How much of the waiting for input passes while Python functions of the pipeline run.",
        "waiting for input in which a PyFunc op is open on any thread / all such waiting",
        _GUIDE,
    ),
    Metric("tf_data_ms", "ms", "The same, per step.", "tf_data_share x step_mean_ms"),
    Metric(
        "tf_data_parallelism",
        "number",
        "How many calls of the bottleneck run at once.",
        "parallelism as recorded; 1 where it has none",
    ),
    Metric(
        "tf_data_slow_calls_per_step",
        "number",
        "Calls of whole pipelines per step that take more than 50 us.",
        "calls of top iterators of more than 50 us / steps of the recording",
        _GUIDE,
    ),
)
def pipeline(view: DeviceView) -> Mapping[str, Value]:
    """The iterator to blame; where nothing waits, its share is zero."""
    if not view.total_ns:
        return {}
    rows = view.once(iterators)
    if not rows.height and _asks(view):
        return dict.fromkeys(_NAMES, _NONE)
    slow = int(rows.filter(pl.col("parent").is_null())["slow_calls"].sum()) / max(1, view.complete.height)
    blamed = bottleneck(rows)
    if blamed is None:
        nothing = Missing("no_tf_data_wait")  # which may not be used at all
        zero = dict.fromkeys(("tf_data_share", "tf_data_part", "tf_data_python_share", "tf_data_ms"), 0.0)
        return dict.fromkeys(_NAMES, nothing) | zero | {"tf_data_slow_calls_per_step": slow}
    row = rows.filter(pl.col("iterator") == blamed).row(0, named=True)
    waiting = waits(view)
    python = (_ops(view, _PYTHON_OPS) & waiting).total / waiting.total
    kind = _class(row["transformation"], row["parallelism"] or 1)
    if python >= _MOSTLY:
        kind = "pyfunc"
    elif kind == "python" and not python and _ops(view, _PER_REPLICA).total:
        kind = "replica"
    return {
        "tf_data_bottleneck": row["transformation"],
        "tf_data_class": kind,
        "tf_data_path": " > ".join([*path_to(blamed), *(["PyFunc"] if python >= _MOSTLY else [])]),
        "tf_data_share": row["waited_ns"] / view.total_ns,
        "tf_data_part": row["waited_ns"] / waiting.total,
        "tf_data_python_share": python,
        "tf_data_ms": view.per_step_ms(row["waited_ns"]),
        "tf_data_parallelism": float(row["parallelism"] or 1),
        "tf_data_slow_calls_per_step": slow,
    }


def _ops(view: DeviceView, name: str) -> Union:
    """When an op runs on the host whose `name:type` matches."""
    return spans(view.host.filter(pl.col("kind") == "op", named(name)))


def _asks(view: DeviceView) -> bool:
    """Whether a step asks tf.data for input."""
    asks = (pl.col("kind") == "input") & named("IteratorGetNext")
    return bool(view.host.select(asks.any()).item())


_NAMES: Final = (
    *("tf_data_bottleneck", "tf_data_class", "tf_data_path", "tf_data_share", "tf_data_part", "tf_data_ms"),
    *("tf_data_python_share", "tf_data_parallelism", "tf_data_slow_calls_per_step"),
)


def _class(transformation: str, parallelism: int) -> str:
    """One that could run calls in parallel, and runs one, was not asked to: tf.data fuses a map with its batch."""
    told = pl.select(pl.lit(transformation).alias("t")).select(
        pl.coalesce(*(pl.when(pl.col("t").str.contains(p)).then(pl.lit(c)) for c, p in _CLASSES), pl.lit("other"))
    )
    return "map" if told.item() == "parallel" and parallelism <= 1 else str(told.item())


@measures(
    *(
        Metric(
            f"{stage.replace(' ', '_')}_ms",
            "ms",
            f"Time per step of the whole recording that tf.data's iterators spend on {meaning}, all threads together.",
            f"sum of the iterators' own time, of stage {stage} / steps",
            "XProf's input pipeline analyzer, host side; its fourth stage, the enqueue, is the copy to the device",
        )
        for stage, meaning in zip(
            STAGES,
            ("reading files when asked to", "reading files ahead of being asked", "everything but reading files"),
            strict=True,
        )
    ),
    Metric(
        "enqueue_share",
        "share",
        "Part of the step in which the device waits for a copy from the host and nothing else runs on it.",
        "copies to the device outside kernels, collectives and other copies / step time; those that a program of XLA "
        "makes by itself are none of batches",
        "XProf's input pipeline analyzer, device side: host to device",
        ("device_ops",),
        where=lambda view: (
            _to_device(view.used_ops)
            .sort("dur_ns", "start_ns", descending=[True, False])
            .select("step", "start_ns", "dur_ns", "op", table=pl.lit("device_ops"), name=pl.col("name").cast(pl.String))
        ),
    ),
)
def stages(view: DeviceView) -> Mapping[str, Value]:
    """The four stages of the host's side of input."""
    if not view.total_ns:
        return {}
    return {**_host_stages(view), "enqueue_share": _enqueue_share(view)}


def _host_stages(view: DeviceView) -> dict[str, Value]:
    rows = view.once(iterators)
    if not rows.height and _asks(view):
        return {f"{stage.replace(' ', '_')}_ms": _NONE for stage in STAGES}
    steps = max(1, view.complete.height)
    spent = dict(rows.group_by("stage").agg(pl.sum("self_ns")).rows())
    return {f"{stage.replace(' ', '_')}_ms": spent.get(stage, 0) / 1e6 / steps for stage in STAGES}


def _to_device(ops: pl.DataFrame) -> pl.DataFrame:
    """Copies of batches: what a program of XLA fetches by itself, it keeps in host memory."""
    fetched = pl.col("hlo_module").is_not_null()
    return ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").cast(pl.String) == "HtoD", ~fetched)


def _enqueue_share(view: DeviceView) -> Value:
    if untold := undirected_copies(view):
        return untold
    copies = _to_device(view.ops)["id"]
    others = spans(view.ops.filter(~pl.col("id").is_in(copies.implode())))
    both = view.busy.within(view.starts, view.ends).sum()
    return float(both - others.within(view.starts, view.ends).sum()) / view.total_ns


@tabulates("iterator")
def iterator_table(view: DeviceView) -> pl.DataFrame:
    """One row per iterator of tf.data, those that ask before those that are asked; the graph of the pipeline.

    Columns: iterator, parent (iterator; null: asked by the step), transformation, stage, calls, slow_calls, total_ms,
    self_ms (outside other iterators, per thread), waited_ms (of the used steps), parallelism, critical (on the path to
    the bottleneck), bottleneck.
    """
    rows = view.once(iterators)
    blamed = bottleneck(rows) or ""
    return rows.select(
        *("iterator", "parent", "transformation", "stage", "calls", "slow_calls"),
        *((pl.col(f"{name}_ns") / 1e6).alias(f"{name}_ms") for name in ("total", "self", "waited")),
        "parallelism",
        critical=(pl.lit(blamed) == pl.col("iterator"))
        | pl.lit(blamed).str.starts_with(pl.concat_str(pl.col("iterator"), pl.lit("::"))),
        bottleneck=pl.col("iterator") == blamed,
    )
