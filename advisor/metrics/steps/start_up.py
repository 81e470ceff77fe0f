"""What the used steps do not hold: start-up and what is done once, time left out, and work that was not recorded."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from advisor.analysis.device.host_work import host_alone, longest_wait, own_ranges, place_of
from advisor.analysis.device.idle import functions_in, gaps
from advisor.analysis.device.launches import FAILURE, LAUNCHED, holes_in, lacks_kernels, launches_of
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.recording_cost import unprofiled_whole_ms
from advisor.analysis.device.view import DeviceView, bounds, host_bounds, inside, outermost, spans, spent_ns
from advisor.inputs.names.calls import LAUNCHING
from advisor.inputs.step_periods import NO_END
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries
from advisor.model.intervals import EMPTY, Intervals, shared_out
from advisor.model.profile import END_NS, matches
from advisor.text import runs_of
from advisor.vocabulary.kinds import DRIVER_CALLS, LEFT_OUT
from advisor.vocabulary.limits import LONG_CALL_NS, table

_LITTLE: Final = 0.1  # own choice, of the largest part: not worth a name
_WORTH_NAMING: Final = 0.01  # of the recording
_MOST_NAMES: Final = 3
_COLD: Final = 2  # calls of an op: two kinds of work may share its name
_HASH: Final = r"\d{9,}"  # of compiled functions: their code differs, what they are called does not
_COMPILES: Final = r"^.* \(dynamo_timed\)$"  # PyTorch's compiler times its parts so
_SOURCE: Final = (
    "CUDA sets itself up in a process's first calls, and loads a kernel's code at its first launch (CUDA C++ "
    "Programming Guide); a JIT compiles at first calls"
)


def _steps(view: DeviceView) -> Intervals:
    """The steps that the mean step is of, on the host."""
    return Intervals.of(*host_bounds(view.lasting))


def _begin_ns(view: DeviceView) -> int | None:
    """When the first step begins on the device, or where none is marked the work; None where its start was missed.

    On a CPU, where the steps are marked and a function was compiled before the first of them.
    """
    if view.device is None and view.has_marks and view.lasting.height:
        begin_ns = int(view.once(_steps).starts[0])
        return begin_ns if view.host.filter(pl.col("kind") == "compile", begin_ns >= END_NS).height else None
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
    """Ranges of what is set up, loaded or compiled; of compilation what no step holds that the mean step is of."""
    rows = view.host.filter(pl.col("kind").is_in(["start_up", "compile"]))
    if not (view.has_marks and view.steps.height):
        return rows
    return rows.filter((pl.col("kind") == "start_up") | ~inside(view.once(_steps), rows))


def _idle_once(view: DeviceView) -> Intervals:
    """When the device idles for it."""
    return spans(_done_once(view)) - view.busy


def _alone(view: DeviceView) -> Intervals:
    """What the program does without CUDA before the work, and after it where no marked steps may go on; or all of it.

    Where no kernel was recorded the device may work meanwhile, but makes the host wait for nothing.
    """
    if view.once(lacks_kernels):
        return host_alone(view, Intervals.of(*([moment] for moment in view.recorded)), EMPTY)
    end_ns = view.process.get("work_end_ns")
    after = EMPTY if view.has_marks or end_ns is None else Intervals.of([end_ns], [max(end_ns, view.recorded[1])])
    return host_alone(view, view.once(_before) | after, spans(_done_once(view)))


def _place_alone(view: DeviceView) -> Entries:
    alone = view.once(_alone)
    functions = functions_in(view, alone.starts, alone.ends).drop_nulls("function").group_by("function")
    most = functions.agg(pl.sum("ns")).filter(2 * pl.col("ns") > alone.total).rows()
    return [{"name": f"in `{name}`", "share": ns / alone.total} for name, ns in most] or place_of(view, alone)


def _waits_alone(view: DeviceView) -> Entries:
    alone = view.once(_alone)
    return [{"name": name, "share": ns / alone.total} for name, ns in longest_wait(view, alone)]


def _before_calls(view: DeviceView) -> Intervals:
    """From the process's start to its first call of CUDA; nothing where the recording does not show when it began."""
    if view.process.get("process_start_ns") is None:
        return EMPTY
    first_ns = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS))["start_ns"].to_numpy().min()
    return (view.once(_before) & Intervals.of([view.recorded[0]], [first_ns])) - view.once(_alone)


