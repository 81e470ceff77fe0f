"""Loops of Python: over passes of a model, samples, cells of recurrent networks, rows of a tensor."""

from __future__ import annotations

from typing import Final

from advisor.analysis.device.autograd import row_gradients
from advisor.analysis.device.loops import NO_LOOPS, loops
from advisor.analysis.device.python_time import python_time, repetitions, silent_ns
from advisor.analysis.device.time_by_name import in_words, times_by_name
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures

_CELL: Final = r"^aten::(?:lstm|gru|rnn_tanh|rnn_relu)_cell$"
PASSES_PER_STEP = Metric(
    "passes_per_step",
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
    "Part of the step in loops of Python over small ops, beside the model and its optimizer.",
    "time of those loops without pauses of over {dispatch} in which nothing was recorded and, unless a pass reads a "
    "value, ops of 100 µs or more / step time; a loop: ops in a row of which each kind comes 8 times or "
    "more, none of a layer, followed by autograd, of a collective or an optimizer; 0 with a device, without marks of "
    "steps and of other frameworks than PyTorch",
    "own choice",
)
PYTHON_LOOP_PASSES = Metric(
    "python_loop_passes",
    "How often the longest of those loops runs the same ops, at least.",
    "calls of the op in it that comes least often; 0 without a loop",
    unit="count",
)
PYTHON_LOOP_READS = Metric(
    "python_loop_reads",
    "How often per step those loops read a value from a tensor.",
    "aten::item, is_nonzero and resolve_conj (of numpy() and tolist()) that lie in no other op, in them / steps",
)
PYTHON_STRETCH_SHARE = Metric(
    "python_stretch_share",
    "Part of the step in which Python surely works for over {dispatch} at a time.",
    "the least that any step has of stretches of over {dispatch} in which Python was recorded / mean step; 0 with a "
    "device",
    "what a busy machine adds to a function differs from step to step",
)
PYTHON_LOOP_GAIN_MS = Metric(
    "python_loop_gain_ms",
    "Step time that those loops take at most.",
    "their time and as much of the pauses in them, at most, and the rest of such pauses if that is more than Python's "
    "time and 5 % of the step / steps",
)
RECURRENT_CELLS_PER_STEP = Metric(
    "recurrent_cells_per_step",
    "Steps of recurrent networks that a loop runs one by one.",
    "aten::lstm_cell, gru_cell and rnn_*_cell / steps",
)
PYTHON_LOOP_OPS = Metric(
    "python_loop_ops",
    "What takes most of the time of those loops.",
    "the three ranges with the most time of their own in them",
    unit="text",
)
ROW_GRADIENTS_MS = Metric(
    "row_gradients_ms",
    "Time per step in which backward passes fill gradients of complete tensors for single rows of them.",
    "time of the nodes SelectBackward0, SliceBackward0 and IndexBackward0 that come 16 times as often as layers, or "
    "as often as a loop of 8 passes or more runs / steps; 0 with a device",
    "own choice",
)


_LOOP: Final = (PYTHON_LOOP_SHARE, PYTHON_LOOP_GAIN_MS, PYTHON_LOOP_PASSES, PYTHON_LOOP_READS, PYTHON_LOOP_OPS)


@measures(ROW_GRADIENTS_MS)
def gradients_of_rows(view: DeviceView) -> Values:
    """Gradients that a loop over the rows of a tensor fills one by one."""
    return {ROW_GRADIENTS_MS: view.per_step_ms(view.once(row_gradients).total) if view.device is None else 0.0}


@measures(RECURRENT_CELLS_PER_STEP)
def recurrent_cells(view: DeviceView) -> Values:
    """Recurrent networks as loops."""
    return {RECURRENT_CELLS_PER_STEP: view.used_like(_CELL, "op").height / view.steps.height}


@measures(PYTHON_STRETCH_SHARE)
def python_stretches(view: DeviceView) -> Values:
    """Work of Python that a step of a CPU does at a time: numpy, strings, files."""
    return {PYTHON_STRETCH_SHARE: view.once(python_time).steady / view.total_ns if view.device is None else 0.0}


@measures(*_LOOP)
def small_op_loops(view: DeviceView) -> Values:
    """Loops over samples, classes or parameters that a loss, a metric or a log runs op by op."""
    in_steps = view.once(loops) if view.device is None else NO_LOOPS
    if not in_steps.spans.total:
        return dict.fromkeys(_LOOP, 0.0) | {PYTHON_LOOP_OPS: ""}
    time = view.once(python_time)
    most_ns = time.looped + time.pauses + silent_ns(view, time) if time.looped else 0
    return {
        PYTHON_LOOP_SHARE: min(1.0, time.looped / view.total_ns),
        PYTHON_LOOP_GAIN_MS: view.per_step_ms(most_ns),
        PYTHON_LOOP_PASSES: in_steps.passes,
        PYTHON_LOOP_READS: in_steps.reads / view.steps.height,
        PYTHON_LOOP_OPS: in_words(view, times_by_name(view, in_steps.spans).drop_nulls("name")),
    }


@measures(PASSES_PER_STEP)
def passes(view: DeviceView) -> Values:
    """Work that a loop repeats within the step."""
    return {PASSES_PER_STEP: repetitions(view)}
