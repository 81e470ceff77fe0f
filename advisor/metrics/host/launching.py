"""What keeps the host from launching in time: many tiny launches, Python between them, or the optimizer's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.autograd import backward_passes, passes_per_step, row_gradients
from advisor.analysis.device.host_work import (
    between_nodes,
    between_ops,
    busiest,
    handed_over,
    in_words,
    inside,
    launch_gaps,
    logging_frames,
    minus,
    optimizer_work,
    own_ns,
    python_work,
    saving_frames,
    step_ops,
    thread_waits,
    unknown_waits,
    waiting_function,
)
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.loops import FEW_PASSES, NO_LOOPS, loops
from advisor.analysis.device.own_ranges import is_own
from advisor.analysis.device.recording_cost import without_recording
from advisor.analysis.device.replay import ELSE, UNPROFILED, trusted_replay
from advisor.analysis.device.steps import DeviceView, spans
from advisor.inputs.names.calls import JIT_CALL
from advisor.inputs.periods import RANGES
from advisor.metrics.metric import Metric, Value, Values, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.vocabulary import LAUNCH_GAP_NS, XLA_FRAMEWORKS

_COMPILED: Final = 0.3  # host time per launch that a compiled step keeps
_CAPTURED: Final = 0.1  # and a captured one
_PYTHON_REST: Final = 0.25
_TINY_NS: Final = 10_000  # a framework op that itself takes less is mostly dispatch
_SMALL_NS: Final = 100_000  # one that takes less costs about as much for a few samples as for one
_MOST_CALLS: Final = 0.8  # of all calls of jitted functions: op by op, none has so many
_FUNCTION_CALL: Final = '"tf_function_call":'
_CPU_LEAST: Final = 0.25
_CPU_MOST: Final = 0.5
_SILENT_SHARE: Final = 0.05
_CELL: Final = r"^aten::(?:lstm|gru|rnn_tanh|rnn_relu)_cell$"
_OWN: Final = "own choice"
_COST: Final = (
    "1 µs per op, or as much as `advisor record` measured, then relative to the step without the profiler; 1 µs: 0.5 "
    "to 1.1 in six recordings of a loop of tiny ops, with and without the profiler; 32 recordings of all "
    "kinds scatter more: median 1.7, quartiles 1.0 and 3.1 (PyTorch 2.13, record_shapes, a shared machine)"
)


LAUNCH_LEAST_GAIN_MS = Metric(
    "launch_least_gain_ms",
    "ms",
    "Step time saved at least, if the step were compiled: three tenths of the host's time per launch.",
    f"replay with a host twice as fast as the profiler let it be, launches 0.3 as long again; cut as much as "
    f"capture_gain_ms where that exceeds the gaps{ELSE}0",
    "Llama 1B decoding on a B200: 48.8 to 12.6 ms compiled, 8.1 ms with CUDA graphs (stas00/ml-engineering)",
    ("device_ops", "device_ops.launch"),
)
CAPTURE_GAIN_MS = Metric(
    "capture_gain_ms",
    "ms",
    "Step time saved if the step were captured in a CUDA graph.",
    "replay with those times 0.1 as long and no pause between queued kernels, at most the host-bound gaps of up to "
    f"{{launch_gap}} and those pauses{ELSE}these gaps themselves",
    "the same; a graph's kernels follow each other within 1 µs",
    ("device_ops", "device_ops.launch"),
)


@measures(LAUNCH_LEAST_GAIN_MS, CAPTURE_GAIN_MS)
def capturing(view: DeviceView) -> Mapping[Metric, Value]:
    """Gains of launching many kernels at once."""
    if not view.total_ns:
        return {}
    trusted, waiting_ns = view.once(trusted_replay), view.once(launch_gaps).total
    if trusted is None:
        return {LAUNCH_LEAST_GAIN_MS: 0.0, CAPTURE_GAIN_MS: view.per_step_ms(waiting_ns)}
    unprofiled = trusted.with_launches(UNPROFILED, LAUNCH_GAP_NS)
    captured = trusted.with_launches(_CAPTURED, LAUNCH_GAP_NS).without_pauses()
    most = view.per_step_ms(waiting_ns + int(view.once(gaps)["queued_ns"].sum()))
    least = unprofiled.saved_ms(unprofiled.with_launches(_COMPILED, LAUNCH_GAP_NS))
    gain = trusted.saved_ms(captured)
    part = min(1.0, most / gain) if gain else 1.0  # a faster host hastens more than these gaps: that is not counted
    return {LAUNCH_LEAST_GAIN_MS: part * least, CAPTURE_GAIN_MS: part * gain}


def _python_places(view: DeviceView) -> pl.DataFrame:
    work = python_work(view) if view.device is not None else between_ops(view, view.steps)
    return (
        pl.DataFrame({"start_ns": work.starts, "dur_ns": work.ends - work.starts})
        .select(
            pl.lit("host_ops").alias("table"),
            pl.lit("Python between framework ops").alias("name"),
            "start_ns",
            "dur_ns",
        )
        .sort("dur_ns", "start_ns", descending=[True, False])
    )


PYTHON_BOUND_SHARE = Metric(
    "python_bound_share",
    "share",
    "Part of the step in which Python sets the pace.",
    "device idle in host-bound gaps of at most {launch_gap} while the launching threads run no framework op and make "
    "no call for {slow_call} or more, but for calls of jitted functions / step time; "
    "without a device, time outside framework ops, input, compilation, "
    "collectives, updates of parameters, logging, saving and stretches of over {launch_gap} in which nothing was "
    "recorded or a thread waits, and moments between nodes of autograd, plus that of ops that themselves take under "
    "10 µs (of TensorFlow and JAX of eager ones) / step time; unknown without 8 passes or 5 % in loops over small ops "
    "if those stretches are longer, and 5 % of the step",
    "50 µs: HTA's limit for a slow launch; interpreting the code around an op takes 5 to 20 µs",
    where=_python_places,
)
PYTHON_BOUND_PART = Metric(
    "python_bound_part",
    "share",
    "How much of the wait for the host Python accounts for.",
    "python_bound_share / idle time in host-bound gaps of at most {launch_gap}; without a device, "
    "python_bound_share, and 1 from 8 passes per step on, if not each has its backward pass: a loop is Python",
)
PYTHON_LEAST_GAIN_MS = Metric(
    "python_least_gain_ms",
    "ms",
    "Step time that moving Python's work out of the way saves at least.",
    "three quarters of python_gain_ms, of JAX only of its part outside of calls of jitted functions; without a device, "
    "a quarter of (that time - 1 µs per op recorded), of PyTorch "
    "only the part of it in stretches of over {launch_gap} in which Python was recorded, as much as each step has, or "
    "in loops over small ops; from 8 passes on, all but one of them, and a quarter of what all but one gradient of "
    "single rows take in ops of 100 µs or more",
    f"three quarters, a quarter, 8: {_OWN}; eager ops are PyTorch's normal way, and to compile them may save nothing; "
    f"{_COST}",
)
PYTHON_GAIN_MS = Metric(
    "python_gain_ms",
    "ms",
    "Step time that moving Python's work out of the way saves at most.",
    f"replay without it{ELSE}python_bound_share x step_mean_ms; without a device, half of that time, "
    "and all of the stretches of over {launch_gap} in it in which Python was recorded: no framework needs those; of "
    "JAX and TensorFlow that call one function 8 times or more, all but one of these calls: their "
    "part of the step outside of input, compilation, collectives, ops of 100 µs or more and half of the others; of "
    "PyTorch all of that time and, from 8 passes on, all but one pass of the other ops that, by the median of their "
    "name and shapes, themselves take under 100 µs (in gradients of single rows any) and of the moments between nodes "
    "of autograd",
    f"half, 100 µs: {_OWN}",
)
PASSES_PER_STEP = Metric(
    "passes_per_step",
    "number",
    "How often a step runs the same ops.",
    "the most of: backward passes with forward ops before each, if most have as many nodes; calls of the module that "
    "takes most of the step, of those that no other module calls; the common divisor of how often each node of "
    "autograd comes, if there are four of layers for each weight, or how many linear layers that train there are for "
    "each; how often the nodes of three kinds come, each as often as the others and twice as often as layers, or of "
    "two kinds 16 times as often; per step; 1 if fewer than 8; "
    "of JAX and TensorFlow on a CPU, calls of the jitted function or tf.function that makes 80 % of them",
    "own choice: a layer that is called once has a node for one or two weights",
)
PYTHON_LOOP_SHARE = Metric(
    "python_loop_share",
    "share",
    "Part of the step in loops of Python over small ops, beside the model and its optimizer.",
    "time of those loops without pauses of over {launch_gap} in which nothing was recorded and, unless a pass reads a "
    "value, ops of 100 µs or more / step time; a loop: ops in a row of which each kind comes 8 times or "
    "more, none of a layer, followed by autograd, of a collective or an optimizer; 0 with a device, without marks of "
    "steps and of other frameworks than PyTorch",
    _OWN,
)
PYTHON_LOOP_PASSES = Metric(
    "python_loop_passes",
    "count",
    "How often the longest of those loops runs the same ops, at least.",
    "calls of the op in it that comes least often; 0 without a loop",
)
PYTHON_LOOP_READS = Metric(
    "python_loop_reads",
    "number",
    "How often per step those loops read a value from a tensor.",
    "aten::item, is_nonzero and resolve_conj (of numpy() and tolist()) that lie in no other op, in them / steps",
)
PYTHON_STRETCH_SHARE = Metric(
    "python_stretch_share",
    "share",
    "Part of the step in which Python surely works for over {launch_gap} at a time.",
    "the least that any step has of stretches of over {launch_gap} in which Python was recorded / mean step; 0 with a "
    "device",
    "what a busy machine adds to a function differs from step to step",
)
PYTHON_LOOP_GAIN_MS = Metric(
    "python_loop_gain_ms",
    "ms",
    "Step time that those loops take at most.",
    "their time and as much of the pauses in them, at most, and the rest of such pauses if that is more than Python's "
    "time and 5 % of the step / steps",
)
RECURRENT_CELLS_PER_STEP = Metric(
    "recurrent_cells_per_step",
    "number",
    "Steps of recurrent networks that a loop runs one by one.",
    "aten::lstm_cell, gru_cell and rnn_*_cell / steps",
)
PYTHON_LOOP_OPS = Metric(
    "python_loop_ops",
    "text",
    "What takes most of the time of those loops.",
    "the three ranges with the most time of their own in them",
)
PYTHON_CALLS = Metric(
    "python_calls",
    "text",
    "What Python ran while it set the pace, as far as it was recorded.",
    "the three ranges with the most time of their own then, and the time in which none was open",
)
ROW_GRADIENTS_MS = Metric(
    "row_gradients_ms",
    "ms",
    "Time per step in which backward passes fill gradients of complete tensors for single rows of them.",
    "time of the nodes SelectBackward0, SliceBackward0 and IndexBackward0 that come 16 times as often as layers, or "
    "as often as a loop of 8 passes or more runs / steps; 0 with a device",
    "own choice",
)
PYTHON_UNRECORDED_PART = Metric(
    "python_unrecorded_part",
    "share",
    "In how much of the time in which Python sets the pace nothing was recorded on the launching threads.",
    "time of it in which no range was open / that time; 0 without any",
)
_PYTHON: Final = (
    PYTHON_BOUND_SHARE,
    PYTHON_BOUND_PART,
    PYTHON_LEAST_GAIN_MS,
    PYTHON_GAIN_MS,
    PYTHON_CALLS,
    PYTHON_UNRECORDED_PART,
)


@measures(ROW_GRADIENTS_MS)
def gradients_of_rows(view: DeviceView) -> Mapping[Metric, Value]:
    """Gradients that a loop over the rows of a tensor fills one by one."""
    if not view.total_ns:
        return {}
    return {ROW_GRADIENTS_MS: view.per_step_ms(view.once(row_gradients).total) if view.device is None else 0.0}


@measures(RECURRENT_CELLS_PER_STEP)
def recurrent_cells(view: DeviceView) -> Mapping[Metric, Value]:
    """Recurrent networks as loops."""
    return {RECURRENT_CELLS_PER_STEP: view.used_like(_CELL, "op").height / view.steps.height} if view.total_ns else {}


@measures(PYTHON_STRETCH_SHARE)
def python_stretches(view: DeviceView) -> Mapping[Metric, Value]:
    """Work of Python that a step of a CPU does at a time: numpy, strings, files."""
    if not view.total_ns:
        return {}
    return {PYTHON_STRETCH_SHARE: view.once(_work).steady / view.total_ns if view.device is None else 0.0}


@measures(PYTHON_LOOP_SHARE, PYTHON_LOOP_GAIN_MS, PYTHON_LOOP_PASSES, PYTHON_LOOP_READS, PYTHON_LOOP_OPS)
def python_loops(view: DeviceView) -> Mapping[Metric, Value]:
    """Loops over samples, classes or parameters that a loss, a metric or a log runs op by op."""
    if not view.total_ns:
        return {}
    some = view.once(loops) if view.device is None else NO_LOOPS
    ran = busiest(view, some.spans).drop_nulls("name")
    looped, pauses = (work.looped, work.pauses) if some.spans.total and (work := view.once(_work)) else (0, 0)
    return {
        PYTHON_LOOP_SHARE: min(1.0, looped / view.total_ns),
        PYTHON_LOOP_GAIN_MS: view.per_step_ms(looped + pauses + (_unknown_ns(view, view.once(_work)) if looped else 0)),
        PYTHON_LOOP_PASSES: some.passes if some.spans.total else 0,
        PYTHON_LOOP_READS: some.reads / view.steps.height,
        PYTHON_LOOP_OPS: in_words(view, ran),
    }


@measures(PASSES_PER_STEP)
def passes(view: DeviceView) -> Mapping[Metric, Value]:
    """Work that a loop repeats within the step."""
    return {PASSES_PER_STEP: _passes(view)} if view.total_ns else {}


def _passes(view: DeviceView) -> float:
    if not view.has_marks:
        return 1.0  # a recording as a whole repeats its steps
    passes = _calls_again(view) if view.process.get("framework") in XLA_FRAMEWORKS else view.once(passes_per_step)
    return passes if passes >= FEW_PASSES else 1.0


def _calls_again(view: DeviceView) -> float:
    """How often a step on a CPU calls the jitted function, or tf.function, that makes most of its calls."""
    if view.device is not None:
        return 1.0
    rows = view.used_host.filter(matches(JIT_CALL) | matches(_FUNCTION_CALL, "details"))
    calls = rows.filter(~pl.col("parent").fill_null(-1).is_in(rows["id"].implode()))["name"].value_counts()
    most = int(calls["count"].max() or 0)  # type: ignore[arg-type]  # integers
    return most / view.steps.height if most >= _MOST_CALLS * int(calls["count"].sum()) else 1.0


@measures(*_PYTHON)
def python_bound(view: DeviceView) -> Values:
    """Python as what sets the pace."""
    if not view.total_ns:
        return {}
    if why := unknown_waits(view):
        return why
    return _python_with_device(view) if view.device is not None else _python_alone(view)


def _python_with_device(view: DeviceView) -> Mapping[Metric, Value]:
    work, waiting = view.once(python_work), view.once(launch_gaps)
    idle = work & waiting
    if idle.total and not _shows_dispatch(view):
        return dict.fromkeys(_PYTHON, Missing("no_framework_op"))
    trusted = view.once(trusted_replay)
    gain = trusted.saved_ms(trusted.without_host(work)) if trusted and idle.total else view.per_step_ms(idle.total)
    python = minus(idle, spans(view.host_like(JIT_CALL)))  # JAX's calls of programs dispatch them
    return {
        PYTHON_BOUND_SHARE: python.total / view.total_ns,
        PYTHON_BOUND_PART: python.total / waiting.total if waiting.total else 0.0,
        PYTHON_LEAST_GAIN_MS: (1 - _PYTHON_REST) * gain * python.total / max(1, idle.total),
        PYTHON_GAIN_MS: gain,
        **_calls(view, python),
    }


def _shows_dispatch(view: DeviceView) -> bool:
    """Whether dispatching is told from Python: by framework ops; XLA's frameworks dispatch programs from Python."""
    if view.process.get("framework") in XLA_FRAMEWORKS:
        return not view.host.is_empty()
    return (view.host["kind"] == "op").any()


