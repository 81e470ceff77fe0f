"""What changes save: by a replay of the recorded steps where it can be trusted, by what is lost where it cannot."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.iterators import late_requests
from advisor.analysis.device.recording_cost import measured_share, step_cost_ns
from advisor.analysis.device.view import DeviceView, spent_ns
from advisor.whatif.change import Change, End, World, together
from advisor.whatif.dependencies import replay
from advisor.whatif.replay import TRUSTED_ERROR, Replay

_NEGLIGIBLE: Final = 0.002  # of the step: what is not worth replays of other hosts
# Parts of the recorded time that launching takes when no profiler records it: at most half of it may be the profiler's
# where nothing tells, three jobs took 0.41 of it, and a launch takes some time in any case.
_HALF, _LEAST_PART = 0.5, 0.3


class Interval(NamedTuple):
    """Milliseconds saved per step: 0 <= least <= most, and no more than the step takes."""

    least_ms: float
    most_ms: float


def saved(view: DeviceView, *changes: Change) -> Interval:
    """What all these changes together save per step; (0, 0) without any.

    Where arrivals set the pace, changes that bring none sooner save nothing before others do: it is what they save
    after that.
    """
    change = together(*changes)
    is_small = "unhindered" in change.most.worlds and change.most.bound_ns < _NEGLIGIBLE * view.total_ns
    least = min(_saved_ms(view, change.least, is_small=is_small))
    most = max(_saved_ms(view, change.most, is_small=is_small))
    limit_ms = view.per_step_ms(min(change.limit_ns, view.total_ns))
    cut = min(1.0, limit_ms / most) if change.in_proportion and most else 1.0
    least, most = min(cut * least, limit_ms), min(most, limit_ms)
    return Interval(least, max(least, most))


def awaits(view: DeviceView) -> str:
    """The part of the step in which the host waits for what sets the pace: `input`, `host_busy`, or none (empty)."""
    steps = view.once(recorded)
    return "input" if view.once(late_requests).height else steps.awaits if steps else ""


def _saved_ms(view: DeviceView, end: End, *, is_small: bool) -> list[float]:
    """What the end saves in each of its worlds; without a replay that can be trusted, what it saves without one."""
    skips = view.device is None or end.edit.is_empty or is_small
    replays = () if skips else (view.once(_WORLDS[world]) for world in end.worlds)
    fed = (steps and (steps if end.edit.hurries(steps) else steps.fed()) for steps in replays)
    tried = [steps.saved_ms(end.edit.on(steps)) for steps in fed if steps is not None]
    if not tried:
        tried = [view.per_step_ms(end.alone_ns if view.device is None else _bound_ns(view, end))]
    return [max(0.0, end.part * ms + view.per_step_ms(end.extra_ns)) for ms in tried]


def _bound_ns(view: DeviceView, end: End) -> float:
    """At least what its device ops lose while calls wait for the device: then nothing else holds up the next op."""
    if not len(end.edit.ops):
        return end.bound_ns
    losses = pl.DataFrame({"id": end.edit.ops, "after": end.edit.durations})
    rows = view.used_ops.join(losses.cast({"id": view.ops.schema["id"]}), on="id")
    saving = (rows["dur_ns"] - rows["after"]).clip(0) / rows["dur_ns"].clip(1)
    return max(end.bound_ns, float((saving * spent_ns(rows, view.blocked)).sum()))


def recorded(view: DeviceView) -> Replay | None:
    """The view's replay, or None where it cannot be made or does not reproduce the recording within 5 %."""
    replayed = view.once(replay)
    return replayed if replayed is not None and abs(replayed.error) <= TRUSTED_ERROR else None


def _unprofiled(view: DeviceView) -> tuple[float, float]:
    """Parts of the recorded time that launching takes without the profiler, at most and at least.

    Where the step without the profiler was timed, savings are scaled by that, and the slower host is the recorded one.
    """
    steps = view.once(recorded)
    if view.device is None or steps is None or not steps.launching_ns or measured_share(view) is not None:
        return 1.0, 1.0 if view.device is None else _HALF
    slow, fast = (max(_LEAST_PART, 1 - ns * steps.steps / steps.launching_ns) for ns in step_cost_ns(view))
    return slow, min(fast, _HALF)


def on_faster(view: DeviceView) -> Replay | None:
    """The replay on the fastest host that it may be without the profiler."""
    return _on_host(view, 1)


def _on_host(view: DeviceView, end: int) -> Replay | None:
    steps = view.once(recorded)
    return steps and steps.with_launches(view.once(_unprofiled)[end])


def _unhindered(view: DeviceView) -> Replay | None:
    steps = view.once(on_faster)
    return steps and steps.without_host(view.host_spans("input"))


_WORLDS: Final[Mapping[World, Callable[[DeviceView], Replay | None]]] = {
    "recorded": recorded,
    "slower": lambda view: _on_host(view, 0),
    "faster": on_faster,
    "unhindered": _unhindered,
}
