"""TensorFlow's ops outside of graphs, what a tf.function saves, and what the user of TensorFlow has chosen."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import between_ops, own_ns, step_ops
from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import FUNCTION_CALL
from advisor.metrics.old import Metric, Values, measures
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
_LEAST: Final = 0.25


HOST_EAGER_SHARE = Metric(
    "host_eager_share",
    "Part of the framework ops' time on the host that is spent on ops outside tf.function and tf.Graph.",
    "time of eager ops / time of all ops of the steps, those inside others not counted",
    f"{_XPROF}, TF ops executed eagerly on the host",
    where=lambda view: places(view, _eager(view)),
)
EAGER_OPS_PER_STEP = Metric(
    "eager_ops_per_step",
    "Ops per step that the host runs outside tf.function and tf.Graph.",
    "such ops / steps, those inside others not counted",
)
DEVICE_EAGER_SHARE = Metric(
    "device_eager_share",
    "Part of the device's kernel time that ops outside tf.function and tf.Graph launched.",
    "time of kernels of eager ops / time of kernels, if the profile shows which are",
    f"{_XPROF}, TF ops executed eagerly on the device",
)
FUNCTION_TRACING_SHARE = Metric(
    "function_tracing_share",
    "Part of the time in calls of tf.functions in which the function was traced anew or ran eagerly.",
    "union of such calls / union of all calls of tf.functions in the recording",
    "XProf's tf.function statistics",
    where=lambda view: places(view, _calls(view, _TRACED)),
)


@measures(HOST_EAGER_SHARE, EAGER_OPS_PER_STEP, DEVICE_EAGER_SHARE, FUNCTION_TRACING_SHARE, framework="tensorflow")
def eager(view: DeviceView) -> Values:
    """How much runs outside of graphs; JAX and PyTorch record nothing of it."""
    ops, eager_ops = _outermost(view), _eager(view)
    total, eager_ns = int(ops["dur_ns"].sum()), int(eager_ops["dur_ns"].sum())
    ran = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("eager").is_not_null())
    calls, traced = spans(_calls(view, FUNCTION_CALL)), spans(_calls(view, _TRACED))
    return {
        HOST_EAGER_SHARE: eager_ns / total if total else None,
        EAGER_OPS_PER_STEP: eager_ops.height / view.steps.height,
        DEVICE_EAGER_SHARE: float(ran.filter("eager")["dur_ns"].sum()) / max(1, int(ran["dur_ns"].sum()))
        if ran.height
        else Missing("eager_kernels_unknown"),
        FUNCTION_TRACING_SHARE: traced.total / calls.total if calls.total else Missing("no_tf_function"),
    }


EAGER_LEAST_GAIN_MS = Metric(
    "eager_least_gain_ms",
    "Step time saved at least if the eager ops ran in a tf.function, on a CPU.",
    "host_eager_share x a quarter of (time outside of ops, input, compilation and collectives in stretches of at most "
    "{dispatch} - 1 µs per op recorded) / steps; 0 with a device",
    "own choice of a quarter, as of all Python on a CPU",
)
EAGER_GAIN_MS = Metric(
    "eager_gain_ms",
    "Step time that this saves at most: Python between the ops, most of their dispatch, and what fusing them saves.",
    "host_eager_share x (time outside of ops, input, compilation and collectives + 9 tenths of the ops whose name has "
    "a median under 100 µs + half of the other ops) / steps; 0 with a device",
    "own choices; three own recordings of eager loops, which a tf.function made 96 to 99 % shorter",
)


@measures(EAGER_LEAST_GAIN_MS, EAGER_GAIN_MS, framework="tensorflow")
def eager_gains(view: DeviceView) -> Values:
    """What a tf.function saves on a CPU: between two eager ops TensorFlow's own Python may run for milliseconds."""
    if view.device is not None:
        return dict.fromkeys((EAGER_LEAST_GAIN_MS, EAGER_GAIN_MS), 0.0)
    total, part = int(_outermost(view)["dur_ns"].sum()), int(_eager(view)["dur_ns"].sum())
    share = part / total if total else 0.0
    between = between_ops(view, view.steps)
    lengths = between.ends - between.starts
    short_ns = int(lengths[lengths <= DISPATCH_NS].sum())
    ops = view.once(step_ops).select("id", "parent", "name", "dur_ns").collect()
    return {
        EAGER_LEAST_GAIN_MS: share * _LEAST * view.per_step_ms(without_recording(view, short_ns, ops.height)),
        EAGER_GAIN_MS: share * view.per_step_ms(between.total + _fused_ns(ops)),
    }


