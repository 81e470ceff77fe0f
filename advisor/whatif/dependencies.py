"""What waited for what in the recorded steps, as far as it shows: the replay with nothing changed."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import stalls
from advisor.analysis.device.iterators import functions_period_ns, late_requests, loaded_ahead, thread_period_ns
from advisor.analysis.device.loading_stages import batch
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.view import DeviceView, bounds, spans, started_in
from advisor.inputs.names.calls import FREES
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals, Ints, Mask
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import LAUNCH_GAP_NS, QUEUED_GAP_NS, SLOW_CALL_NS
from advisor.whatif.replay import Replay

_EVENT_NS: Final = 10_000  # an op that starts so soon after one of another stream ended had waited for it
_SLOW_EVENT_NS, _NO_CHANCE = 30_000, 0.01  # the same of a long wait: an MI300X takes 9 to 19 us, under 1 % of it
_PAUSE_NS: Final = 1_200  # between two queued ops: the least median of public H100 and B200 traces
_LAUNCH_NS: Final = 6_000  # from a call to its op on an idle device: median of public H100 and B200 traces
_STREAM: Final = pl.col("stream").fill_null(-1)  # ops of no known stream run in order too
_CALL: Final = ("id", "thread", "kind", "name", "start_ns", "dur_ns")
_BY_CHANCE: Final = 0.1  # of how often it would be so by chance: less is no chance
_MOST_PAIRS: Final = 1 << 21  # of waits and streams: what 13,000 waits for 8 devices of 20 streams have
_MOST_BEFORE: Final = 0.5  # own choice, of the time: what was called before the steps is replayed as it was
_MOST_CALLS: Final = 100_000  # enough for a mean; a longer recording is replayed up to here


def replay(view: DeviceView) -> Replay | None:
    """The view's longest run of consecutive used steps; None where nothing links a device's ops to calls in them.

    Without a device it holds what the host does between requests for a batch of worker processes.
    """
    return _replay(view.once(of_process))


def _replay(view: DeviceView) -> Replay | None:
    steps = _consecutive(view.steps)
    if not steps.height or (view.device is not None and not view.ops["launch"].count()):
        return None
    begin, host_end = int(steps["host_start_ns"][0]), int((steps["host_start_ns"] + steps["host_dur_ns"])[-1])
    end = int((steps["start_ns"] + steps["dur_ns"])[-1])
    calls = _calls(view, begin, host_end)  # ahead of the device, the host already launches for steps that are not used
    if view.device is not None and not calls["launches"].any():
        return None
    if calls.height > _MOST_CALLS:
        fewer = steps.height * _MOST_CALLS // calls.height
        return _replay(replace(view, steps=steps.head(fewer))) if fewer else None
    queue, lasted = _queues(calls), max(end, host_end) - begin
    busy_until = _still_running(view, begin)
    if max(busy_until.values(), default=0) > _MOST_BEFORE * lasted:
        return None
    start, returned = bounds(calls)
    free, follows = _free_host(queue, start, returned, begin)
    ops = _ops(view, calls)
    awaits, late, comes, loads = _arrivals(view, calls, queue, free, lasted)
    gap = np.where(follows, start - free, np.maximum(start - free, 0))
    waited = np.where(awaits, gap[late], 0)
    gap[late] -= waited
    launch_ns = _launch_ns(ops)
    waits, own, unawaited = _waiting(view, calls, ops, queue)
    arrival = ops["called"].to_numpy() + launch_ns
    stream_free, orders = _free(ops, arrival)
    pause = _pause(ops["start_ns"].to_numpy() - stream_free, queued=arrival < stream_free)
    ready = np.maximum(stream_free + pause, arrival)
    return Replay(
        call=calls["id"].to_numpy(),
        queue=queue,
        follows=follows,
        free=free,
        start=np.where(follows, start, np.maximum(start, free)),
        gap=gap,
        own=own,
        waits=waits,
        unawaited=unawaited,
        **{name: ops[name].to_numpy() for name in ("op", "by", "stream", "dur")},
        pause=pause,
        delay=np.maximum(ops["start_ns"].to_numpy() - ready, 0),
        orders=orders,
        awaits=awaits,
        late=late,
        waited=waited,
        not_before=comes - gap[late] - begin,
        ends_ns=int(loads * lasted) if len(late) else 0,
        busy_until=busy_until,
        launch_ns=launch_ns,
        returned_ns=int(returned[queue == 0].max()),
        until_ns=max(host_end, int(returned[queue == 0].max())),
        tail_ns=max(0, host_end - int(returned[queue == 0].max())),
        steps=steps.height,
        recorded_ms=lasted / 1e6 / steps.height,
    )


def of_process(view: DeviceView) -> DeviceView:
    """The view with the streams of all devices of its process, which may wait for each other, unless they are ranks."""
    if len(view.used) <= 1 or (view.process_ops["kind"] == "collective").any():
        return view
    stream = pl.struct("device", "stream").rank("dense").cast(pl.Int64)
    return replace(view, ops=view.process_ops.with_columns(stream=stream), _computed={}, _unions={})


def _consecutive(steps: pl.DataFrame) -> pl.DataFrame:
    """The longest run of steps whose numbers follow each other without a pause; the first of equals."""
    apart = (steps["step"].diff().fill_null(1) != 1) | (steps["pause_ns"].shift(1).fill_null(0) > 0)
    run = apart.cum_sum().alias("run")
    runs = steps.with_columns(run).partition_by("run", maintain_order=True)
    return max(runs, key=lambda part: part.height, default=steps)


def _calls(view: DeviceView, begin: int, end: int) -> pl.DataFrame:
    """Calls in [begin, end) that launch ops of this device, or wait; and slow ones of the threads that launch.

    And marks: without a device the start of the steps; start and end of each request to what loads ahead. At an end,
    `arrives` says whether the batch was `late`, or a `batch` like others.
    """
    calls = view.host.lazy().filter(
        pl.col("kind").is_in(DRIVER_CALLS), pl.col("start_ns").is_between(begin, end, closed="left")
    )
    calls = calls.with_columns(launches=pl.col("id").is_in(view.ops["launch"].implode()))
    holds_up = (pl.col("dur_ns") > SLOW_CALL_NS) & pl.col("launches").any().over("thread")
    calls = calls.filter(pl.col("launches") | (pl.col("kind") == "sync") | holds_up)
    kernels = view.ops.lazy().filter(pl.col("kind") == "kernel").group_by(id="launch").agg(kernels_ns=pl.sum("dur_ns"))
    calls = calls.select(*_CALL, "launches").join(kernels, on="id", how="left")
    return pl.concat([calls.collect(), _marks(view, begin, end)], how="diagonal_relaxed").sort("start_ns", "id")


def _marks(view: DeviceView, begin: int, end: int) -> pl.DataFrame:
    """As `_calls`; they take no time."""
    requests = view.once(loaded_ahead).select(*_CALL, end_ns=END_NS)
    requests = requests.filter(pl.col("start_ns") >= begin, pl.col("end_ns") < end)
    is_late = pl.col("id").is_in(view.once(late_requests)["id"].implode())
    got = requests.with_columns(
        start_ns="end_ns", arrives=pl.when(is_late).then(pl.lit("late")).otherwise(pl.lit("batch"))
    )
    first = pl.DataFrame({"id": [-1], "start_ns": [begin], "kind": ["input"]})
    marks = pl.concat([got, requests, *([first] if view.device is None else [])], how="diagonal_relaxed")
    return marks.drop("end_ns").with_columns(dur_ns=pl.lit(0, pl.Int64), launches=pl.lit(value=False))


def _queues(calls: pl.DataFrame) -> Ints:
    """The queue of each call: 0 that of the thread whose kernels take longest, and of those that take turns with it.

    A thread that hands work over makes no call until it has it back, as PyTorch's threads do for a backward pass. The
    calls of threads that know nothing of each other are open at once as often as chance has it, those that wait for the
    device among them. Threads that launch nothing wait for the others.
    """
    launched = calls.filter("launches").group_by("thread").agg(pl.sum("kernels_ns"), pl.len())
    threads = launched.sort("kernels_ns", "len", "thread", descending=[True, True, False])
    queues: list[tuple[list[int | None], Intervals]] = []
    of_device = calls.filter(pl.col("launches") | (pl.col("kind") == "sync"))
    of_thread = of_device.partition_by("thread", as_dict=True, maintain_order=True)
    for thread in threads["thread"]:
        ran = spans(of_thread[thread,])
        taking_turns = (at for at, (_, others) in enumerate(queues) if _take_turns(ran, others))
        if (at := next(taking_turns, None)) is None:
            queues.append(([thread], ran))
        else:
            queues[at] = [*queues[at][0], thread], queues[at][1] | ran
    queue = np.zeros(calls.height, np.int64)
    for at, (members, _) in enumerate(queues[1:], 1):
        queue[calls["thread"].is_in(members, nulls_equal=True).to_numpy()] = at
    return queue


def _take_turns(calls: Intervals, others: Intervals) -> bool:
    """Whether their times meet less than a tenth as often as chance has it."""
    if not (calls.total and others.total):
        return True
    span = max(calls.ends[-1], others.ends[-1]) - min(calls.starts[0], others.starts[0])
    together, either = float((calls & others).total), float(calls.total) * others.total
    return together * float(span) <= _BY_CHANCE * either


def _free_host(queue: Ints, start: Ints, returned: Ints, begin: int) -> tuple[Ints, Mask]:
    """When the host was free for each call, and whether it had waited for queue 0: after more than 1 ms without any.

    Then it takes place a recorded time after the last call of queue 0 that began before.
    """
    free = np.empty_like(start)
    for number in np.unique(queue):
        rows = np.flatnonzero(queue == number)
        free[rows] = np.maximum.accumulate(np.concatenate(([begin], returned[rows][:-1])))
    first = np.flatnonzero(queue == 0)
    before = np.searchsorted(first, np.arange(len(queue))) - 1
    follows = (queue > 0) & (start - free > LAUNCH_GAP_NS) & (before >= 0)
    since = np.maximum.accumulate(returned[first])[before]
    return np.where(follows, since, free), follows


def _ops(view: DeviceView, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls' ops by stream: op, by, stream, start_ns, dur, free (when the stream was), called."""
    indexed = calls.select(launch="id", called="start_ns", by=pl.int_range(pl.len(), dtype=pl.Int64))
    return (
        view.ops.select("id", "launch", "device", "start_ns", "dur_ns", _STREAM)
        .sort("stream", "start_ns", "id")
        .with_columns(free=END_NS.cum_max().shift(1, fill_value=0).over("stream"))
        .join(indexed, on="launch", maintain_order="left")
        .select("by", "device", "stream", "start_ns", "free", "called", op="id", dur="dur_ns")
    )


