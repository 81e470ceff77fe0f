"""TensorFlow's ops outside of graphs, what a tf.function saves, what the user has chosen, and summaries."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import between_ops, own_ns, step_ops
from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import FUNCTION_CALL
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.vocabulary.limits import DISPATCH_NS

_XPROF: Final = "XProf's overview page"
_TRACED: Final = r'"tf_function_call":"(?:traced|eager)'
# Functions that Keras 2 and 3 make of a model's step, and the mark of its TensorBoard callback.
_OF_KERAS: Final = (
    r"\b(?:__inference_)?(?:train_function|(?:one|multi)_step_on_(?:data|iterator))(?:_\d+)?$|^Profiled batch$"
)
_OWN_THREADS: Final = r"^tf_gpu_private_"
_SMALL_NS: Final = 100_000  # an eager op that typically takes less is mostly dispatch
_OF_DISPATCH: Final = 0.9
_OF_WORK: Final = 0.5
_LEAST: Final = 0.25  # own choice, as of all Python on a CPU

measure = of_devices(__name__, framework="tensorflow")
of_recording = of_devices(__name__, framework="tensorflow", needs_steps=False)
of_launches = of_devices(__name__, needs=("device_ops", "device_ops.launch"))


def _outermost(view: DeviceView) -> pl.DataFrame:
    """Framework ops of the used steps that stand in no other, without those of the input pipeline."""
    of_step = pl.col("step").is_not_null() | pl.lit(not view.has_marks)
    ops = view.used_host.filter(pl.col("kind") == "op", of_step).collect()
    return ops.filter(~pl.col("parent").fill_null(-1).is_in(ops["id"].implode()))


def _eager(view: DeviceView) -> pl.DataFrame:
    return view.once(_outermost).filter(pl.col("eager").fill_null(value=False))


def _eager_share(view: DeviceView) -> float | None:
    total = int(view.once(_outermost)["dur_ns"].sum())
    return int(view.once(_eager)["dur_ns"].sum()) / total if total else None


def _device_share(view: DeviceView) -> Value:
    ran = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("eager").is_not_null())
    if not ran.height:
        return Missing("eager_kernels_unknown")
    return float(ran.filter("eager")["dur_ns"].sum()) / max(1, int(ran["dur_ns"].sum()))


def _calls(view: DeviceView, pattern: str) -> pl.DataFrame:
    return view.host.filter(matches(pattern, "details"))


def _tracing_share(view: DeviceView) -> Value:
    calls = spans(_calls(view, FUNCTION_CALL))
    return spans(_calls(view, _TRACED)).total / calls.total if calls.total else Missing("no_tf_function")


def _gains_ms(view: DeviceView) -> tuple[float, float]:
    """What a tf.function saves on a CPU: between two eager ops TensorFlow's own Python may run for milliseconds."""
    if view.device is not None:
        return 0.0, 0.0
    share, between = view.once(_eager_share) or 0.0, between_ops(view, view.steps)
    lengths = between.ends - between.starts
    short_ns = int(lengths[lengths <= DISPATCH_NS].sum())
    ops = view.once(step_ops).select("id", "parent", "name", "dur_ns").collect()
    least_ms = view.per_step_ms(without_recording(view, short_ns, ops.height))
    return share * _LEAST * least_ms, share * view.per_step_ms(between.total + _fused_ns(ops))


def _fused_ns(ops: pl.DataFrame) -> float:
    """What of the ops' own time a graph saves at most: dispatch, and what is stored between ops that it fuses."""
    own = ops.select("name", ns=own_ns(ops))
    is_small = pl.col("ns").median().over("name") < _SMALL_NS
    part = pl.when(is_small).then(_OF_DISPATCH).otherwise(_OF_WORK)
    return float(own.select((part * pl.col("ns")).sum()).item())


