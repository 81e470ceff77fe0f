"""The kernels of the steps: how many, how long, how well they fill the device, and the one that takes most."""

import shlex
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.kernels import TYPE, kernels, verdicts, with_blocks
from advisor.analysis.device.roofs import calls
from advisor.analysis.device.timeline import modules
from advisor.analysis.device.view import DeviceView, classes, spans
from advisor.inputs.names.kernels import kernel_name, kernel_symbol
from advisor.metrics.metric import lacking, of_devices, tabulates
from advisor.model.intervals import Floats, Ints
from advisor.model.profile import matches, rows_where
from advisor.text import count, listing

_PARTS: Final = 50  # of the time, for a chart
_SMALL_NS: Final = 10_000  # shorter than the host takes to launch the next one
_TB: Final = "torch-tb-profiler's GPU summary"


def _span_ns(view: DeviceView) -> int:
    """From the first used step's start to the last one's end."""
    return int(view.ends[-1] - view.starts[0])


def _running(view: DeviceView) -> pl.DataFrame:
    """Kernels and collectives from `start_ns` to `end_ns`, cut to that span."""
    rows = rows_where(view.ops, pl.col("kind").is_in(["kernel", "collective"]))
    first, last = int(view.starts[0]), int(view.ends[-1])
    end = (pl.col("start_ns") + pl.col("dur_ns")).clip(first, last)
    return rows.with_columns(pl.col("start_ns").clip(first, last), end_ns=end)


def _filled(view: DeviceView) -> tuple[Floats, Floats]:
    """Instants in ns, and up to each the integral of min(1, sum over running kernels of their blocks per SM), in ns."""
    rows = view.once(_running).select("start_ns", "end_ns", pl.col("blocks_per_sm").fill_null(0).clip(0, 1))
    return _capped_integral(*(column.to_numpy() for column in rows))


def _occupancy(view: DeviceView) -> float | None:
    known = view.once(_running).drop_nulls("occupancy")
    weight = (known["end_ns"] - known["start_ns"]).to_numpy()
    return float(np.average(known["occupancy"].clip(0, 1), weights=weight)) if weight.any() else None


def _capped_integral(start: Ints, end: Ints, level: Floats) -> tuple[Floats, Floats]:
    """Up to each start and end the integral over time of min(1, sum of the levels of the open intervals), in ns."""
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.concatenate((level, -level))[order])
    parts = np.minimum(running[:-1], 1.0).clip(0.0) * np.diff(times[order])
    return times[order].astype(np.float64), np.concatenate(([0.0], parts.cumsum()))


measure = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"))

measure.per_step("kernels", lambda view: view.used_kernels).says(
    "Compute kernels launched per step.", "kernels / steps"
)
measure("median_kernel_us", lambda view: view.used_kernels.select(pl.median("dur_ns") / 1e3).item()).says(
    "Typical kernel length.", "median of the kernel durations"
)
measure("small_kernel_share", lambda view: view.used_kernels.select((pl.col("dur_ns") < _SMALL_NS).mean()).item()).says(
    "Part of the kernels, by number, that are shorter than 10 µs.", "kernels under 10 µs / kernels"
)
measure(
    "gpu_utilization",
    lambda view: (
        float(view.device_spans("kernel", "collective").within(view.starts[0], view.ends[-1])) / _span_ns(view)
    ),
    unit="share",
).says(
    "Part of the time from the first used step's start to the last one's end in which a kernel runs.",
    "union of kernels and collectives inside that span / span",
    _TB,
)
measure(
    "sm_efficiency",
    lambda view: float(view.once(_filled)[1][-1]) / _span_ns(view),
    needs=("device_ops.occupancy",),
    unit="share",
).says(
    "How much of the device's multiprocessors the running kernels could fill.",
    "integral of min(1, sum over running kernels of blocks per SM) over the same span / span",
    _TB,
)
measure("occupancy", _occupancy, needs=("device_ops.occupancy",), unit="share").says(
    "Estimated occupancy of the multiprocessors while kernels run.",
    "mean of the profiler's estimated achieved occupancy, weighted by the kernels' time in the steps",
    _TB,
)


SEVERAL: Final = "several"
_GROUP: Final = ("name", "op", "module", "shapes", "grid", "block")
_DURATION: Final = pl.col("dur_ns")