def _free(ops: pl.DataFrame, arrival: Ints) -> tuple[Ints, Ints]:
    """When each op's stream was free for it, and the `orders` among streams, as far as they show.

    An op that starts just after the newest op that another stream held ended, though its own stream was free and its
    launch had arrived before, had waited for that one. It need not be the newest if the wait was long and the other op
    is of another device, or so long that this is no chance.
    """
    start, by, device, stream, free = (ops[name].to_numpy() for name in ("start_ns", "by", "device", "stream", "free"))
    end = start + ops["dur"].to_numpy()
    order = np.argsort(end, kind="stable")
    last = np.concatenate(([-1], order))[np.searchsorted(end[order], start, side="right")]
    done = np.where(last >= 0, end[last], 0)
    ready = np.maximum(free, arrival)
    late = (done > ready) & (start - done <= np.clip(_NO_CHANCE * (start - ready), _EVENT_NS, _SLOW_EVENT_NS))
    follows = np.minimum(last + 1, len(last) - 1)
    newest = (follows == last) | (stream[follows] != stream[last]) | (by[follows] >= by)
    is_sure = (device[last] != device) | (end[last] - start[last] >= _EVENT_NS / _BY_CHANCE)
    newest |= is_sure & (start - ready > _EVENT_NS)
    waited = late & newest & (stream[last] != stream) & (by[last] < by)
    orders = np.stack((by, stream, stream[last], by[last] + 1), axis=1)[waited]
    return np.where(waited, done, free), orders[np.argsort(orders[:, 0], kind="stable")]


