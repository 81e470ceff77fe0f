"""What comes before the first step: once per job, and so apart from all that each step costs."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, first_uses, inside, sets_up, spans, spent_ns
from advisor.inputs.step_periods import LAUNCHING
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS, matches
from advisor.text import ms
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import CODE_LOAD_NS

_MOST_CALLS: Final = 3
_MOST_IDLE_CAUSES: Final = 4
_CALLS: Final = [*DRIVER_CALLS, "compile"]


def _begin_ns(view: DeviceView) -> int | None:
    """When the first step begins on the device, or where none is marked the first kernel; None where it was missed."""
    first_kernel = view.process.get("work_start_ns")
    if first_kernel is None:
        return None
    in_steps = view.ops.filter(pl.col("step").is_not_null())["start_ns"]
    return int(in_steps.to_numpy().min()) if in_steps.len() else int(first_kernel)


def _unseen(view: DeviceView) -> Missing | None:
    return Missing("started_amid_work") if _begin_ns(view) is None else None


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.ops.filter(pl.col("kind") == "memcpy", pl.col("start_ns") < (_begin_ns(view) or 0))


def _startup_ms(view: DeviceView) -> float:
    first_ns = min(int(table["start_ns"].to_numpy().min()) for table in (view.host, view.ops) if table.height)
    return ((_begin_ns(view) or 0) - first_ns) / 1e6


def _work(view: DeviceView) -> str:
    begin_ns = _begin_ns(view) or 0
    before = view.host.filter(pl.col("start_ns") < begin_ns)
    ranges = before.filter(pl.col("kind") == "annotation")
    outermost = ~pl.col("parent").is_in(ranges["id"].implode()) | pl.col("parent").is_null()
    calls = pl.concat([before.filter(pl.col("kind").is_in(_CALLS)), ranges.filter(outermost)])
    took = calls.select("name", ns=pl.min_horizontal(END_NS, begin_ns) - pl.col("start_ns"))
    return _in_words(_longest(took).head(_MOST_CALLS).rows())


def _longest(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with name and ns, summed by name; the most time first."""
    times = calls.group_by(name=pl.col("name").cast(pl.String)).agg(pl.sum("ns"))
    return times.sort("ns", "name", descending=[True, False])


def _in_words(times: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in times)


def _idle(view: DeviceView) -> Intervals:
    """When the device, having begun to work, idles before the first step."""
    return Intervals.of(*view.busy.gaps(int(view.ops["start_ns"].to_numpy().min()), _begin_ns(view) or 0))


def _first_uses(view: DeviceView) -> Intervals:
    """Gaps of the device after its start that first uses of kernels hold open."""
    opens, closes = view.busy.gaps(_begin_ns(view) or 0, int(view.ops.select(END_NS.max()).item()))
    is_open = first_uses(view.host, view.ops).within(opens, closes) >= CODE_LOAD_NS
    return Intervals.of(opens[is_open], closes[is_open])


def _idle_work(view: DeviceView) -> str:
    """The calls with the most time while the device idles, and the time in which none is open."""
    when = view.once(_idle) | view.once(_first_uses)
    calls = view.host.filter(pl.col("kind").is_in(_CALLS))
    top = _longest(calls.select("name", spent_ns(calls, when))).filter(pl.col("ns") > 0)
    silent = when.total - (when & spans(calls)).total
    rows = [*top.head(_MOST_IDLE_CAUSES).rows(), ("no CUDA call", silent)]
    return _in_words((name, ns) for name, ns in rows if ns)


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


def _once_idle(view: DeviceView) -> Intervals:
    return spans(view.once(_once)) - view.busy


def _no_ops(view: DeviceView) -> Missing | None:
    return None if view.ops.height else Missing("nothing_to_compute_from")


def _once_share(view: DeviceView) -> float:
    moments = pl.concat([table.select("start_ns", end=END_NS) for table in (view.host, view.ops)])
    recorded_ns = int(moments.select(pl.max("end") - pl.min("start_ns")).item())
    return view.once(_once_idle).total / max(1, recorded_ns)


def _once_work(view: DeviceView) -> str:
    calls = view.once(_once)
    times = _longest(calls.select("name", spent_ns(calls, view.once(_once_idle)))).filter(pl.col("ns") > 0)
    return _in_words(times.head(_MOST_CALLS).rows())


measure = of_devices(__name__, needs_steps=False, needs=("device_ops",), unknown=_unseen)
measure("startup_ms", _startup_ms).says(
    "Time from the first event to the first step, or where no steps are marked to the first kernel after any warm-up.",
    "start of the first step's first op on the device - first event recorded of the worker",
)
measure(
    "startup_copy_ms",
    lambda view: spans(_copies(view)).total / 1e6,
    where=lambda view: as_places(_copies(view), "device_ops", op="op"),
).says(
    "Time before the first step during which a copy runs on the device.",
    "union of the copies that begin before the first step",
)
measure("startup_copy_bytes", lambda view: int(_copies(view)["bytes"].sum())).says(
    "Bytes copied before the first step.", "sum of their bytes"
)
measure(
    "startup_pageable_bytes",
    lambda view: int(_copies(view).filter(pl.col("source_memory") == "pageable")["bytes"].sum()),
).says("Bytes copied before the first step from pageable memory.", "sum of the bytes of copies from pageable memory")
measure("startup_work", _work, unit="text").says(
    "The ranges of people's own, CUDA calls and compilation that take longest before the first step.",
    "the three with the most time, by name; of ranges the outermost, as far as they lie before it",
)
measure("startup_idle_ms", lambda view: view.once(_idle).total / 1e6).says(
    "Time before the first step during which the device, having begun to work, idles.",
    "idle time between the device's first op and the first step's",
)
measure("first_use_ms", lambda view: view.once(_first_uses).total / 1e6).says(
    "Time after the first step's start that the device idles for because kernels are used for the first time.",
    "gaps during {code_load} or more of which calls are open that load code or launch a kernel for the first time",
    "no launch takes 1 ms but that which loads the kernel's code (lazy loading, CUDA C++ Programming Guide)",
)
measure("startup_idle_work", _idle_work, unit="text").says(
    "What the host did while the device idled before the first step or for first uses of kernels.",
    "the four CUDA calls and compilations with the most time in it, by name, and the time in which none is open",
)

of_recording = of_devices(__name__, needs_steps=False, needs=("device_ops",), unknown=_no_ops)
of_recording("once_ms", lambda view: view.once(_once_idle).total / 1e6).says(
    "Time in the recording that the device idles for work that is done once.",
    "idle time during calls of 10 ms or more before the device's first op, during launches of {code_load} or more of "
    "kernels that no launch came before, and during compilation that no used step holds, or in a recording without "
    "steps",
    "CUDA sets itself up in a process's first calls, and loads a kernel's code at its first launch (CUDA C++ "
    "Programming Guide); a JIT compiles at first calls",
)
of_recording("once_share", _once_share).says(
    "Part of the recording in which the device idles for work that is done once.",
    "once_ms / time from the first event recorded of the worker to the last",
)
of_recording("once_step_share", lambda view: view.share(view.once(_once_idle))).says(
    "Part of the step, or of a recording without steps, in which the device idles for work that is done once.",
    "that idle time within the used steps / step time",
)
of_recording("once_work", _once_work, unit="text").says(
    "What work is done once, as far as the device idles for it.",
    "the three ranges and calls with the most time in it, by name",
)