def _mean(of: pl.Expr) -> pl.Expr:
    """Over the calls where it is known, by their time, as torch-tb-profiler has it."""
    return ((of * _DURATION).sum() / _DURATION.filter(of.is_not_null()).sum()).fill_nan(None)


_OF_CALLS: Final = {
    "calls": pl.len(),
    "total_ms": _DURATION.sum() / 1e6,
    "mean_us": _DURATION.mean() / 1e3,
    "max_us": _DURATION.max() / 1e3,
    "min_us": _DURATION.min() / 1e3,
    "blocks_per_sm": _mean(pl.col("blocks_per_sm")),
    "sm_efficiency": _mean(pl.col("blocks_per_sm").clip(0, 1)),
    "occupancy": _mean(pl.col("occupancy").clip(0, 1)),
}


def _rates() -> dict[str, pl.Expr]:
    """What the ops reach whose longest kernel this is, and what the roof allows for the same work."""
    achieved, possible = pl.col("op_ns").sum(), pl.col("roof_ns").sum()
    flops = pl.when(pl.col("flops").sum() > 0).then(pl.col("flops").sum()) / 1e3  # per ns: TFLOP/s
    nbytes = pl.col("least_bytes").sum()  # per ns: GB/s
    rates = {
        "tflops": flops / achieved,
        "possible_tflops": flops / possible,
        "gbs": nbytes / achieved,
        "possible_gbs": nbytes / possible,
        "reached": (possible / achieved).clip(upper_bound=1.0),
    }
    return {name: rate.fill_nan(None) for name, rate in rates.items()}


@tabulates("kernel_group")
def kernel_groups(view: DeviceView) -> pl.DataFrame:
    """One row per kernel name, launching op and its module, grid and block, the most time first.

    Columns: name, op, module (its class), shapes (JSON text, of the op), grid, block, registers, shared_bytes; calls,
    total_ms, mean_us, max_us, min_us; blocks_per_sm, sm_efficiency (blocks per multiprocessor, at most 1) and
    occupancy, means by time; tflops and gbs of the ops whose longest kernel it is, possible_tflops and possible_gbs at
    the roof, reached (of the roof); family (of a kernel that communicates, collective), tensor_cores, and verdict on
    their use: used, unused (the op could), unknown, no use; null of kernels that communicate, and of a device without.
    """
    kernels = rows_where(view.used_ops, pl.col("kind").is_in(["kernel", "collective"]))
    kernels = view.with_host(with_blocks(view, kernels), "op", shapes="shapes", op_name="name")
    kernels = kernels.with_columns(module=modules(view, kernels["op"]))
    kernels = kernels.join(view.once(verdicts), on="id", how="left")
    of_ops = view.once(calls).select("name", "flops", "least_bytes", "roof_ns", op="id", op_ns="dur_ns")
    kernels = kernels.join(of_ops, on=["op", "name"], how="left")
    groups = kernels.group_by("name", "module", "shapes", "grid", "block", "kind", "verdict", op="op_name").agg(
        pl.max("registers", "shared_bytes"), **_OF_CALLS, **_rates()
    )
    rows = groups.join(view.once(classes).select("name", "family", "tensor_cores"), on="name", how="left")
    communicates = pl.col("kind") == "collective"
    return (
        rows.with_columns(pl.col("name", "shapes", "op", "family").cast(pl.String))  # few of them, and each once
        .with_columns(family=pl.when(communicates).then(pl.lit("collective")).otherwise("family"))
        .drop("kind")
        .sort("total_ms", *_GROUP, descending=[True, *[False] * len(_GROUP)], nulls_last=True)
    )


