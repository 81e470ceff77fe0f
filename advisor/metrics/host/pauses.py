"""Host work that leaves the device idle on end, waits of the host, and pauses of the garbage collector."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import (
    between_ops,
    callbacks,
    of_training,
    off_cpu,
    optimizer_work,
    own_frames,
    place_of,
    running,
    system_waits,
    thread_waits,
    training_ops,
    waiting_function,
    waits_for_results,
)
from advisor.analysis.device.idle import gaps, no_frames, stalls, unknown_idle, unknown_waits
from advisor.analysis.device.places import largest, places, times_by_name, times_by_range, top_three
from advisor.analysis.device.view import DeviceView, host_bounds, inside, longest_name, spans, spent_ns
from advisor.inputs.names.calls import FILE_CALL, LOGGING, RESULT_WAIT, SAVING, THREAD_WAIT
from advisor.inputs.step_periods import RANGES
from advisor.metrics.metric import of_devices
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches
from advisor.vocabulary.parts import HOST_RANGES
from advisor.whatif.change import Interval, saved, without

_REST_OF_STALL: Final = (0.5, 0.0)
_NEEDS: Final = ("device_ops", "device_ops.launch", "host_ops")
_AT_FILES: Final = 0.2  # own choice, of a gap: it is about what takes so much of it
_MOST: Final = 0.5  # of the idle time
_SILENT_SHARE: Final = 0.05  # of the recording, as for idle time of unknown cause


def _at_files(view: DeviceView) -> Intervals:
    """The long gaps in which a thread that launches works on files, as far as no range or call is open in them."""
    idle, calls = view.once(stalls), spans(view.once(_file_calls))
    is_at = calls.within(idle.starts, idle.ends) >= _AT_FILES * (idle.ends - idle.starts)
    return Intervals.of(idle.starts[is_at], idle.ends[is_at]) - spans(view.once(training_ops))


def _file_calls(view: DeviceView) -> pl.DataFrame:
    return view.os_calls.filter(of_training(view), matches(FILE_CALL))


def _ran(view: DeviceView) -> pl.DataFrame:
    at_files, calls = view.once(_at_files), view.once(_file_calls)
    ran = times_by_range(view, view.once(stalls) - at_files)
    longest = longest_name(calls.select("name", dur_ns=spent_ns(calls, at_files)))
    row = pl.DataFrame(
        {"name": [f"work on and around files, as in `{longest}`"], "self_ns": [at_files.total]}, schema=ran.schema
    )
    every = pl.concat([ran, row.filter(pl.col("self_ns") > 0)])
    several = pl.n_unique("name").over(_counted()) > 1
    groups = every.group_by(name=pl.when(several).then(_counted()).otherwise("name"), maintain_order=True)
    return groups.agg(pl.sum("self_ns")).sort("self_ns", descending=True, maintain_order=True)


def _counted() -> pl.Expr:
    """A range's name with `*` for numbers at its end: what a program counts, as `layer_3`, it does in turn."""
    return pl.col("name").cast(pl.String).str.replace(r"^([^:(\[]*[^:(\[\d])(?:\d+|\[[\d, ]+\])$", "${1}*")


def _unknown(view: DeviceView) -> Missing | None:
    if why := view.once(unknown_waits):
        return why
    silent = int(view.once(_ran).filter(pl.col("name").is_null())["self_ns"].sum()) / view.total_ns
    if view.steps.height == 1 and silent >= _SILENT_SHARE:
        return Missing("silent_host", share=silent)
    return _awaited(view, view.once(stalls))


def _awaited(view: DeviceView, idle: Intervals) -> Missing | None:
    """Most of the time, the host waits for a result: what it waits for launches late, and is not the host's work.

    Where no step is marked, a host that waits for another thread or for a socket may have nothing to do.
    """
    waiting = idle & view.once(waits_for_results)
    resting = idle & view.once(thread_waits)
    if not view.has_marks and resting.part_of(idle) >= _MOST:
        return Missing("thread_wait", share=resting.total / view.total_ns, range=waiting_function(view, resting))
    if waiting.part_of(idle) < _MOST:
        return None
    longest = view.host_like(RESULT_WAIT, "python", "annotation").sort("dur_ns", descending=True)
    function = longest["name"].cast(pl.String).str.replace(r"^\$\S+ ", "")[0]  # whose file is one of JAX's
    return Missing("result_wait", share=waiting.total / view.total_ns, range=function)


def _launches(view: DeviceView) -> float:
    name = pl.lit(view.once(_ran)["name"].first(), pl.String)
    ranges = view.used_host.filter((pl.col("name").cast(pl.String) == name) | (_counted() == name)).collect()
    kernels = view.used_ops.filter(pl.col("kind") == "kernel")  # who prepares a batch copies it too
    return int(inside(spans(ranges), view.host_of(kernels["launch"])).sum()) / view.steps.height


