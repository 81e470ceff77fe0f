"""Python as what sets the pace, its loops, and what moving it out of the way saves."""

from functools import partial
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.autograd import backward_passes, row_gradients
from advisor.analysis.device.host_lines import longest_lines
from advisor.analysis.device.host_work import (
    between_ops,
    callbacks,
    handed_over,
    is_own,
    optimizer_work,
    own_ns,
    python_work,
    step_ops,
    thread_waits,
    waiting_function,
)
from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.places import largest, places, stretches, times_by_name
from advisor.analysis.device.python_time import (
    NO_LOOPS,
    SILENT_SHARE,
    SMALL_NS,
    Loops,
    PythonTime,
    loops,
    python_time,
    repetitions,
    row_loop,
    silent_ns,
)
from advisor.analysis.device.recording_cost import recorded_parts, without_recording
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import JIT_CALL
from advisor.metrics.metric import of_devices
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.whatif.change import saved, without

# Own choices: eager ops are PyTorch's normal way, and to compile them may save nothing.
_PYTHON_REST: Final = 0.25
_CPU_LEAST: Final = 0.25
_CPU_MOST: Final = 0.5


def _work(view: DeviceView) -> Intervals:
    return python_work(view) if view.device is not None else between_ops(view, view.steps)


class _Python(NamedTuple):
    """When Python sets the pace; the parts of the step and of the wait for the host that are so; what is saved."""

    when: Intervals
    share: float
    part: float
    saved_ms: tuple[float, float]
    silent_share: float = 0.0


def _unknown(view: DeviceView) -> Missing | None:
    if why := view.once(unknown_waits):
        return why
    if view.device is not None:  # dispatching is told from Python by framework ops; XLA's programs are it themselves
        is_of_xla = view.process.get("framework") in XLA_FRAMEWORKS
        shows_dispatch = not view.host.is_empty() if is_of_xla else (view.host["kind"] == "op").any()
        is_known = shows_dispatch or not view.once(_waiting_for_python).total
        return None if is_known else Missing("no_framework_op")
    ops = view.once(step_ops).select(pl.len()).collect().item()
    if not (ops or handed_over(view).total):
        return Missing("no_framework_op")
    work = view.once(python_time)
    is_silent = silent_ns(view, work) and work.looped < SILENT_SHARE * view.total_ns
    return _why_silent(view, work.silent) if is_silent else None


def _waiting_for_python(view: DeviceView) -> Intervals:
    return view.once(python_work) & view.once(launch_gaps)


def _python(view: DeviceView) -> _Python:
    return _python_alone(view) if view.device is None else _python_with_device(view)


def _python_with_device(view: DeviceView) -> _Python:
    idle, waiting = view.once(_waiting_for_python), view.once(launch_gaps)
    python = idle - spans(view.host_like(JIT_CALL))  # JAX's calls of programs dispatch them
    moved = without(host=view.once(python_work) if idle.total else EMPTY, bound_ns=(idle.total, idle.total))
    gains_ms = saved(view, moved.surely((1 - _PYTHON_REST) * python.total / max(1, idle.total)))
    return _Python(python, python.total / view.total_ns, python.total / max(1, waiting.total), gains_ms)


def _python_alone(view: DeviceView) -> _Python:
    work = view.once(python_time)
    is_loop = repetitions(view) > max(1, backward_passes(view))
    share = min(1.0, work.ns / view.total_ns)
    least, most = _gains_alone(view, work)
    if view.process.get("framework") in XLA_FRAMEWORKS and repetitions(view) > 1:
        most = max(most, _looped_ns(view))
    return _Python(
        work.between - work.silent,
        share,
        1.0 if is_loop else share,
        (view.per_step_ms(least), view.per_step_ms(most + silent_ns(view, work))),
        max(0, work.silent.total - work.pauses) / view.total_ns,
    )


def _gains_alone(view: DeviceView, work: PythonTime) -> tuple[float, float]:
    """What is saved of Python's time at least and at most, in ns."""
    least = _CPU_LEAST * without_recording(view, work.ns, work.ops)
    if view.process.get("framework") != "pytorch":
        return least, _CPU_MOST * (work.ns - work.recorded) + work.recorded
    repeated = 1 - 1 / repetitions(view)
    in_loops = (1 - 1 / view.once(loops).passes) * work.looped
    least *= max(repeated, max(work.steady, in_loops) / max(1, work.ns))
    most = work.ns + work.pauses + repeated * (work.small + work.rows)
    return least + repeated * _CPU_LEAST * work.rows, most


