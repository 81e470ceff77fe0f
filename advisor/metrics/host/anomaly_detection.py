"""What autograd's search for anomalies costs: a check of each gradient, and a note of the stack for each node."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.autograd import makers, nodes
from advisor.analysis.device.recording_cost import measured_share, without_recording
from advisor.analysis.device.view import DeviceView, inside, spans, spent_ns
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.whatif import Change, saved, together, without, without_work

_CHECKS: Final = r"^aten::(?:isnan|_is_any_true|any|is_nonzero|item)$"
_SEARCH: Final = r"^aten::isnan$"
_NOTES_STACK: Final = r"traceback\.py\(\d+\): format_stack$"
_VIEWS: Final = r"^aten::(?:t|view|transpose|permute|expand|select|slice|unsqueeze|squeeze|_reshape_alias|alias)$"
_VIEW_NS: Final = 10_000  # a view that notes no stack takes less
_SURE_PART: Final = 0.5  # a node of a leaf, which notes a stack too, may be made in the same op

measure = of_devices(__name__)


class _Notes(NamedTuple):
    """When forward ops may note a stack; in ns how long they surely do; and whether they are recorded doing it."""

    when: Intervals
    sure_ns: int
    is_recorded: bool


def _checks(view: DeviceView) -> pl.DataFrame:
    checks = view.used_like(_CHECKS)
    return checks.filter(pl.col("parent").is_in(view.once(nodes)["id"].implode()))


def _notes(view: DeviceView) -> _Notes:
    """Stacks are noted in the time that forward ops take for themselves; recorded calls of Python show when."""
    if view.once(_checks).is_empty():
        return _Notes(EMPTY, 0, is_recorded=False)
    forward = view.once(makers)
    within = view.used_host.filter(pl.col("parent").is_in(forward["id"].implode())).collect()
    inner = within.filter(pl.col("kind").is_in(["op", "collective", *DRIVER_CALLS]))
    alone = spans(forward) - spans(inner)
    frames = within.filter(pl.col("kind") == "python", matches(_NOTES_STACK))
    if frames.height:
        return _Notes(alone, spans(frames).total, is_recorded=True)
    own_ns = spent_ns(forward, alone).to_numpy()
    of_views = own_ns[forward.select(matches(_VIEWS)).to_series().to_numpy()]
    note_ns = max(0, int(np.median(of_views)) - _VIEW_NS) if len(of_views) else 0
    return _Notes(alone, int(np.minimum(own_ns, note_ns).sum()), is_recorded=False)


def _undetected(view: DeviceView) -> Change:
    """Without the checks, and without the time in which stacks may be noted; at least of half of what is sure."""
    checking, notes = spans(view.once(_checks)), view.once(_notes)
    ops = view.used_host.filter(pl.col("kind") == "op").select("start_ns").collect()
    recorded = int(inside(checking, ops).sum())
    slower = 0.0 if notes.is_recorded else measured_share(view) or 0.0
    unchecked = without_work(view, checking, (without_recording(view, checking.total, recorded), checking.total))
    rest, most_ns = 1 - notes.sure_ns / max(1, notes.when.total), notes.when.total / (1 - slower)
    unnoted = without(host=notes.when, rest=(rest, 0.0), bound_ns=(notes.sure_ns, most_ns))
    return together(unchecked, unnoted).surely(_SURE_PART)


measure(
    "anomaly_checks_per_step", lambda view: view.once(_checks).filter(matches(_SEARCH)).height / view.steps.height
).says(
    "Gradients per step that are searched for NaN, as torch.autograd.detect_anomaly does.",
    "aten::isnan called by autograd's engine itself / steps",
    "torch/csrc/autograd/engine.cpp",
)
measure("anomaly_ms", lambda view: view.per_step_ms(spans(view.once(_checks)).total)).says(
    "Host time per step in searches of gradients for NaN.",
    "time of aten::isnan, aten::any and the reading of the result, called by autograd's engine itself / steps",
    "torch/csrc/autograd/engine.cpp",
)
measure("anomaly_stacks_ms", lambda view: view.per_step_ms(view.once(_notes).when.total)).says(
    "Host time per step in which forward ops may note Python's stack, as anomaly detection makes them do.",
    "time of forward ops that made a node, outside of the ops and calls within them / steps; 0 without checks",
    "torch/csrc/autograd/function.h: with anomaly detection each new node notes Python's stack",
)
measure.saving("anomaly", lambda view: saved(view, _undetected(view))).says("a backward pass without anomaly detection")
