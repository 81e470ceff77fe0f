"""What the job uses already: compiled code, graphs, the form of the optimizer; NCCL, and settings that slow it down."""

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_class
from advisor.analysis.device.iterators import iterators
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import DDP_FORWARD, FUNCTION_CALL, GRAPH_LAUNCH, OPTIMIZER_STEP
from advisor.metrics.metric import Value, lacking, of_devices
from advisor.model.clause import Missing
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import table

_REGIONS: Final = (r"^Torch-Compiled Region", r"^CompiledFunction$", r"^(?:## Call )?CompiledFxGraph")
_FORMS: Final = {"fused": r"^aten::_fused_(?:adam|sgd|adagrad)", "foreach": r"^aten::_foreach_(?:add|mul|div|lerp)"}
_REDUCES: Final = r"^(?:all_?reduce|reduce_scatter)"


def _compiled(view: DeviceView) -> float:
    for pattern in _REGIONS:
        if calls := _per_step(view, pattern):
            return calls
    return view.used_ops.filter(matches(r"^triton_(?:poi|red|per|for|tem|mm|split_scan)_")).height / view.steps.height


def _form(view: DeviceView) -> str:
    for form, pattern in _FORMS.items():
        if _per_step(view, pattern):
            return form
    return "loop" if _per_step(view, OPTIMIZER_STEP) else "none"


def _per_step(view: DeviceView, pattern: str) -> float:
    return view.used_like(pattern).height / max(1, view.steps.height)


def _sixteen_bit_share(view: DeviceView) -> Value:
    calls = view.collectives.filter(matches(_REDUCES, "op"), pl.col("dtype").is_not_null(), pl.col("bytes") > 0)
    if not (total := calls["bytes"].sum()):
        return Missing("no_reductions")
    return float(calls.filter(matches(r"(?i)bfloat16|half|float16", "dtype"))["bytes"].sum()) / float(total)


of_ops = of_devices(
    __name__, framework="pytorch", unknown=lacking(no_host_op=lambda view: not (view.host["kind"] == "op").any())
)
of_ops("compiled_calls_per_step", _compiled).says(
    "Calls of compiled code per step: above 0 torch.compile is in use, if not for all of the model.",
    "ranges Torch-Compiled Region, or else CompiledFunction or CompiledFxGraph, or else kernels that Inductor named / "
    "steps",
    "PyTorch 2.13 marks each region so; 2.0 to 2.2 the function or the graph",
)
of_ops("optimizer_form", _form, unit="text").says(
    "How the optimizer updates: `fused`, `foreach`, `loop` (one tensor at a time), or `none` where no step ran.",
    "the first of these whose ops run in the used steps: aten::_fused_adam and the like, aten::_foreach_add and the "
    "like; else loop where an Optimizer.step range is. Clipping gradients runs foreach ops too",
)
of_ops("optimizer_class", lambda view: view.once(optimizer_class) or Missing("no_optimizer_range"), unit="text").says(
    "The optimizer's class, or the one with the most time of several: `AdamW`.",
    "the ranges Optimizer.step#CLASS.step in the used steps",
)
of_ops("ddp_forwards_per_step", lambda view: _per_step(view, DDP_FORWARD)).says(
    "Forward passes of DistributedDataParallel per step: above 0 it is in use.",
    "ranges DistributedDataParallel.forward in the used steps / steps",
)
of_calls = of_devices(
    __name__, unknown=lacking(no_cuda_calls=lambda view: not view.host["kind"].is_in(DRIVER_CALLS).any())
)
of_calls("graph_launches_per_step", lambda view: _per_step(view, GRAPH_LAUNCH)).says(
    "Launches of CUDA graphs per step.", "calls of cudaGraphLaunch and the like in the used steps / steps"
)
of_collectives = of_devices(__name__, needs_steps=False, needs=("device_ops",))
of_collectives("sixteen_bit_reduction_share", _sixteen_bit_share).says(
    "Part of the bytes that this rank's reductions handle in 16 bits.",
    "bytes of all-reduces and reduce-scatters of 16-bit types / bytes of all of them whose type is known",
)


