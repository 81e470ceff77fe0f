"""Reductions of gradients that a later pass repeats, and of activations, for which the forward pass waits."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.communication import device_collectives, exposed_ms, host_collectives, host_exposed
from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.names.calls import REDUCTION
from advisor.metrics.metric import lacking, of_devices
from advisor.model.intervals import Intervals, Ints
from advisor.model.profile import matches

_FORWARD: Final = r"^(?:DistributedDataParallel\.forward|FSDP::root_pre_forward)$"
_REDUCING: Final = r"^autograd::engine::evaluate_function: torch::autograd::AccumulateGrad$|^FSDP::post_backward_reduce"
_ACCUMULATING: Final = r"^torch::autograd::AccumulateGrad$|^FSDP::post_backward_reduce"
_REQUEST: Final = r"^c10d::_?(?:all_?reduce|reduce_scatter)"
_ADDITION: Final = r"^aten::(?:_foreach_)?add_$"
_UPDATE: Final = r"^Optimizer\.(?:step|zero_grad)#|^aten::_amp_foreach_non_finite_check_and_unscale_$"
_KEY: Final = ["update", "forward"]


def _repeated(view: DeviceView) -> pl.DataFrame:
    return view.once(_passes).filter("repeated")


def _passes_per_update(view: DeviceView) -> float:
    passes = view.once(_passes)
    if not _repeated(view).height:
        return float(passes.height > 0)
    complete = passes.filter(pl.col("update") >= 0)  # the recording may begin within an update
    of_updates = (complete if complete.height else passes).group_by("update").agg(pl.col("repeated").sum())["repeated"]
    return 1 + float(np.median(of_updates.to_numpy()))


def _passes(view: DeviceView) -> pl.DataFrame:
    """A row per backward pass that reduces: its forward pass, the update it is for, and whether a later one repeats it.

    `start_ns` is when its first reduction is requested, `end_ns` when the next forward pass begins. Those before the
    first recorded update are for an update -1.
    """
    begins = np.sort(view.host_like(_FORWARD)["start_ns"].to_numpy())
    updates = np.sort(view.host_like(_UPDATE)["start_ns"].to_numpy())
    if not len(begins) or not len(updates):
        return pl.DataFrame(schema={**dict.fromkeys([*_KEY, "start_ns", "end_ns"], pl.Int64), "repeated": pl.Boolean})
    requests = _numbered(_within(view, _REQUEST, _REDUCING), begins, updates)
    adds = _numbered(_within(view, _ADDITION, _ACCUMULATING), begins, updates).select(_KEY).unique()
    passes = requests.group_by(_KEY).agg(pl.min("start_ns"), sizes=pl.col("shapes").cast(pl.String).sort())
    passes = passes.join(adds.with_columns(adds=True), on=_KEY, how="left").sort(_KEY)
    ends = np.append(begins, np.iinfo(np.int64).max)[passes["forward"].to_numpy() + 1]
    first, last = (pl.col("forward") == edge("forward").over("update") for edge in (pl.min, pl.max))
    is_added = pl.col("adds").fill_null(value=False)
    alike = pl.col("sizes").n_unique().over("update") == 1
    return passes.with_columns(end_ns=pl.Series(ends), repeated=(is_added ^ first).all().over("update") & alike & ~last)


def _within(view: DeviceView, names: str, ranges: str) -> pl.DataFrame:
    """Ops of such names in ranges of such names, on any thread."""
    ops = view.host_like(names)
    return ops.filter(inside(spans(view.host_like(ranges)), ops))


def _numbered(ops: pl.DataFrame, begins: Ints, updates: Ints) -> pl.DataFrame:
    """The ops with the numbers of the update and the forward pass before each, without those before the first pass."""
    start = ops["start_ns"].to_numpy()
    numbers = {
        name: np.searchsorted(at, start, side="right") - 1 for name, at in zip(_KEY, (updates, begins), strict=True)
    }
    numbered = ops.with_columns(**{name: pl.Series(of, dtype=pl.Int64) for name, of in numbers.items()})
    return numbered.filter(pl.col("forward") >= 0)


def _repeated_ms(view: DeviceView) -> float:
    """Time per step in which reductions that a later pass repeats run, and nothing computes."""
    repeated = _repeated(view)
    when = Intervals.of(repeated["start_ns"], repeated["end_ns"])
    if view.device is None:
        ranges = view.once(host_collectives).filter(matches(REDUCTION))
        return view.used_ms(host_exposed(view, ranges.filter(inside(when, ranges))))
    calls = view.host.filter(inside(when & spans(view.host_like(_REDUCING)), view.host))["id"]
    ops = view.once(device_collectives)
    return exposed_ms(view, ops.filter(pl.col("launch").is_in(calls.implode())))


measure = of_devices(
    __name__, framework="pytorch", unknown=lacking(no_host_op=lambda view: not (view.host["kind"] == "op").any())
)
measure("reducing_passes_per_update", _passes_per_update).says(
    "Backward passes per update of the weights of which each reduces the same gradients: above 1, one would do.",
    "between calls of Optimizer.step or zero_grad, or a check of scaled gradients: forward passes of"
    " DistributedDataParallel or fully_shard after which c10d:: reductions of the same number and sizes run in "
    "AccumulateGrad or FSDP::post_backward_reduce, the first without and all others with additions to gradients; the "
    "median over updates; 1 where the first adds too, because these may be gradients of other weights; 0 where no "
    "pass reduces",
    "PyTorch, DistributedDataParallel.no_sync",
)
measure("repeated_reduction_ms", lambda view: _repeated_ms(view) if _repeated(view).height else 0.0).says(
    "Time per step in which gradients are reduced that a later backward pass reduces again, and nothing computes.",
    "of reductions in all but the last of the passes that reducing_passes_per_update counts: as "
    "exposed_communication_ms on the device, as host_collective_exposed_ms on the host",
)


_REDUCTIONS: Final = ["all_reduce", "reduce_scatter"]
_LARGE_BYTES: Final = 1 << 20  # losses and counts that are logged have less
_WEIGHTS: Final = r"^Optimizer\.(?:step|zero_grad)#"


def _per_step(view: DeviceView) -> float:
    """Reductions before the backward pass; zero where nothing shows when weights are updated."""
    is_large = pl.col("does").is_in(_REDUCTIONS) & (pl.col("size") >= _LARGE_BYTES)
    calls = view.host_of(view.once(device_collectives).filter(is_large)["launch"])
    return int(_is_forward(view, _begins(calls)).sum()) / view.steps.height


def _is_forward(view: DeviceView, at: Ints) -> Ints:
    """Whether each instant lies between an update of weights and the backward pass that follows it."""
    updates = np.sort(spans(view.host_like(_WEIGHTS)).ends)
    backward = np.sort(_begins(view.host_like(BACKWARD)))
    number = np.searchsorted(updates, at, side="right")
    if not len(updates) or not len(backward):
        return np.zeros(len(at), np.int64)
    since = np.where(number > 0, updates[np.maximum(number - 1, 0)], np.iinfo(np.int64).max)
    first = np.searchsorted(backward, since)
    follows = np.append(backward, np.iinfo(np.int64).min)[first]
    return (at < follows).astype(np.int64)


def _begins(rows: pl.DataFrame) -> Ints:
    return rows["start_ns"].to_numpy()


of_devices(__name__, needs=("device_ops",))("forward_reductions_per_step", _per_step).says(
    "Reductions of 1 MiB and more per step that a forward pass needs: of activations, never of gradients.",
    "all_reduce and reduce_scatter kernels of that size that are called between the end of an Optimizer.step or "
    "zero_grad and the first op of a backward pass after it / steps",
    "Megatron-LM (2019): two all-reduces in the forward pass of a layer whose products are split among ranks",
)
