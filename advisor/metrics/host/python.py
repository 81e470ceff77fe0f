"""Python as what sets the pace, its loops, and what moving it out of the way saves."""

from functools import partial
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device import host_work
from advisor.analysis.device.autograd import backward_passes, row_gradients
from advisor.analysis.device.host_lines import longest_lines, place_of
from advisor.analysis.device.idle import launch_gaps, unknown_waits
from advisor.analysis.device.places import WRAPPING, largest, places, sampled, stretches, times_by_name
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
from advisor.inputs.names.stacks import OP, OWN
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
    return host_work.python_work(view) if view.device is not None else host_work.between_ops(view, view.steps)


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
    ops = view.once(host_work.step_ops).select(pl.len()).collect().item()
    if not (ops or host_work.handed_over(view).total):
        return Missing("no_framework_op")
    work = view.once(python_time)
    is_silent = silent_ns(view, work) and work.looped < SILENT_SHARE * view.total_ns
    return _why_silent(view, work.silent) if is_silent else None


def _waiting_for_python(view: DeviceView) -> Intervals:
    return view.once(host_work.python_work) & view.once(launch_gaps)


def _python(view: DeviceView) -> _Python:
    return _python_alone(view) if view.device is None else _python_with_device(view)


def _python_with_device(view: DeviceView) -> _Python:
    idle, waiting = view.once(_waiting_for_python), view.once(launch_gaps)
    python = idle - spans(view.host_like(JIT_CALL))  # JAX's calls of programs dispatch them
    moved = without(host=view.once(host_work.python_work) if idle.total else EMPTY, bound_ns=(idle.total, idle.total))
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
    ops = view.once(host_work.step_ops).select("id", "parent", "start_ns", "dur_ns").collect()
    apart = view.host_spans("input", "compile", "collective")  # what other rules judge
    large = spans(ops.filter(host_work.own_ns(ops) >= SMALL_NS)) | apart
    work = ((view.share(large) or 0.0) + (view.share(spans(ops) | apart) or 0.0)) / 2
    return (1 - 1 / repetitions(view)) * (1 - work) * view.total_ns


def _why_silent(view: DeviceView, silent: Intervals) -> Missing:
    """A loader, a sleep, a lock or Python alike: in a function that waits, or a range of the program's own at best."""
    waits = silent & host_work.thread_waits(view)
    if waits.total >= silent.total / 2:
        return Missing("thread_wait", share=waits.total / view.total_ns, range=host_work.waiting_function(view, waits))
    name, ns = times_by_name(view, silent).row(0)
    if name is None or ns < silent.total / 2 or not host_work.is_own(view, str(name)):
        return Missing("silent_host", share=silent.total / view.total_ns)
    return Missing("range_alone", share=ns / view.total_ns, range=name)


def _calls(view: DeviceView) -> pl.DataFrame:
    return times_by_name(view, view.once(_python).when)


def _longest(view: DeviceView) -> Entries:
    lines = [] if view.device is not None else longest_lines(view)
    return lines or largest(view, view.once(_calls))


def _line(view: DeviceView) -> str:
    """The line with the most of the function that takes most with ops and Python of its own; of no layer or update."""
    stacks, of_function = view.once(sampled), [pl.col("line").str.replace(r":\d+$", ""), pl.col("function")]
    own = stacks.filter(pl.col("kind").is_in([OWN, OP, WRAPPING]), pl.col("line").is_not_null())
    lines = (
        own.group_by("line", "function", "call").agg(pl.sum("ns")).with_columns(all_ns=pl.sum("ns").over(of_function))
    )
    rows = lines.sort("all_ns", "ns", "line", descending=True)
    is_known = view.device is None and rows.height and rows["all_ns"][0] >= SILENT_SHARE * int(stacks["ns"].sum())
    return place_of(rows.row(0, named=True)) if is_known else ""


def _unrecorded_part(view: DeviceView) -> float:
    if view.device is None and longest_lines(view):
        return 0.0
    unrecorded_ns = int(view.once(_calls).filter(pl.col("name").is_null())["self_ns"].sum())
    return unrecorded_ns / max(1, view.once(_python).when.total)