def _launching_share(view: DeviceView) -> Value:
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent").collect()
    innermost = ops.filter(~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    if not innermost.height:
        return Missing("no_host_op")
    launching = innermost.filter(pl.col("id").is_in(view.ops["op"].drop_nulls().unique().implode()))
    return launching.height / innermost.height


measure("host_eager_share", lambda view: view.once(_eager_share), where=places(_eager)).says(
    "Part of the framework ops' time on the host that is spent on ops outside tf.function and tf.Graph.",
    "time of eager ops / time of all ops of the steps, those inside others not counted",
    f"{_XPROF}, TF ops executed eagerly on the host",
)
measure("eager_ops_per_step", lambda view: view.once(_eager).height / view.steps.height).says(
    "Ops per step that the host runs outside tf.function and tf.Graph.",
    "such ops / steps, those inside others not counted",
)
measure("device_eager_share", _device_share).says(
    "Part of the device's kernel time that ops outside tf.function and tf.Graph launched.",
    "time of kernels of eager ops / time of kernels, if the profile shows which are",
    f"{_XPROF}, TF ops executed eagerly on the device",
)
measure("function_tracing_share", _tracing_share, where=places(lambda view: _calls(view, _TRACED))).says(
    "Part of the time in calls of tf.functions in which the function was traced anew or ran eagerly.",
    "union of such calls / union of all calls of tf.functions in the recording",
    "XProf's tf.function statistics",
)
measure.saving("eager", _gains_ms).says("a tf.function around the eager ops, on a CPU,")
of_recording(
    "keras_fit_ranges",
    lambda view: view.host.filter(pl.col("kind").is_in(["annotation", "step"])).filter(matches(_OF_KERAS)).height,
    unit="count",
).says(
    "Ranges that only Keras's Model.fit makes: above 0 the loop is Keras's own, not the user's.",
    "host ranges called train_function, one_step_on_data, multi_step_on_iterator and the like, or Profiled batch",
    "recordings of Model.fit with Keras 3.15; TensorFlow's Keras 2 names the function train_function",
)
of_recording(
    "private_launch_threads", lambda view: int(view.threads["name"].str.contains(_OWN_THREADS).sum()), unit="count"
).says(
    "Threads that do nothing but launch the kernels of one GPU: above 0 TF_GPU_THREAD_MODE=gpu_private is on.",
    "threads called tf_gpu_private_*",
    "TensorFlow names the pool of that mode so",
)
of_launches("device_op_share", _launching_share).says(
    "Part of the framework ops, by number, that run something on the device; the others compute on the host, or "
    "nothing.",
    "framework ops of the steps that launched a device op / all of them; those with ops inside not counted",
    f"{_XPROF}, TF op placement, which counts every op on GPUs as placed on the host",
)


_WRITES: Final = r"(?:^EagerLocalExecute: |:)(?:Write\w*Summary|FlushSummaryWriter)$"


def _summary_callbacks(view: DeviceView) -> pl.DataFrame:
    """The ops that write, each from the end of what its thread did before: the callback prepares it there."""
    rows = view.host_like(_WRITES)
    return pl.concat([rows.clear(), *_with_silence(view, rows)])


def _with_silence(view: DeviceView, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for writes in rows.partition_by("thread"):
        before = view.host.filter(pl.col("thread") == writes["thread"][0], pl.col("kind") != "python")
        ends = np.sort((before["start_ns"] + before["dur_ns"]).to_numpy())
        start = writes["start_ns"].to_numpy()
        since = np.where(start >= ends[0], ends[np.searchsorted(ends, start, side="right") - 1], start)
        silent = pl.Series(start - since)
        yield writes.with_columns(pl.col("start_ns") - silent, pl.col("dur_ns") + silent)


def _summary_share(view: DeviceView) -> float | None:
    callbacks = spans(view.once(_summary_callbacks))
    return view.share(callbacks if view.device is None else callbacks - view.busy)


of_devices(__name__, framework="tensorflow")("summary_share", _summary_share, where=places(_summary_callbacks)).says(
    "Part of the step that passes in callbacks that write summaries for TensorBoard.",
    "ops named Write...Summary and FlushSummaryWriter, each with its thread's silence before it; with a device only "
    "while it idles / step time",
)
