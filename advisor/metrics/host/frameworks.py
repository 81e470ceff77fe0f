"""What the tools of TensorFlow and JAX put first: devices at work, eager ops, XLA's share, 16 bits, launching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import minus, places
from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.steps import DeviceView, spans
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import named
from advisor.text import runs_of
from advisor.vocabulary import DRIVER_CALLS

_XPROF: Final = "XProf's overview page"
_OF_XLA: Final = ("tensorflow", "jax")
_ELSEWHERE: Final = Missing("xla_frameworks_only")
_NEEDS: Final = ("device_ops",)
_SIXTEEN: Final = ["fp16", "bf16"]
_TOLD: Final = 0.5
_TRACED: Final = r'"tf_function_call":"(?:traced|eager)'
_IS_CALL: Final = '"tf_function_call":'
# Functions that Keras 2 and 3 make of a model's step, and the mark of its TensorBoard callback.
_OF_KERAS: Final = (
    r"\b(?:__inference_)?(?:train_function|(?:one|multi)_step_on_(?:data|iterator))(?:_\d+)?$|^Profiled batch$"
)
_OWN_THREADS: Final = r"^tf_gpu_private_"


@measures(
    Metric(
        "devices_visible",
        "count",
        "Devices that the worker's process sees.",
        "devices that the profile describes",
        f"{_XPROF}, run environment",
    ),
    Metric(
        "devices_working",
        "text",
        "Which of them it ran kernels on.",
        "numbers of the devices with kernels",
    ),
    Metric("devices_idle", "count", "How many it ran nothing on.", "devices_visible - devices with any op, copies too"),
)
def devices(view: DeviceView) -> Mapping[str, Value]:
    """Devices seen and used."""
    if not view.total_ns:
        return {}
    working = {"devices_working": runs_of(view.working)}
    if view.visible is None:
        return dict.fromkeys(("devices_visible", "devices_idle"), Missing("no_device_description")) | working
    return working | {"devices_visible": view.visible, "devices_idle": view.visible - len(view.used)}


@measures(
    Metric(
        "device_events",
        "count",
        "Events that were recorded of the device.",
        "rows of device ops, whole recording",
        needs=_NEEDS,
    ),
    Metric(
        "between_steps_share",
        "share",
        "Part of the time from the first step's start to the last one's end that is in no step.",
        "time between the host's ranges of consecutive complete steps / (that + those ranges); 0 for one step",
    ),
    Metric(
        "between_steps_input_part",
        "share",
        "In how much of that time a batch is asked for, as far as that was recorded.",
        "time between those ranges during a request for input / that time; 0 without any",
    ),
)
def recorded(view: DeviceView) -> Mapping[str, Value]:
    """How much of the job the recording and its marks hold."""
    if not view.total_ns:
        return {}
    return {"device_events": view.ops.height, **_between_steps(view)}


def _between_steps(view: DeviceView) -> Mapping[str, Value]:
    names = ("between_steps_share", "between_steps_input_part")
    steps = view.complete.sort("host_start_ns")
    if not steps["step"].diff().drop_nulls().eq(1).all():
        return dict.fromkeys(names, Missing("incomplete_steps"))
    start, end = steps["host_start_ns"].to_numpy(), (steps["host_start_ns"] + steps["host_dur_ns"]).to_numpy()
    whole = Union.of([start.min()], [end.max()])
    between = minus(whole, Union.of(start, end))
    asking = (between & view.host_spans("input")).total
    return dict(zip(names, (between.total / max(1, whole.total), asking / max(1, between.total)), strict=True))


@measures(
    Metric(
        "host_eager_share",
        "share",
        "Part of the framework ops' time on the host that is spent on ops outside tf.function and tf.Graph.",
        "time of eager ops / time of all ops of the steps, those inside others not counted",
        f"{_XPROF}, TF ops executed eagerly on the host",
        where=lambda view: places(view, _eager(view).drop("window")),
    ),
    Metric(
        "eager_ops_per_step",
        "number",
        "Ops per step that the host runs outside tf.function and tf.Graph.",
        "such ops / steps, those inside others not counted",
    ),
    Metric(
        "device_eager_share",
        "share",
        "Part of the device's kernel time that such ops launched.",
        "time of kernels of eager ops / time of kernels, where the profile tells which are",
        f"{_XPROF}, TF ops executed eagerly on the device",
    ),
    Metric(
        "function_tracing_share",
        "share",
        "Part of the time in calls of tf.functions in which the function was traced anew or ran eagerly.",
        "union of such calls / union of all calls of tf.functions in the recording",
        "XProf's tf.function statistics",
        where=lambda view: places(view, _calls(view, _TRACED)),
    ),
)
def eager(view: DeviceView) -> Mapping[str, Value]:
    """How much runs outside of graphs; of JAX and PyTorch nothing is told."""
    if not view.total_ns:
        return {}
    if view.process.get("framework") != "tensorflow":
        return dict.fromkeys(_EAGER, Missing("tensorflow_only"))
    ops, eager_ops = _outermost(view), _eager(view)
    total, mine = int(ops["dur_ns"].sum()), int(eager_ops["dur_ns"].sum())
    ran = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("eager").is_not_null())
    calls, traced = spans(_calls(view, _IS_CALL)), spans(_calls(view, _TRACED))
    return {
        "host_eager_share": mine / total if total else None,
        "eager_ops_per_step": eager_ops.height / view.steps.height,
        "device_eager_share": float(ran.filter("eager")["dur_ns"].sum()) / max(1, int(ran["dur_ns"].sum()))
        if ran.height
        else Missing("eager_kernels_unknown"),
        "function_tracing_share": traced.total / calls.total if calls.total else Missing("no_tf_function"),
    }


_EAGER: Final = ("host_eager_share", "eager_ops_per_step", "device_eager_share", "function_tracing_share")


def _outermost(view: DeviceView) -> pl.DataFrame:
    """Framework ops of the used steps that stand in no other, without those of the input pipeline."""
    ops = view.used_host.filter(pl.col("kind") == "op", pl.col("step").is_not_null() | pl.lit(not view.marked))
    return ops.filter(~pl.col("parent").fill_null(-1).is_in(ops["id"].implode()))


def _eager(view: DeviceView) -> pl.DataFrame:
    return _outermost(view).filter(pl.col("eager").fill_null(value=False))


def _calls(view: DeviceView, told: str) -> pl.DataFrame:
    return view.host.filter(named(told, "details"))


@measures(
    Metric(
        "keras_fit_ranges",
        "count",
        "Ranges that only Keras's Model.fit makes: above 0 the loop is Keras's own, not the user's.",
        "host ranges called train_function, one_step_on_data, multi_step_on_iterator and the like, or Profiled batch",
        "recordings of Model.fit with Keras 3.15; TensorFlow's Keras 2 names the function train_function",
    ),
    Metric(
        "private_launch_threads",
        "count",
        "Threads that do nothing but launch the kernels of one GPU: above 0 TF_GPU_THREAD_MODE=gpu_private is on.",
        "threads called tf_gpu_private_*",
        "TensorFlow names the pool of that mode so",
    ),
)
def arranged(view: DeviceView) -> Mapping[str, Value]:
    """What the user of TensorFlow has chosen already, as names in the recording betray it."""
    if view.process.get("framework") != "tensorflow":
        return dict.fromkeys(("keras_fit_ranges", "private_launch_threads"), Missing("tensorflow_only"))
    ranges = view.host.filter(pl.col("kind").is_in(["annotation", "step"]))
    return {
        "keras_fit_ranges": ranges.filter(named(_OF_KERAS)).height,
        "private_launch_threads": int(view.threads["name"].str.contains(_OWN_THREADS).sum()),
    }


@measures(
    Metric(
        "device_op_share",
        "share",
        "Part of the framework ops, by number, that run something on the device; the others compute on the host, or "
        "nothing.",
        "framework ops of the steps that launched a device op / all of them; those with ops inside not counted",
        f"{_XPROF}, TF op placement, which counts every op on GPUs as placed on the host",
        (*_NEEDS, "device_ops.launch"),
    ),
)
def placement(view: DeviceView) -> Mapping[str, Value]:
    """Ops placed on the device against those on the host."""
    if not view.total_ns:
        return {}
    ops = view.used_host.select("id", "parent", "kind").filter(pl.col("kind") == "op")
    innermost = ops.filter(~pl.col("id").is_in(ops["parent"].drop_nulls().implode()))
    if not innermost.height:
        return {"device_op_share": Missing("no_host_op")}
    launching = innermost.filter(pl.col("id").is_in(view.ops["op"].drop_nulls().unique().implode())).height
    return {"device_op_share": launching / innermost.height}


@measures(
    Metric(
        "xla_share",
        "share",
        "Part of the kernel time that XLA compiled.",
        "time of kernels that belong to an XLA module / time of kernels",
        needs=_NEEDS,
    ),
    Metric(
        "outside_compilation_share",
        "share",
        "Part of the kernel time outside XLA's modules, in a job that uses XLA.",
        "1 - xla_share; 0 where XLA compiled nothing",
        f"{_XPROF}, ops that run outside compilation",
        _NEEDS,
        lambda view: longest(_uncompiled(view)),
    ),
    Metric(
        "outside_compilation_ops",
        "text",
        "The ops that launched those kernels.",
        "the three with the most time",
        needs=_NEEDS,
    ),
    Metric(
        "sixteen_bit_kernel_share",
        "share",
        "Part of the kernel time on 16-bit floating point, bfloat16 included.",
        "time of kernels whose op's first floating-point input, or else whose name, is of 16 bits / time of kernels; "
        "unknown where the type is known of less than half of that time",
        f"{_XPROF}, device compute precisions, which counts bfloat16 as 32 bits",
        _NEEDS,
    ),
    Metric(
        "sixteen_bit_kernel_ops",
        "text",
        "The ops with the most of that time.",
        "the three with the most time",
        needs=_NEEDS,
    ),
)
def compiled(view: DeviceView) -> Mapping[str, Value]:
    """What XLA compiled and what runs in 16 bits."""
    if not view.total_ns:
        return {}
    bits = _bits(view)
    if view.process.get("framework") not in _OF_XLA:
        return {**dict.fromkeys(_XLA, _ELSEWHERE), **bits}
    ran = view.once(kernels)
    total = int(ran["dur_ns"].sum())
    if not total:
        return {}
    outside = _uncompiled(view)
    share = float(outside["dur_ns"].sum()) / total
    return {
        "xla_share": 1 - share,
        "outside_compilation_share": share if share < 1 else 0.0,
        "outside_compilation_ops": largest(view, outside),
        **bits,
    }


_XLA: Final = ("xla_share", "outside_compilation_share", "outside_compilation_ops")


def _uncompiled(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels).filter(pl.col("hlo_module").is_null())


_BITS: Final = ("sixteen_bit_kernel_share", "sixteen_bit_kernel_ops")


def _bits(view: DeviceView) -> dict[str, Value]:
    ran = view.once(kernels)
    total = int(ran["dur_ns"].sum())
    if not total or view.device is None:
        return {}
    told = ran.with_columns(dtype=pl.coalesce("op_dtype", "element_type"))
    if told.filter(pl.col("dtype").is_not_null())["dur_ns"].sum() < _TOLD * total:
        return dict.fromkeys(_BITS, Missing("value_types_unknown"))
    found = told.filter(pl.col("dtype").is_in(_SIXTEEN))
    return {
        "sixteen_bit_kernel_share": float(found["dur_ns"].sum()) / total,
        "sixteen_bit_kernel_ops": largest(view, found),
    }


@measures(
    Metric(
        "input_during_launch_share",
        "share",
        "Part of the step in which the device idles, TensorFlow launches, and tf.data works on other threads.",
        "idle time in calls and `ExecutorState::Process` during which an iterator of tf.data is at work / step time",
        f"{_XPROF}: kernel launch may be held up by tf.data; here seen on the threads",
        where=lambda view: places(view, view.host.filter(_launching())),
    ),
    Metric(
        "input_during_launch_part",
        "share",
        "How much of that launching it is.",
        "the same / idle time in calls and `ExecutorState::Process`",
    ),
)
def contention(view: DeviceView) -> Mapping[str, Value]:
    """Launching that competes with tf.data for processors."""
    if not view.total_ns:
        return {}
    if view.device is None:
        return dict.fromkeys(_CONTENTION, Missing("no_device_used"))
    waits = minus(spans(view.host.filter(_launching())), view.busy | view.host_spans("input"))
    launching = waits & Union.of(view.starts, view.ends)
    both = (launching & view.host_spans("pipeline")).total
    return {
        "input_during_launch_share": both / view.total_ns,
        "input_during_launch_part": both / launching.total if launching.total else 0.0,
    }


_CONTENTION: Final = ("input_during_launch_share", "input_during_launch_part")


def _launching() -> pl.Expr:
    executes = named("^ExecutorState::Process")
    return pl.col("kind").is_in(DRIVER_CALLS) | executes
