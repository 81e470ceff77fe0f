"""What a job of TensorFlow or JAX uses already: functions, jit, prefetching and parallel maps of tf.data."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.tf_data import iterators
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import FUNCTION_CALL, JIT_CALL
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches

_AHEAD: Final = r"^Prefetch"
_PARALLEL: Final = r"^(?:Parallel(?:Map|Interleave|Filter|Batch)|MapAndBatch|LegacyParallelInterleave)"
_SERIAL: Final = r"^Map(?:V\d+)?$"
_SEVERAL: Final = 2


TF_FUNCTION_CALLS_PER_STEP = Metric(
    "tf_function_calls_per_step",
    "Calls of tf.functions per step.",
    "host ranges with a tf_function_call in the used steps / steps",
)
JITTED_CALLS_PER_STEP = Metric(
    "jitted_calls_per_step",
    "Calls of jitted functions per step; jnp's own functions are jitted too.",
    "host ranges PjitFunction(...) in the used steps / steps",
)
TF_DATA_PREFETCHES = Metric(
    "tf_data_prefetches",
    "Iterators of tf.data that prefetch, in all pipelines.",
    "iterators whose transformation is Prefetch",
    unit="count",
)
TF_DATA_PARALLEL_MAPS = Metric(
    "tf_data_parallel_maps",
    "Transformations of tf.data that run several calls at once.",
    "iterators called Parallel* or MapAndBatch whose recorded parallelism is above 1",
    unit="count",
)
TF_DATA_SERIAL_MAPS = Metric(
    "tf_data_serial_maps",
    "Maps of tf.data that run one call at a time.",
    "iterators called Map, and those that could run several calls at once but run one",
    unit="count",
)
_PIPELINE: Final = (TF_DATA_PREFETCHES, TF_DATA_PARALLEL_MAPS, TF_DATA_SERIAL_MAPS)


@measures(TF_FUNCTION_CALLS_PER_STEP, JITTED_CALLS_PER_STEP)
def functions(view: DeviceView) -> Values:
    """Calls of compiled functions."""
    framework, steps = view.process.get("framework"), max(1, view.steps.height)
    functions = view.used_host.select("details").filter(matches(FUNCTION_CALL, "details"))
    return {
        TF_FUNCTION_CALLS_PER_STEP: functions.collect().height / steps
        if framework == "tensorflow"
        else Missing("tensorflow_only"),
        JITTED_CALLS_PER_STEP: view.used_like(JIT_CALL).height / steps if framework == "jax" else Missing("jax_only"),
    }


@measures(*_PIPELINE, needs_steps=False)
def pipelines(view: DeviceView) -> Values:
    """What the tree of tf.data's iterators holds."""
    rows = view.once(iterators)
    if not rows.height:
        return Missing("no_tf_data")
    transformation, at_once = pl.col("transformation"), pl.col("parallelism").fill_null(1) >= _SEVERAL
    able = transformation.str.contains(_PARALLEL)
    tests = (
        transformation.str.contains(_AHEAD),
        able & at_once,
        transformation.str.contains(_SERIAL) | (able & ~at_once),
    )
    return {metric: rows.filter(test).height for metric, test in zip(_PIPELINE, tests, strict=True)}
