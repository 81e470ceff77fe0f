"""What a step of PyTorch computes again, as `advisor record` notes of one: rule `repeated-work`."""

from collections.abc import Mapping
from math import sqrt
from typing import Any, Final

import polars as pl

from advisor.analysis.device import recording_cost
from advisor.analysis.device.host_lines import SIGMAS, losses, place_of
from advisor.analysis.device.places import FEW_SAMPLES, sampled
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries

_LITTLE: Final = 0.02
_LEAST: Final = 0.85  # own choice: one step was looked at
_WITH_CACHES: Final = 0.1  # of the rest of the step on a CPU, as for host-line
_MOST_NAMES: Final = 3
_PARTS: Final = ("operators", "compute", "host_busy", "launch_gap", "queued", "between")


def _again(view: DeviceView) -> list[dict[str, Any]]:
    """The lines, most time first: of samples, which are of many steps, unless a device works or a line does other work.

    Of one step the calls are timed, short ones for too long.
    """
    step_ms = view.process.get("before_ms") or view.per_step_ms(view.total_ns)
    lines = []
    for line in view.process.get("repeats") or ():
        share = _sampled_share(view, line) if view.device is None and line["is_complete"] else None
        lines.append(line | {"share": min(1.0, line["ns"] / 1e6 / step_ms) if share is None else share})
    return sorted((line for line in lines if line["share"] >= _LITTLE), key=lambda line: -float(line["share"]))


def _sampled_share(view: DeviceView, line: Mapping[str, Any]) -> float | None:
    """The part of the samples in what a line calls; None where too few were taken."""
    stacks = view.once(sampled)
    of = stacks.filter(_is_in(line))
    return (
        int(of["ns"].sum()) / max(1, int(stacks["ns"].sum())) if int(stacks["samples"].sum()) >= FEW_SAMPLES else None
    )


def _is_in(line: Mapping[str, Any]) -> pl.Expr:
    number, call = pl.lit(line["line"]), pl.lit(line["call"], pl.String)
    of = pl.element().struct.field
    is_called_in = pl.col("callers").list.eval((of("line") == number) & of("call").eq_missing(call)).list.any()
    return ((pl.col("line") == number) & pl.col("call").eq_missing(call)) | is_called_in


def _share(view: DeviceView) -> float:
    return min(1.0, sum(float(line["share"]) for line in view.once(_again)))


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """Less and more twice the error of the samples; on a CPU the rest of the step gains caches for itself."""
    share, samples = view.once(_share), int(view.once(sampled)["samples"].sum())
    error = SIGMAS * sqrt(share * (1 - share) / samples) if view.device is None and samples else 0.0
    most = min(1.0, share + error + (_WITH_CACHES * (1 - share) if view.device is None else 0.0))
    ends = (min(_LEAST * share, share - error), most)
    least, most = (recording_cost.recorded_ms(view, end, *_PARTS) for end in ends)
    return max(0.0, least), most


def _of_each_ns(view: DeviceView) -> int:
    return sum(int(line["of_each_ns"]) for line in view.once(_again))


def _names(view: DeviceView) -> Entries:
    return [{"name": place_of(line), "share": line["share"]} for line in view.once(_again)[1 : 1 + _MOST_NAMES]]


def _of_line(view: DeviceView) -> float:
    """Of the line that takes most of the host's time."""
    stacks, lines = view.once(sampled), [line for line in view.once(_again) if line["is_complete"]]
    for top in view.once(losses)[:1] if lines else ():
        of = stacks.filter(pl.col("line").is_in([*top.lines, top.longest[0]]))
        again = of.filter(pl.any_horizontal(map(_is_in, lines)))
        return int(again["ns"].sum()) / max(1, int(of["ns"].sum()))
    return 0.0


of_repeats = of_devices(__name__, unknown=lacking(repeats_not_noted=lambda view: view.process.get("repeats") is None))
of_repeats("repeated_share", _share).says(
    "Part of the step in which PyTorch computes what it computed before: in this step, or in the one before it.",
    "samples in a line whose calls are such, without a device; of a line with others, and with a device, the time of "
    "these calls / a step without the profiler: of the same function with the same values. A value is the same if it "
    "is the same object and has not changed, or came from such a call. Lines of 2 % or more, the outermost with 95 % "
    "of it, else the innermost",
)
of_repeats(
    "repeated_each_part",
    lambda view: view.once(_of_each_ns) / max(1, sum(int(line["ns"]) for line in view.once(_again))),
).says(
    "Part of that whose values are those of the step before: they depend on no batch, and on no weight that changes.",
    "time of such calls / of all in repeated_share",
)
of_repeats("repeated_calls_part", lambda view: view.once(_of_each_ns) / max(1, view.process.get("calls_ns") or 0)).says(
    "Part of all calls of PyTorch in a step that gave what they gave in the step before.", "by their time"
)
of_repeats("repeated_line", lambda view: next(map(place_of, view.once(_again)), ""), unit="text").says(
    "The line that has most of it, and what it calls.", "as repeated_share"
)
of_repeats("repeated_lines", _names, unit="names").says("The next lines with that.", "up to three, of 2 % or more")
of_repeats("repeated_ms", lambda view: recording_cost.recorded_ms(view, view.once(_share), *_PARTS)).says(
    "What that takes of the recorded step.", "repeated_share of it"
)
of_repeats.saving("repeated", _ends_ms).says("a step that computes nothing again")
of_devices(__name__)("line_again_part", _of_line).says(
    "Part of line_place's time in lines that compute again what was computed before.", "samples; 0 where none is known"
)