def _once(view: DeviceView) -> Intervals:
    return (view.once(_before) - view.once(_alone)) | _idle_once(view)


def _work(view: DeviceView) -> Entries:
    """The three ranges, calls and names of it with the most time, of which the innermost count, and what is in none."""
    once, calls_once = view.once(_once), _done_once(view)
    early = view.host.filter((_begin_ns(view) or 0) >= END_NS)
    ranges = outermost(early.filter(pl.col("kind").is_in(["annotation", "input"])))
    calls = early.filter(pl.col("kind").is_in(DRIVER_CALLS))
    calls = calls.join(calls_once, on=["thread", "start_ns", "dur_ns"], how="anti", nulls_equal=True)
    rows = pl.concat([calls_once, ranges, calls], how="diagonal_relaxed").with_columns(
        pl.col("name").cast(pl.String).str.replace_all(_HASH, "#").str.replace(_COMPILES, "torch.compile")
    )
    spent = rows.select("name", ns=spent_ns(rows, once))
    known = spent.group_by("name").sum().filter(pl.col("ns") > 0, pl.col("ns") >= _LITTLE * pl.col("ns").max())
    longest = {str(name): spans(rows.filter(pl.col("name") == name)) for name in known.sort("ns", "name")["name"]}
    longest["CPU work before the first CUDA call"] = _before_calls(view)
    longest["CPU work between CUDA calls"] = once - spans(rows)
    own = shared_out(longest, once.starts, once.ends)  # the shorter lie in the longer
    largest = sorted(((int(ns.sum()), name) for name, ns in own.items()), key=lambda part: (-part[0], part[1]))
    least = max(1, _LITTLE * largest[0][0])
    top = [(ns, name) for ns, name in largest[:_MOST_NAMES] if ns >= least]
    rest = once.total - sum(ns for ns, _ in top)
    top += [(rest, "smaller parts")] if rest >= least else []
    return [{"name": name, "ms": ns / 1e6} for ns, name in top]


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.ops.filter(pl.col("kind") == "memcpy", inside(view.once(_before), view.ops))


