"""What the tools of TensorFlow and JAX put first: devices at work, eager ops, XLA's share, 16 bits, launching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import between_ops, own_ns, step_ops
from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.steps import DeviceView, spans
from advisor.inputs.names.calls import FUNCTION_CALL
from advisor.metrics.metric import Metric, Value, Values, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import runs_of
from advisor.vocabulary.kinds import DRIVER_CALLS, XLA_FRAMEWORKS
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_XPROF: Final = "XProf's overview page"
_ELSEWHERE: Final = Missing("xla_frameworks_only")
_NEEDS: Final = ("device_ops",)
_SIXTEEN: Final = ["fp16", "bf16"]
_LEAST_KNOWN: Final = 0.5
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


DEVICES_VISIBLE = Metric(
    "devices_visible",
    "count",
    "Devices that the worker's process sees.",
    "devices that the profile describes",
    f"{_XPROF}, run environment",
)
DEVICES_WORKING = Metric(
    "devices_working",
    "text",
    "The devices on which the worker's process ran kernels.",
    "numbers of the devices with kernels",
)
DEVICES_IDLE = Metric(
    "devices_idle",
    "count",
    "How many of the devices that the worker's process sees it ran nothing on.",
    "devices_visible - devices with any op, copies too",
)


@measures(DEVICES_VISIBLE, DEVICES_WORKING, DEVICES_IDLE)
def devices(view: DeviceView) -> Mapping[Metric, Value]:
    """Devices that the process sees and uses."""
    if not view.total_ns:
        return {}
    working = {DEVICES_WORKING: runs_of(view.working)}
    if view.visible is None:
        return dict.fromkeys((DEVICES_VISIBLE, DEVICES_IDLE), Missing("no_device_description")) | working
    return working | {DEVICES_VISIBLE: view.visible, DEVICES_IDLE: view.visible - len(view.used)}


DEVICE_EVENTS = Metric(
    "device_events",
    "count",
    "Events that were recorded of the device.",
    "rows of device ops, whole recording",
    needs=_NEEDS,
)


@measures(DEVICE_EVENTS)
def recording(view: DeviceView) -> Mapping[Metric, Value]:
    """How much of the device the recording holds."""
    return {DEVICE_EVENTS: view.ops.height} if view.total_ns else {}


HOST_EAGER_SHARE = Metric(
    "host_eager_share",
    "share",
    "Part of the framework ops' time on the host that is spent on ops outside tf.function and tf.Graph.",
    "time of eager ops / time of all ops of the steps, those inside others not counted",
    f"{_XPROF}, TF ops executed eagerly on the host",
    where=lambda view: places(view, _eager(view)),
)
EAGER_OPS_PER_STEP = Metric(
    "eager_ops_per_step",
    "number",
    "Ops per step that the host runs outside tf.function and tf.Graph.",
    "such ops / steps, those inside others not counted",
)
DEVICE_EAGER_SHARE = Metric(
    "device_eager_share",
    "share",
    "Part of the device's kernel time that ops outside tf.function and tf.Graph launched.",
    "time of kernels of eager ops / time of kernels, if the profile shows which are",
    f"{_XPROF}, TF ops executed eagerly on the device",
)
FUNCTION_TRACING_SHARE = Metric(
    "function_tracing_share",
    "share",
    "Part of the time in calls of tf.functions in which the function was traced anew or ran eagerly.",
    "union of such calls / union of all calls of tf.functions in the recording",
    "XProf's tf.function statistics",
    where=lambda view: places(view, _calls(view, _TRACED)),
)


@measures(HOST_EAGER_SHARE, EAGER_OPS_PER_STEP, DEVICE_EAGER_SHARE, FUNCTION_TRACING_SHARE)
def eager(view: DeviceView) -> Values:
    """How much runs outside of graphs; JAX and PyTorch record nothing of it."""
    if not view.total_ns:
        return {}
    if view.process.get("framework") != "tensorflow":
        return Missing("tensorflow_only")
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
    "ms",
    "Step time saved at least if the eager ops ran in a tf.function, on a CPU.",
    "host_eager_share x a quarter of (time outside of ops, input, compilation and collectives in stretches of at most "
    "{launch_gap} - 1 µs per op recorded) / steps; 0 with a device",
    "own choice of a quarter, as of all Python on a CPU",
)
EAGER_GAIN_MS = Metric(
    "eager_gain_ms",
    "ms",
    "Step time that this saves at most: Python between the ops, most of their dispatch, and what fusing them saves.",
    "host_eager_share x (time outside of ops, input, compilation and collectives + 9 tenths of the ops whose name has "
    "a median under 100 µs + half of the other ops) / steps; 0 with a device",
    "own choices; three own recordings of eager loops, which a tf.function made 96 to 99 % shorter",
)


@measures(EAGER_LEAST_GAIN_MS, EAGER_GAIN_MS)
def eager_gains(view: DeviceView) -> Values:
    """What a tf.function saves on a CPU: between two eager ops TensorFlow's own Python may run for milliseconds."""
    if view.process.get("framework") != "tensorflow":
        return Missing("tensorflow_only")
    if not view.total_ns or view.device is not None:
        return dict.fromkeys((EAGER_LEAST_GAIN_MS, EAGER_GAIN_MS), 0.0) if view.total_ns else {}
    total, part = int(_outermost(view)["dur_ns"].sum()), int(_eager(view)["dur_ns"].sum())
    share = part / total if total else 0.0
    between = between_ops(view, view.steps)
    lengths = between.ends - between.starts
    short_ns = int(lengths[lengths <= LAUNCH_GAP_NS].sum())
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
    "count",
    "Ranges that only Keras's Model.fit makes: above 0 the loop is Keras's own, not the user's.",
    "host ranges called train_function, one_step_on_data, multi_step_on_iterator and the like, or Profiled batch",
    "recordings of Model.fit with Keras 3.15; TensorFlow's Keras 2 names the function train_function",
)
PRIVATE_LAUNCH_THREADS = Metric(
    "private_launch_threads",
    "count",
    "Threads that do nothing but launch the kernels of one GPU: above 0 TF_GPU_THREAD_MODE=gpu_private is on.",
    "threads called tf_gpu_private_*",
    "TensorFlow names the pool of that mode so",
)


