"""Changes: what would be different in the steps, at its least and at its most helpful, and what that saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from operator import and_, or_
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import late_requests
from advisor.analysis.device.recording_cost import measured_share, step_cost_ns
from advisor.analysis.device.view import DeviceView, inside, spans, spent_ns
from advisor.model.intervals import EMPTY, Intervals, Ints
from advisor.vocabulary.limits import QUEUED_GAP_NS
from advisor.whatif.dependencies import of_process, replay
from advisor.whatif.replay import TRUSTED_ERROR, Replay

World: TypeAlias = Literal["recorded", "slower", "faster", "unhindered"]
"""The steps as recorded; with a host that no profiler slows down, the slower or the faster one that it may be; and the
faster one that waits for no batch, either."""
Bound: TypeAlias = float | tuple[float, float]
"""Nanoseconds of all used steps that are saved without a trusted replay: at most (nothing at least), or both ends."""


def _nothing() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Edit:
    """What is different in the replayed steps."""

    host: tuple[tuple[Intervals, float], ...] = ()  # the host's work during spans is reduced to the part beside them
    calls: Ints = field(default_factory=_nothing)  # host op ids: they take no time and wait for nothing
    ops: Ints = field(default_factory=_nothing)  # device op ids, each once
    durations: Ints = field(default_factory=_nothing)  # what these take instead, in ns
    waits: bool = False  # no call waits
    launches: float = 1.0  # the part of their time that they take
    many: float = 1.0  # times as many launches
    pauses: bool = False  # queued ops follow each other at once
    loader: float = 1.0  # the part of their time that its workers take

    @property
    def is_empty(self) -> bool:
        """Whether a replay with it is the one without."""
        changed = any(when.total for when, _ in self.host) or len(self.calls) or len(self.ops) or self.waits
        return not (changed or self.pauses) and self.launches == self.many == self.loader == 1

    def hurries(self, steps: Replay) -> bool:
        """Whether late batches come sooner with it."""
        return self.loader < 1 or any(when.within(*steps.waits_for_arrivals).any() for when, _ in self.host)

    def on(self, steps: Replay) -> Replay:
        """The steps with it."""
        for when, rest in self.host:
            steps = steps.without_host(when, rest)
        steps = steps.with_loader(self.loader) if self.loader < 1 else steps
        steps = steps.with_launches(self.launches * self.many) if self.launches * self.many != 1 else steps
        gone, pause = np.isin(steps.call, self.calls), np.zeros_like(steps.pause) if self.pauses else steps.pause
        waits = steps.waits & ~gone & (not self.waits)
        steps = replace(steps, own=np.where(gone, 0, steps.own), waits=waits, pause=pause)
        return steps.with_durations(self.ops, self.durations) if len(self.ops) else steps

    def __or__(self, other: Edit) -> Edit:
        """Both: of one thing that both change, the larger change."""
        ops, durations = np.concatenate((self.ops, other.ops)), np.concatenate((self.durations, other.durations))
        shortest = np.lexsort((durations, ops))
        ops, first = np.unique(ops[shortest], return_index=True)
        return Edit(
            host=_disjoint((*self.host, *other.host)),
            calls=np.union1d(self.calls, other.calls),
            ops=ops,
            durations=durations[shortest][first],
            waits=self.waits or other.waits,
            launches=min(self.launches, other.launches),
            many=max(self.many, other.many),
            pauses=self.pauses or other.pauses,
            loader=min(self.loader, other.loader),
        )


@dataclass(frozen=True, eq=False)
class End:
    """One end of a change, and how its saving is told."""

    edit: Edit = Edit()
    bound_ns: float = 0.0  # saved of all used steps where nothing is replayed
    alone_ns: float = 0.0  # where no device was used
    part: float = 1.0  # of what is saved, which counts
    extra_ns: float = 0.0  # what no replay holds, on top
    worlds: tuple[World, ...] = ("recorded",)  # the replays that it is tried in

    def __and__(self, other: End) -> End:
        """Both at once; the part that counts is the mean of theirs, each with the weight of its bound."""
        bound_ns = self.bound_ns + other.bound_ns
        weighed = self.part * self.bound_ns + other.part * other.bound_ns
        return End(
            edit=self.edit | other.edit,
            bound_ns=bound_ns,
            alone_ns=self.alone_ns + other.alone_ns,
            part=weighed / bound_ns if bound_ns else min(self.part, other.part),
            extra_ns=self.extra_ns + other.extra_ns,
            worlds=tuple(dict.fromkeys((*self.worlds, *other.worlds))),
        )


@dataclass(frozen=True, eq=False)
class Change:
    """What is different, at its least and at its most helpful end."""

    least: End = End()
    most: End = End()
    limit_ns: float = math.inf  # of all steps: neither saves more
    in_proportion: bool = False  # the least is cut as the most is

    def surely(self, part: float) -> Change:
        """The same, of which only this part is saved at least, replayed or not."""
        return replace(self, least=replace(self.least, part=part * self.least.part))

    def at_most(self, limit_ns: float, *, in_proportion: bool = False) -> Change:
        """The same, which saves no more than this of all used steps; if `in_proportion`, a cut shortens both ends."""
        return replace(self, limit_ns=min(self.limit_ns, limit_ns), in_proportion=in_proportion)

    def beyond(self, extra_ns: float) -> Change:
        """The same, which saves so much more at most, whatever limits the rest: what no replay holds."""
        most = replace(self.most, extra_ns=self.most.extra_ns + extra_ns)
        return replace(self, most=most, limit_ns=self.limit_ns + extra_ns)


NOTHING: Final = Change()  # saves nothing; no replay is made for it


def together(*changes: Change) -> Change:
    """All of these changes at once; their order does not matter."""
    least, most = (change.least for change in changes), (change.most for change in changes)
    if not changes:
        return NOTHING
    limit_ns, cut = sum(change.limit_ns for change in changes), any(change.in_proportion for change in changes)
    return Change(reduce(and_, least), reduce(and_, most), limit_ns, cut)


def between(least: Change, most: Change) -> Change:
    """One or the other: what the first saves at least, and the second at most."""
    return replace(most, least=least.least, limit_ns=max(least.limit_ns, most.limit_ns))


def without(
    *,
    host: Intervals = EMPTY,
    calls: pl.Series | None = None,
    ops: pl.DataFrame | None = None,
    rest: tuple[float, float] = (0.0, 0.0),
    bound_ns: Bound = 0.0,
) -> Change:
    """Without the host's work, or waiting, during `host`, these calls (host op ids) and these device ops.

    Of the host's work the parts `rest` are left, at the least and at the most helpful end; give none where the device
    never waits for it. Without a trusted replay, or a device: nothing at least and `bound_ns` at most.
    """
    ids = _nothing() if calls is None else calls.drop_nulls().unique().to_numpy()
    gone = _nothing() if ops is None else ops["id"].to_numpy()
    least, most = (Edit(((host, part),), ids, gone, np.zeros_like(gone)) for part in rest)
    return _change(least, most, bound_ns)


def without_waits(bound_ns: Bound) -> Change:
    """With no call waiting for the device. Without a trusted replay: `bound_ns`."""
    return _change(Edit(waits=True), Edit(waits=True), bound_ns)


def without_work(view: DeviceView, when: Intervals, bound_ns: Bound | None = None) -> Change:
    """Without what the host does at these times, its calls included, and the kernels that they launch.

    Without a trusted replay: the time of these kernels, without a device that of the work; or `bound_ns`.
    """
    if not when.total:
        return NOTHING
    calls = view.host.filter(pl.col("kind").is_in(["runtime", "sync"]))
    calls = calls.filter(inside(when, calls))
    kernels = view.used_ops.join(calls.select(launch="id"), on="launch", how="semi")
    if bound_ns is None:
        bound = when if view.device is None else spans(kernels)
        bound_ns = (view.used_ns(bound),) * 2
    return without(host=when, calls=calls["id"], ops=kernels, bound_ns=bound_ns)


def faster(rows: pl.DataFrame, slowest: pl.Expr, fastest: pl.Expr, *, many: float = 1.0) -> Change:
    """With these kernels (or without a device, host ops) taking `slowest` or `fastest` ns instead.

    At the least helpful end the host launches so many times as `many`, and is the slower one that may be without the
    profiler; at the most also the faster one that never waits for a batch. Without a trusted replay, or where it is
    about less than 0.2 % of the step: nothing at least, and at most what the kernels lose. No steps get shorter by more
    than their kernels do, and pauses beside those that go.
    """
    if not rows.height:
        return NOTHING
    times = {name: ns.cast(pl.Float64).round().cast(pl.Int64) for name, ns in (("slow", slowest), ("fast", fastest))}
    took = rows.select(**times, id="id", now="dur_ns")
    slow, fast, ids, now = (took[column].to_numpy() for column in ("slow", "fast", "id", "now"))
    loss_ns = max(0.0, float((now - fast).sum()))
    change = _change(Edit(ops=ids, durations=slow, many=many), Edit(ops=ids, durations=fast), loss_ns)
    return replace(
        change.at_most(loss_ns + QUEUED_GAP_NS * np.count_nonzero(fast == 0)),
        least=replace(change.least, alone_ns=float((now - slow).sum()), worlds=("slower",)),
        most=replace(change.most, worlds=("recorded", "unhindered")),
    )


def overlapped(rows: pl.DataFrame, rest: tuple[float, float] = (0.0, 0.0)) -> Change:
    """With these copies or collectives behind kernels, but for parts of each; else as `faster`."""
    return faster(rows, *(pl.col("dur_ns") * part for part in rest))


def merged(view: DeviceView, rows: pl.DataFrame, *by: str) -> Change:
    """With the first of these device ops by start, of each group, taking over what the others do and their calls.

    Without a trusted replay: the time of the others that no kernel hides.
    """
    others = rows.sort("start_ns").filter(pl.int_range(pl.len()).over(by) > 0)
    bare_ns = (spans(others) - view.device_spans("kernel", "collective")).total
    return without(calls=others["launch"], ops=others, bound_ns=(bare_ns, bare_ns))


def cheaper_launches(rest: tuple[float, float], bound_ns: float, during: Intervals | None = None) -> Change:
    """With these parts left of what the host takes per launch, at the most helpful end with no pause between ops.

    With `during` only of what it does then: a program may have work of its own to do between launches. At least on the
    faster host that may be without the profiler: limit it in proportion. Untrusted: nothing at least, `bound_ns` at
    most.
    """
    least, most = (Edit(launches=part) if during is None else Edit(((during, part),)) for part in rest)
    change = _change(least, replace(most, pauses=True), bound_ns)
    return replace(change, least=replace(change.least, worlds=("faster",)))


def loss(least_ns: float, most_ns: float) -> Change:
    """Without time of the steps that is lost as it was recorded: nothing is replayed."""
    return _change(Edit(), Edit(), (least_ns, most_ns))


def _change(least: Edit, most: Edit, bound_ns: Bound) -> Change:
    low, high = bound_ns if isinstance(bound_ns, tuple) else (0.0, bound_ns)
    return Change(End(least, low, low), End(most, high, high))


def _disjoint(host: Iterable[tuple[Intervals, float]]) -> tuple[tuple[Intervals, float], ...]:
    """The same work without overlaps: of what two reduce, the smaller part is left."""
    by_rest = groupby(sorted(host, key=lambda each: each[1]), key=lambda each: each[1])
    before, apart = EMPTY, []
    for rest, group in by_rest:
        when = reduce(or_, (spans for spans, _ in group))
        apart.append((when - before, rest))
        before = before | when
    return tuple(apart)


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

    Where arrivals set the pace, changes that bring none sooner save what they save once others do.
    """
    change = together(*changes)
    if len(change.most.edit.ops) and view.once(of_process) is not view:
        change = _on_all_devices(view, change)
    is_small = "unhindered" in change.most.worlds and change.most.bound_ns < _NEGLIGIBLE * view.total_ns
    least = min(_saved_ms(view, change.least, is_small=is_small))
    most = max(_saved_ms(view, change.most, is_small=is_small))
    limit_ms = view.per_step_ms(min(change.limit_ns, view.total_ns))
    cut = min(1.0, limit_ms / most) if change.in_proportion and most else 1.0
    least, most = min(cut * least, limit_ms), min(most, limit_ms)
    return Interval(least, max(least, most))


