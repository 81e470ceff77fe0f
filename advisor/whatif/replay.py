"""The replay: the recorded steps run again on a model of host, streams and synchronisation, with something changed.

The model is the dependency graph of Daydream (USENIX ATC 2020) and Lumos (MLSys 2025), reduced to what the trace of
one worker always holds: the host makes its calls one after the other; an op starts when its stream is free, its call
was made, and what it waits for on another stream is done; a waiting call returns when the ops launched before it are
done. So a saving is never the sum of the kernel times saved: where the host sets the pace, the replay says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.model.arrays import Ints, Mask
from advisor.model.intervals import Intervals
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import LAUNCH_GAP_NS, QUEUED_GAP_NS, SLOW_CALL_NS

_EVENT_NS: Final = 10_000  # an op that starts so soon after one of another stream ended had waited for it
_PAUSE_NS: Final = 1_200  # between two queued ops: the least median of public H100 and B200 traces
_LAUNCH_NS: Final = 6_000  # from a call to its op on an idle device: median of public H100 and B200 traces
_STREAM: Final = pl.col("stream").fill_null(-1)  # ops of no known stream run in order too
_MOST_CALLS: Final = 100_000  # enough for a mean; a longer recording is replayed up to here
TRUSTED_ERROR: Final = 0.05  # a replay of the unchanged steps that is further off than this is not used

UNPROFILED: Final = 0.5
"""Part of the recorded host time per call that launching may take when no profiler records it."""


@dataclass(frozen=True)
class Replay:
    """The calls of the host and the ops of one device; times in ns.

    Per call in order, shape (calls,): `call` (host op id), `free` (when the host was free for it), `start`, `gap` (host
    work between), `own` (the call's time without waiting), `waits` (whether it returns only after all ops launched so
    far). Per op by stream and start, shape (ops,): `op` (device op id), `by` (index of its call), `stream`, `dur`,
    `pause` (what the stream needs before it, however early it was launched), `delay` (from when all it waits for was
    ready to its start, as recorded: what the model does not explain).
    `orders`, shape (n, 3): from this call (index) on, this stream goes on after what that other stream holds by then.
    """

    call: Ints
    free: Ints
    start: Ints
    gap: Ints
    own: Ints
    waits: Mask
    op: Ints
    by: Ints
    stream: Ints
    dur: Ints
    pause: Ints
    delay: Ints
    orders: Ints
    busy_until: Mapping[int, int]  # stream: when it is done with what was called before the first call
    launch_ns: int
    returned_ns: int  # when the last call did
    tail_ns: int  # host work after that
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
        """With the host's work during `spans`, calls that do not wait included, reduced to the part `rest` of it."""
        working = np.where(self.waits, 0, self.own)
        return replace(
            self,
            gap=self.gap - _part(spans.within(self.free, self.start), 1 - rest),
            own=self.own - _part(spans.within(self.start, self.start + working), 1 - rest),
            tail_ns=self.tail_ns - int(_part(self._tail_within(spans), 1 - rest)[0]),
        )

    def _tail_within(self, spans: Intervals) -> Ints:
        return spans.within([self.returned_ns], [self.returned_ns + self.tail_ns])

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

    def without_calls(self, calls: Ints) -> Replay:
        """With these calls (host op ids) taking no time and waiting for nothing."""
        gone = np.isin(self.call, calls)
        return replace(self, own=np.where(gone, 0, self.own), waits=self.waits & ~gone)

    def without_waits(self) -> Replay:
        """With no call waiting for the device."""
        return replace(self, waits=np.zeros_like(self.waits))

    def without_pauses(self) -> Replay:
        """With ops that follow each other at once where they are queued, as those of a captured graph do."""
        return replace(self, pause=np.zeros_like(self.pause))

    def with_launches(self, factor: float) -> Replay:
        """With each call, and the host work before it where that is at most 1 ms, taking `factor` as long."""
        gap = np.where(self.gap <= LAUNCH_GAP_NS, _part(self.gap, factor), self.gap)
        return replace(self, gap=gap, own=np.where(self.waits, self.own, _part(self.own, factor)))

    def _makespan(self) -> int:
        """Time until all host and device work is done, stretch by stretch between waiting calls."""
        bounds = self._bounds()
        worked = np.cumsum(self.gap + self.own)
        before = np.concatenate(([0], worked))[bounds[:-1]]
        start = worked - self.own
        runs = self._runs(bounds, start, before)
        awaiting: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for call, stream, awaited in self.orders.tolist():
            awaiting[call].append((stream, awaited))
        last = bounds[1:] - 1
        columns = (bounds[:-1], start[last] - before, self.own[last], self.waits[last])
        host, done = 0, {stream: self.busy_until.get(stream, 0) for stream in np.unique(self.stream).tolist()}
        for i, (first, until, own, waits) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            for stream, awaited in awaiting.get(first, ()):
                done[stream] = max(done[stream], done[awaited])
            for stream, takes, leads in runs.get(i, ()):
                done[stream] = takes + max(done[stream], host + leads)
            host = own + (max([host + until, *done.values()]) if waits else host + until)
        return max([host + self.tail_ns, *done.values(), 0])

    def _bounds(self) -> Ints:
        """Where stretches of calls begin: after a waiting one, and where a stream begins to wait for another."""
        ends = np.flatnonzero(self.waits) + 1
        return np.unique(np.concatenate(([0], ends, self.orders[:, 0], [len(self.start)])))

    def _runs(self, bounds: Ints, start: Ints, before: Ints) -> dict[int, list[tuple[int, int, int]]]:
        """By stretch, of each stream that runs something: the stream, how long it takes, and what it waits for.

        Ops of a stream run in order, each when its call was made: the last of them ends `takes` after the stream was
        free, or after `leads` from when the host began the stretch, whichever is later.
        """
        runs: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        cost = self.pause + self.dur + self.delay
        for stream in np.unique(self.stream).tolist():
            rows = slice(*(np.searchsorted(self.stream, stream, side=side) for side in ("left", "right")))
            by, takes = self.by[rows], np.concatenate(([0], np.cumsum(cost[rows])))
            at = np.searchsorted(np.maximum.accumulate(by), bounds)
            stretches = np.flatnonzero(np.diff(at))
            of_op = np.repeat(stretches, np.diff(at)[stretches])
            call = np.maximum(by, bounds[of_op])  # one called earlier may run later than this stretch's
            ready = start[call] - before[of_op] + self.launch_ns - self.pause[rows]
            leads = np.maximum.reduceat(ready - takes[:-1], at[stretches]) + takes[at[stretches]]
            total = takes[at[stretches + 1]] - takes[at[stretches]]
            for i, takes_ns, lead in zip(stretches.tolist(), total.tolist(), leads.tolist(), strict=True):
                runs[i].append((stream, takes_ns, lead))
        return runs


