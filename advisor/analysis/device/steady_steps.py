"""Which steps are like the others: outliers, compilation, first steps and new epochs are left out, with the reason."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from advisor.analysis.device.view import bounds, first_uses, host_bounds, spans, started_in
from advisor.inputs.names.calls import JIT_CALL, NODE, OPTIMIZER_STEP, WORKERS_LOADING
from advisor.inputs.names.engines import PREFILL_ATTENTION, varies
from advisor.model.intervals import Intervals, Ints, Mask, begun
from advisor.model.profile import Profile, matches, rows_where
from advisor.vocabulary.kinds import START_UP
from advisor.vocabulary.limits import THREE_SIGMA, WORKER_JOIN_NS

_RANDOM: Final = r"^aten::rand(?:int|perm|n|_like|$)"  # ops of the program that draw within them
_DRAWS: Final = 2  # of an iterator: a seed for its workers and one for its sampler


class Restarts(NamedTuple):
    """One interval per epoch that begins, if it takes any time."""

    ending: Intervals  # workers end
    starting: Intervals  # the next epoch's start
    waiting: Intervals  # the loop waits for their first batch
    first: Intervals  # those of the first recorded epoch start; empty where they were there before


def restarts(host: pl.DataFrame) -> Restarts:
    """The beginnings of epochs at which the loader starts its processes anew, of one worker's host ops.

    PyTorch's loader shows it in three ways. The request that ends an epoch takes long, because the processes are joined
    in it: where they stay it takes microseconds. The next iterator draws a seed for its processes before it starts
    them, and so between two requests. The next request is to processes again. In between no backward pass runs, as it
    does after a request that brings a batch.
    """
    host = host.select("kind", "name", "start_ns", "dur_ns")
    asks = spans(host.filter(pl.col("kind") == "input"))
    to_workers = spans(host.filter((pl.col("kind") == "input") & matches(WORKERS_LOADING)))
    draws = np.sort(host.filter(matches(r"^aten::random_$"))["start_ns"].to_numpy())
    draws = draws[~spans(host.filter(matches(_RANDOM))).covers(draws)]
    ends, starts = asks.ends[:-1], asks.starts[1:]
    until, before = np.searchsorted(draws, starts), np.searchsorted(draws, ends)
    joins = (ends - asks.starts[:-1] > WORKER_JOIN_NS) & to_workers.covers(asks.starts[:-1])
    trains = begun(host.filter(matches(NODE))["start_ns"], ends, starts) > 0
    at = np.flatnonzero((until > before) & joins & to_workers.covers(starts) & ~trains)
    seeds: Ints = draws[np.maximum(before, until - _DRAWS)[at]]
    earliest = asks.starts[:1][to_workers.covers(asks.starts[:1])]
    first = draws[draws < earliest.max(initial=0)][-_DRAWS:][:1]
    return Restarts(
        Intervals.of(asks.starts[at], asks.ends[at]),
        Intervals.of(seeds, asks.starts[at + 1]),
        Intervals.of(asks.starts[at + 1], asks.ends[at + 1]),
        Intervals.of(first, earliest[: len(first)]),
    )


_LEAST_OUTLIER: Final = 1.1  # times the median: in very even runs three sigmas are a fraction of a per cent
_COOLER: Final = 1.25  # own choice: times the next step, which is no chance in all of three or more
_NEIGHBOURS: Final = 11  # steps, the step itself in their midst
ENOUGH_STEPS: Final = 3
_TWICE: Final = 2
_ENDS: Final = (OPTIMIZER_STEP, r"^c10d::_?(?:all_?reduce|reduce_scatter)")  # of an accumulation of gradients
_MORE_WORK: Final = 1.2  # times the ops of any other step: validation, a rollout; an op or two more are none
_OF_TURNS: Final = {"steps_by_work", "steps_in_mark"}  # notes that the steps are turns of a loop, found by its work
_HALF: Final = 0.5  # of what a step takes longer: so much of new workers, of a queue to fill or first uses made it long
_OTHER_KINDS: Final = ["input", "gc", "compile", "allocator", "sync"]

Why: TypeAlias = tuple[pl.Expr, pl.Expr | int | None]
"""Whether a step is left out for a reason, and the time in ns that the reason speaks of."""


class _Worker(NamedTuple):
    """What was recorded of the worker whose steps these are: its host ops, its device ops, and its facts."""

    host: pl.DataFrame
    ops: pl.DataFrame
    facts: pl.DataFrame

    def spans(self, *kinds: str) -> Intervals:
        """When a host op of one of these kinds is open."""
        return spans(self.host.select("kind", "start_ns", "dur_ns").filter(pl.col("kind").is_in(kinds)))


def steady(steps: pl.DataFrame, profile: Profile) -> pl.DataFrame:
    """Leave out steps with compilation and outliers, unless fewer than three would remain."""
    is_own = pl.col("worker") == steps["worker"][0]
    worker = _Worker(*(rows_where(rows, is_own) for rows in (profile.host_ops, profile.device_ops, profile.workers)))
    compiled = worker.spans("compile").within(*host_bounds(steps)) > 0
    varying = [name for name in steps["name"].drop_nulls().unique() if varies(name)]
    of_name = pl.col("name").is_in(varying).fill_null(value=False)
    # How long attention that reads a prompt takes is up to that. In a training all steps, or none, launch such kernels.
    reads = begun(worker.ops.filter(matches(PREFILL_ATTENTION))["start_ns"], *bounds(steps)) > 0
    comparable = ~(of_name | pl.Series(reads & ~reads.all(), dtype=pl.Boolean))
    steps = steps.with_columns(
        compiled=pl.Series(compiled, dtype=pl.Boolean),
        own_ns=pl.col("dur_ns") - pl.Series(_input_ns(steps, worker), dtype=pl.Int64),
    ).with_columns(usable=pl.col("left_out").is_null() & ~pl.col("compiled") & comparable)
    if _is_warming(steps, worker):
        return steps.drop("compiled", "own_ns", "usable").with_columns(
            left_out=pl.when(pl.int_range(pl.len()) < pl.len() - 1).then(pl.lit("warming"))
        )
    slow = steps.select(_is_slow()).to_series()
    if any(note.code in _OF_TURNS for note in profile.salvaged):
        # Whether a turn runs more kernels than most: a loop around this one does more there, so it is no exception.
        work = worker.ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
        kernels = begun(work["start_ns"], *bounds(steps))
        usual = np.median(kernels[steps["usable"].to_numpy()]) if steps["usable"].any() else 0.0
        slow &= ~pl.Series((kernels > 0) & (kernels >= _MORE_WORK * usual), dtype=pl.Boolean)
    if not (compiled.any() or slow.any()):
        return steps.drop("compiled", "own_ns", "usable")
    recurs = _recurs(steps.with_columns(slow=slow), worker)
    whys = _whys(steps.with_columns(slow=slow & ~recurs), worker)
    return _without(steps.with_columns(recurs=recurs), whys).drop("compiled", "own_ns", "usable")


def _is_slow() -> pl.Expr:
    """Whether a step is far longer than most, for its wait for a batch or without it.

    A batch that comes late is the loader's pace, no exception; only the first one may wait for the loader to start. Nor
    is a step an exception that is as long as most around it: it is of another stretch of the program. Where the next
    one is as much shorter, the mark between them came late: JAX may run a program within its call, or after it.
    """
    usable, first = pl.col("usable"), pl.int_range(pl.len()) == 0
    median, fence = _median_and_fence(pl.col("dur_ns").filter(usable))
    own_median, own_fence = _median_and_fence(pl.col("own_ns").filter(usable))
    is_long = (pl.col("dur_ns") > fence) & (pl.col("dur_ns") >= _LEAST_OUTLIER * median)
    is_own = (pl.col("own_ns") > own_fence) & (pl.col("own_ns") >= _LEAST_OUTLIER * own_median)
    around = pl.col("dur_ns").rolling_median(_NEIGHBOURS, min_samples=1, center=True)
    after = pl.col("dur_ns").shift(-1)
    late = (after * _LEAST_OUTLIER <= median) & (pl.col("dur_ns") + after <= 2 * _LEAST_OUTLIER * median)
    is_long &= ~late.fill_null(value=False)
    return usable & is_long & (pl.col("dur_ns") >= _LEAST_OUTLIER * around) & (is_own | first)


def _is_warming(steps: pl.DataFrame, worker: _Worker) -> bool:
    """Whether all steps are shorter and shorter for equal work of the device: none but the last is usual."""
    took, busy = steps["dur_ns"].to_numpy(), _busy(steps, worker).within(*bounds(steps))
    falls = len(took) >= ENOUGH_STEPS and bool((_COOLER * took[1:] <= took[:-1]).all() and steps["usable"].all())
    return falls and bool(_LEAST_OUTLIER * busy.min() >= busy.max() > 0)


def _recurs(steps: pl.DataFrame, worker: _Worker) -> pl.Series:
    """Whether a slow step does, at regular intervals, what the others do and more: validation, the next rollout.

    So does one that reduces gradients or updates the weights, where the others only add up gradients, and one in which
    an epoch begins with new workers of the loader. That is how the loop is, so such steps count. A step that takes
    longer for the same work does not. One that empties a queue counts, but for the first, where the recorder does.
    """
    slow = steps["slow"].to_numpy()
    later = slow & (np.arange(len(slow)) > 0)
    if empty_queue(later, steps["usable"].to_numpy() & ~slow, steps, worker.host):
        return pl.Series(later)
    if np.count_nonzero(slow) < _TWICE:
        return pl.Series(np.zeros_like(slow))
    # Whether an epoch's new workers are half or more of what a step takes longer than most.
    again = restarts(worker.host)
    anew = (again.ending | again.starting | again.waiting).within(*host_bounds(steps))
    beyond = steps["dur_ns"].to_numpy() - float(np.median(steps["dur_ns"].filter(steps["usable"]).to_numpy()))
    starts_workers = slow & ((anew > 0) & (anew >= _HALF * beyond))
    if _is_regular(slow) and _does_more(slow, steps, worker):
        return pl.Series(slow, dtype=pl.Boolean)
    return pl.Series(starts_workers & _is_regular(starts_workers), dtype=pl.Boolean)


def empty_queue(long: Mask, others: Mask, steps: pl.DataFrame, host: pl.DataFrame) -> bool:
    """Whether the long steps call no more programs and still run the ops, which JAX may queue: others run few."""
    starts, ends = host_bounds(steps)
    calls = begun(host.filter(matches(JIT_CALL))["start_ns"], starts, ends)
    if not 0 < calls[long].max(initial=0) <= calls[others].max(initial=0):
        return False
    ops = host.select("kind", "start_ns", "dur_ns").filter(pl.col("kind") == "op")
    ran, works = begun(ops["start_ns"], starts, ends), spans(ops).within(starts, ends)
    is_pause = works[long].sum() < _HALF * (ends - starts)[long].sum()
    return bool(not is_pause and ran[others].max() < _HALF * ran.mean())


def _is_regular(steps: Mask) -> bool:
    """Whether these steps are two or more, each as far from the next."""
    at = np.flatnonzero(steps)
    return len(at) >= _TWICE and len(np.unique(np.diff(at))) == 1


def _does_more(slow: Mask, steps: pl.DataFrame, worker: _Worker) -> bool:
    """Whether all slow steps run more ops than any other, or only they end an accumulation of gradients."""
    others = steps["usable"].to_numpy() & ~slow
    # How many framework ops begin in each step on the host, or on a device where none was recorded on the host.
    ops = worker.host.select("kind", "start_ns").filter(pl.col("kind") == "op")["start_ns"]
    ran = begun(ops, *host_bounds(steps)) if len(ops) else begun(worker.ops["start_ns"], *bounds(steps))
    usual = ran[others].max(initial=0)
    is_more = usual > 0 and bool((ran[slow] >= _MORE_WORK * usual).all())
    ends = (begun(worker.host.filter(matches(end))["start_ns"], *host_bounds(steps)) for end in _ENDS)
    return is_more or any(ended[slow].all() and not ended[others].any() for ended in ends)


def _whys(steps: pl.DataFrame, worker: _Worker) -> Mapping[str, Why]:
    """The reasons by their codes of LEFT_OUT; the first that holds counts."""
    usable, slow, dur = pl.col("usable"), steps["slow"], pl.col("dur_ns")
    median, _ = _median_and_fence(dur.filter(usable))
    first = slow & (pl.int_range(pl.len()) == 0)
    # Where it ends, the queue may hold more than where it began: the host's lead.
    filling = pl.col("device").is_not_null() & (dur - pl.col("host_dur_ns") >= _HALF * (dur - median))
    is_from_start = worker.facts["work_start_ns"].count() > 0  # the first step is the first of all
    loading_ns = slower_ns = 0
    if slow[0] and steps["device"][0] is None:
        slower_ns = _slower_ops_ns(steps, worker)
    elif slow[0]:  # of another first step nobody asks why
        idle_in_uses = first_uses(worker.host, worker.ops) - _busy(steps, worker)
        loading_ns = (idle_in_uses & spans(steps.head(1))).total
    return {
        "compiled": (pl.col("compiled"), None),
        "queue_filling": (first & filling, None),
        "first_uses": (first & (loading_ns >= _HALF * (dur - median)), loading_ns),
        "first_pass": (first & pl.lit(is_from_start), dur.filter(usable & ~slow).median()),
        "cold_ops": (first & (slower_ns >= _HALF * (dur - median)), slower_ns),
        # of the steps that are used, as everywhere else
        "outlier": (pl.lit(slow), dur.filter(usable & ~slow).median()),
    }


def _without(steps: pl.DataFrame, whys: Mapping[str, Why]) -> pl.DataFrame:
    """The steps with the reasons in `left_out`, unless fewer than three would remain, or two behind a start-up."""
    codes = (pl.when(holds).then(pl.lit(code)) for code, (holds, _) in whys.items())
    judged = steps.with_columns(steady=pl.coalesce("left_out", *codes))
    if judged["steady"].null_count() < ENOUGH_STEPS - (judged["steady"][0] in START_UP):
        return steps
    times = pl.coalesce(pl.when(pl.col("steady") == code).then(ns) for code, (_, ns) in whys.items())
    return judged.with_columns(left_out="steady", left_out_ns=times.cast(pl.Int64)).drop("steady")


def _input_ns(steps: pl.DataFrame, worker: _Worker) -> Ints:
    """Time in each step in which no kernel runs, from when a batch is asked for until one runs after it is there.

    The copy of a late batch and the launch of its first kernel are a wait as well: nothing else is left to run.
    """
    requests, works = worker.spans("input"), _busy(steps, worker, "kernel", "collective")
    following = np.append(works.starts, requests.ends[-1:])[np.searchsorted(works.starts, requests.ends)]
    until = following if works.total else requests.ends
    return (Intervals.of(requests.starts, until) - works).within(*bounds(steps))


def _busy(steps: pl.DataFrame, worker: _Worker, *kinds: str) -> Intervals:
    """When the device of these steps runs ops of these kinds, or any."""
    of_kinds = pl.col("kind").is_in(kinds) if kinds else pl.lit(value=True)
    return spans(worker.ops.filter(pl.col("device").eq_missing(pl.lit(steps["device"][0], pl.Int32)), of_kinds))


def _slower_ops_ns(steps: pl.DataFrame, worker: _Worker) -> int:
    """What a first step without a device takes beyond the next ones up to its first op, and for ops that they run too.

    Caches are cold and the recorder begins its work: the same ops take longer. Where the step runs others, or more of
    them, or waits in a range that has a cause of its own, that is no start-up, and counts for nothing here.
    """
    if steps.height < ENOUGH_STEPS:
        return 0
    starts, ends = host_bounds(steps)
    ops = started_in(worker.host.filter(kind="op").select("name", "start_ns", "dur_ns"), starts, ends)
    times = ops.group_by("name", "window").len()
    most = times.filter(pl.col("window") > 0).group_by("name").agg(usual=pl.max("len"))
    more = times.filter(pl.col("window") == 0).join(most, on="name", how="left")
    usual = pl.col("name").is_in(more.filter(pl.col("len") <= pl.col("usual"))["name"].implode())
    begun = ops.group_by("window").agg(pl.min("start_ns"))
    running = spans(ops.filter(usual)) | Intervals.of(starts[begun["window"]], begun["start_ns"])
    spent = (running - worker.spans(*_OTHER_KINDS) - spans(ops.filter(~usual))).within(starts, ends)
    return max(0, int(spent[0] - np.median(spent[1:])))


def _median_and_fence(lengths: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """The median, and three standard deviations above it, robustly."""
    median = lengths.median()
    return median, median + THREE_SIGMA * (lengths - median).abs().median()


_LEAST_STEPS: Final = 2  # of a length: one alone is an outlier, or the first
_LEAST_GAP: Final = 0.1  # of the shorter steps, as for outliers


def two_lengths(durations_ns: Ints) -> tuple[Ints, Ints]:
    """The shorter and the longer steps, in ascending order; two empty arrays where the steps are of one length.

    The gap between the two is wider than both are by themselves, and a tenth of the longest of the shorter ones.
    """
    ordered = np.sort(durations_ns)
    nothing = ordered[:0], ordered[:0]
    if len(ordered) < 2 * _LEAST_STEPS:
        return nothing
    at = int(np.argmax(np.diff(ordered))) + 1
    short, long = ordered[:at], ordered[at:]
    gap = int(long[0] - short[-1])
    is_wide = gap > max(np.ptp(short) + np.ptp(long), _LEAST_GAP * short[-1])
    return (short, long) if is_wide and min(len(short), len(long)) >= _LEAST_STEPS else nothing