def _before_any_work(view: DeviceView) -> Intervals:
    first_ns = view.ops["start_ns"].sort().head(1).to_numpy()
    return Intervals.of(0 * first_ns, first_ns)


def _launching(view: DeviceView) -> Intervals:
    """Calls that launched something, and the framework ops right around them: no other thread could do this work."""
    calls = view.host_of(view.ops["launch"])
    around = view.host_of(calls["parent"]).filter(pl.col("kind") == "op")
    inner = view.host.lazy().filter(pl.col("kind") == "op").select("parent").collect()
    return spans(pl.concat([calls, around.filter(~pl.col("id").is_in(inner["parent"].implode()))]))


def _unstalled(view: DeviceView) -> Interval:
    idle = view.once(stalls) - _launching(view)
    return saved(view, without(host=idle, rest=_REST_OF_STALL, bound_ns=idle.total))


of_stalls = of_devices(__name__, needs=_NEEDS, unknown=_unknown)
of_stalls("stall_causes", lambda view: largest(view, view.once(_ran))).says(
    "What the host did while the device idled for over {launch_gap} on end, as far as it was recorded.",
    "the three outermost ranges with the most time in host-bound gaps of over {launch_gap}, of those that lie in them "
    "for half of their time or more; instead of a range or a function of the user's, what in it holds four fifths of "
    "its time; otherwise by their own time; and the time in which none was open",
)
of_stalls("stall_launches_per_step", _launches).says(
    "Launches of kernels per step in the first of those ranges: with some it is a part of the step's own work.",
    "calls that launch a kernel and start in it / steps",
)
of_stalls("stall_edge_part", lambda view: _before_any_work(view).part_of(view.once(stalls))).says(
    "How much of the idle time of over {launch_gap} on end passes before the first device op of the recording, when "
    "the profiler may still be at its start.",
    "host-bound gaps of over {launch_gap} before the first device op / all of them; 0 without such gaps",
)
of_stalls("stall_update_part", lambda view: view.once(optimizer_work).part_of(view.once(stalls))).says(
    "How much of the idle time of over {launch_gap} on end passes while the host updates parameters.",
    "host-bound gaps of over {launch_gap} inside `Optimizer.step#`, behind its closure's backward pass if there is one"
    " / all of them; 0 without such gaps",
)
of_stalls("stall_file_part", lambda view: view.once(_at_files).part_of(view.once(stalls))).says(
    "How much of the idle time of over {launch_gap} on end passes while a launching thread works on files.",
    "host-bound gaps of over {launch_gap} of which it is in calls such as open, pread, write and fsync for a fifth or "
    "more, outside of recorded ranges and calls / all of them; 0 without such gaps",
)
of_stalls("stall_off_cpu_part", lambda view: spans(view.once(off_cpu)).part_of(view.once(stalls))).says(
    "How much of the idle time of over {launch_gap} on end passes while a launching thread is on no CPU.",
    "host-bound gaps of over {launch_gap} in which a thread that launches or bears steps is off its CPU / all of them; "
    "0 without such gaps, or where no scheduling was recorded",
)
of_stalls.saving("stall", _unstalled).says("moving the host's work out of gaps of over {launch_gap}")


def _waits(view: DeviceView) -> Intervals:
    if view.device is not None:
        return EMPTY
    elsewhere = view.host_spans("op", "collective") | spans(own_frames(view, SAVING)) | spans(own_frames(view, LOGGING))
    return (between_ops(view, view.steps) & thread_waits(view)) - elsewhere


def _unknown_waits(view: DeviceView) -> Missing | None:
    """Without marked steps, what waits for long may be idle."""
    if view.device is not None:
        return None
    if why := view.host_doubt or no_frames(view):
        return why
    waiting = view.once(_waits)
    share = waiting.total / view.total_ns
    is_known = view.has_marks or share < _SILENT_SHARE
    return None if is_known else Missing("thread_wait", share=share, range=waiting_function(view, waiting))


of_waits = of_devices(__name__, unknown=_unknown_waits)
of_waits(
    "thread_wait_share",
    lambda view: view.once(_waits).total / view.total_ns,
    where=places(lambda view: own_frames(view, THREAD_WAIT)),
).says(
    "Part of the step in which a worker without a device waits for another thread, process or host, or for time.",
    "time of the built-in functions acquire, sleep, poll, select, epoll_wait, recv* and WaitFor* on the steps' thread, "
    "outside of ops of any thread, input, compilation, collectives, logging and saving / step time; 0 with a device",
    "own choice: without marked steps unknown from 5 % on, because what waits may be idle",
)
of_waits("waiting_calls", lambda view: largest(view, times_by_name(view, view.once(_waits)).drop_nulls("name"))).says(
    "In which functions the step waits so, each with the function of the user's own code around it.",
    "those with the most time, then the others",
)


# Of XLA and of autograd: no work that a user can change, nor is a wait for them
_EXECUTORS: Final = rf"^[A-Z]\w*::|^PjitFunction\(|^run_backward |{RESULT_WAIT}"
_WAITS: Final = tuple(kind for kind in HOST_RANGES if kind != "gc")  # parts of a step without a device, too