_AHEAD: Final = pl.col("transformation").str.contains(r"^Prefetch")
_ABLE: Final = pl.col("transformation").str.contains(
    r"^(?:Parallel(?:Map|Interleave|Filter|Batch)|MapAndBatch|LegacyParallelInterleave)"
)
_AT_ONCE: Final = pl.col("parallelism").fill_null(1) > 1
_SERIAL: Final = pl.col("transformation").str.contains(r"^Map(?:V\d+)?$") | (_ABLE & ~_AT_ONCE)


of_tensorflow = of_devices(__name__, framework="tensorflow")
of_tensorflow.per_step(
    "tf_function_calls", lambda view: view.used_host.filter(matches(FUNCTION_CALL, "details")).collect()
).says("Calls of tf.functions per step.", "host ranges with a tf_function_call in the used steps / steps")
of_pipelines = of_devices(
    __name__, needs_steps=False, unknown=lacking(no_tf_data=lambda view: not view.once(iterators).height)
)
of_pipelines("tf_data_prefetches", lambda view: view.once(iterators).filter(_AHEAD).height, unit="count").says(
    "Iterators of tf.data that prefetch, in all pipelines.", "iterators whose transformation is Prefetch"
)
of_pipelines("tf_data_serial_maps", lambda view: view.once(iterators).filter(_SERIAL).height, unit="count").says(
    "Maps of tf.data that run one call at a time.",
    "iterators called Map, and those that could run several calls at once but run one",
)


_NCCL: Final = re.compile(r"\bNCCL (\d+)\.(\d+)(?:\.(\d+))?")
_SLOW: Final[Mapping[str, Mapping[str, str]]] = table(__file__, "slow_settings")
_OF_RANKS: Final = re.compile("NCCL|DISTRIBUTED")  # they do nothing in a job of one rank
_SOURCES: Final = (
    "NCCL's user guide (docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html); PyTorch's CUDA environment "
    "variables "
    "(docs.pytorch.org/docs/stable/cuda_environment_variables.html) and torch.distributed; JAX's GPU memory allocation "
    "(docs.jax.dev/en/latest/gpu_memory_allocation.html); CUDA C++ Programming Guide, environment variables"
)


def _nccl(view: DeviceView) -> int:
    match = _NCCL.search(view.process.get("software") or "")
    major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return 10_000 * major + 100 * minor + patch


def _slow_settings(view: DeviceView) -> Value:
    settings = view.process.get("settings")
    if settings is None and view.process.get("profiled_ms") is None:
        return Missing("settings_unrecorded")
    meets_others = view.collectives.height > 0 or (view.process.get("world_size") or 1) > 1
    pairs = [setting.partition("=")[::2] for setting in (settings or "").split(" ")]
    return [
        {"name": f"{name}={value}", "what": _SLOW[name]["effect"]}
        for name, value in pairs
        if name in _SLOW and re.fullmatch(_SLOW[name]["values"], value) and (meets_others or not _OF_RANKS.search(name))
    ]


of_process = of_devices(__name__, needs_steps=False)
of_process("nccl_version", _nccl, unit="count").says(
    "Version of NCCL, in its own form: 21903 is 2.19.3; 0 where the profile does not tell.",
    "10,000 x major + 100 x minor + patch",
)
of_cores = of_devices(
    __name__,
    needs_steps=False,
    unknown=lacking(placement_unrecorded=lambda view: view.process.get("far_cores") is None),
)
of_cores("far_cores", lambda view: view.process["far_cores"], unit="share").says(
    "Part of the cores that the process may use which are on other NUMA nodes than its GPU.",
    "cores of its affinity outside of the GPU's `local_cpulist` / cores of its affinity, as `advisor record` notes",
    "Linux, Documentation/ABI/testing/sysfs-bus-pci: local_cpulist",
)
of_process("slow_settings", _slow_settings, unit="names").says(
    "Settings in the job's environment that slow it down, with what each does.",
    "variables that `advisor record` noted, of a closed list, with a value that its library documents as slower",
    _SOURCES,
)
