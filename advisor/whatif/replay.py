"""The replay: the recorded steps run again on a model of host, streams and synchronisation, with something changed.

The model is the dependency graph of Daydream (USENIX ATC 2020) and Lumos (MLSys 2025), reduced to what the trace of
one worker always holds: threads that hand work to each other make their calls one after the other, others beside them;
an op starts when its stream is free, its call was made, and what it waits for on another stream is done; a waiting call
returns when the ops launched before it are done. So a saving is never the sum of the kernel times saved: where the host
sets the pace, the replay says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from advisor.model.intervals import Intervals, Ints, Mask
from advisor.vocabulary.limits import LAUNCH_GAP_NS

TRUSTED_ERROR: Final = 0.05  # a replay of the unchanged steps that is further off than this is not used


@dataclass(frozen=True)
class Replay:
    """The calls of the host and the ops of one device; times in ns.

    What the host waits for arrives when it did, and where that sets the pace the last step ends as it did: what is
    faster than it gains nothing.
    """

    # Of each call, in order; shape (calls,)
    call: Ints  # host op id
    queue: Ints  # calls of one are made one after the other; 0 sets the step
    follows: Mask  # whether it waits for what queue 0 has done
    free: Ints  # when the host was free for it
    start: Ints
    gap: Ints  # host work between
    own: Ints  # the call's time without waiting
    waits: Mask  # whether it returns only after all ops launched so far to the streams of its queue,
    unawaited: Mapping[int, frozenset[int]]  # less these
    # Of each op, by stream and start; shape (ops,)
    op: Ints  # device op id
    by: Ints  # index of its call
    stream: Ints
    dur: Ints
    pause: Ints  # what the stream needs before it
    delay: Ints  # from when all it waits for was ready to its start, as recorded: what the model does not explain
    # Shape (n, 4): from this call (index) on, this stream goes on after what that other one held before that call
    orders: Ints
    awaits: str  # where arrivals, as batches, set the pace: the part of the step in which the host waits; else empty
    # Of each arrival; shape (arrivals,)
    late: Ints  # index of the call before which the host may have to wait
    waited: Ints  # how long it did
    not_before: Ints  # when it goes on at the earliest, without the work of the call's gap
    ends_ns: int  # when the last step ended; 0 where no loader sets the pace
    busy_until: Mapping[int, int]  # stream: when it is done with what was called before the first call
    launch_ns: int
    returned_ns: int  # when the last call did
    until_ns: int  # when the host was done with the steps
    tail_ns: int  # host work between
    steps: int
    recorded_ms: float

    @cached_property
    def step_ms(self) -> float:
        """Mean step time of the replay; with nothing changed it is close to `recorded_ms`."""
        return self._makespan() / 1e6 / self.steps

    @property
    def error(self) -> float:
        """How far the replayed step time is from the recorded one, as a share of it."""
        return self.step_ms / self.recorded_ms - 1

    def saved_ms(self, changed: Replay) -> float:
        """How much shorter the changed replay's mean step is; never negative."""
        return max(0.0, self.step_ms - changed.step_ms)

    def without_host(self, spans: Intervals, rest: float = 0.0) -> Replay:
        """With the work of queue 0 during `spans`, calls that do not wait included, reduced to the part `rest`."""
        sets_step = self.queue == 0
        waited = spans.within(*self.waits_for_arrivals)
        between = np.where(sets_step, spans.within(self.free, self.start), 0)
        between[self.late] -= waited
        working = np.where(sets_step & ~self.waits, spans.within(self.start, self.start + self.own), 0)
        tail = spans.within([self.returned_ns], [self.until_ns])
        sooner = self._sooner(_part(waited, 1 - rest))
        return replace(
            sooner,
            gap=self.gap - _part(np.minimum(between, self.gap.clip(0)), 1 - rest),
            own=self.own - _part(working, 1 - rest),
            tail_ns=self.tail_ns - int(_part(tail.clip(0, self.tail_ns), 1 - rest)[0]),
        )

    @property
    def waits_for_arrivals(self) -> tuple[Ints, Ints]:
        """When the host waited for each, from and until."""
        return self.free[self.late], self.free[self.late] + self.waited

    def fed(self) -> Replay:
        """With everything there in time that was waited for."""
        return self._sooner(self.waited)

    def _sooner(self, sooner: Ints) -> Replay:
        """With each arrival so many ns earlier than the one before it; what comes without a wait is late no more."""
        late = (sooner < self.waited) | (self.waited == 0)
        not_before = (self.not_before - np.cumsum(sooner))[late]
        ends_ns = self.ends_ns - sooner.sum() if late.any() else 0
        return replace(self, late=self.late[late], waited=self.waited[late], not_before=not_before, ends_ns=ends_ns)

    def with_loader(self, factor: float) -> Replay:
        """With arrivals `factor` times as far apart."""
        return replace(self, not_before=_part(self.not_before, factor), ends_ns=int(self.ends_ns * factor))

    def with_durations(self, ops: Ints, dur: Ints) -> Replay:
        """With these device ops (ids, each once) taking so many ns; one that takes none is gone, with its pause.

        Its delay stays: the op after it may wait for the same, and no more is saved than the ops and pauses take.
        """
        order = np.argsort(ops)
        ids, new = ops[order], dur[order]
        at = np.minimum(np.searchsorted(ids, self.op), max(0, len(ids) - 1))
        meant = ids[at] == self.op if len(ids) else np.zeros(len(self.op), bool)
        changed = np.where(meant, new[at], self.dur) if len(ids) else self.dur
        gone = meant & (changed == 0)
        return replace(self, dur=changed, pause=np.where(gone, 0, self.pause))

    @property
    def launching_ns(self) -> int:
        """What the host takes to launch: its calls that do not wait, and the work of at most 1 ms before each call."""
        return int(self.gap[self._launching].sum() + self.own[~self.waits].sum())

    @property
    def _launching(self) -> Mask:
        return (self.gap > 0) & (self.gap <= LAUNCH_GAP_NS)

    def with_launches(self, factor: float) -> Replay:
        """With each call, and the host work before it where that is at most 1 ms, taking `factor` as long."""
        gap = np.where(self._launching, _part(self.gap, factor), self.gap)
        return replace(self, gap=gap, own=np.where(self.waits, self.own, _part(self.own, factor)))

    def with_host(self, factor: float) -> Replay:
        """With all work of the host, launching or not, taking `factor` as long; a wait for queue 0 stays one."""
        gap = np.where(self.follows, self.gap, _part(self.gap, factor))
        return replace(self, gap=gap, own=_part(self.own, factor), tail_ns=int(factor * self.tail_ns))

    def _makespan(self) -> int:
        """Time until the device and queue 0 of the host are done, stretch by stretch of each queue's calls."""
        bounds = self._bounds()
        worked = np.cumsum(self.gap + self.own)
        before = np.concatenate(([0], worked))[bounds[:-1]]
        start = worked - self.own
        runs = self._runs(bounds, start, before)
        awaiting: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        ends: dict[int, dict[int, int]] = defaultdict(dict)  # by call and stream: when the stream is done with it
        for call, *order in self.orders.tolist():
            awaiting[call].append(order)
            ends[order[2]][order[1]] = 0
        first, last = bounds[:-1], bounds[1:] - 1
        waits = np.where(self.waits[last], last, -1)
        columns = (first, self.queue[first], start[last] - before, self.own[last], waits, self.gap[first])
        not_before = dict(zip(self.late.tolist(), self.not_before.tolist(), strict=True))
        done = {stream: self.busy_until.get(stream, 0) for stream in np.unique(self.stream).tolist()}
        of_op = self.queue[self.by]  # a waiting call waits for the streams that its queue launches to
        streams = {queue: frozenset(self.stream[of_op == queue].tolist()) for queue in np.unique(self.queue).tolist()}
        latest = {queue: max((done[stream] for stream in of), default=0) for queue, of in streams.items()}
        launching = {stream: [queue for queue, of in streams.items() if stream in of] for stream in done}

        def run(stream: int, until: int) -> None:
            done[stream] = until
            for queue in launching[stream]:
                latest[queue] = max(latest[queue], until)

        host = dict.fromkeys(streams, 0)
        stretches = zip(*(column.tolist() for column in columns), strict=True)
        for i, (call, queue, until, own, wait, lead) in enumerate(stretches):
            for stream in ends.get(call, ()):
                ends[call][stream] = done[stream]
            for stream, awaited, before_call in awaiting.get(call, ()):
                run(stream, max(done[stream], ends[before_call][awaited]))
            begin = max(host[0], host[queue] - lead) if self.follows[call] else host[queue]
            begin = max(begin, not_before.get(call, begin))
            for stream, takes, ready in runs.get(i, ()):
                run(stream, takes + max(done[stream], begin + ready))
            waited = latest[queue] if wait >= 0 else 0
            if passed := self.unawaited.get(wait):
                waited = max((done[stream] for stream in streams[queue] - passed), default=0)
            host[queue] = own + max(begin + until, waited)
        return max([host[0] + self.tail_ns, *done.values(), self.ends_ns])

    def _bounds(self) -> Ints:
        """Where stretches of calls begin: after a wait, and where a queue or stream begins to wait for another."""
        ends = np.flatnonzero(self.waits[:-1] | (np.diff(self.queue) != 0)) + 1
        begins = np.flatnonzero(self.follows)
        return np.unique(np.concatenate(([0], ends, begins, self.late, *self.orders[:, [0, 3]].T, [len(self.start)])))

    def _runs(self, bounds: Ints, start: Ints, before: Ints) -> dict[int, list[tuple[int, int, int]]]:
        """By stretch, of each stream that runs something: the stream, how long it takes, and what it waits for.

        The last op ends `takes` after the stream was free, or `leads` after the host began the stretch, whichever is
        later.
        """
        known, of_stream = np.unique(self.stream, return_inverse=True)
        calls = len(self.start) + 1  # numbers of a stream's calls lie above those of the streams before it
        by = np.maximum.accumulate(self.by + calls * of_stream) - calls * of_stream
        stretch = np.searchsorted(bounds, by, side="right") - 1
        call = np.maximum(self.by, bounds[stretch])  # one called earlier may run later than this stretch's
        ready = start[call] - before[stretch] + self.launch_ns - self.pause
        takes = np.concatenate(([0], np.cumsum(self.pause + self.dur + self.delay)))
        at = np.flatnonzero(np.diff(stretch + len(bounds) * of_stream, prepend=-1))
        took = takes[at]
        total = np.diff(took, append=takes[-1])
        leads = np.maximum.reduceat(ready - takes[:-1], at) + took if len(at) else took
        runs: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        columns = (stretch[at], known[of_stream[at]], total, leads)
        for i, *run in zip(*(column.tolist() for column in columns), strict=True):
            runs[i].append(tuple(run))
        return runs


def _part(values: Ints, factor: float) -> Ints:
    scaled: Ints = np.rint(values * factor).astype(np.int64)
    return scaled