def _pause(between: Ints, queued: Mask) -> Ints:
    """The least time that a stream takes from one op to the next, per op; less where that was seen to do."""
    observed = between[queued & (between >= 0) & (between <= QUEUED_GAP_NS)]
    return np.clip(between, 0, int(np.median(observed)) if len(observed) else _PAUSE_NS)


def _launch_ns(ops: pl.DataFrame) -> int:
    """From a call to its op on a stream that was free; of several devices the least: others may wait for them."""
    latency = pl.col("start_ns") - pl.col("called")
    alone = ops.filter(pl.col("free") < pl.col("called")).group_by("device").agg(ns=latency.median())
    usual = min(map(int, alone["ns"].to_list()), default=_LAUNCH_NS)
    return usual if 0 < usual < SLOW_CALL_NS else _LAUNCH_NS


def _still_running(view: DeviceView, begin: int) -> dict[int, int]:
    """For how long after `begin` each stream is busy with what was called before, recorded or not."""
    ops = view.with_host(view.ops, "launch", called="start_ns")
    first = pl.col("start_ns").filter(pl.col("called") >= begin).min()
    earlier = (pl.col("called") < begin) | (pl.col("called").is_null() & (pl.col("start_ns") < first))
    return dict(ops.filter(earlier, begin < END_NS).group_by(_STREAM).agg(END_NS.max() - begin).rows())


