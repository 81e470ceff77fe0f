"""The lines of the program that take the time of the step, as `advisor record` samples them."""

from math import sqrt
from typing import Final

from advisor.analysis.device.host_lines import FEW_SAMPLES, Loss, losses, sampled
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.host_calls import Kind, kinds
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import percent

_SIGMAS: Final = 2
_MOST_LINES: Final = 3
_LITTLE: Final = 0.02
_RECORDED: Final = 0.5


def _unknown(view: DeviceView) -> Missing | None:
    if view.process.get("stacks") is None and view.host_samples.is_empty():
        return Missing("no_cpu_samples") if view.is_of_nsight else no_frames(view)
    samples = int(view.once(sampled)["samples"].sum())
    return Missing("few_stack_samples", samples=samples) if samples < FEW_SAMPLES else None


def _top(view: DeviceView) -> Loss | None:
    return next(iter(view.once(losses)), None)


def _share(view: DeviceView) -> float:
    return top.share if (top := view.once(_top)) else 0.0


def _kind(view: DeviceView) -> Kind | None:
    """Of its calls; none where nothing is known of them."""
    top = view.once(_top)
    return next((kind for kind in kinds() if top and kind.name == top.kind and kind.fix), None)


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved without the line, in ms: its share less and more twice its standard error; of recorded calls half.

    To record Python's calls makes them longer.
    """
    share, step_ms = view.once(_share), view.per_step_ms(view.total_ns)
    samples = int(view.once(sampled)["samples"].sum())
    if not samples:
        return _RECORDED * share * step_ms, share * step_ms
    error = _SIGMAS * sqrt(share * (1 - share) / samples)
    return max(0.0, share - error) * step_ms, min(1.0, share + error) * step_ms


def _others(view: DeviceView) -> str:
    others = [loss for loss in view.once(losses)[1:] if loss.share >= _LITTLE]
    return ", ".join(f"{loss.place} ({percent(loss.share)})" for loss in others[:_MOST_LINES])


measure = of_devices(__name__, unknown=_unknown)
measure("line_share", _share).says(
    "Part of the step that one line of the program takes: the one that takes most without doing the step's own work.",
    "samples of its main thread in this line, each weighted by the time that it stands for / all samples; lines in "
    "forward and backward pass, updates, loading and waits for the device are the step's own; at most the time outside "
    "of the framework's ops, or in which the device idles; without samples, time in recorded functions that log or "
    "save files, with a device only while it idles / step time",
)
measure("known_line_share", lambda view: view.once(_share) if view.once(_kind) else 0.0).says(
    "The same, if the calls of that line are known.", "line_share, or 0 without a kind of calls that line_words names"
)
measure("line_place", lambda view: top.place if (top := view.once(_top)) else "", unit="text").says(
    "The line that takes the most time, and what it calls.",
    "file and line, and the call that most of the samples were in",
)
measure("line_words", lambda view: kind.words if (kind := view.once(_kind)) else "", unit="text").says(
    "What that line does, where its calls are known.", "by the calls in its stacks and `inputs/names/host_calls.yaml`"
)
measure("line_fix", lambda view: kind.fix if (kind := view.once(_kind)) else "", unit="text").says(
    "How to do more rarely what that line does, where its calls are known.", "the advice for such calls"
)
measure("line_is_needed", lambda view: int(bool((top := view.once(_top)) and top.is_needed)), unit="count").says(
    "1 where the training needs what that line computes, in each step; else 0.",
    "whether a line that trains reads what the line assigns, or what other lines compute from it: by the source",
)
measure("other_lines", _others, unit="text").says(
    "The next lines of that sort, with their parts of the step.", "up to three lines of 2 % of the samples or more"
)
measure.saving("line", lambda view: view.once(_ends_ms)).says(
    "a step without that line",
    "(line_share - twice its standard error) x step_mean_ms; without samples half of line_share x step_mean_ms",
    "(line_share + twice its standard error) x step_mean_ms",
    "standard error of a share of n samples: sqrt(share x (1 - share) / n)",
)
