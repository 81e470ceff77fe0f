"""What a PyTorch job uses already: compiled regions, graphs, the optimizer's form, fused attention, DDP."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_class
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import DDP_FORWARD, GRAPH_LAUNCH, OPTIMIZER_STEP
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS

_REGIONS: Final = (r"^Torch-Compiled Region", r"^CompiledFunction$", r"^(?:## Call )?CompiledFxGraph")
_INDUCTOR: Final = r"^triton_(?:poi|red|per|for|tem|mm|split_scan)_"
_ATTENTION: Final = r"^aten::scaled_dot_product_attention$"
_FORMS: Final = {"fused": r"^aten::_fused_(?:adam|sgd|adagrad)", "foreach": r"^aten::_foreach_(?:add|mul|div|lerp)"}
_DENSE_EMBEDDING: Final = r"^aten::(?:embedding|_embedding_bag)_dense_backward$"
_REDUCES: Final = r"^(?:all_?reduce|reduce_scatter)"
_SIXTEEN: Final = r"(?i)bfloat16|half|float16"


COMPILED_CALLS_PER_STEP = Metric(
    "compiled_calls_per_step",
    "Calls of compiled code per step: above 0 torch.compile is in use, if not for all of the model.",
    "ranges Torch-Compiled Region, or else CompiledFunction or CompiledFxGraph, or else kernels that Inductor named / "
    "steps",
    "PyTorch 2.13 marks each region so; 2.0 to 2.2 the function or the graph",
)
GRAPH_LAUNCHES_PER_STEP = Metric(
    "graph_launches_per_step",
    "Launches of CUDA graphs per step.",
    "calls of cudaGraphLaunch and the like in the used steps / steps",
)
OPTIMIZER_FORM = Metric(
    "optimizer_form",
    "How the optimizer updates: `fused`, `foreach`, `loop` (one tensor at a time), or `none` where no step ran.",
    "the first of these whose ops run in the used steps: aten::_fused_adam and the like, aten::_foreach_add and the "
    "like; else loop where an Optimizer.step range is. Clipping gradients runs foreach ops too",
    unit="text",
)
OPTIMIZER_CLASS = Metric(
    "optimizer_class",
    "The optimizer's class, or the one with the most time of several: `AdamW`.",
    "the ranges Optimizer.step#CLASS.step in the used steps",
    unit="text",
)
ATTENTION_CALLS_PER_STEP = Metric(
    "attention_calls_per_step",
    "Calls of F.scaled_dot_product_attention per step; kernels of other packages are none.",
    "aten::scaled_dot_product_attention in the used steps / steps",
)
DENSE_EMBEDDINGS_PER_STEP = Metric(
    "dense_embeddings_per_step",
    "Gradients of embeddings per step that have a row for every row of the table, used in the batch or not.",
    "aten::embedding_dense_backward and aten::_embedding_bag_dense_backward in the used steps / steps",
)
DDP_FORWARDS_PER_STEP = Metric(
    "ddp_forwards_per_step",
    "Forward passes of DistributedDataParallel per step: above 0 it is in use.",
    "ranges DistributedDataParallel.forward in the used steps / steps",
)
SIXTEEN_BIT_REDUCTION_SHARE = Metric(
    "sixteen_bit_reduction_share",
    "Part of the bytes that this rank's reductions handle in 16 bits.",
    "bytes of all-reduces and reduce-scatters of 16-bit types / bytes of all of them whose type is known",
)


@measures(
    COMPILED_CALLS_PER_STEP,
    OPTIMIZER_FORM,
    OPTIMIZER_CLASS,
    ATTENTION_CALLS_PER_STEP,
    DENSE_EMBEDDINGS_PER_STEP,
    DDP_FORWARDS_PER_STEP,
    framework="pytorch",
)
def uses(view: DeviceView) -> Values:
    """What names of ranges and ops show; unknown where no framework op was recorded."""
    if not view.host.select((pl.col("kind") == "op").any()).item():
        return Missing("no_host_op")
    return {
        COMPILED_CALLS_PER_STEP: _compiled(view),
        OPTIMIZER_FORM: _form(view),
        OPTIMIZER_CLASS: view.once(optimizer_class) or Missing("no_optimizer_range"),
        ATTENTION_CALLS_PER_STEP: _per_step(view, _ATTENTION),
        DENSE_EMBEDDINGS_PER_STEP: _per_step(view, _DENSE_EMBEDDING),
        DDP_FORWARDS_PER_STEP: _per_step(view, DDP_FORWARD),
    }


@measures(GRAPH_LAUNCHES_PER_STEP)
def graphs(view: DeviceView) -> Values:
    """Launches of CUDA graphs, where calls of the driver were recorded."""
    if not view.host.select(pl.col("kind").is_in(DRIVER_CALLS).any()).item():
        return {GRAPH_LAUNCHES_PER_STEP: Missing("no_cuda_calls")}
    return {GRAPH_LAUNCHES_PER_STEP: _per_step(view, GRAPH_LAUNCH)}


@measures(SIXTEEN_BIT_REDUCTION_SHARE, needs_steps=False, needs=("device_ops",))
def reductions(view: DeviceView) -> Values:
    """In how many bits gradients travel."""
    calls = view.collectives.filter(matches(_REDUCES, "op"), pl.col("dtype").is_not_null(), pl.col("bytes") > 0)
    total = calls["bytes"].sum()
    if not total:
        return {SIXTEEN_BIT_REDUCTION_SHARE: Missing("no_reductions")}
    return {SIXTEEN_BIT_REDUCTION_SHARE: float(calls.filter(matches(_SIXTEEN, "dtype"))["bytes"].sum()) / float(total)}


def _compiled(view: DeviceView) -> float:
    for pattern in _REGIONS:
        if calls := _per_step(view, pattern):
            return calls
    return view.used_ops.filter(matches(_INDUCTOR)).height / view.steps.height


def _form(view: DeviceView) -> str:
    for form, pattern in _FORMS.items():
        if _per_step(view, pattern):
            return form
    return "loop" if _per_step(view, OPTIMIZER_STEP) else "none"


def _per_step(view: DeviceView, pattern: str) -> float:
    return view.used_like(pattern).height / max(1, view.steps.height)
