"""What happens once: the start of the process, before the first step, and what is set up, loaded or compiled later."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, inside, outermost, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS
from advisor.text import ms
from advisor.vocabulary.kinds import DRIVER_CALLS

_LITTLE: Final = 0.01  # of that time: not worth a name
_NO_CALL: Final = "outside of CUDA calls"
_MOST_NAMES: Final = 3
_SOURCE: Final = (
    "CUDA sets itself up in a process's first calls, and loads a kernel's code at its first launch (CUDA C++ "
    "Programming Guide); a JIT compiles at first calls"
)


def _begin_ns(view: DeviceView) -> int | None:
    """When the first step begins on the device, or where none is marked the work; None where its start was missed."""
    work_ns = view.process.get("work_start_ns")
    if work_ns is None:
        return None
    in_steps = view.ops.filter(pl.col("step").is_not_null())["start_ns"]
    return int(in_steps.to_numpy().min()) if in_steps.len() else int(work_ns)


def _before(view: DeviceView) -> Intervals:
    """The recording before the work, where it holds the start of the process."""
    begin_ns = _begin_ns(view)
    return EMPTY if begin_ns is None else Intervals.of([view.recorded[0]], [begin_ns])


def _done_once(view: DeviceView) -> pl.DataFrame:
    """Ranges of what is set up, loaded or compiled; of compilation what no used step holds."""
    rows = view.host.filter(pl.col("kind").is_in(["start_up", "compile"]))
    if not (view.has_marks and view.steps.height):
        return rows
    begin = view.steps["host_start_ns"].to_numpy()
    steps = Intervals.of(begin, begin + view.steps["host_dur_ns"].to_numpy())
    return rows.filter((pl.col("kind") == "start_up") | ~inside(steps, rows))


def _idle_once(view: DeviceView) -> Intervals:
    """When the device idles for it."""
    return spans(_done_once(view)) - view.busy


def _once(view: DeviceView) -> Intervals:
    return view.once(_before) | _idle_once(view)


def _work(view: DeviceView) -> str:
    """The three ranges, calls and names of it with the most time, as far as they lie in it, and what lies in none."""
    once = view.once(_once)
    calls_once, begin_ns = _done_once(view), _begin_ns(view) or 0
    early = view.host.filter(begin_ns >= END_NS)
    ranges = outermost(early.filter(pl.col("kind") == "annotation"))
    calls = early.filter(pl.col("kind").is_in(DRIVER_CALLS))
    calls = calls.join(calls_once, on=["thread", "start_ns", "dur_ns"], how="anti", nulls_equal=True)
    rows = pl.concat([calls_once, ranges, calls], how="diagonal_relaxed")
    start = rows["start_ns"].to_numpy()
    spent = once.within(start, start + rows["dur_ns"].to_numpy())
    names = rows.select(name=pl.col("name").cast(pl.String), ns=pl.Series(spent)).group_by("name").sum()
    rest = pl.DataFrame({"name": [_NO_CALL], "ns": [(once - spans(rows)).total]}, schema=names.schema)
    least_ns = max(1.0, _LITTLE * once.total)
    top = pl.concat([names, rest]).filter(pl.col("ns") >= least_ns).sort("ns", "name", descending=[True, False])
    return ", ".join(f"{name} ({ms(ns / 1e6)})" for name, ns in top.head(_MOST_NAMES).rows())


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.ops.filter(pl.col("kind") == "memcpy", inside(view.once(_before), view.ops))


def _from_start(view: DeviceView) -> Missing | None:
    return Missing("started_amid_work") if _begin_ns(view) is None else None


def _of_recording(view: DeviceView, when: Intervals) -> float:
    return when.total / max(1, view.recorded_ns)


measure = of_devices(__name__, needs=("device_ops",), needs_steps=False, source=_SOURCE)
measure_start = of_devices(__name__, needs=("device_ops",), needs_steps=False, unknown=_from_start)
measure("once_ms", lambda view: view.once(_once).total / 1e6).says(
    "Time in the recording before the first step, or work, and that in which the device idles for what is done once.",
    "union of the time up to the first step's first op on the device, or where no steps are marked to the first kernel "
    "after start-up, where the recording holds the start of the process; and of idle time during start-up and loading "
    "of kernels, and during compilation that no used step holds",
)
measure("once_share", lambda view: _of_recording(view, view.once(_once))).says(
    "Part of the recording that passes with what is done once.", "once_ms / recorded_ms"
)
measure("once_idle_share", lambda view: _of_recording(view, _idle_once(view))).says(
    "Part of the recording in which the device idles for start-up, loading of kernels and compilation.",
    "that idle time / recorded_ms",
)
measure("recorded_ms", lambda view: view.recorded_ns / 1e6).says(
    "Time from the worker's first event in the recording to the end of its last.",
    "end of the last host or device op - start of the first",
)
measure("once_step_share", lambda view: view.share(_idle_once(view))).says(
    "Part of the step, or of the used part of a recording without steps, in which the device idles for what is done "
    "once.",
    "idle time during start-up, loading of kernels and compilation within the used steps / step time",
)
measure("once_work", _work, unit="text").says(
    "What is done once.",
    "the three names with the most time in it, which may overlap: start-up, loading, compilation; before the work also "
    "the outermost ranges that end there, and CUDA calls, and what lies in none of these; without what takes under 1 %",
)
measure_start(
    "startup_copy_ms",
    lambda view: spans(view.once(_copies)).total / 1e6,
    where=as_places(_copies, "device_ops", op="op"),
).says(
    "Time before the first step during which a copy runs on the device.",
    "union of the copies that begin before the first step",
)
measure_start("startup_copy_bytes", lambda view: int(view.once(_copies)["bytes"].sum())).says(
    "Bytes copied before the first step.", "sum of their bytes"
)
measure_start(
    "startup_pageable_bytes",
    lambda view: int(view.once(_copies).filter(pl.col("source_memory") == "pageable")["bytes"].sum()),
).says("Bytes copied before the first step from pageable memory.", "sum of the bytes of copies from pageable memory")