measure = of_devices(__name__, unknown=_unknown)
of_python = measure.parts_of(_python)
of_python(
    "python_bound_share", lambda python: python.share, where=stretches(_work, "Python between framework ops")
).says(
    "Part of the step in which Python sets the pace.",
    "device idle in host-bound gaps of at most {launch_gap} while the launching threads run no framework op and make "
    "no call for {slow_call} or more, but for calls of jitted functions / step time; without a device, time outside "
    "framework ops, input, compilation, collectives, updates of parameters, logging, saving, functions that read files "
    "and stretches of over {dispatch} in which nothing was recorded or a thread waits, and moments between nodes of "
    "autograd, plus that of ops that themselves take under 10 µs (of TensorFlow and JAX of eager ones) / step time; "
    "unknown without 8 passes or 5 % in loops over small ops if those stretches are longer, and 5 % of the step",
    "50 µs: HTA's limit for a slow launch; interpreting the code around an op takes 5 to 20 µs",
)
of_python("python_bound_part", lambda python: python.part).says(
    "How much of the wait for the host Python accounts for.",
    "python_bound_share / idle time in host-bound gaps of at most {launch_gap}; without a device, "
    "python_bound_share, and 1 from 8 passes per step on, if not each has its backward pass: a loop is Python",
)
measure.saving("python", lambda view: view.once(_python).saved_ms).says("moving Python's work out of the way")
measure("python_calls", _longest).says(
    "What Python ran while it set the pace, as far as it was recorded.",
    "the three ranges with the most time of their own then, and the time in which none was open; without a device, "
    "where lines were sampled, the three that take most of the step, with the ops that they call",
)
measure("python_line", _line, unit="text").says(
    "The line of the program with the most Python and small ops of its own; empty where no function has much, and with "
    "a device.",
    "of the function that takes most samples in Python or in ops that it calls itself, not in layers, backward passes "
    "or updates, if 5 % of all or more, the line with most of these",
)
measure("python_unrecorded_part", _unrecorded_part).says(
    "In how much of the time in which Python sets the pace nothing was recorded on the launching threads.",
    "time of it in which no range was open / that time; 0 without any, and where lines were sampled without a device",
)
of_python("python_silent_share", lambda python: python.silent_share).says(
    "Part of the step, besides, in which nothing shows what the host does: Python, or a wait.",
    "stretches of over {dispatch} outside of framework ops, input, compilation and collectives in which nothing was "
    "recorded or a thread waits, loops over small ops aside / step time; 0 with a device",
)


of_work = of_devices(__name__)
of_waits = of_devices(__name__, needs=("device_ops",), unknown=unknown_waits)


def _share(view: DeviceView, part: str) -> float:
    return view.once(recorded_parts).get(part, 0.0) / view.total_ns


of_waits(
    "host_loops_share",
    lambda view: view.share(
        (view.once(host_work.python_work) | view.once(host_work.optimizer_work)) & view.once(launch_gaps)
    ),
).says(
    "Part of the step in which Python, or a loop over parameters, sets the pace.",
    "device idle in host-bound gaps of at most {launch_gap} while the launching threads run no framework op and make "
    "no call for {slow_call} or more, or while parameters are updated / step time",
)
of_work("host_ops_share", partial(_share, part="operators")).says(
    "Part of the step in which a worker without a device runs framework ops.",
    "the part operators of the table accounting, with its waits for a CPU because of other programs if the step was "
    "timed without these waits / step time; 0 with a device",
)
of_work("host_work_share", partial(_share, part="between")).says(
    "Part of the step in which a worker without a device works outside of framework ops: its Python.",
    "the part between, as in host_ops_share",
)
of_work("own_processes_share", partial(_share, part="own_processes")).says(
    "Part of the step in which a worker without a device waits for a CPU that the job itself keeps busy.",
    "the part own_processes of the table accounting / step time; 0 with a device",
)


of_work("callback_share", partial(_share, part="callback"), where=places(host_work.callbacks)).says(
    "Part of the step in which compiled code calls Python, on a worker without a device.",
    "union of Python's ranges right inside ops of XLA, or of ops named pure_callback, io_callback or debug_callback, "
    "outside of input, compile and collective ranges / step time; 0 with a device",
)


