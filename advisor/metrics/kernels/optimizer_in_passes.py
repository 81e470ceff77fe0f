"""The optimizer where it updates all tensors at once, but operation by operation: each moves the parameters anew."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_class
from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices

_FOREACH: Final = r"^aten::_foreach_"
# of `BinaryOpListAlphaFunctor<float, 2, 2, 0>`: lists of tensors, those that are read, the one that is written
_LISTS: Final = r"Functor<[^<>]*?, (?:\(int\))?\d+, (?:\(int\))?(\d+), (?:\(int\))?\d+"
_FUSED: Final = {"Adam": 7, "AdamW": 7, "Adagrad": 5, "SGD": 3}
_MOMENTUM: Final = 2  # SGD reads and writes it too, and scales it first
_SCALES: Final = "aten::_foreach_mul_"
_LEAST_RATE: Final = 0.5  # of the rate at which the separate kernels move values


def _kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the optimizer's foreach ops, with the `lists` of tensors that each moves; none of other optimizers."""
    moved = pl.col("name").cast(pl.String).str.extract(_LISTS).cast(pl.Int64) + 1
    of_ops = part(view, "optimizer").filter(pl.col("op_name").str.contains(_FOREACH)).with_columns(lists=moved)
    return of_ops.filter(pl.col("lists").is_not_null(), pl.lit(view.once(optimizer_class) in _FUSED))


def _accesses(view: DeviceView) -> float:
    calls = view.once(_kernels).group_by("op_name", "lists").agg(calls=pl.col("op").n_unique())
    least = calls.group_by("op_name").agg(pl.sum("calls"))["calls"].min()
    return float((calls["lists"] * calls["calls"]).sum()) / least if isinstance(least, int) else 0.0


def _fused_accesses(view: DeviceView) -> int:
    kernels, name = view.once(_kernels), view.once(optimizer_class) or ""
    if not kernels.height:
        return 0
    has_momentum = name == "SGD" and (kernels["op_name"] == _SCALES).any()
    return _FUSED.get(name, 0) + _MOMENTUM * has_momentum


def _fused(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    now, dur = view.once(_accesses), pl.col("dur_ns")
    rest = min(1.0, view.once(_fused_accesses) / now) if now else 1.0
    return dur * min(1.0, rest / _LEAST_RATE), dur * rest


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))

measure.kernels("foreach_update", _kernels).says(
    "in which an optimizer that has a fused form updates all tensors operation by operation",
    "kernels that aten::_foreach_ ops launch inside Optimizer.step of Adam, AdamW, Adagrad and SGD",
)
measure("foreach_accesses", lambda view: view.once(_accesses)).says(
    "How often the optimizer's separate operations read or write a value of each parameter, its gradient or its "
    "moments in a step.",
    "sum over operations of (tensor lists that the kernel's functor reads + 1 that it writes) x calls of the op / calls"
    " of the op that is called least, because each group of parameters calls that once; 0 where there are none",
    "PyTorch, ForeachFunctors.cuh: Functor<type, lists, lists read, list written>",
)
measure("fused_accesses", lambda view: view.once(_fused_accesses)).says(
    "How often one fused kernel reads or writes a value of each parameter, its gradient or its moments in a step.",
    "Adam 7, Adagrad 5, SGD 3, with momentum 5; 0 for other optimizers",
    "Adam reads the gradient, reads and writes parameter and two moments",
)
measure.faster("foreach", _kernels, _fused).says("the optimizer's fused form")