@measures(KERAS_FIT_RANGES, PRIVATE_LAUNCH_THREADS)
def settings(view: DeviceView) -> Values:
    """What the user of TensorFlow has chosen already, as names in the recording betray it."""
    if view.process.get("framework") != "tensorflow":
        return Missing("tensorflow_only")
    ranges = view.host.filter(pl.col("kind").is_in(["annotation", "step"]))
    return {
        KERAS_FIT_RANGES: ranges.filter(matches(_OF_KERAS)).height,
        PRIVATE_LAUNCH_THREADS: int(view.threads["name"].str.contains(_OWN_THREADS).sum()),
    }


DEVICE_OP_SHARE = Metric(
    "device_op_share",
    "share",
    "Part of the framework ops, by number, that run something on the device; the others compute on the host, or "
    "nothing.",
    "framework ops of the steps that launched a device op / all of them; those with ops inside not counted",
    f"{_XPROF}, TF op placement, which counts every op on GPUs as placed on the host",
    (*_NEEDS, "device_ops.launch"),
)


@measures(DEVICE_OP_SHARE)
def placement(view: DeviceView) -> Mapping[Metric, Value]:
    """Ops placed on the device against those on the host."""
    if not view.total_ns:
        return {}
    ops = view.used_host.filter(pl.col("kind") == "op").select("id", "parent").collect()
    innermost = ops.filter(~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    if not innermost.height:
        return {DEVICE_OP_SHARE: Missing("no_host_op")}
    launching = innermost.filter(pl.col("id").is_in(view.ops["op"].drop_nulls().unique().implode())).height
    return {DEVICE_OP_SHARE: launching / innermost.height}


XLA_SHARE = Metric(
    "xla_share",
    "share",
    "Part of the kernel time that XLA compiled.",
    "time of kernels that belong to an XLA module / time of kernels",
    needs=_NEEDS,
)
OUTSIDE_COMPILATION_SHARE = Metric(
    "outside_compilation_share",
    "share",
    "Part of the kernel time outside XLA's modules, in a job that uses XLA.",
    "1 - xla_share; 0 where XLA compiled nothing",
    f"{_XPROF}, ops that run outside compilation",
    _NEEDS,
    lambda view: longest(_uncompiled(view)),
)
OUTSIDE_COMPILATION_OPS = Metric(
    "outside_compilation_ops",
    "text",
    "The ops that launched kernels outside XLA's modules.",
    "the three with the most time",
    needs=_NEEDS,
)
SIXTEEN_BIT_KERNEL_SHARE = Metric(
    "sixteen_bit_kernel_share",
    "share",
    "Part of the kernel time on 16-bit floating point, bfloat16 included.",
    "time of kernels whose op's first floating-point input, or else whose name, is of 16 bits / time of kernels; "
    "unknown where the type is known of less than half of that time",
    f"{_XPROF}, device compute precisions, which counts bfloat16 as 32 bits",
    _NEEDS,
)
SIXTEEN_BIT_KERNEL_OPS = Metric(
    "sixteen_bit_kernel_ops",
    "text",
    "The ops with the most kernel time on 16-bit floating point.",
    "the three with the most time",
    needs=_NEEDS,
)
_XLA: Final = (XLA_SHARE, OUTSIDE_COMPILATION_SHARE, OUTSIDE_COMPILATION_OPS)
_BITS: Final = (SIXTEEN_BIT_KERNEL_SHARE, SIXTEEN_BIT_KERNEL_OPS)


@measures(*_XLA, *_BITS)
def compilation(view: DeviceView) -> Mapping[Metric, Value]:
    """What XLA compiled and what runs in 16 bits."""
    if not view.total_ns:
        return {}
    bits = _bits(view)
    if view.process.get("framework") not in XLA_FRAMEWORKS:
        return {**dict.fromkeys(_XLA, _ELSEWHERE), **bits}
    ran = view.once(kernels)
    total = int(ran["dur_ns"].sum())
    if not total:
        return {}
    outside = _uncompiled(view)
    share = float(outside["dur_ns"].sum()) / total
    return {
        XLA_SHARE: 1 - share,
        OUTSIDE_COMPILATION_SHARE: share if share < 1 else 0.0,
        OUTSIDE_COMPILATION_OPS: largest(view, outside),
        **bits,
    }


def _uncompiled(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("hlo_module").is_null())


def _bits(view: DeviceView) -> dict[Metric, Value]:
    ran, dtype = view.once(kernels), pl.coalesce("op_dtype", "element_type")
    total = int(ran["dur_ns"].sum())
    if not total or view.device is None:
        return {}
    if (ran.select(pl.col("dur_ns").filter(dtype.is_not_null()).sum()).item() or 0) < _LEAST_KNOWN * total:
        return dict.fromkeys(_BITS, Missing("value_types_unknown"))
    narrow = ran.filter(dtype.is_in(_SIXTEEN))
    return {
        SIXTEEN_BIT_KERNEL_SHARE: float(narrow["dur_ns"].sum()) / total,
        SIXTEEN_BIT_KERNEL_OPS: largest(view, narrow),
    }


INPUT_DURING_LAUNCH_SHARE = Metric(
    "input_during_launch_share",
    "share",
    "Part of the step in which the device idles, TensorFlow launches, and tf.data works on other threads.",
    "idle time in calls and `ExecutorState::Process` during which an iterator of tf.data is at work / step time",
    f"{_XPROF}: kernel launch may be held up by tf.data; here seen on the threads",
    where=lambda view: places(view, view.host.filter(_launching())),
)
INPUT_DURING_LAUNCH_PART = Metric(
    "input_during_launch_part",
    "share",
    "How much of TensorFlow's launching passes while tf.data works on other threads.",
    "the same / idle time in calls and `ExecutorState::Process`",
)


@measures(INPUT_DURING_LAUNCH_SHARE, INPUT_DURING_LAUNCH_PART)
def contention(view: DeviceView) -> Values:
    """Launching that competes with tf.data for processors."""
    if not view.total_ns:
        return {}
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