class _Work(NamedTuple):
    """What Python does on a CPU; times in ns.

    `between` is when no op runs, `silent` the part of it of which nothing is known. `ns` is Python's time, `ops` how
    many ops were recorded. Of that time, `recorded` is in functions of over 1 ms, `steady` as much of it as each step
    has at least, and `looped` in loops over small ops. Beside it: `pauses` of over 1 ms in these loops, `small` in
    other ops of 10 to 100 us and between nodes of autograd, `rows` in longer ones that fill gradients row by row.
    """

    between: Union
    silent: Union
    ns: int
    ops: int
    recorded: int
    steady: int
    looped: int
    pauses: int
    small: int
    rows: int


def _python_alone(view: DeviceView) -> dict[Metric, Value]:
    ops = view.once(step_ops)
    if not (ops.height or handed_over(view).total):
        return dict.fromkeys(_PYTHON, Missing("no_framework_op"))
    work = view.once(_work)
    unknown_ns, is_loop = _unknown_ns(view, work), _passes(view) > max(1, backward_passes(view))
    if unknown_ns and work.looped < _SILENT_SHARE * view.total_ns:
        return dict.fromkeys(_PYTHON, _why_silent(view, work.silent))
    share = min(1.0, work.ns / view.total_ns)
    least, most = _gains_alone(view, work)
    if view.process.get("framework") in XLA_FRAMEWORKS and _passes(view) > 1:
        most = max(most, _looped_ns(view))
    return {
        PYTHON_BOUND_SHARE: share,
        PYTHON_BOUND_PART: 1.0 if is_loop else share,
        PYTHON_LEAST_GAIN_MS: view.per_step_ms(least),
        PYTHON_GAIN_MS: view.per_step_ms(most + unknown_ns),
        **_calls(view, minus(work.between, work.silent)),
    }


