"""PyTorch's autograd as ops show it: the nodes of backward passes, the ops that made them, and what a step repeats."""

from math import gcd
from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView, inside, outermost, spans
from advisor.inputs.names.calls import NODE
from advisor.model.intervals import Intervals, begun
from advisor.model.profile import matches

_LINEAR: Final = r": AddmmBackward"
_TRANSPOSED: Final = r": TBackward"  # the weight of a linear layer, if it trains
_WEIGHTED: Final = r": (?:Convolution|Embedding|Native(?:Layer|Batch|Group)Norm|CudnnBatchNorm)Backward"
_WEIGHT: Final = r": torch::autograd::AccumulateGrad$"
_PRODUCT: Final = r": (?:Mm|Bmm|Baddbmm)Backward"
_FACTOR: Final = r"^aten::b?mm$"  # what such a node computes for each factor that has a gradient
LAYER: Final = rf"{_WEIGHTED}|{_LINEAR}|{_PRODUCT}"  # frozen weights have no node, their layer has

FEW_PASSES: Final = 8  # models that train in turns make two or three passes, gradients of micro-batches four
_OF_NODES: Final = ["id", "thread", "name", "start_ns", "dur_ns", "sequence"]
_RECURRENT: Final = r"^aten::(?:lstm|gru|rnn_tanh|rnn_relu)$"
_REUSED: Final = 4  # nodes per weight: a layer that is called once has one or two weights, those that train
_OFTEN: Final = 2  # nodes of one kind per layer: one without weights comes less often than those around it
_KINDS: Final = 3  # as often as each other: two may be so by chance
_FAR_OFTEN, _FAR_KINDS = 16, 2  # nodes of one kind per layer: with so many, two kinds as often are a loop's
_ROW: Final = r"^autograd::engine::evaluate_function: (?:Select|Slice|Index)Backward\d*$"
_ALIKE: Final = 0.5  # of the passes: as many nodes as the typical one, or the passes are of different things


def nodes(view: DeviceView) -> pl.DataFrame:
    """The nodes of the graph that backward passes evaluate, on any thread."""
    return view.host_like(NODE, "op").select(_OF_NODES)


def used_nodes(view: DeviceView) -> pl.DataFrame:
    """Those of the used steps, with their `window`."""
    return view.used_like(NODE, "op").select(*_OF_NODES, "window")


def python_nodes(view: DeviceView) -> pl.DataFrame:
    """Those of the used steps but what a recurrent layer's own loop, which is no Python, makes for each time step."""
    forward, of_nodes = view.once(makers), view.once(used_nodes)
    own = forward.filter(inside(spans(view.used_like(_RECURRENT, "op")), forward))["sequence"]
    return of_nodes.filter(~pl.col("sequence").is_in(own.implode()).fill_null(value=False))


def makers(view: DeviceView) -> pl.DataFrame:
    """The forward ops of the used steps that made a node: of those that bear its number the last one to start.

    Ops that a node calls are none of them, those of a checkpoint that computes its forward pass again say.
    """
    of_nodes = view.once(nodes)
    numbers = of_nodes["sequence"].drop_nulls().unique()
    bears = pl.col("sequence").is_in(numbers.implode())
    bearers = view.used_host.filter(pl.col("kind") == "op", bears).collect()
    forward = bearers.filter(~inside(spans(of_nodes), bearers))
    return forward.sort("start_ns").unique(["thread", "sequence"], keep="last", maintain_order=True)


def passes_per_step(view: DeviceView) -> float:
    """How often a used step runs the same ops: the most of four signs; 1 where there is none.

    Backward passes with a forward pass before each, of as many nodes; calls of the module that takes longest for each
    of these; uses of the weights in one backward pass, which evaluates a node for each use and one for each weight;
    nodes of several kinds that come equally often, at least twice as often as layers do.
    """
    batches = backward_passes(view)
    modules = outermost(view.used_host.filter(pl.col("kind") == "module").collect())
    calls = modules.group_by("name").agg(pl.len().alias("calls"), pl.sum("dur_ns")).sort("dur_ns", "calls")["calls"]
    of_module = calls[-1] / view.steps.height / max(1.0, batches) if len(calls) else 0.0
    return max(1.0, batches, of_module, _uses_of_weights(view), _loop(view))


