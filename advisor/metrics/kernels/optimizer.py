"""The optimizer: tensor by tensor or operation by operation, and what one fused kernel saves."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_class, optimizer_work, step_ops, training_ops
from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.kernels import longest, part
from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.analysis.device.workload import workload
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches
from advisor.whatif.change import NOTHING, Change, between, faster, loss, saved, together, without

# Moved per fp32 parameter in one kernel, at most and at least: Adam reads the gradient, reads and writes parameter and
# two moments; SGD with momentum reads the gradient, reads and writes parameter and momentum.
_PARAMETER_BYTES: Final = (28, 20)
_RATES: Final = (0.6, 1.0)  # of the memory bandwidth
_FUSED: Final = (0.65, 0.2)  # of the time, without shapes: SGD's 20 bytes of 32 in 3 kernels, Adam's 28 of 140 in 12
_TINY_NS: Final = 5_000  # a kernel that takes less mostly begins and ends: one for all takes next to nothing more
_HOST_REST: Final = (0.5, 0.1)  # of the host's time: it still collects its tensors in Python (own choice)
_SPARSE: Final = r"^Optimizer\.step#SparseAdam\b"
_OF_MANY: Final = r"^aten::_(?:foreach|fused)_"  # of all tensors


def _kernels(view: DeviceView) -> pl.DataFrame:
    """What fuses: no products, which optimizers such as Muon take of whole matrices."""
    return part(view, "optimizer").filter(~pl.col("family").is_in(["optimizer", "gemm"]))


def _ops(view: DeviceView) -> pl.DataFrame:
    """The outermost framework ops of the used steps inside an optimizer's step, each on one tensor."""
    ops = view.once(step_ops).select("id", "parent", "name", "start_ns", "dur_ns").collect()
    ran = ops.filter(inside(view.once(_dense_work), ops))
    return ran.filter(~pl.col("parent").fill_null(-1).is_in(ops["id"].implode()), ~matches(_OF_MANY))


def _updates(view: DeviceView) -> pl.DataFrame:
    """What updates one tensor each: kernels, without a device ops."""
    return _kernels(view) if view.device is not None else _ops(view)


def _dense_work(view: DeviceView) -> Intervals:
    """The optimizer's work without that of SparseAdam, which updates single rows and has no fused form."""
    return view.once(optimizer_work) - spans(view.host_like(_SPARSE, "annotation"))


def _kernel_spans(view: DeviceView) -> Intervals:
    """None without a device."""
    return spans(view.once(_updates)) if view.device is not None else EMPTY


def _waits(view: DeviceView) -> Intervals:
    """When the optimizer's work on the host sets the pace: always without a device, else while this is idle."""
    work = view.once(_dense_work)
    if view.device is None:
        return work
    has_updates = view.once(_updates).height and not unknown_waits(view)
    return work & view.once(launch_gaps) if has_updates else EMPTY


def _places(view: DeviceView) -> pl.DataFrame:
    return (longest(_updates) if view.device is not None else places(_updates))(view)


def _unknown(view: DeviceView) -> Missing | None:
    """Why nothing shows whether an optimizer loops over tensors; None where something does."""
    if view.device is not None and view.once(_updates).height:
        return None
    if why := unknown_waits(view):
        return why
    is_training = view.process.get("framework") == "pytorch" and "training" in view.once(workload)
    return Missing("no_optimizer_range") if is_training and not view.once(optimizer_work).total else None


def _fused(view: DeviceView) -> Change:
    """Fewer calls on the host and one kernel on the device."""
    kernels, work = view.once(_updates), view.once(optimizer_work)
    if not kernels.height:
        return NOTHING
    most_rest, least_rest = _HOST_REST
    host = between(
        without(host=work, rest=(most_rest, most_rest)),
        without(host=work, rest=(least_rest, least_rest), calls=_calls(view), bound_ns=view.used_ns(view.once(_waits))),
    )
    return together(host, faster(kernels, *(_together(kernels, ns) for ns in _fused_ns(view, kernels))))


