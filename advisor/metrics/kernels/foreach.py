"""The optimizer where it updates all tensors at once, but operation by operation: each moves the parameters anew."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_class
from advisor.analysis.device.kernel_groups import part
from advisor.analysis.device.kernels import extent, longest
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.whatif import WORDS, faster, saved

_FOREACH: Final = r"^aten::_foreach_"
# of `BinaryOpListAlphaFunctor<float, 2, 2, 0>`: lists of tensors, those that are read, the one that is written
_LISTS: Final = r"Functor<[^<>]*?, (?:\(int\))?\d+, (?:\(int\))?(\d+), (?:\(int\))?\d+"
_FUSED: Final = {"Adam": 7, "AdamW": 7, "Adagrad": 5, "SGD": 3}
_MOMENTUM: Final = 2  # SGD reads and writes it too, and scales it first
_SCALES: Final = "aten::_foreach_mul_"
_LEAST_RATE: Final = 0.5  # of the rate at which the separate kernels move values


FOREACH_UPDATE_SHARE = Metric(
    "foreach_update_share",
    "Part of the step in which an optimizer that has a fused form updates all tensors operation by operation.",
    "time of kernels that aten::_foreach_ ops launch inside Optimizer.step of Adam, AdamW, Adagrad and SGD / step time",
    where=lambda view: longest(_kernels(view)),
)
FOREACH_UPDATE_MS = Metric("foreach_update_ms", "Time per step of these kernels.", "that time / steps")
FOREACH_ACCESSES = Metric(
    "foreach_accesses",
    "How often these kernels read or write a value of each parameter, its gradient or its moments in a step.",
    "sum over operations of (tensor lists that the kernel's functor reads + 1 that it writes) x calls of the op / calls"
    " of the op that is called least, because each group of parameters calls that once; 0 where there are none",
    "PyTorch, ForeachFunctors.cuh: Functor<type, lists, lists read, list written>",
)
FUSED_ACCESSES = Metric(
    "fused_accesses",
    "How often one fused kernel reads or writes a value of each parameter, its gradient or its moments in a step.",
    "Adam 7, Adagrad 5, SGD 3, with momentum 5; 0 for other optimizers",
    "Adam reads the gradient, reads and writes parameter and two moments",
)
FOREACH_LEAST_GAIN_MS = Metric(
    "foreach_least_gain_ms",
    "Step time that the fused form saves at least.",
    f"those kernels in min(1, 2 x fused_accesses / foreach_accesses) of their time{WORDS['faster']}",
    "2: a fused kernel that moves values half as fast; own choice",
)
FOREACH_GAIN_MS = Metric(
    "foreach_gain_ms",
    "Step time that the fused form saves at most.",
    f"those kernels in min(1, fused_accesses / foreach_accesses) of their time{WORDS['faster']}",
    "all of them are bound by memory: the bytes set their time",
)


@measures(
    *(FOREACH_UPDATE_SHARE, FOREACH_UPDATE_MS, FOREACH_ACCESSES, FUSED_ACCESSES),
    *(FOREACH_LEAST_GAIN_MS, FOREACH_GAIN_MS),
    needs=("device_ops", "device_ops.name"),
)
def foreach_updates(view: DeviceView) -> Values:
    """What the separate operations take, and what one kernel would; zero where there are none."""
    kernels = _kernels(view)
    now, fused = _accesses(kernels), _fused_accesses(view, kernels)
    rest = min(1.0, fused / now) if now else 1.0
    slow, fast = (pl.col("dur_ns") * min(1.0, rest / rate) for rate in (_LEAST_RATE, 1.0))
    some, (least, most) = extent(view, kernels), saved(view, faster(kernels, slow, fast))
    return {
        FOREACH_UPDATE_SHARE: some.share,
        FOREACH_UPDATE_MS: some.ms,
        FOREACH_ACCESSES: now,
        FUSED_ACCESSES: fused,
        FOREACH_LEAST_GAIN_MS: least,
        FOREACH_GAIN_MS: most,
    }


def _kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the optimizer's foreach ops, with the `lists` of tensors that each moves; none of other optimizers."""
    moved = pl.col("name").cast(pl.String).str.extract(_LISTS).cast(pl.Int64) + 1
    of_ops = part(view, "optimizer").filter(pl.col("op_name").str.contains(_FOREACH)).with_columns(lists=moved)
    return of_ops.filter(pl.col("lists").is_not_null(), pl.lit(view.once(optimizer_class) in _FUSED))


def _accesses(kernels: pl.DataFrame) -> float:
    calls = kernels.group_by("op_name", "lists").agg(calls=pl.col("op").n_unique())
    least = calls.group_by("op_name").agg(pl.sum("calls"))["calls"].min()
    return float((calls["lists"] * calls["calls"]).sum()) / least if isinstance(least, int) else 0.0


def _fused_accesses(view: DeviceView, kernels: pl.DataFrame) -> int:
    if not kernels.height:
        return 0
    name = view.once(optimizer_class) or ""
    has_momentum = name == "SGD" and (kernels["op_name"] == _SCALES).any()
    return _FUSED.get(name, 0) + _MOMENTUM * has_momentum