def replay(view: DeviceView) -> Replay | None:
    """The view's longest run of consecutive used steps; None where nothing links ops to calls."""
    steps = _consecutive(view.steps)
    if not steps.height or not view.ops["launch"].count():
        return None
    begin, host_end = int(steps["host_start_ns"][0]), int((steps["host_start_ns"] + steps["host_dur_ns"])[-1])
    end = int((steps["start_ns"] + steps["dur_ns"])[-1])
    calls = _calls(view, begin, host_end)  # ahead of the device, the host already launches for steps that are not used
    if not calls.height:
        return None
    if calls.height > _MOST_CALLS:
        return replay(_first_half(view, steps)) if steps.height > 1 else None
    start = calls["start_ns"].to_numpy()
    returned = start + calls["dur_ns"].to_numpy()
    free = np.maximum.accumulate(np.concatenate(([begin], returned[:-1])))
    ops = _ops(view, calls)
    launch_ns = _launch_ns(ops)
    waits, own = _waiting(view, calls)
    arrival = ops["called"].to_numpy() + launch_ns
    stream_free, orders = _free(ops, arrival)
    pause = _pause(ops["start_ns"].to_numpy() - stream_free, queued=arrival < stream_free)
    ready = np.maximum(stream_free + pause, arrival)
    return Replay(
        call=calls["id"].to_numpy(),
        free=free,
        start=np.maximum(start, free),
        gap=np.maximum(start - free, 0),
        own=own,
        waits=waits,
        **{name: ops[name].to_numpy() for name in ("op", "by", "stream", "dur")},
        pause=pause,
        delay=np.maximum(ops["start_ns"].to_numpy() - ready, 0),
        orders=orders,
        busy_until=_still_running(view, begin),
        launch_ns=launch_ns,
        returned_ns=int(returned.max()),
        tail_ns=max(0, host_end - int(returned.max())),
        steps=steps.height,
        recorded_ms=(max(end, host_end) - begin) / 1e6 / steps.height,
    )


def _consecutive(steps: pl.DataFrame) -> pl.DataFrame:
    """The longest run of steps whose numbers follow each other without a pause; the first of equals."""
    apart = (steps["step"].diff().fill_null(1) != 1) | (steps["pause_ns"].shift(1).fill_null(0) > 0)
    run = apart.cum_sum().alias("run")
    runs = steps.with_columns(run).partition_by("run", maintain_order=True)
    return max(runs, key=lambda part: part.height, default=steps)