def _waiting(
    view: DeviceView, calls: pl.DataFrame, ops: pl.DataFrame, queue: Ints
) -> tuple[Mask, Ints, Mapping[int, frozenset[int]]]:
    """Which calls wait for the device, what each takes apart from waiting, and the streams that some do not wait for.

    One waited if it returned while or just after the device was busy; what it took after that is its own. A slow launch
    was held up by a full queue: it takes what launches take.
    """
    start, end = bounds(calls)
    length = end - start
    frees = (pl.col("kind") == "allocator") & matches(FREES)
    copies = matches("(?i)memcpy").fill_null(value=False)
    kinds = calls.select(is_sync=(pl.col("kind") == "sync") | frees, is_copy=copies)
    is_sync, is_copy = (column.to_numpy() for column in kinds.get_columns())
    slow = length > SLOW_CALL_NS
    latest = end + np.where(slow & is_copy, _EVENT_NS, 0)  # by the device's clock, its copy may end after the call
    unawaited = _unawaited(calls.with_row_index("by").cast({"by": pl.Int64}).filter(is_sync | (slow & is_copy)), ops)
    last_done = np.zeros_like(end)
    of_op = queue[ops["by"].to_numpy()]
    for number in np.unique(queue):
        streams = set(ops.filter(of_op == number)["stream"])
        of_queue = np.flatnonzero(queue == number).tolist()
        for passed in {frozenset[int](), *unawaited.values()}:
            rows = [call for call in of_queue if unawaited.get(call, frozenset()) == passed]
            every = number == queue.max() == len(passed)
            awaited = view.ops if every else view.ops.filter(_STREAM.is_in(list(streams - passed)))
            ended = np.sort(np.append(0, bounds(awaited)[1]))
            last_done[rows] = ended[np.searchsorted(ended, latest[rows], side="right") - 1]
    own_done = np.zeros_like(end)
    np.maximum.at(own_done, ops["by"].to_numpy(), (ops["start_ns"] + ops["dur"]).to_numpy())
    waited = (last_done > start) & (is_sync | (slow & is_copy & (own_done <= latest)))
    brief = ~slow & ~is_sync & calls["launches"].to_numpy()
    usual = int(np.median(length[brief])) if brief.any() else 0
    queued = slow & ~waited & ~is_sync & (view.busy.within(start, end) > length // 2)
    apart: Ints = np.where(queued, np.minimum(length, usual), length)
    own: Ints = np.where(waited, np.maximum(0, end - np.maximum(last_done, start)), apart)
    return waited, own, unawaited


def _unawaited(waits: pl.DataFrame, ops: pl.DataFrame) -> Mapping[int, frozenset[int]]:
    """By waiting call (index) the streams that it does not wait for: one of its name returned before they were done.

    What they had to do was launched before, and the stream that got the newest op was done: no call returns before
    that, however far apart the clocks are. `.item()` waits like that for one of several devices or streams. None is
    looked for among more streams than a program has.
    """
    if waits.height * ops["stream"].n_unique() > _MOST_PAIRS:
        return {}
    until = (pl.col("start_ns") + pl.col("dur")).cum_max().over("stream")
    launched = ops.sort("by", maintain_order=True).select("by", "stream", until=until)
    newest = launched.unique("by", keep="last", maintain_order=True).select("by", newest="stream", done="until")
    waiting = waits.select("by", "name", returned=END_NS).join_asof(newest, on="by")
    each = waiting.join(launched.select("stream").unique(), how="cross").sort("by")
    each = each.join_asof(launched, on="by", by="stream", allow_exact_matches=False, check_sortedness=False)
    at_work = each.filter(pl.col("until") > pl.max_horizontal("returned", "done") + SLOW_CALL_NS)
    passed = waiting.join(at_work.select("name", "newest", "stream").unique(), on=["name", "newest"])
    return {call: frozenset(streams) for call, streams in passed.group_by("by").agg("stream").rows()}


_FEWEST: Final = 8  # own choice: silences from which it shows what they depend on
_SAME_PLACE: Final = 0.75  # own choice, of the steps: where the longest silence stands
_PASSED_ON: Final = 0.5  # of what the work takes longer, the period does: 1 with a host at work, 0 with one that waits
_ERRORS: Final = 3  # standard errors, for certainty


def _arrivals(
    view: DeviceView, calls: pl.DataFrame, queue: Ints, free: Ints, lasted_ns: int
) -> tuple[str, Ints, Ints, float]:
    """Before which calls of queue 0 (indices) the host may have to wait, and when at the earliest it goes on, in ns.

    First the part of the step in which it waits, empty where nothing like that sets the pace; last the part of
    `lasted_ns`, the steps, that it takes to make what comes, as far as it was counted. `free` is when the host was, for
    each call. Batches of a loader's workers come no faster than the workers load, although they were there in time.
    """
    start = calls["start_ns"].to_numpy()
    late = np.flatnonzero((calls["arrives"] == "late").fill_null(value=False).to_numpy() & (start > free))
    if len(late):
        return "input", late, start[late], 1.0
    if view.device is not None and len(late := _after_silence(view, np.flatnonzero(queue == 0), start, free)):
        return "host_busy", late, start[late], 1.0
    part = view.once(loading_part)
    late = np.flatnonzero(calls["arrives"].is_not_null().to_numpy() & (part > 0))
    since_ns = int(part * lasted_ns / max(1, len(late))) * np.arange(len(late))
    return "", late, np.minimum(start[late], start[late[:1]] + since_ns), part


def loading_part(view: DeviceView) -> float:
    """What a loader's workers or threads take for the batches of the steps, as a part of these; 0: nobody counted."""
    of = view.once(batch)
    if of and of.workers:
        step_ms, period_ms = unprofiled_ms(view), max((of.load_ms + of.send_ms) / of.workers, of.hand_over_ms)
        return min(1.0, period_ms / (of.period_ms if isinstance(step_ms, Missing) else step_ms / of.per_step))
    period_ns, requests = thread_period_ns(view) or view.once(functions_period_ns), view.once(loaded_ahead)
    return min(1.0, period_ns * started_in(requests, view.starts, view.ends).height / view.total_ns)


def _after_silence(view: DeviceView, first: Ints, start: Ints, free: Ints) -> Ints:
    """The calls after the longest silence of each step, if the work before does not move them; else none."""
    start, free, silence = start[first], free[first], (start - free)[first]
    bounds = np.unique(np.searchsorted(start, np.append(view.steps["host_start_ns"].to_numpy(), start[-1:] + 1)))
    longest = [int(silence[a:b].argmax()) for a, b in pairwise(bounds.tolist())]
    usual = int(np.bincount(longest, minlength=1).argmax())
    late = bounds[:-1][np.array(longest, int) == usual] + usual
    idle = view.once(stalls).within(free[late], start[late])
    if len(late) < max(_FEWEST, _SAME_PLACE * len(longest)) or np.median(2 * idle - silence[late]) < 0:
        return first[:0]
    work, period = (free[late][1:] - start[late][:-1]).astype(float), np.diff(start[late]).astype(float)
    if not np.ptp(work):
        return first[:0]
    (slope, _), covariance = np.polyfit(work, period, 1, cov=True)
    return first[late] if slope + _ERRORS * np.sqrt(covariance[0, 0]) < _PASSED_ON else first[:0]