def with_the_rest(groups: pl.DataFrame, most: int) -> pl.DataFrame:
    """The first of the groups, and the others put together kernel by kernel, so that sums over the table stay the same.

    A row of those others has SEVERAL for its op and shapes, and no launch dimensions. Kernels beyond `most` have one
    row together.
    """
    rest = groups.slice(most)
    if not rest.height:
        return groups
    kernel = ["name", "family", "tensor_cores", "verdict", *(c for c in ("worker", "device") if c in groups.columns)]
    several = {name: pl.lit(SEVERAL) for name in ("op", "shapes")}
    sums = (pl.sum("calls", "total_ms"), pl.min("min_us"), pl.max("max_us"))
    together = rest.group_by(kernel).agg(*sums, **several).sort("total_ms", "name", descending=True)
    last = together.slice(most)
    if last.height:
        other = pl.lit(count(last["name"].n_unique(), "other kernel")).alias("name")
        last = last.group_by(other, "family", "verdict", *kernel[4:]).agg(*sums, **several)
    return pl.concat(
        [groups.head(most), together.head(most), last.sort("total_ms", "family", descending=True)], how="diagonal"
    )


@tabulates("kernel")
def kernel_table(view: DeviceView) -> pl.DataFrame:
    """One row per kernel name, the most time first.

    Columns: name, calls, total_ms, mean_us, max_us, min_us, blocks_per_sm, sm_efficiency, occupancy as in the table of
    groups, kernel_time_share, family, tensor_cores.
    """
    kernels = with_blocks(view, view.used_kernels)
    share = _DURATION.sum() / max(1, int(kernels["dur_ns"].sum()))
    rows = (
        kernels.group_by("name")
        .agg(**_OF_CALLS, kernel_time_share=share)
        .join(view.once(classes).select("name", "family", "tensor_cores"), on="name", how="left")
        .with_columns(pl.col("name").cast(pl.String))
    )
    return rows.sort("total_ms", "name", descending=[True, False])


@tabulates("over_time")
def over_time(view: DeviceView) -> pl.DataFrame:
    """One row per fiftieth of the time from the first used step's start to the last one's end.

    Columns: part (0, 1, ...), at_ms from the start, kernels and copies (shares of the part in which any runs), and
    sm_efficiency as the metric of that name; null where no kernel's blocks are known.
    """
    schema = {"part": pl.Int64, "at_ms": pl.Float64, "kernels": pl.Float64, "copies": pl.Float64}
    if not len(view.starts) or not view.ops.height or view.ends[-1] - view.starts[0] < _PARTS:
        return pl.DataFrame(schema=schema | {"sm_efficiency": pl.Float64})
    length_ns = view.ends[-1] - view.starts[0]
    edges = view.starts[0] + np.linspace(0, length_ns, _PARTS + 1).astype(np.int64)  # exact, however late the start is
    length = np.diff(edges)
    kernels, copies = (
        view.device_spans(*kinds).within(edges[:-1], edges[1:]) / length
        for kinds in (("kernel", "collective"), ("memcpy",))
    )
    rows = {"part": np.arange(_PARTS), "at_ms": (edges[:-1] - edges[0]) / 1e6, "kernels": kernels, "copies": copies}
    is_known = view.once(_running)["blocks_per_sm"].count()
    efficiency = np.diff(np.interp(edges, *view.once(_filled))) / length if is_known else [None] * _PARTS
    return pl.DataFrame(rows, schema).with_columns(pl.Series("sm_efficiency", efficiency, pl.Float64))


_GRAPH: Final = r"^CUDA graph \d"  # a row of Nsight Systems for all that a graph runs
_FEW: Final = 0.25  # own choice, of the device's work: so few kernels have one each, and are looked at one by one
_TOGETHER: Final = {"gemm": "matrix products", "convolution": "convolutions"}


def _groups(view: DeviceView) -> pl.DataFrame:
    """Kernels with what they are called in common. A graph is no kernel.

    On a CPU all matrix products are one, all convolutions but PyTorch's own loops, and all ops of a type.
    """
    rows, name = rows_where(view.once(kernels), ~matches(_GRAPH)), pl.col("name").cast(pl.String)
    kind, family = pl.coalesce(name.str.extract(TYPE), name), pl.col("family").cast(pl.String)
    of_several = (kind.n_unique().over(family) > 1) & ~matches(r"^aten::_?(?:slow|thnn)_conv")
    group = pl.when(of_several | (family == "gemm")).then(family)
    on_host = group.replace_strict(_TOGETHER, default=None, return_dtype=pl.String).fill_null(kind)
    return rows.with_columns(called=name if view.device is not None else on_host)