def _first_half(view: DeviceView, steps: pl.DataFrame) -> DeviceView:
    return replace(view, steps=steps.head(steps.height // 2))


def _calls(view: DeviceView, begin: int, end: int) -> pl.DataFrame:
    """Calls in [begin, end) that launch ops of this device, or wait; and slow ones of the threads that launch."""
    calls = view.host.lazy().filter(
        pl.col("kind").is_in(DRIVER_CALLS), pl.col("start_ns").is_between(begin, end, closed="left")
    )
    launches = pl.col("id").is_in(view.ops["launch"].implode())
    holds_up = (pl.col("dur_ns") > SLOW_CALL_NS) & launches.any().over("thread")
    calls = calls.filter(launches | (pl.col("kind") == "sync") | holds_up)
    return calls.select("id", "kind", "name", "start_ns", "dur_ns").sort("start_ns", "id").collect()


def _ops(view: DeviceView, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls' ops by stream: op, by, stream, start_ns, dur, free (when the stream was), called."""
    end = END_NS
    indexed = calls.select(launch="id", called="start_ns", by=pl.int_range(pl.len(), dtype=pl.Int64))
    return (
        view.ops.select("id", "launch", "start_ns", "dur_ns", _STREAM)
        .sort("stream", "start_ns", "id")
        .with_columns(free=end.cum_max().shift(1, fill_value=0).over("stream"))
        .join(indexed, on="launch", maintain_order="left")
        .select("by", "stream", "start_ns", "free", "called", op="id", dur="dur_ns")
    )


def _free(ops: pl.DataFrame, arrival: Ints) -> tuple[Ints, Ints]:
    """When each op's stream was free for it, and the `orders` among streams, as far as they show.

    Traces seldom say which stream waits for which. But an op that starts just after the newest op that another stream
    held ended, though its own stream was free and its launch had arrived before, had waited for that one.
    """
    start, by, stream, free = (ops[name].to_numpy() for name in ("start_ns", "by", "stream", "free"))
    end = start + ops["dur"].to_numpy()
    order = np.argsort(end, kind="stable")
    last = np.concatenate(([-1], order))[np.searchsorted(end[order], start, side="right")]
    done = np.where(last >= 0, end[last], 0)
    late = (done > np.maximum(free, arrival)) & (start - done <= _EVENT_NS)
    follows = np.minimum(last + 1, len(last) - 1)
    newest = (follows == last) | (stream[follows] != stream[last]) | (by[follows] >= by)
    waited = late & newest & (stream[last] != stream) & (by[last] < by)
    orders = np.stack((by[waited], stream[waited], stream[last[waited]]), axis=1)
    return np.where(waited, done, free), orders[np.argsort(orders[:, 0], kind="stable")]


def _pause(between: Ints, queued: Mask) -> Ints:
    """The least time that a stream takes from one op to the next, per op; less where that was seen to do."""
    observed = between[queued & (between >= 0) & (between <= QUEUED_GAP_NS)]
    return np.clip(between, 0, int(np.median(observed)) if len(observed) else _PAUSE_NS)


def _launch_ns(ops: pl.DataFrame) -> int:
    """From a call to the start of its op on a stream that was free by then; the usual figure where there is none."""
    alone = ops.filter(pl.col("free") < pl.col("called"))
    latency = (alone["start_ns"] - alone["called"]).to_numpy()
    usual = int(np.median(latency)) if len(latency) else _LAUNCH_NS
    return usual if 0 < usual < SLOW_CALL_NS else _LAUNCH_NS


def _still_running(view: DeviceView, begin: int) -> dict[int, int]:
    """For how long after `begin` each stream is busy with what was called before, recorded or not."""
    end = END_NS
    ops = view.with_host(view.ops, "launch", called="start_ns")
    first = pl.col("start_ns").filter(pl.col("called") >= begin).min()
    earlier = (pl.col("called") < begin) | (pl.col("called").is_null() & (pl.col("start_ns") < first))
    return dict(ops.filter(earlier, end > begin).group_by(_STREAM).agg(end.max() - begin).rows())


def _waiting(view: DeviceView, calls: pl.DataFrame) -> tuple[Mask, Ints]:
    """Which calls wait for the device, and what each takes apart from waiting.

    A synchronising call, or a slow one, that returned while or just after the device was busy waited for it; what it
    took after the device ran dry is its own. A slow launch was held up by a full queue: it takes what launches take.
    """
    start = calls["start_ns"].to_numpy()
    end = start + calls["dur_ns"].to_numpy()
    length = end - start
    frees = (pl.col("kind") == "allocator") & matches("(?i)free|unmap")  # they wait, taking memory does not
    kinds = calls.select(is_sync=(pl.col("kind") == "sync") | frees, is_copy=matches("(?i)memcpy"))
    is_sync, is_copy = (column.to_numpy() for column in kinds.get_columns())
    slow = length > SLOW_CALL_NS
    last_done = _latest_end(view, end)
    waited = (last_done > start) & (is_sync | (slow & is_copy))
    usual = int(np.median(length[~slow & ~is_sync])) if (~slow & ~is_sync).any() else 0
    queued = slow & ~waited & ~is_sync & (view.busy.within(start, end) > length // 2)
    apart: Ints = np.where(queued, np.minimum(length, usual), length)
    own: Ints = np.where(waited, end - np.maximum(last_done, start), apart)
    return waited, own


def _latest_end(view: DeviceView, times: Ints) -> Ints:
    """End of the last device op that ended at or before each of the times; 0 before the first."""
    ends = np.sort((view.ops["start_ns"] + view.ops["dur_ns"]).to_numpy())
    ended = np.concatenate((np.zeros(1, np.int64), ends))
    latest: Ints = ended[np.searchsorted(ends, times, side="right")]
    return latest


def _part(values: Ints, factor: float) -> Ints:
    scaled: Ints = np.rint(values * factor).astype(np.int64)
    return scaled