def _fused_on_host(view: DeviceView) -> Change:
    recorded = int(inside(view.once(optimizer_work), view.once(step_ops).select("start_ns").collect()).sum())
    waits_ns = view.used_ns(view.once(_waits))
    most_rest, least_rest = _HOST_REST
    return loss((1 - most_rest) * without_recording(view, waits_ns, recorded), (1 - least_rest) * waits_ns)


def _calls(view: DeviceView) -> pl.Series:
    """Calls of the runtime that the optimizer makes."""
    runtime = view.once(training_ops).filter(pl.col("kind") == "runtime")
    return runtime.filter(inside(view.once(optimizer_work), runtime))["id"]


def _together(kernels: pl.DataFrame, total_ns: float) -> pl.Expr:
    """New durations of the kernels, in ns: in each step the first takes its share of `total_ns`, the others nothing."""
    is_first = pl.int_range(pl.len()).over("window") == 0
    return pl.when(is_first).then(total_ns / max(1, kernels["window"].n_unique())).otherwise(0.0)


def _fused_ns(view: DeviceView, kernels: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that make the same updates; never more than now."""
    now = float(kernels["dur_ns"].sum())
    parameters = kernels.group_by(pl.coalesce("op_name", "name")).agg(pl.sum("elements"))["elements"].median()
    of_fp32 = 0.5 if kernels["element_type"].is_in(["fp16", "bf16"]).all() else 1.0
    rate = view.gpu.memory_bandwidth_gbs if view.gpu else None  # GB/s is bytes per ns
    if not rate or not isinstance(parameters, float) or kernels["elements"].null_count():
        return _FUSED[0] * now, _FUSED[1] * float(kernels.filter(pl.col("dur_ns") >= _TINY_NS)["dur_ns"].sum())
    ends = zip(_PARAMETER_BYTES, _RATES, strict=True)
    slow, fast = (min(now, parameters * of_fp32 * nbytes / (share * rate)) for nbytes, share in ends)
    return slow, fast


measure = of_devices(__name__, unknown=_unknown)
measure_kernels = of_devices(__name__, needs=("device_ops.name",), unknown=_unknown)

measure_kernels.time("optimizer", lambda view: view.once(_kernel_spans) | view.once(_waits), where=_places).says(
    "in which an optimizer that updates one tensor at a time sets the pace",
    "time of kernels launched inside an Optimizer.step annotation (where there is none, or nothing joins kernels with "
    "calls: of chains that hold addcdiv, as Adam's updates do), without fused and multi-tensor ones, and, if there are "
    "any, of host-bound gaps of at most {launch_gap} while such a range is open; without a device, time of those "
    "ranges, where there is none from the first op behind the backward pass to the last addcdiv_",
)
measure_kernels("optimizer_kernel_ms", lambda view: view.used_ms(view.once(_kernel_spans))).says(
    "What the kernels of an optimizer that updates one tensor at a time take per step.",
    "time of those kernels / steps; 0 without a device",
)
measure_kernels.kernels("optimizer", _kernels, gives=("ops",)).says(
    "in updates of one tensor at a time", "kernels as in optimizer_share"
)
measure_kernels.per_step("optimizer_updates", _updates).says(
    "How many operations on one tensor the optimizer runs per step.",
    "those kernels / steps; without a device, outermost framework ops that start inside `Optimizer.step#`, "
    "without _foreach_ and _fused_ ones / steps",
)
measure(
    "optimizer_passes", lambda view: view.once(_updates)["name"].n_unique() if view.device is None else 0, unit="count"
).says(
    "How often the optimizer reads and writes the parameters in a step on a CPU; 0 with a device.",
    "different names of those ops; without a device",
    "an op of a loop over parameters handles all of one tensor",
)
measure_kernels.saving(
    "optimizer", lambda view: saved(view, _fused(view) if view.device is not None else _fused_on_host(view))
).says("an optimizer that updates all tensors at once")


# of `BinaryOpListAlphaFunctor<float, 2, 2, 0>`: lists of tensors, those that are read, the one that is written
_LISTS: Final = r"Functor<[^<>]*?, (?:\(int\))?\d+, (?:\(int\))?(\d+), (?:\(int\))?\d+"
_ADAM: Final = (r"LerpFunctor", r"PointwiseOp\w*Functor.*divides")  # moves its first moment; its last operation
_ACCESSES: Final = {"Adam": 7, "AdamW": 7, "Adagrad": 5, "SGD": 3}
_MOMENTUM: Final = 2  # SGD reads and writes it too, and scales it first
_LEAST_RATE: Final = 0.5  # of the rate at which the separate kernels move values


def _foreach_kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the optimizer's foreach ops, with the `lists` of tensors that each moves; none of other optimizers.

    Where no op was recorded, those whose names tell lists of tensors.
    """
    moved = pl.col("name").cast(pl.String).str.extract(_LISTS).cast(pl.Int64) + 1
    is_op = pl.col("op_name").str.contains(r"^aten::_foreach_").fill_null(pl.col("family") == "optimizer")
    of_ops = part(view, "optimizer").filter(is_op)
    of_ops = of_ops.with_columns(lists=moved, op_name=pl.coalesce("op_name", "name"))
    return of_ops.filter(pl.col("lists").is_not_null(), pl.lit(view.once(_class) in _ACCESSES))


def _class(view: DeviceView) -> str | None:
    """As a range names it; without one, Adam where kernels do what only it does."""
    names = part(view, "optimizer")["name"].cast(pl.String)
    is_adam = all(names.str.contains(operation).any() for operation in _ADAM)
    return view.once(optimizer_class) or ("Adam" if is_adam else None)


def _accesses(view: DeviceView) -> float:
    of_op = pl.when(pl.col("op").count() > 0).then(pl.col("op").n_unique()).otherwise(pl.sum("grid"))
    calls = view.once(_foreach_kernels).group_by("op_name", "lists").agg(calls=of_op)
    least = calls.group_by("op_name").agg(pl.sum("calls"))["calls"].min()
    return float((calls["lists"] * calls["calls"]).sum()) / least if isinstance(least, int) else 0.0


def _fused_accesses(view: DeviceView) -> int:
    kernels, name = view.once(_foreach_kernels), view.once(_class) or ""
    if not kernels.height:
        return 0
    has_momentum = name == "SGD" and (kernels["op_name"] == "aten::_foreach_mul_").any()
    return _ACCESSES.get(name, 0) + _MOMENTUM * has_momentum


def _at_once(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    now, dur = view.once(_accesses), pl.col("dur_ns")
    rest = min(1.0, view.once(_fused_accesses) / now) if now else 1.0
    return dur * min(1.0, rest / _LEAST_RATE), dur * rest


of_passes = of_devices(__name__, needs=("device_ops", "device_ops.name"))

of_passes.kernels("foreach_update", _foreach_kernels).says(
    "in which an optimizer that has a fused form updates all tensors operation by operation",
    "kernels that aten::_foreach_ ops launch inside Optimizer.step of Adam, AdamW, Adagrad and SGD; without ops, those "
    "over lists of tensors that a range of the program's own holds, such as optimizer_step, if Adam's are among them",
)
of_passes("foreach_accesses", _accesses).says(
    "How often the optimizer's separate operations read or write a value of each parameter, its gradient or its "
    "moments in a step.",
    "sum over operations of (tensor lists that the kernel's functor reads + 1 that it writes) x calls of the op / calls"
    " of the op that is called least, because each group of parameters calls that once; 0 where there are none. "
    "Where no op was recorded, blocks of its kernels stand for calls: each has as many values",
    "PyTorch, ForeachFunctors.cuh: Functor<type, lists, lists read, list written>",
)
of_passes("fused_accesses", _fused_accesses).says(
    "How often one fused kernel reads or writes a value of each parameter, its gradient or its moments in a step.",
    "Adam 7, Adagrad 5, SGD 3, with momentum 5; 0 for other optimizers",
    "Adam reads the gradient, reads and writes parameter and two moments",
)
of_passes.faster("foreach", _foreach_kernels, _at_once).says("the optimizer's fused form")
