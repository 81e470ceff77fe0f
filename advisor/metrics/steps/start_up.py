"""What comes before the first step: once per job, and so apart from all that each step costs."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, first_uses, inside, sets_up, spans
from advisor.inputs.step_periods import LAUNCHING
from advisor.metrics.several import Metric, Values, measures
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS, matches
from advisor.text import ms
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import CODE_LOAD_NS

_MOST_CALLS: Final = 3
_MOST_IDLE_CAUSES: Final = 4
_CALLS: Final = [*DRIVER_CALLS, "compile"]
_NEEDS: Final = ("device_ops",)


def _begin_ns(view: DeviceView) -> int | None:
    """When the first step begins on the device, or where none is marked the first kernel; None where it was missed."""
    first_kernel = view.process.get("work_start_ns")
    if first_kernel is None:
        return None
    in_steps = view.ops.filter(pl.col("step").is_not_null())["start_ns"]
    return int(in_steps.to_numpy().min()) if in_steps.len() else int(first_kernel)


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.ops.filter(pl.col("kind") == "memcpy", pl.col("start_ns") < (_begin_ns(view) or 0))


def _longest(view: DeviceView) -> pl.DataFrame:
    return as_places(_copies(view), "device_ops", op="op")


STARTUP_MS = Metric(
    "startup_ms",
    "Time from the first event to the first step, or where no steps are marked to the first kernel after any warm-up.",
    "start of the first step's first op on the device - first event recorded of the worker",
)
STARTUP_COPY_MS = Metric(
    "startup_copy_ms",
    "Time before the first step during which a copy runs on the device.",
    "union of the copies that begin before the first step",
    where=_longest,
)
STARTUP_COPY_BYTES = Metric("startup_copy_bytes", "Bytes copied before the first step.", "sum of their bytes")
STARTUP_PAGEABLE_BYTES = Metric(
    "startup_pageable_bytes",
    "Bytes copied before the first step from pageable memory.",
    "sum of the bytes of copies from pageable memory",
)
STARTUP_WORK = Metric(
    "startup_work",
    "The ranges of people's own, CUDA calls and compilation that take longest before the first step.",
    "the three with the most time, by name; of ranges the outermost, as far as they lie before it",
    unit="text",
)
STARTUP_IDLE_MS = Metric(
    "startup_idle_ms",
    "Time before the first step during which the device, having begun to work, idles.",
    "idle time between the device's first op and the first step's",
)
FIRST_USE_MS = Metric(
    "first_use_ms",
    "Time after the first step's start that the device idles for because kernels are used for the first time.",
    "gaps during {code_load} or more of which calls are open that load code or launch a kernel for the first time",
    "no launch takes 1 ms but that which loads the kernel's code (lazy loading, CUDA C++ Programming Guide)",
)
STARTUP_IDLE_WORK = Metric(
    "startup_idle_work",
    "What the host did while the device idled before the first step or for first uses of kernels.",
    "the four CUDA calls and compilations with the most time in it, by name, and the time in which none is open",
    unit="text",
)


@measures(
    STARTUP_MS,
    STARTUP_COPY_MS,
    STARTUP_COPY_BYTES,
    STARTUP_PAGEABLE_BYTES,
    STARTUP_WORK,
    STARTUP_IDLE_MS,
    FIRST_USE_MS,
    STARTUP_IDLE_WORK,
    needs_steps=False,
    needs=_NEEDS,
)
def startup(view: DeviceView) -> Values:
    """Start-up as a whole; unknown where the recorder did not see it."""
    begin_ns = _begin_ns(view)
    if begin_ns is None:
        return Missing("started_amid_work")
    copies = _copies(view)
    first_ns = min(int(table["start_ns"].to_numpy().min()) for table in (view.host, view.ops) if table.height)
    before = view.host.filter(pl.col("start_ns") < begin_ns)
    ranges = before.filter(pl.col("kind") == "annotation")
    outermost = ~pl.col("parent").is_in(ranges["id"].implode()) | pl.col("parent").is_null()
    calls = pl.concat([before.filter(pl.col("kind").is_in(_CALLS)), ranges.filter(outermost)])
    top = (
        calls.group_by(name=pl.col("name").cast(pl.String))
        .agg(ns=(pl.min_horizontal(END_NS, begin_ns) - pl.col("start_ns")).sum())
        .sort("ns", "name", descending=[True, False])
        .head(_MOST_CALLS)
    )
    idle, uses = _idle(view, begin_ns), _first_uses(view, begin_ns)
    return {
        STARTUP_MS: (begin_ns - first_ns) / 1e6,
        STARTUP_COPY_MS: spans(copies).total / 1e6,
        STARTUP_COPY_BYTES: int(copies["bytes"].sum()),
        STARTUP_PAGEABLE_BYTES: int(copies.filter(pl.col("source_memory") == "pageable")["bytes"].sum()),
        STARTUP_WORK: ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in top.rows()),
        STARTUP_IDLE_MS: idle.total / 1e6,
        FIRST_USE_MS: uses.total / 1e6,
        STARTUP_IDLE_WORK: _ran(view, idle | uses),
    }


ONCE_MS = Metric(
    "once_ms",
    "Time in the recording that the device idles for work that is done once.",
    "idle time during calls of 10 ms or more before the device's first op, during launches of {code_load} or more of "
    "kernels that no launch came before, and during compilation that no used step holds, or in a recording without "
    "steps",
    "CUDA sets itself up in a process's first calls, and loads a kernel's code at its first launch (CUDA C++ "
    "Programming Guide); a JIT compiles at first calls",
)
ONCE_SHARE = Metric(
    "once_share",
    "Part of the recording in which the device idles for work that is done once.",
    "once_ms / time from the first event recorded of the worker to the last",
)
ONCE_STEP_SHARE = Metric(
    "once_step_share",
    "Part of the step, or of a recording without steps, in which the device idles for work that is done once.",
    "that idle time within the used steps / step time",
)
ONCE_WORK = Metric(
    "once_work",
    "What work is done once, as far as the device idles for it.",
    "the three ranges and calls with the most time in it, by name",
    unit="text",
)


@measures(ONCE_MS, ONCE_SHARE, ONCE_STEP_SHARE, ONCE_WORK, needs_steps=False, needs=_NEEDS)
def once(view: DeviceView) -> Values:
    """Work that is done once, in the recording as a whole; no step pays for it."""
    if view.device is None or not view.ops.height:
        return {}
    rows = _once(view)
    idle = spans(rows) - view.busy
    start = rows["start_ns"].to_numpy()
    spent = idle.within(start, start + rows["dur_ns"].to_numpy())
    names = rows.select(name=pl.col("name").cast(pl.String), ns=pl.Series(spent)).group_by("name").sum()
    top = names.filter(pl.col("ns") > 0).sort("ns", "name", descending=[True, False]).head(_MOST_CALLS)
    moments = pl.concat([table.select("start_ns", end=END_NS) for table in (view.host, view.ops)])
    recorded_ns = moments.select(pl.max("end") - pl.min("start_ns")).item()
    return {
        ONCE_MS: idle.total / 1e6,
        ONCE_SHARE: idle.total / max(1, recorded_ns),
        ONCE_STEP_SHARE: view.share(idle),
        ONCE_WORK: ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in top.rows()),
    }


def _once(view: DeviceView) -> pl.DataFrame:
    calls = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS))
    ops = view.ops.select("name", "start_ns", "launch").sort("start_ns")
    launched = ops.unique("name", keep="first")["launch"].drop_nulls()
    loads = (pl.col("dur_ns") >= CODE_LOAD_NS) & pl.col("id").is_in(launched.implode()) & matches(LAUNCHING)
    compiles = view.host.filter(pl.col("kind") == "compile")
    if view.has_marks and view.steps.height:
        begin = view.steps["host_start_ns"].to_numpy()
        steps = Intervals.of(begin, begin + view.steps["host_dur_ns"].to_numpy())
        compiles = compiles.filter(~inside(steps, compiles))
    return pl.concat([calls.filter(sets_up(view.ops) | loads), compiles])


def _idle(view: DeviceView, begin_ns: int) -> Intervals:
    return Intervals.of(*view.busy.gaps(int(view.ops["start_ns"].to_numpy().min()), begin_ns))


def _first_uses(view: DeviceView, begin_ns: int) -> Intervals:
    """Gaps of the device after its start that first uses of kernels hold open."""
    opens, closes = view.busy.gaps(begin_ns, int(view.ops.select(END_NS.max()).item()))
    is_open = first_uses(view.host, view.ops).within(opens, closes) >= CODE_LOAD_NS
    return Intervals.of(opens[is_open], closes[is_open])


def _ran(view: DeviceView, when: Intervals) -> str:
    """The calls with the most time during `when`, and the time in which none is open."""
    calls = view.host.filter(pl.col("kind").is_in(_CALLS))
    start = calls["start_ns"].to_numpy()
    spent = calls.select(
        name=pl.col("name").cast(pl.String), ns=pl.Series(when.within(start, start + calls["dur_ns"].to_numpy()))
    )
    top = spent.group_by("name").sum().filter(pl.col("ns") > 0).sort("ns", "name", descending=[True, False])
    silent = when.total - (when & spans(calls)).total
    rows = [*top.head(_MOST_IDLE_CAUSES).rows(), ("no CUDA call", silent)]
    return ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in rows if ns)