def _looped_ns(view: DeviceView) -> float:
    """What all calls but one of a function take: dispatch, Python, waits for the result, and half of small ops."""
    ops = view.once(step_ops).select("id", "parent", "start_ns", "dur_ns").collect()
    apart = view.host_spans("input", "compile", "collective")  # what other rules judge
    large = spans(ops.filter(own_ns(ops) >= SMALL_NS)) | apart
    work = ((view.share(large) or 0.0) + (view.share(spans(ops) | apart) or 0.0)) / 2
    return (1 - 1 / repetitions(view)) * (1 - work) * view.total_ns


def _why_silent(view: DeviceView, silent: Intervals) -> Missing:
    """A loader, a sleep, a lock or Python alike: in a function that waits, or a range of the program's own at best."""
    waits = silent & thread_waits(view)
    if waits.total >= silent.total / 2:
        return Missing("thread_wait", share=waits.total / view.total_ns, range=waiting_function(view, waits))
    name, ns = times_by_name(view, silent).row(0)
    if name is None or ns < silent.total / 2 or not is_own(view, str(name)):
        return Missing("silent_host", share=silent.total / view.total_ns)
    return Missing("range_alone", share=ns / view.total_ns, range=name)


def _calls(view: DeviceView) -> pl.DataFrame:
    return times_by_name(view, view.once(_python).when)


def _longest(view: DeviceView) -> Entries:
    lines = [] if view.device is not None else longest_lines(view)
    return lines or largest(view, view.once(_calls))


def _unrecorded_part(view: DeviceView) -> float:
    if view.device is None and longest_lines(view):
        return 0.0
    unrecorded_ns = int(view.once(_calls).filter(pl.col("name").is_null())["self_ns"].sum())
    return unrecorded_ns / max(1, view.once(_python).when.total)


measure = of_devices(__name__, unknown=_unknown)
of_python = measure.parts_of(_python)
of_python("python_bound_share", lambda python: python.share, where=stretches(_work, "Python between framework ops"))
of_python("python_bound_part", lambda python: python.part)
measure.saving("python", lambda view: view.once(_python).saved_ms)
measure("python_calls", _longest)
measure("python_unrecorded_part", _unrecorded_part)
of_python("python_silent_share", lambda python: python.silent_share)


of_work = of_devices(__name__)
of_waits = of_devices(__name__, needs=("device_ops",), unknown=unknown_waits)


def _share(view: DeviceView, part: str) -> float:
    return view.once(recorded_parts).get(part, 0.0) / view.total_ns


of_waits(
    "host_loops_share",
    lambda view: view.share((view.once(python_work) | view.once(optimizer_work)) & view.once(launch_gaps)),
)
of_work("host_ops_share", partial(_share, part="operators"))
of_work("host_work_share", partial(_share, part="between"))


of_work("callback_share", partial(_share, part="callback"), where=places(callbacks))


def _loops(view: DeviceView) -> Loops:
    """Loops over samples, classes or parameters that a loss, a metric or a log runs op by op; none with a device."""
    return view.once(loops) if view.device is None else NO_LOOPS


def _loop_ns(view: DeviceView) -> tuple[float, float]:
    """How long the loops take, and at most with pauses in them."""
    if not view.once(_loops).spans.total:
        return 0.0, 0.0
    time = view.once(python_time)
    return time.looped, time.looped + time.pauses + silent_ns(view, time) if time.looped else 0.0


of_work("passes_per_step", repetitions)
of_work("python_loop_share", lambda view: min(1.0, view.once(_loop_ns)[0] / view.total_ns))
of_work("python_loop_gain_ms", lambda view: view.per_step_ms(view.once(_loop_ns)[1]))
of_work(
    "python_loop_passes", lambda view: view.once(_loops).passes if view.once(_loops).spans.total else 0, unit="count"
)
of_work("python_loop_reads", lambda view: view.once(_loops).reads / view.steps.height)
of_work("python_loop_ops", lambda view: largest(view, times_by_name(view, view.once(_loops).spans).drop_nulls("name")))
of_work(
    "python_stretch_share", lambda view: view.once(python_time).steady / view.total_ns if view.device is None else 0.0
)
of_work("row_loop_share", lambda view: view.share(view.once(row_loop)) or 0.0)
of_work(
    "row_gradients_ms", lambda view: view.per_step_ms(view.once(row_gradients).total) if view.device is None else 0.0
)
