"""The steps of a serving engine by phase: prefill, decode, both mixed, or the check of speculated tokens."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.passes import PASS, passes
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import GRAPH_LAUNCH
from advisor.inputs.names.engines import JAX_MARKS, STEP_MARKS, batch
from advisor.inputs.step_periods import LAUNCHING
from advisor.model.arrays import Ints
from advisor.model.profile import END_NS, matches

_NUMBERS: Final = ("busy_ns", "period_ns", "kernels", "graphs", "launching_ns", "host_ns", "communicating_ns")


def engine_steps(view: DeviceView) -> pl.DataFrame:
    """The engine's steps on the host, in order: phase, requests, tokens, start_ns, end_ns.

    From its marks, or else from the kernels of its forward passes.
    """
    of_marks = view.once(marks)
    return of_marks if of_marks.height else view.once(passes)


def marks(view: DeviceView) -> pl.DataFrame:
    """The steps that an engine marks, outermost.

    The thread counts whose marks cover most time: engines repeat the names on threads that launch nothing.
    """
    rows = view.host_like(f"{STEP_MARKS}|{JAX_MARKS}").select(
        "thread", pl.col("name").cast(pl.String), "start_ns", "dur_ns"
    )
    threads = rows.group_by("thread").agg(pl.sum("dur_ns")).sort("dur_ns", "thread", descending=[True, False])
    own = rows.filter(pl.col("thread").is_in(threads["thread"].head(1).implode())).sort(
        "start_ns", "dur_ns", descending=[False, True]
    )
    end = END_NS
    outermost = own.filter((pl.col("start_ns") >= end.cum_max().shift(1)).fill_null(value=True))
    batches = ((batch(name), start, start + dur) for name, start, dur in outermost.drop("thread").rows())
    return pl.DataFrame([(*of, *span) for of, *span in batches if of], schema=PASS, orient="row")


def work(view: DeviceView) -> pl.DataFrame:
    """The device's ops that the engine's steps launched, in that order.

    With `mark` (row of `engine_steps`) and `replays` (whether a launch of a CUDA graph runs it).
    """
    engine = view.once(engine_steps)
    ops = view.ops.filter(pl.col("start_ns") >= (0 if view.has_marks else int(view.starts[0])))
    ops = view.with_host(ops, "launch", called_ns="start_ns", call="name").drop_nulls("called_ns")
    ops = ops.with_columns(replays=matches(GRAPH_LAUNCH, "call")).drop("call").sort("called_ns", maintain_order=True)
    begins = engine["start_ns"].to_numpy()
    nothing = np.iinfo(np.int64).min  # is before the first mark
    until = np.concatenate(([nothing], begins[1:], engine["end_ns"].tail(1).to_numpy()))
    at = np.searchsorted(begins, ops["called_ns"].to_numpy(), "right") - 1
    inside = ops["called_ns"].to_numpy() < until[at + 1]
    return ops.with_columns(mark=pl.Series(at, dtype=pl.Int64)).filter(pl.Series(inside, dtype=pl.Boolean))


def steps_by_phase(view: DeviceView) -> pl.DataFrame:
    """One row per step of the engine that began in a used window, with its `mark` (row of `engine_steps`).

    Its phase, requests, tokens; `next_phase` of the step after it (null where that ran nothing or was not recorded);
    first and last, between which its ops run, in ns; and, in ns or counts: busy_ns and period_ns on the device, kernels
    and single (those that no CUDA graph launched), graphs (launches of CUDA graphs), launching_ns (time in calls that
    launch) and host_ns on the host, communicating_ns.

    On the device a step lasts from its first op to the next step's first op, on the host from mark to mark; the last
    step to its last op, and to the end of its mark.
    """
    engine = view.once(engine_steps)
    if not engine.height or not view.ops.height or not view.total_ns:
        more = dict.fromkeys(("mark", "first", "last", "single", *_NUMBERS), pl.lit(0, pl.Int64))
        return engine.clear().with_columns(**more, next_phase=pl.col("phase"))
    calls = view.host_like(LAUNCHING).sort("start_ns")
    is_kernel = pl.col("kind") == "kernel"
    extent = (
        view.once(work)
        .group_by("mark")
        .agg(
            first=pl.min("start_ns"),
            last=END_NS.max(),
            kernels=is_kernel.sum().cast(pl.Int64),
            single=(is_kernel & ~pl.col("replays")).sum().cast(pl.Int64),
        )
    )
    rows = (
        engine.with_row_index("mark").with_columns(pl.col("mark").cast(pl.Int64)).join(extent, on="mark").sort("mark")
    )
    is_next = pl.col("mark").diff().shift(-1) == 1
    rows = rows.with_columns(next_phase=pl.when(is_next).then(pl.col("phase").shift(-1)))
    opens = rows["first"].to_numpy()
    closes = np.maximum(np.append(opens[1:], rows["last"].tail(1).to_numpy()), opens)
    window = np.searchsorted(view.starts, opens, side="right") - 1
    used = (window >= 0) & (opens < view.ends[window])
    return rows.with_columns(*_numbers(view, calls, rows, opens, closes)).filter(pl.Series(used, dtype=pl.Boolean))


def _numbers(view: DeviceView, calls: pl.DataFrame, rows: pl.DataFrame, opens: Ints, closes: Ints) -> list[pl.Series]:
    begins = rows["start_ns"].to_numpy()
    ends = np.maximum(np.append(begins[1:], rows["end_ns"].tail(1).to_numpy()), begins)
    graphs = np.sort(calls.filter(matches(GRAPH_LAUNCH))["start_ns"].to_numpy())
    values = {
        "busy_ns": view.busy.within(opens, closes),
        "period_ns": closes - opens,
        "graphs": np.searchsorted(graphs, ends) - np.searchsorted(graphs, begins),
        "launching_ns": spans(calls).within(begins, ends),
        "host_ns": ends - begins,
        "communicating_ns": view.device_spans("collective").within(opens, closes),
    }
    return [pl.Series(name, numbers, dtype=pl.Int64) for name, numbers in values.items()]


def phases(view: DeviceView) -> pl.DataFrame:
    """One row per phase, that with most time first.

    Columns: phase, steps, requests and tokens (means; null where no mark says), step_ms, idle_share, launch_share (of
    the host's time), communication_share (of the device's busy time), kernels and graph_launches (means per step).
    """
    rows = view.once(steps_by_phase)
    total = {name: pl.sum(name) for name in _NUMBERS}
    return (
        rows.group_by("phase")
        .agg(
            steps=pl.len(),
            requests=pl.mean("requests"),
            tokens=pl.mean("tokens"),
            step_ms=pl.mean("period_ns") / 1e6,
            idle_share=1 - total["busy_ns"] / total["period_ns"],
            launch_share=total["launching_ns"] / total["host_ns"],
            communication_share=total["communicating_ns"] / total["busy_ns"],
            kernels=pl.mean("kernels"),
            graph_launches=pl.mean("graphs"),
        )
        .sort(pl.col("step_ms") * pl.col("steps"), "phase", descending=[True, False])
    )