def _unknown_ns(view: DeviceView, work: _Work) -> int:
    """Time outside of loops in which nothing shows what the host does, if it is more than Python's; else 0."""
    silent_ns = work.silent.total - work.pauses
    prevails = silent_ns >= _SILENT_SHARE * view.total_ns and silent_ns > work.ns and _passes(view) == 1
    return silent_ns if prevails else 0


def _work(view: DeviceView) -> _Work:
    ops, between = view.once(step_ops), _between(view)
    ops = ops.filter(~inside(view.once(optimizer_work), ops))
    long = _longer(between, LAUNCH_GAP_NS)
    silent = minus(long, spans(view.host.filter(~pl.col("kind").is_in(RANGES)))) | (long & thread_waits(view))
    recorded, loop, own = minus(long, silent), view.once(loops), own_ns(ops)
    in_loops = minus(loop.spans, view.host_spans("input"))
    in_loop, counts = inside(in_loops, ops), _are_eager(view, ops)
    work = own.filter(in_loop & (own >= _SMALL_NS) & ~inside(loop.reading, ops))
    looped = minus(in_loops, silent).total - int(work.sum())
    tiny = own.filter(counts & ~in_loop & (own < _TINY_NS))
    small = own.filter(~in_loop & ~(counts & (own < _TINY_NS)) & (_typical_ns(ops, own) < _SMALL_NS))
    return _Work(
        between,
        silent,
        ns=minus(between, silent | in_loops).total + int(tiny.sum()) + looped,
        ops=int(counts.sum()),
        recorded=recorded.total,
        steady=int(recorded.within(view.starts, view.ends).min(initial=recorded.total)) * view.steps.height,
        looped=looped,
        pauses=min(looped, (silent & in_loops).total),
        small=int(small.sum()) + between_nodes(view).total,
        rows=int(own.filter((own >= _SMALL_NS) & inside(view.once(row_gradients), ops)).sum()),
    )


