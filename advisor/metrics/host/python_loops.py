"""Loops of Python: over passes of a model, samples, cells of recurrent networks, rows of a tensor."""

from typing import Final

from advisor.analysis.device.autograd import row_gradients
from advisor.analysis.device.loops import NO_LOOPS, Loops, loops
from advisor.analysis.device.python_time import python_time, repetitions, silent_ns
from advisor.analysis.device.time_by_name import in_words, times_by_name
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices

_CELL: Final = r"^aten::(?:lstm|gru|rnn_tanh|rnn_relu)_cell$"

measure = of_devices(__name__)


def _loops(view: DeviceView) -> Loops:
    """Loops over samples, classes or parameters that a loss, a metric or a log runs op by op; none with a device."""
    return view.once(loops) if view.device is None else NO_LOOPS


def _loop_ns(view: DeviceView) -> tuple[float, float]:
    """How long the loops take, and at most with pauses in them."""
    if not view.once(_loops).spans.total:
        return 0.0, 0.0
    time = view.once(python_time)
    return time.looped, time.looped + time.pauses + silent_ns(view, time) if time.looped else 0.0


measure("passes_per_step", repetitions).says(
    "How often a step runs the same ops.",
    "the most of: backward passes with forward ops before each, if most have as many nodes; calls of the module that "
    "takes most of the step, of those that no other module calls; the common divisor of how often each node of "
    "autograd comes, if there are four of layers for each weight, or how many linear layers that train there are for "
    "each; how often the nodes of three kinds come, each as often as the others and twice as often as layers, or of "
    "two kinds 16 times as often; per step; 1 if fewer than 8; "
    "of JAX and TensorFlow on a CPU, calls of the jitted function or tf.function that makes 80 % of them",
    "own choice: a layer that is called once has a node for one or two weights",
)
measure("python_loop_share", lambda view: min(1.0, view.once(_loop_ns)[0] / view.total_ns)).says(
    "Part of the step in loops of Python over small ops, beside the model and its optimizer.",
    "time of those loops without pauses of over {dispatch} in which nothing was recorded and, unless a pass reads a "
    "value, ops of 100 µs or more / step time; a loop: ops in a row of which each kind comes 8 times or "
    "more, none of a layer, followed by autograd, of a collective or an optimizer; 0 with a device, without marks of "
    "steps and of other frameworks than PyTorch",
    "own choice",
)
measure("python_loop_gain_ms", lambda view: view.per_step_ms(view.once(_loop_ns)[1])).says(
    "Step time that those loops take at most."
)
measure(
    "python_loop_passes", lambda view: view.once(_loops).passes if view.once(_loops).spans.total else 0, unit="count"
).says(
    "How often the longest of those loops runs the same ops, at least.",
    "calls of the op in it that comes least often; 0 without a loop",
)
measure("python_loop_reads", lambda view: view.once(_loops).reads / view.steps.height).says(
    "How often per step those loops read a value from a tensor.",
    "aten::item, is_nonzero and resolve_conj (of numpy() and tolist()) that lie in no other op, in them / steps",
)
measure(
    "python_loop_ops",
    lambda view: in_words(view, times_by_name(view, view.once(_loops).spans).drop_nulls("name")),
    unit="text",
).says("What takes most of the time of those loops.", "the three ranges with the most time of their own in them")
measure(
    "python_stretch_share", lambda view: view.once(python_time).steady / view.total_ns if view.device is None else 0.0
).says(
    "Part of the step in which Python surely works for over {dispatch} at a time.",
    "the least that any step has of stretches of over {dispatch} in which Python was recorded / mean step; 0 with a "
    "device",
    "what a busy machine adds to a function differs from step to step",
)
measure("recurrent_cells_per_step", lambda view: view.used_like(_CELL, "op").height / view.steps.height).says(
    "Steps of recurrent networks that a loop runs one by one.", "aten::lstm_cell, gru_cell and rnn_*_cell / steps"
)
measure(
    "row_gradients_ms", lambda view: view.per_step_ms(view.once(row_gradients).total) if view.device is None else 0.0
).says(
    "Time per step in which backward passes fill gradients of complete tensors for single rows of them.",
    "time of the nodes SelectBackward0, SliceBackward0 and IndexBackward0 that come 16 times as often as layers, or "
    "as often as a loop of 8 passes or more runs / steps; 0 with a device",
    "own choice",
)