def _loops(view: DeviceView) -> Loops:
    """Loops over samples, classes or parameters that a loss, a metric or a log runs op by op; none with a device."""
    return view.once(loops) if view.device is None else NO_LOOPS


def _loop_ns(view: DeviceView) -> tuple[float, float]:
    """How long the loops take, and at most with pauses in them."""
    if not view.once(_loops).spans.total:
        return 0.0, 0.0
    time = view.once(python_time)
    return time.looped, time.looped + time.pauses + silent_ns(view, time) if time.looped else 0.0


of_work("passes_per_step", repetitions).says(
    "How often a step runs the same ops.",
    "the most of: backward passes with forward ops before each, if most have as many nodes; calls of the module that "
    "takes most of the step, of those that no other module calls; the common divisor of how often each node of "
    "autograd comes, if there are four of layers for each weight, or how many linear layers that train there are for "
    "each; how often the nodes of three kinds come, each as often as the others and twice as often as layers, or of "
    "two kinds 16 times as often; per step; 1 if fewer than 8; "
    "of JAX and TensorFlow on a CPU, calls of the jitted function or tf.function that makes 80 % of them",
    "own choice: a layer that is called once has a node for one or two weights",
)
of_work("python_loop_share", lambda view: min(1.0, view.once(_loop_ns)[0] / view.total_ns)).says(
    "Part of the step in loops of Python over small ops, beside the model and its optimizer.",
    "time of those loops without pauses of over {dispatch} in which nothing was recorded and, unless a pass reads a "
    "value, ops of 100 µs or more / step time; a loop: ops in a row of which each kind comes 8 times or "
    "more, none of a layer, followed by autograd, of a collective or an optimizer; 0 with a device, without marks of "
    "steps and of other frameworks than PyTorch",
    "own choice",
)
of_work("python_loop_gain_ms", lambda view: view.per_step_ms(view.once(_loop_ns)[1])).says(
    "Step time that those loops take at most."
)
of_work(
    "python_loop_passes", lambda view: view.once(_loops).passes if view.once(_loops).spans.total else 0, unit="count"
).says(
    "How often the longest of those loops runs the same ops, at least.",
    "calls of the op in it that comes least often; 0 without a loop",
)
of_work("python_loop_reads", lambda view: view.once(_loops).reads / view.steps.height).says(
    "How often per step those loops read a value from a tensor.",
    "aten::item, is_nonzero and resolve_conj (of numpy() and tolist()) that lie in no other op, in them / steps",
)
of_work(
    "python_loop_ops", lambda view: largest(view, times_by_name(view, view.once(_loops).spans).drop_nulls("name"))
).says("What takes most of the time of those loops.", "the three ranges with the most time of their own in them")
of_work(
    "python_stretch_share", lambda view: view.once(python_time).steady / view.total_ns if view.device is None else 0.0
).says(
    "Part of the step in which Python surely works for over {dispatch} at a time.",
    "the least that any step has of stretches of over {dispatch} in which Python was recorded / mean step; 0 with a "
    "device",
    "what a busy machine adds to a function differs from step to step",
)
of_work("row_loop_share", lambda view: view.share(view.once(row_loop)) or 0.0).says(
    "Part of the step in the ops of loops that take single rows, whose gradients fill complete tensors each.",
    "time of nodes of autograd, and of ops in no other op, whose kind comes at least 80 % as often as the nodes of "
    "row_gradients_ms / step time; 0 without these, where passes_per_step tells the loop, and with a device",
    "own choice",
)
of_work(
    "row_gradients_ms", lambda view: view.per_step_ms(view.once(row_gradients).total) if view.device is None else 0.0
).says(
    "Time per step in which backward passes fill gradients of complete tensors for single rows of them.",
    "time of the nodes SelectBackward0, SliceBackward0 and IndexBackward0 that come 16 times as often as layers, or "
    "as often as a loop of 8 passes or more runs / steps; 0 with a device",
    "own choice",
)