of_open = of_devices(__name__)


def _open(view: DeviceView) -> Intervals:
    if view.device is None:
        known = view.once(running) | view.host_spans("collective", *_WAITS) | spans(view.once(callbacks))
        return view.windows - known
    if not view.once(unknown_idle):
        return view.once(stalls)
    idle = view.once(gaps)
    return Intervals.of(idle["start_ns"], idle["end_ns"]) - view.host_spans(*HOST_RANGES)


def _calls(view: DeviceView) -> pl.DataFrame:
    """What a sentence about such a loss can name: ranges and functions, else calls of the system that wait."""
    when = view.once(_open)
    ran = times_by_name(view, when).filter(~pl.col("name").str.contains(_EXECUTORS))
    if 2 * int(ran["self_ns"].sum()) < when.total:
        waits = view.once(system_waits).select("start_ns", "dur_ns", pl.col("name").cast(pl.String))
        waited = waits.select("name", spent_ns(waits, when).alias("self_ns")).filter(pl.col("self_ns") > 0)
        ran = pl.concat([ran, waited]).group_by("name").sum().sort("self_ns", "name", descending=[True, False])
    return top_three(ran)


of_open("open_calls", lambda view: largest(view, view.once(_calls))).says(
    "What the host ran in the time whose cause no rule may know, as far as it was recorded.",
    "the three ranges with the most time of their own, executors of XLA and autograd aside: without a device in the "
    "time outside of framework ops, input, compilation, collectives and callbacks; with one in its idle time, if the "
    "cause of 5 % of the step or more is unknown, else in host-bound gaps of over {launch_gap}; where there are none, "
    "calls of the system that wait for input or for time to pass",
)
of_open(
    "open_calls_part", lambda view: min(1.0, int(view.once(_calls)["self_ns"].sum()) / max(1, view.once(_open).total))
).says(
    "How much of the time whose cause no rule may know open_calls takes.",
    "time of open_calls / that time, at most 1 as several threads may run; 0 without any",
)
of_open("open_place", lambda view: [] if view.device is None else place_of(view, view.once(_open)), unit="names").says(
    "Between which calls most of the time lies whose cause no rule may know.", "as host_alone_place, with a device"
)


_COLLECT: Final = r"collect"  # of the program; a collection that Python begins is called otherwise


def _collections(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "gc")


def _called(view: DeviceView) -> Intervals:
    return spans(view.once(_collections).filter(matches(_COLLECT)))


def _without_work(view: DeviceView) -> Intervals:
    """When nothing works in the complete steps: those that a collection made uneven too."""
    return spans(view.complete) - (view.once(running) if view.device is None else view.busy)


def _paused(view: DeviceView) -> Intervals:
    return spans(view.once(_collections)) & view.once(_without_work)


def _longest_ns(view: DeviceView) -> int:
    return max(spent_ns(view.once(_collections), view.once(_paused)), default=0)


def _unrecorded(view: DeviceView) -> Missing | None:
    """Why collections may take a part worth naming though none was recorded; what samples stacks marks all of them."""
    if view.once(_collections).height or view.process.get("stacks") is not None or not (why := no_frames(view)):
        return None
    recorded = spans(view.host.select("kind", "start_ns", "dur_ns").filter(~pl.col("kind").is_in(RANGES)))
    silent_ns = (view.once(_without_work) - recorded).total
    return why if silent_ns >= _SILENT_SHARE * int(view.complete["dur_ns"].sum()) else None


of_collections = of_devices(__name__, needs=("host_ops",), unknown=_unrecorded)
of_collections("gc_pause_ms", lambda view: view.once(_longest_ns) / 1e6, where=places(_collections)).says(
    "The longest pause of the job in one garbage collection.",
    "longest time in one collection of Python's, inside the complete steps, uneven ones too, in which the device "
    "idles, or without a device no op runs",
)
of_collections("gc_pauses_ms", lambda view: view.once(_paused).total / 1e6 / view.complete.height).says(
    "Time per step that the job pauses for garbage collections.", "that time in all collections / complete steps"
)
of_collections(
    "gc_recurring_ms",
    lambda view: max(0, view.once(_paused).total - view.once(_longest_ns)) / 1e6 / view.complete.height,
).says(
    "Time per step that the job pauses for garbage collections, without the longest pause.",
    "that time in all collections but the longest / complete steps",
    "what a short recording holds once may come seldom",
)
of_collections("gc_called_part", lambda view: view.once(_called).part_of(view.once(_paused))).says(
    "How much of these pauses the program asks for: gc.collect().",
    "time of them in calls of gc.collect / time of them; 0 without any",
)
of_collections(
    "gc_called_steps_part", lambda view: float((view.once(_called).within(*host_bounds(view.complete)) > 0).mean())
).says(
    "In how many of the steps the program asks for a collection.", "steps with a call of gc.collect / complete steps"
)