measure_all = of_devices(__name__, needs_steps=False, source=_SOURCE)
measure = of_devices(
    __name__,
    needs_steps=False,
    source=_SOURCE,
    unknown=lacking(
        nothing_to_compute_from=lambda view: not view.ops.height and not view.host.filter(LAUNCHED).is_empty()
    ),
)
measure_start = of_devices(
    __name__,
    needs=("device_ops",),
    needs_steps=False,
    unknown=lacking(started_amid_work=lambda view: _begin_ns(view) is None),
)
measure("once_ms", lambda view: view.once(_once).total / 1e6).says(
    "Time in the recording before the first step, or work, and that in which the device idles for what is done once.",
    "union of the time up to the first step's first op on the device, or where no steps are marked to the first kernel "
    "after start-up, where the recording holds the start of the process, without what a program of no framework does "
    "there for over 100 ms outside of CUDA calls; and of idle time during start-up and loading of kernels, and during "
    "compilation outside of the steps; without a device the time up to the first step, where it holds compilation",
)
measure_all("host_alone_ms", lambda view: view.once(_alone).total / 1e6).says(
    "Time before and after unmarked work, or before marked steps, in which a program of no framework calls no CUDA.",
    "stretches of over 100 ms without CUDA calls or device work; before those that use memory if samples "
    "or a second without calls of the operating system show it; without any kernel all that samples show",
)
measure_all("host_alone_place", _place_alone, unit="names").says(
    "In which function of the program, or between which calls, most of it lies.",
    "the function with over half of it by CPU samples, or else the two calls with over half of it between them",
)
measure_all("host_alone_waits", _waits_alone, unit="names").says(
    "In which call of the system it waits most of that time: for somebody to type, a child process or time to pass.",
    "time in calls such as getc, sleep and waitpid of the threads that launch or bear steps, if over half of it",
)
measure(
    "once_idle_share",
    lambda view: (_before_calls(view) | _idle_once(view)).total / max(1, view.recorded_ns),
    needs=("device_ops.start_ns",),
).says(
    "Part of the recording in which the device idles for start-up, loading of kernels and compilation.",
    "that idle time, and the time from the process's start to its first call of CUDA where both are recorded, / "
    "recorded_ms",
)
measure_all("used_ms", lambda view: view.total_ns / 1e6).says(
    "Time that the used steps take in all; 0 without one.", "sum of their windows on the device"
)
measure_all("unmarked_ms", lambda view: 0.0 if view.has_marks else view.total_ns / 1e6).says(
    "Time used of a recording without marked steps; else 0.", "used_ms where no steps are marked"
)
measure_all("recorded_ms", lambda view: view.recorded_ns / 1e6).says(
    "Time from the worker's first event in the recording to the end of its last.",
    "end of the last host or device op - start of the first, or of the process where the recording shows that",
)
measure("once_step_share", lambda view: view.share(_idle_once(view)), needs=("device_ops.start_ns",)).says(
    "Part of the step, or of the used part of a recording without steps, in which the device idles for what is done "
    "once.",
    "idle time during start-up, loading of kernels and compilation within the used steps / step time",
)
measure("once_work", _work, unit="names").says(
    "What is done once.",
    "the three names with the most time in it, the innermost at each instant: start-up, loading, compilation; before "
    "the work also the outermost ranges and waits for input that end there, CUDA calls, and smaller parts; without "
    "what takes under a tenth of the first",
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


_REPEATS: Final = 3
_START_UP: Final = "start-up that each run pays once"
_OTHERS_WORK: Final = "its start, when the GPU was busy with work that was not recorded"


def left_out(view: DeviceView) -> tuple[int, dict[str, int]]:
    """Time in no step that counts, in ns, and by what it is, the largest first.

    The parts add up to the recording without the used steps, but for steps that overlap its edges on the device.
    """
    begin, end = view.recorded
    if not view.complete.height:
        return end - begin, {}
    starts, ends = bounds(view.complete)
    first, last = int(starts[0]), int(ends.max())
    is_from_start = _begin_ns(view) is not None
    warm_ups = view.complete.join(view.lasting, on="step", how="anti")
    in_steps, lasting = int((ends - starts).sum()), int(view.lasting["dur_ns"].sum())
    has_backlog = view.steps.filter(pl.col("start_ns") > pl.col("host_start_ns")).height > 0
    unmarked = _OTHERS_WORK if has_backlog else "the time before the first recorded work"
    tail = "the time after the last op" if view.device is None else "the time after the last work of the device"
    parts = {
        _START_UP if is_from_start else "the time before the first step" if view.has_marks else unmarked: first - begin,
        f"{_numbers(warm_ups)}, the first of the recording": in_steps - lasting,
        "the time between steps": last - first - in_steps,
        "the time after the last step" if view.has_marks else tail: end - last,
    }
    before, _, between, after = parts
    outliers = view.lasting.join(view.steps, on="step", how="anti")
    if outliers.height and unprofiled_whole_ms(view) is None:  # where usual steps were timed, the bar has no others
        parts[f"{_numbers(outliers)}, longer than the others"] = int(outliers["dur_ns"].sum())
    if (alone := view.once(_alone) & view.once(_before)).total:
        waits = "".join(f", mostly in `{name}`" for name, _ in longest_wait(view, alone))
        parts |= {f"the host alone before the work{waits}": alone.total, before: parts[before] - alone.total}
    for zone, since, until in ((before, begin, first), (between, first, last), (after, last, end)):
        free = Intervals.of([since], [max(since, until)]) - Intervals.of(starts, ends)
        loop = {} if zone == between else _other_loop(view, since, until, "before" if zone == before else "after")
        for what, when in (*loop.items(), *_cut_steps(view).items()):
            ns, free = (free & when).total, free - when
            parts[what], parts[zone] = parts.get(what, 0) + ns, parts[zone] - ns
    ordered = sorted(((max(0, ns), what) for what, ns in parts.items()), reverse=True)
    return sum(ns for ns, _ in ordered), {what: ns for ns, what in ordered}


def _numbers(steps: pl.DataFrame) -> str:
    return f"{'step' if steps.height == 1 else 'steps'} {runs_of(steps['step'])}"


def _cut_steps(view: DeviceView) -> dict[str, Intervals]:
    """Steps of which a part was not recorded, by reason; all that follows one without an end may be of it."""
    till_end = pl.when(pl.col("left_out") == NO_END).then(view.recorded[1] - pl.col("start_ns"))
    steps = view.incomplete.with_columns(dur_ns=till_end.otherwise("dur_ns"))
    return {
        f"{_numbers(rows)}, because {LEFT_OUT[str(why)]}": spans(rows)
        for (why,), rows in steps.partition_by("left_out", as_dict=True).items()
    }


def _other_loop(view: DeviceView, since: int, until: int, place: str) -> dict[str, Intervals]:
    """The program's own ranges that repeat in this time, those with most of it, by name; empty without any.

    What is done once in them is no part of the loop, as the start of CUDA in the first call of it.
    """
    ranges, once = view.once(own_ranges).filter(pl.col("start_ns") >= since, until >= END_NS), spans(_done_once(view))
    ranges = ranges.filter(~inside(once, ranges))
    loops = ranges.group_by("label").agg(pl.len(), pl.sum("dur_ns")).filter(pl.col("len") >= _REPEATS)
    longest = loops.sort("dur_ns", "label", descending=[True, False]).head(1)
    return {
        f"{times} ranges `{label}` {place} the steps": spans(ranges.filter(pl.col("label") == label)) - once
        for label, times, _ in longest.rows()
    }


def _left_out_parts(view: DeviceView) -> Entries:
    least, parts = _WORTH_NAMING * view.recorded_ns, view.once(left_out)[1].items()
    return [{"name": what, "ms": ns / 1e6} for what, ns in parts if ns >= least]


of_rest = of_devices(__name__)
of_rest("left_out_share", lambda view: view.once(left_out)[0] / max(1, view.recorded_ns)).says(
    "Part of the recording that is in none of the used steps.", "1 - length of the used steps / recorded_ms"
)
of_rest("left_out_parts", _left_out_parts, unit="names").says(
    "What of the recording is in none of the used steps.",
    "the time before the first step, after the last, between steps, and of first steps that start up; apart steps of "
    "which a part was not recorded, and the program's own ranges that repeat before or after the steps; those of 1 % "
    "of the recording or more, the largest first",
)


_CUDA: Final[Mapping[str, Any]] = table(__file__, "cuda_errors")


def _gaps(view: DeviceView) -> pl.DataFrame:
    idle = view.once(gaps)
    holes = idle.filter(pl.Series(holes_in(idle, view), dtype=pl.Boolean))
    return holes.select("start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))


def _failed(view: DeviceView) -> pl.DataFrame:
    return view.host_like(LAUNCHING, *DRIVER_CALLS).filter(FAILURE.is_not_null())


def _errors(calls: pl.DataFrame) -> Entries:
    errors = calls.select(error=FAILURE).group_by("error").len()
    most = errors.sort("len", "error", descending=[True, False]).head(_MOST_NAMES).rows()
    return [{"name": f"{_CUDA['names'].get(str(error), 'error')} {error}", "count": float(n)} for error, n in most]


def _absent_share(view: DeviceView) -> float:
    calls = view.once(launches_of)
    if view.once(lacks_kernels):
        return 1.0
    return float(calls["is_lost"].mean() or 0.0) if calls.height else 0.0  # type: ignore[arg-type]  # a share


def _absent_idle_share(view: DeviceView) -> float:
    if view.once(lacks_kernels):
        return 1.0 - (view.share(view.busy) or 0.0)
    return float(view.once(_gaps)["dur_ns"].sum()) / view.total_ns


def _cold_calls(view: DeviceView) -> Entries:
    if not view.once(lacks_kernels):
        return []
    ops = view.host.filter(pl.col("kind") == "op").sort("start_ns")
    later_ns = pl.col("dur_ns").slice(_COLD).max().over("name")
    is_early = pl.int_range(pl.len()).over("name") < _COLD
    cold = ops.filter(is_early, pl.col("dur_ns") >= LONG_CALL_NS, _LITTLE * pl.col("dur_ns") > later_ns)
    inner = cold.filter(~pl.col("id").is_in(cold["parent"].implode()))
    spent = inner.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("dur_ns")).sort("dur_ns", descending=True)
    return view.largest(spent.head(_MOST_NAMES).rows())


of_rest("device_events", lambda view: view.ops.height, unit="count", needs=("device_ops",)).says(
    "Events that were recorded of the device.", "rows of device ops, whole recording"
)
of_rest(
    "lost_launches", lambda view: view.host.filter(LAUNCHED).height if view.once(lacks_kernels) else 0, unit="count"
).says(
    "Launches of a recording that has no kernel at all.",
    "calls that launch kernels or graphs and did not fail; 0 where any kernel was recorded",
)
of_rest("cold_calls", _cold_calls, unit="names").says(
    "The ops in which CUDA and its libraries start, in a recording that has no kernel at all.",
    "framework ops, the innermost, whose first or second call takes {long_call} or more and over ten times the longest "
    "later one, with that time, the three longest; none where any kernel was recorded",
    _SOURCE,
)
of_rest("failed_launches", lambda view: view.once(_failed).height, where=places(_failed), unit="count").says(
    "Launches that failed, so that nothing ran.",
    "calls that launch kernels or graphs and return an error",
    "CUDA Runtime API, cudaError",
)
of_rest(
    "failed_launch_share",
    lambda view: (failed := view.once(_failed).height) / max(1, failed + view.host.filter(LAUNCHED).height),
).says("Part of the launches that failed.", "failed_launches / launches, failed or not; 0 without")
of_rest("launch_errors", lambda view: _errors(view.once(_failed)), unit="names").says(
    "The errors with which launches failed, the most frequent first.",
    "what the calls return, by the names of cudaError",
)
measure_all(
    "kernel_errors", lambda view: _errors(view.host.filter(matches(_CUDA["of_kernels"], "details"))), unit="names"
).says(
    "The errors that a kernel which crashed leaves to later calls, the most frequent first.",
    "calls of any kind that return an illegal address, a failed assertion or the like, by the names of cudaError",
    "CUDA Runtime API, cudaError: after such an error the process must be terminated",
)
of_rest("lost_launch_share", _absent_share).says(
    "Part of the launches whose kernels the recording lacks.",
    "launching calls without a device op, outside of captures / all, from the first to the last call with an op; 0 "
    "where other devices have ops too, or as many ops have no call",
    "no launch lacks its kernel in 44 of 45 public recordings; in the other 1 in 200 does",
)
of_rest(
    "lost_idle_share", _absent_idle_share, where=as_places(_gaps, "gaps", name=pl.lit("launched work was not recorded"))
).says(
    "Part of the step in which the device seems idle, but kernels that were not recorded may run.",
    "idle time in gaps of which a kernel that was launched, and not recorded, may run in half or more / step time",
)