def _fused_ns(ops: pl.DataFrame) -> float:
    """What of the ops' own time a graph saves at most: dispatch, and what is stored between ops that it fuses."""
    own = ops.select("name", ns=own_ns(ops))
    is_small = pl.col("ns").median().over("name") < _SMALL_NS
    part = pl.when(is_small).then(_OF_DISPATCH).otherwise(_OF_WORK)
    return float(own.select((part * pl.col("ns")).sum()).item())


def _outermost(view: DeviceView) -> pl.DataFrame:
    """Framework ops of the used steps that stand in no other, without those of the input pipeline."""
    of_step = pl.col("step").is_not_null() | pl.lit(not view.has_marks)
    ops = view.used_host.filter(pl.col("kind") == "op", of_step).collect()
    return ops.filter(~pl.col("parent").fill_null(-1).is_in(ops["id"].implode()))


def _eager(view: DeviceView) -> pl.DataFrame:
    return _outermost(view).filter(pl.col("eager").fill_null(value=False))


def _calls(view: DeviceView, pattern: str) -> pl.DataFrame:
    return view.host.filter(matches(pattern, "details"))


KERAS_FIT_RANGES = Metric(
    "keras_fit_ranges",
    "Ranges that only Keras's Model.fit makes: above 0 the loop is Keras's own, not the user's.",
    "host ranges called train_function, one_step_on_data, multi_step_on_iterator and the like, or Profiled batch",
    "recordings of Model.fit with Keras 3.15; TensorFlow's Keras 2 names the function train_function",
    unit="count",
)
PRIVATE_LAUNCH_THREADS = Metric(
    "private_launch_threads",
    "Threads that do nothing but launch the kernels of one GPU: above 0 TF_GPU_THREAD_MODE=gpu_private is on.",
    "threads called tf_gpu_private_*",
    "TensorFlow names the pool of that mode so",
    unit="count",
)


@measures(KERAS_FIT_RANGES, PRIVATE_LAUNCH_THREADS, needs_steps=False, framework="tensorflow")
def settings(view: DeviceView) -> Values:
    """What the user of TensorFlow has chosen already, as names in the recording betray it."""
    ranges = view.host.filter(pl.col("kind").is_in(["annotation", "step"]))
    return {
        KERAS_FIT_RANGES: ranges.filter(matches(_OF_KERAS)).height,
        PRIVATE_LAUNCH_THREADS: int(view.threads["name"].str.contains(_OWN_THREADS).sum()),
    }


DEVICE_OP_SHARE = Metric(
    "device_op_share",
    "Part of the framework ops, by number, that run something on the device; the others compute on the host, or "
    "nothing.",
    "framework ops of the steps that launched a device op / all of them; those with ops inside not counted",
    f"{_XPROF}, TF op placement, which counts every op on GPUs as placed on the host",
)


@measures(DEVICE_OP_SHARE, needs=("device_ops", "device_ops.launch"))
def placement(view: DeviceView) -> Values:
    """Ops placed on the device against those on the host."""
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent").collect()
    innermost = ops.filter(~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    if not innermost.height:
        return {DEVICE_OP_SHARE: Missing("no_host_op")}
    launching = innermost.filter(pl.col("id").is_in(view.ops["op"].drop_nulls().unique().implode())).height
    return {DEVICE_OP_SHARE: launching / innermost.height}