def _largest(view: DeviceView) -> list[str]:
    """The name with the most time. Of a kernel that no library's names tell, also others of which a quarter is each."""
    groups = view.once(_groups)
    times = groups.group_by("called").agg(pl.sum("dur_ns"), pl.first("family")).sort(-pl.col("dur_ns"), "called")
    own = times.filter(pl.col("family") == "other", view.device is not None)["called"].head(round(1 / _FEW))
    few = [name for name in own if _part(view, groups.filter(called=name)) >= _FEW]
    return few if times["called"][0] in few else [times["called"][0]]


def _dominant(view: DeviceView) -> pl.DataFrame:
    groups = view.once(_groups)
    return rows_where(groups, pl.col("called").is_in(view.once(_largest))) if groups.height else groups


def _part(view: DeviceView, rows: pl.DataFrame) -> float:
    """Of all that the device does, exchanges and copies too; of a CPU, of the time in which ops compute."""
    if view.device is None:
        return spans(rows).total / spans(view.once(kernels)).total
    every = view.used_ops.filter(pl.col("kind") != "graphics")
    return float(rows["dur_ns"].sum()) / float(every["dur_ns"].sum())


def _command(view: DeviceView) -> str:
    symbols, exact = zip(*map(kernel_symbol, view.once(_largest)), strict=True)
    if view.chip is not None and view.chip.vendor == "AMD":
        return f"rocprof-compute profile -n run -k {shlex.join(symbols)} -- COMMAND"
    names, is_exact = "|".join(symbols), all(exact)
    which = names if is_exact and len(symbols) == 1 else f"regex:^({names})$" if is_exact else f"regex:{names}"
    base = "" if is_exact else "-base demangled --kernel-name"
    return f"ncu --kernel-name{base} {shlex.quote(which)} -c {3 * len(symbols)} --set full COMMAND"


def _least_reached(view: DeviceView) -> float:
    """As if ops of unknown work had none."""
    rows = view.once(_dominant)
    roof_ns = view.once(calls).filter(pl.col("id").is_in(rows["op"].implode()))["roof_ns"].sum()
    return min(1.0, float(roof_ns) / float(rows["dur_ns"].sum()))


of_dominant = of_devices(
    __name__,
    unknown=lacking(
        no_names_timeline=lambda view: view.is_of_one_run and view.device is not None,
        ops_timed=lambda view: view.process.get("producer") == "autograd profiler" and view.device is not None,
        nothing_to_compute_from=lambda view: not view.once(_groups)["dur_ns"].sum(),
    ),
)

of_dominant.kernels("dominant_kernel", _dominant, gives=("share", "ms")).says(
    "in the one kernel that takes the most time (on a CPU: kind of op, all matrix products being one, and all "
    "convolutions), or the few of a program's own that take a quarter of the work each",
    "kernels of the name with the most time; if no library's names tell it, those of others like it of which a quarter "
    "or more is each, too",
)
of_dominant("dominant_kernels", lambda view: len(view.once(_largest)), unit="count").says(
    "How many kernels these are.", "their names"
)
of_dominant("dominant_kernel_part", lambda view: _part(view, view.once(_dominant))).says(
    "Part of the device's work that is these kernels.",
    "their time / time of all kernels, collectives and copies; on a CPU / time in which ops compute",
)
of_dominant("dominant_kernel_name", lambda view: listing([*map(kernel_name, view.once(_largest))]), unit="text").says(
    "What these kernels are called.", "their names without templates"
)
of_dominant("dominant_kernel_command", _command, unit="text").says(
    "The command that shows what limits these kernels, by the vendor's profiler of kernels.",
    "`ncu` of three launches of each, on AMD `rocprof-compute`, of the function, or of what a wrapper runs",
)
of_dominant(
    "dominant_kernel_family",
    lambda view: view.once(_dominant)["family"].cast(pl.String).replace({"other": None})[0],
    unit="text",
).says("What this kernel computes.", "as its name tells; see `advisor kernels`", "advisor/inputs/names/kernels.yaml")
of_dominant("dominant_kernel_least_reached", _least_reached, unit="share").says(
    "What the ops that launch this kernel reach of the device's roof at least.",
    "sum of the least times that the peaks allow for its ops / its time; ops of unknown work count as none",
    "dense peaks of the hardware table; formulas of torch.utils.flop_counter and TraceLens",
)
