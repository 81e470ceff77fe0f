"""What a job of TensorFlow or JAX uses already: functions, jit, prefetching and parallel maps of tf.data."""

from typing import Final

import polars as pl

from advisor.analysis.device.tf_data import iterators
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import FUNCTION_CALL, JIT_CALL
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.model.profile import matches

_AHEAD: Final = pl.col("transformation").str.contains(r"^Prefetch")
_ABLE: Final = pl.col("transformation").str.contains(
    r"^(?:Parallel(?:Map|Interleave|Filter|Batch)|MapAndBatch|LegacyParallelInterleave)"
)
_AT_ONCE: Final = pl.col("parallelism").fill_null(1) > 1
_SERIAL: Final = pl.col("transformation").str.contains(r"^Map(?:V\d+)?$") | (_ABLE & ~_AT_ONCE)


def _function_calls(view: DeviceView) -> int:
    return view.used_host.select("details").filter(matches(FUNCTION_CALL, "details")).collect().height


of_tensorflow = of_devices(__name__, framework="tensorflow")
of_tensorflow("tf_function_calls_per_step", lambda view: _function_calls(view) / view.steps.height).says(
    "Calls of tf.functions per step.", "host ranges with a tf_function_call in the used steps / steps"
)
of_jax = of_devices(__name__, framework="jax")
of_jax("jitted_calls_per_step", lambda view: view.used_like(JIT_CALL).height / view.steps.height).says(
    "Calls of jitted functions per step; jnp's own functions are jitted too.",
    "host ranges PjitFunction(...) in the used steps / steps",
)
of_pipelines = of_devices(
    __name__, needs_steps=False, unknown=lambda view: None if view.once(iterators).height else Missing("no_tf_data")
)
of_pipelines("tf_data_prefetches", lambda view: view.once(iterators).filter(_AHEAD).height, unit="count").says(
    "Iterators of tf.data that prefetch, in all pipelines.", "iterators whose transformation is Prefetch"
)
of_pipelines("tf_data_serial_maps", lambda view: view.once(iterators).filter(_SERIAL).height, unit="count").says(
    "Maps of tf.data that run one call at a time.",
    "iterators called Map, and those that could run several calls at once but run one",
)