def _on_all_devices(view: DeviceView, change: Change) -> Change:
    """The same for what has these names on the other devices of the process: a program runs it on all of them."""
    others = view.once(of_process).used_ops.filter(pl.col("device") != view.device)

    def on_all(end: End) -> tuple[End, int]:
        now = pl.col("id").replace_strict(end.edit.ops, end.edit.durations, default="dur_ns", return_dtype=pl.Int64)
        parts = view.used_ops.group_by("name").agg(part=now.sum() / pl.sum("dur_ns"))
        rows = others.join(parts.filter(pl.col("part") < 1), on="name")
        shorter = (rows["dur_ns"] * rows["part"]).round().cast(pl.Int64)
        edit = end.edit | Edit(ops=rows["id"].to_numpy(), durations=shorter.to_numpy())
        return replace(end, edit=edit), int((rows["dur_ns"] - shorter).sum())

    (least, _), (most, saved_ns) = on_all(change.least), on_all(change.most)
    return replace(change, least=least, most=most, limit_ns=change.limit_ns + saved_ns)


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

    Where that step was timed, savings are scaled by it, and the slower host is the recorded one.
    """
    steps = view.once(recorded)
    if view.device is None:
        return 1.0, 1.0
    cost_ns = step_cost_ns(view) if measured_share(view) is None else None
    if steps is None or not steps.launching_ns or cost_ns is None:
        return 1.0, _HALF
    slow, fast = (max(_LEAST_PART, 1 - ns * steps.steps / steps.launching_ns) for ns in cost_ns)
    return slow, min(fast, _HALF) if cost_ns[0] else max(fast, _HALF)


def on_faster(view: DeviceView) -> Replay | None:
    """The replay on the fastest host that it may be without the profiler."""
    return _on_host(view, 1)


def _on_host(view: DeviceView, end: int) -> Replay | None:
    steps = view.once(recorded)
    return steps and steps.with_launches(view.once(_unprofiled)[end])


_WORLDS: Final[Mapping[World, Callable[[DeviceView], Replay | None]]] = {
    "recorded": recorded,
    "slower": lambda view: _on_host(view, 0),
    "faster": on_faster,
    "unhindered": lambda view: (steps := view.once(on_faster)) and steps.without_host(view.host_spans("input")),
}