def backward_passes(view: DeviceView) -> float:
    """How many backward passes a step makes, each of a forward pass before it, if most have as many nodes; else 0."""
    forward = view.once(makers).select("start_ns", is_node=pl.lit(value=False))
    backward = view.once(used_nodes)
    ordered = pl.concat([forward, backward.select("start_ns", is_node=pl.lit(value=True))]).sort("start_ns")
    begins = pl.col("is_node") & ~pl.col("is_node").shift(1, fill_value=False)
    of_passes = ordered.with_columns(number=begins.cast(pl.Int32).cum_sum()).filter("is_node")
    sizes = of_passes.group_by("number").len()["len"]
    alike = int((sizes == sizes.median()).sum()) if sizes.len() else 0
    return sizes.len() / view.steps.height if alike > _ALIKE * sizes.len() else 0.0


def _uses_of_weights(view: DeviceView) -> int:
    """The common divisor of how often each kind of node is there, if there are several nodes for each weight.

    Or, as not all layers may lie in the loop, the linear ones that train for each weight.
    """
    of_nodes = view.once(python_nodes)
    weights, others = of_nodes.filter(matches(_WEIGHT)).height, of_nodes.filter(~matches(_WEIGHT))
    linear = min(others.filter(matches(sign)).height for sign in (_LINEAR, _TRANSPOSED))
    if others.filter(matches(_WEIGHTED)).height + linear < _REUSED * max(1, weights):
        return 1
    counts = _per_step(view, others)
    return max(gcd(*counts.filter(counts >= _REUSED).to_list()), linear // max(1, weights))


def _loop(view: DeviceView) -> int:
    """How often nodes of several kinds come, each as often as the others, if layers come less often.

    Of three kinds half as often; of two, which may be as often as each other by chance, a sixteenth.
    """
    of_nodes, layers = view.once(python_nodes), _layers(view)
    counts = _per_step(view, of_nodes.filter(~matches(_WEIGHT)))
    often = counts.filter(counts >= _OFTEN * max(1.0, layers)).value_counts(name="kinds")
    is_far = (pl.col(counts.name) >= _FAR_OFTEN * max(1.0, layers)) & (pl.col("kinds") >= _FAR_KINDS)
    return int(often.filter((pl.col("kinds") >= _KINDS) | is_far)[counts.name].min() or 1)  # type: ignore[arg-type]


def row_gradients(view: DeviceView) -> Intervals:
    """When backward passes fill gradients of complete tensors for single rows of them, far more often than for layers.

    Or as often as a loop of eight passes or more runs. The gradient of `x[i]` is as large as x, zero but for a row;
    of a loop over n rows there are n of them to add up.
    """
    rows, least, passes = view.used_like(_ROW, "op"), _FAR_OFTEN * max(1.0, _layers(view)), _loop(view)
    least = min(least, passes) if passes >= FEW_PASSES else least
    often = rows.group_by("name").len().filter(pl.col("len") >= least * view.steps.height)
    return spans(rows.filter(pl.col("name").is_in(often["name"].implode())))


def _layers(view: DeviceView) -> float:
    """How many layers a backward pass of a step goes through, by their weights or by their own nodes.

    A product of two results, each with its gradient, is no layer.
    """
    of_nodes = view.once(used_nodes)
    layers, products = of_nodes.filter(matches(LAYER)), view.used_like(_FACTOR, "op")["start_ns"]
    ends_ns = (layers["start_ns"] + layers["dur_ns"]).to_numpy()
    both = (begun(products, layers["start_ns"], ends_ns) > 1) & layers.select(matches(_PRODUCT)).to_series().to_numpy()
    return max(of_nodes.filter(matches(_WEIGHT)).height, layers.height - int(both.sum())) / view.steps.height


def _per_step(view: DeviceView, of_nodes: pl.DataFrame) -> pl.Series:
    """How often each kind of node comes in a step."""
    return (of_nodes.group_by("name").len()["len"] / view.steps.height).round().cast(pl.Int64)