def _typical_ns(ops: pl.DataFrame, own: pl.Series) -> pl.Series:
    """What each op's kind takes, by name and shapes: the median, as a busy machine makes a view take milliseconds."""
    return ops.select("name", "shapes", own_ns=own).select(pl.median("own_ns").over("name", "shapes")).to_series()


def _between(view: DeviceView) -> Union:
    """When no op runs, nor anything that other rules judge."""
    others = view.once(optimizer_work) | spans(saving_frames(view)) | spans(logging_frames(view))
    return minus(between_ops(view, view.steps), others | between_nodes(view))


def _longer(union: Union, least_ns: int) -> Union:
    length = union.ends - union.starts
    return Union.of(union.starts[length > least_ns], union.ends[length > least_ns])


def _are_eager(view: DeviceView, ops: pl.DataFrame) -> pl.Series:
    """Whether Python dispatches each op: those of a graph are its executor's."""
    of_graphs = view.process.get("framework") in XLA_FRAMEWORKS
    return ops.select(pl.col("eager").fill_null(value=False) | pl.lit(not of_graphs)).to_series()


def _gains_alone(view: DeviceView, work: _Work) -> tuple[float, float]:
    """What is saved of Python's time at least and at most, in ns."""
    least = _CPU_LEAST * without_recording(view, work.ns, work.ops)
    if view.process.get("framework") != "pytorch":
        return least, _CPU_MOST * (work.ns - work.recorded) + work.recorded
    repeated = 1 - 1 / _passes(view)
    in_loops = (1 - 1 / view.once(loops).passes) * work.looped
    least *= max(repeated, max(work.steady, in_loops) / max(1, work.ns))
    most = work.ns + work.pauses + repeated * (work.small + work.rows)
    return least + repeated * _CPU_LEAST * work.rows, most


def _looped_ns(view: DeviceView) -> float:
    """What all calls but one of a function take: dispatch, Python, waits for the result, and half of small ops."""
    ops = view.once(step_ops)
    apart = view.host_spans("input", "compile", "collective")
    large = spans(ops.filter(own_ns(ops) >= _SMALL_NS)) | apart
    work = ((view.share(large) or 0.0) + (view.share(spans(ops) | apart) or 0.0)) / 2
    return (1 - 1 / _passes(view)) * (1 - work) * view.total_ns


def _why_silent(view: DeviceView, silent: Union) -> Missing:
    """A loader, a sleep, a lock or Python alike: in a function that waits, or a range of the program's own at best."""
    waits = silent & thread_waits(view)
    if waits.total >= silent.total / 2:
        return Missing("thread_wait", share=waits.total / view.total_ns, range=waiting_function(view, waits))
    name, ns = busiest(view, silent).row(0)
    if name is None or ns < silent.total / 2 or not is_own(view, str(name)):
        return Missing("silent_host", share=silent.total / view.total_ns)
    return Missing("range_alone", share=ns / view.total_ns, range=name)


def _calls(view: DeviceView, when: Union) -> dict[Metric, Value]:
    ran = busiest(view, when)
    unrecorded_ns = int(ran.filter(pl.col("name").is_null())["self_ns"].sum())
    return {PYTHON_CALLS: in_words(view, ran), PYTHON_UNRECORDED_PART: unrecorded_ns / max(1, when.total)}
