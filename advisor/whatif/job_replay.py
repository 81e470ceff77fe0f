"""The job's replay: what all ranks did, as operations that wait for each other, run again with something changed.

A profiler records kernels, not dependencies. What collectives wait for and what waits for them is told from the times
(Lumos, MLSys 2025, and Daydream, USENIX ATC 2020, build the same graph from launches and stream events, where a trace
holds them): what a rank does by itself between two points where a collective starts, or where one ends that was waited
for, is one segment.

The method is that of ByteDance's straggler study (Lin et al., OSDI 2025, arXiv 2505.05713): replay the operations of
all ranks on their dependencies, once as recorded (T), once with every operation at the typical duration of its group
(T_ideal). T / T_ideal is the job's slow-down by stragglers. Replaying with one worker, stage or type of operation
changed tells what it has to do with it.

The model. Operations of one rank and queue run in order. An operation starts when all it waits for has ended. The
members of an instance (a collective, or a send with its receive) transfer when the last has arrived and end together,
so the transfer takes as long as the shortest member. Typical is the mean for compute and the median for transfers.
Steps that follow each other are one run, so that a rank which comes late out of one begins the next one late. Runs are
replayed each by itself; the ranks begin them as far apart as they did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.model.intervals import Floats, Intervals, Ints, Mask
from advisor.model.profile import END_NS

SEGMENT: Final = "segment"
ARRIVAL: Final = "arrival"

_EVENT_NS: Final = 10_000  # a kernel that starts so soon after a collective had waited for its end on the device
_LATER: Final = 10  # or by the host: the kernels start after a tenth of the wait, where chance seldom has an end fall
_HALF: Final = 0.5
_QUEUED_NS: Final = 10_000  # a collective that starts so soon after the one before it on its stream was queued
_NEVER: Final = 1 << 62  # later than any time
_COLUMNS: Final = ["rank", "step", "run", "type", "kind", "start_ns", "dur_ns", "instance", "group"]
_BEGIN, _END_OF, _START_OF, _END = range(4)  # what cuts a step, in the order of cuts at one instant


def replayed(job: Job) -> JobReplay | None:
    """The examined steps, run again; ranks by their place in the job. None where that cannot be."""
    offsets = {i: int(job.offsets_ns[i]) for i in job.members}
    if job.missing and job.steps:  # nothing joins their clocks: they begin together
        first = pl.col("start_ns").filter(pl.col("step") == job.steps[0]).min()
        offsets = {i: int(job.ranks[i].steps.select(first).item()) for i in job.members}
    busy = {i: job.ranks[i].work.shifted(-offset) for i, offset in offsets.items()}
    of_ranks = [
        job.ranks[i].steps.select(
            rank=pl.lit(i, pl.Int64),
            step=pl.col("step").cast(pl.Int64),
            start_ns=pl.col("start_ns") - offset,
            end_ns=END_NS - offset,
        )
        for i, offset in offsets.items()
    ]
    windows = pl.concat(of_ranks).filter(pl.col("step").is_in(job.examined))
    calls = job.calls.filter(pl.col("step").is_in(job.examined)).select(
        "rank",
        pl.col("step").cast(pl.Int64),
        "start_ns",
        "end_ns",
        instance=pl.when("trusted").then("instance"),
        type=pl.col("op").fill_null("collective"),
        stream=pl.col("stream").fill_null(0),
    )
    return replay(*operations(busy, windows, calls))


def operations(
    busy: Mapping[int, Intervals], steps: pl.DataFrame, collectives: pl.DataFrame
) -> tuple[pl.DataFrame, Ints, Ints]:
    """Operations of the given steps, and which rows wait for which, as `replay` takes them.

    `busy` says by rank when kernels other than collectives ran. `steps` has one row per rank and step: rank, step,
    start_ns, end_ns. `collectives` has one row per rank and collective: rank, step, start_ns, end_ns, instance, type,
    stream; `instance` as in `replay`. Those of other steps are left out. One clock per rank.

    Per rank, segments run in order; time in which the device waited for a collective belongs to none. A collective
    waits for the segment that ends where it starts, or only for the one before it on its stream if it starts right
    after that; what it took beyond to start is of type `ARRIVAL`. A segment waits for a collective if kernels started
    right after its end on an idle device, in at least half of the steps and ranks that have such a collective.
    So replayed unchanged, all starts as recorded. Segments are alike (`group`) if the same cut precedes them: the
    n-th collective of a type, on ranks and steps with the same number of each.
    """
    # All ranks one after the other on one axis of time, so that one search serves them all.
    ends = [(union.starts, union.ends) for union in busy.values()]
    ends += [(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()) for frame in (steps, collectives)]
    known = np.concatenate([np.concatenate(both) for both in ends])
    origin, span = (int(known.min()), int(np.ptp(known)) + 1) if len(known) else (0, 1)
    shifted = [union.shifted(rank * span - origin) for rank, union in busy.items()]
    ran = Intervals.of(*(np.concatenate([getattr(union, end) for union in shifted]) for end in ("starts", "ends")))
    placed = pl.col("start_ns", "end_ns") + pl.col("rank") * span - origin
    windows = _windows(steps.with_columns(placed), collectives)
    calls = _collectives(windows, collectives.with_columns(placed), ran)
    cuts = _cuts(windows, calls)
    segments = cuts.with_columns(start_ns="at", dur_ns="own", type=pl.lit(SEGMENT), kind=pl.lit("compute"))
    ops = [_begins(windows, span), segments, *_transfers(calls, cuts)]
    columns = pl.concat(ops, how="diagonal_relaxed").select(_COLUMNS)
    return columns.with_columns(pl.col("start_ns") - pl.col("rank") * span + origin), *_waits(cuts, calls, len(ops[0]))


def _waits(cuts: pl.DataFrame, calls: pl.DataFrame, begins: int) -> tuple[Ints, Ints]:
    """Rows that wait, and the rows that they wait for: begins come first, then segments, arrivals, transfers."""
    segment, call = begins + np.arange(len(cuts)), np.arange(len(calls))
    arrival, transfer = begins + len(cuts) + call, begins + len(cuts) + len(calls) + call
    is_first = cuts.select(pl.struct("rank", "run").rle_id().diff().fill_null(1) > 0).to_series().to_numpy()
    start, end = (
        segment[cuts.with_row_index().filter(pl.col("what") == what).sort("call")["index"]]
        for what in (_START_OF, _END_OF)
    )
    queued, waited = calls["queued"].to_numpy(), calls["waited"].to_numpy()
    earlier = calls.select(pl.col("call").shift(1).over("rank", "run", "stream")).to_series()
    follows = earlier.is_not_null().to_numpy()
    edges = [
        (segment, np.where(is_first, np.cumsum(is_first) - 1, segment - 1)),
        (end, transfer[waited]),
        (arrival[~queued], start[~queued] - 1),
        (arrival[follows], transfer[earlier.drop_nulls()]),
        (transfer, arrival),
    ]
    after, before = (np.concatenate(rows) for rows in zip(*edges, strict=True))
    return after, before


def _number(*columns: str) -> pl.Expr:
    """One number for what is equal in all of these columns of small numbers."""
    return reduce(lambda known, new: known * (new.max() + 1) + new, (pl.col(name).cast(pl.Int64) for name in columns))


def _windows(steps: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """The steps by rank, with `window` (row), `run` and `alike`: the same for those with the same number of each type.

    Steps that begin on every rank where the one before ends are one run.
    """
    steps = steps.sort("rank", "step").with_columns(
        follows=(pl.col("start_ns") == pl.col("end_ns").shift(1)).over("rank").fill_null(value=False)
    )
    follows = steps.group_by("step").agg(pl.col("follows").all()).sort("step")
    runs = follows.select("step", run=(~pl.col("follows")).cum_sum().cast(pl.Int64))
    types = collectives.group_by("rank", "step").agg(types=pl.col("type").cast(pl.String).sort().str.join("\n"))
    return (
        steps.select("rank", "step", begin_ns="start_ns", until_ns="end_ns")
        .join(types, on=["rank", "step"], how="left")
        .with_columns(alike=pl.col("types").fill_null("").rank("dense"))
        .drop("types")
        .join(runs, on="step")
        .sort("rank", "step")
        .with_row_index("window")
    )


def _collectives(windows: pl.DataFrame, collectives: pl.DataFrame, ran: Intervals) -> pl.DataFrame:
    """Collectives of the steps, from their window's begin at the earliest, by window and start.

    With `place`, for the type and its number; `since`, the time since the one before on its stream ended; whether it
    was `queued` behind that; whether a segment `waited` for it, and since when the device was idle (`idle_ns`).
    """
    calls = (
        collectives.join(windows, on=["rank", "step"])
        .with_columns(pl.col("start_ns").clip("begin_ns", "until_ns"))
        .with_columns(pl.max_horizontal("start_ns", "end_ns").alias("end_ns"))
        .sort("window", "start_ns", "end_ns", "stream")
        .with_columns(number=pl.int_range(pl.len()).over("window", "type"), code=pl.col("type").rank("dense"))
        .with_columns(
            place=_number("number", "code"),
            since=pl.col("start_ns") - pl.col("end_ns").shift(1).over("window", "stream"),
        )
        .with_columns(queued=(pl.col("since") <= _QUEUED_NS).fill_null(value=False))
    )
    end = calls["end_ns"].to_numpy()
    following = np.searchsorted(ran.starts, end)
    since, resumed = np.append(-_NEVER, ran.ends)[following], np.append(ran.starts, _NEVER)[following]
    calls = calls.with_columns(
        idle_ns=pl.max_horizontal("begin_ns", pl.Series(since)),
        later=pl.min_horizontal("until_ns", pl.Series(resumed)) - pl.col("end_ns"),
    )
    idle, later = pl.col("end_ns") - pl.col("idle_ns"), pl.col("later")
    soon = ((later <= _EVENT_NS) & (2 * later <= idle)) | (_LATER * later <= idle)
    within = pl.col("end_ns") <= pl.col("until_ns")
    usual = (soon & (idle > 0) & within).mean().over("alike", "place") >= _HALF
    return calls.with_columns(waited=usual & within).with_row_index("call")


def _cuts(windows: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What cuts the steps, by window and time (`at`), with how much of the segment from there the rank did by itself.

    Columns: window, rank, step, run, at, what, call, group, own; `started`, what a collective that starts
    here took since the segment was done.
    """
    parts = [
        (windows, "begin_ns", _BEGIN, pl.lit(0)),
        (calls.filter("waited"), "end_ns", _END_OF, pl.col("place")),
        (calls, "start_ns", _START_OF, pl.col("place")),
        (windows, "until_ns", _END, pl.lit(0)),
    ]
    cuts = pl.concat(
        frame.select(
            *("window", "rank", "step", "run", "alike"),
            at=time,
            what=pl.lit(what),
            place=place.cast(pl.Int64),
            call="call" if "call" in frame.columns else pl.lit(None, pl.UInt32),
        )
        for frame, time, what, place in parts
    ).sort("window", "at", "what", "call")
    awaited = calls.filter("waited")
    waiting = Intervals.of(awaited["idle_ns"], awaited["end_ns"])
    start = cuts["at"].to_numpy()
    waits = waiting.within(start, np.append(start[1:], start[-1:]))
    until_next = pl.col("at").shift(-1) - pl.col("at")
    in_step = pl.col("what") != _END
    return cuts.with_columns(
        group=_number("alike", "what", "place"),
        waits=pl.when(in_step).then(pl.Series(waits)).otherwise(0),
        stretch=pl.col("what").is_in([_BEGIN, _END_OF]).cum_sum(),  # of which the device waits only for the end
    ).with_columns(
        own=pl.when(in_step).then(until_next - pl.col("waits")).otherwise(0),
        started=pl.col("waits").cum_sum().shift(1, fill_value=0).over("stretch"),
    )


def _begins(windows: pl.DataFrame, span: int) -> pl.DataFrame:
    begins = windows.unique(["rank", "run"], keep="first", maintain_order=True)
    clock = pl.col("begin_ns") - pl.col("rank") * span
    return begins.with_columns(
        start_ns=clock.min().over("run") + pl.col("rank") * span,
        dur_ns=clock - clock.min().over("run"),
        type=pl.lit(START),
        kind=pl.lit("compute"),
        group=pl.lit(0),
    )


def _transfers(calls: pl.DataFrame, cuts: pl.DataFrame) -> list[pl.DataFrame]:
    """What the collectives took beyond to start, and they themselves."""
    started = cuts.filter(pl.col("what") == _START_OF).sort("call")["started"]
    took = pl.when("queued").then("since").otherwise(pl.min_horizontal(pl.Series(started), "since"))
    calls = calls.with_columns(took=took.clip(lower_bound=0), group=_number("alike", "place"))
    arrivals = calls.drop("instance").with_columns(
        pl.col("start_ns") - pl.col("took"), dur_ns="took", type=pl.lit(ARRIVAL), kind=pl.lit("compute")
    )
    transfers = calls.with_columns(
        pl.col("type").cast(pl.String), dur_ns=pl.col("end_ns") - pl.col("start_ns"), kind=pl.lit("collective")
    )
    return [arrivals, transfers]


START: Final = "start"  # type of the operation that stands for how much later than the first a rank begins the step
_LEAST_SHARE: Final = 0.001  # of the step; a smaller slow-down is not worth explaining
_ALIKE: Final = ["kind", "type", "group"]  # operations that would take as long as each other if nothing straggled


@dataclass(frozen=True)
class JobReplay:
    """The operations of a job's steps, and who waits for whom; see `replay`."""

    ops: pl.DataFrame  # the operations, and one more of type `START` per rank and step, which come first
    own: Ints  # of each, its duration without waiting, in ns
    typical: Ints  # that of those like it
    begins: int  # operations of type `START`
    waves: Sequence[Wave]  # in each, operations that wait for those in the waves before
    recorded_ms: Floats  # of each run of `steps` steps in all: from the first rank's begin to the last one's end
    steps: int

    @cached_property
    def runs_ms(self) -> Floats:
        """Replayed time of each run: the longest path through its operations."""
        end = self.own.copy()
        for wave in self.waves:
            end[wave.ops] += np.maximum.reduceat(end[wave.before], wave.first)[wave.unit]
        run = self.ops["run"].to_numpy()
        begun, ended = np.full(len(self.recorded_ms), end.max(initial=0)), np.zeros(len(self.recorded_ms), np.int64)
        np.minimum.at(begun, run[: self.begins], end[: self.begins])
        np.maximum.at(ended, run, end)
        times: Floats = (ended - begun) / 1e6
        return times

    @cached_property
    def is_own(self) -> Mask:
        """Whether it is what a rank does by itself within its step."""
        return self.of("kind", "compute") & ~self.of("type", START)

    @cached_property
    def alone_ms(self) -> Floats:
        """By rank, the time of that in the mean step."""
        times: Floats = np.bincount(self.ops["rank"].to_numpy(), self.own * self.is_own) / 1e6 / self.steps
        return times

    @property
    def step_ms(self) -> float:
        """Mean step time of the replay; with nothing changed it is close to the recorded one."""
        return float(self.runs_ms.sum()) / self.steps

    @cached_property
    def ideal(self) -> JobReplay:
        """With every operation at its typical duration."""
        return self.with_typical(np.ones(len(self.own), bool))

    @property
    def error(self) -> float:
        """How far the replayed mean step time is from the recorded one; ByteDance leaves out jobs with over 5 %."""
        return float(self.runs_ms.sum() / self.recorded_ms.sum()) - 1

    @property
    def slowdown(self) -> float:
        """Mean step time over the ideal one: S in equation 1 of the study."""
        return self.step_ms / self.ideal.step_ms

    def of(self, column: str, value: object) -> Mask:
        """Which operations have this value."""
        return (self.ops[column] == value).fill_null(value=False).to_numpy()

    def with_typical(self, chosen: Mask) -> JobReplay:
        """With these operations as long as those like them typically are."""
        return replace(self, own=np.where(chosen, self.typical, self.own))

    def explained(self, chosen: Mask) -> float | None:
        """The part of the slow-down that these operations explain: equation 5 of the study; None without any.

        That is (T - T with only these typical) / (T - T_ideal). Two ranks that are equally late explain nothing each.
        """
        slower_ms = self.step_ms - self.ideal.step_ms
        is_slow = slower_ms > _LEAST_SHARE * self.step_ms
        return (self.step_ms - self.with_typical(chosen).step_ms) / slower_ms if is_slow else None

    def like_others(self, rank: int) -> JobReplay:
        """With a rank's operations as long as those like them are on the typical other rank: the lower median.

        It begins its steps when it did.
        """
        ops = self.ops.with_columns(took=pl.Series(self.own))
        others = ops.filter(pl.col("rank") != rank).group_by("rank", *_ALIKE).agg(pl.mean("took"))
        others = others.group_by(_ALIKE).agg(usual=pl.col("took").quantile(0.5, "lower"))
        usual = ops.join(others, on=_ALIKE, how="left", maintain_order="left")["usual"].round().cast(pl.Int64)
        changed = usual.fill_null(pl.Series(self.typical)).to_numpy()
        return replace(self, own=np.where(self.of("rank", rank) & ~self.of("type", START), changed, self.own))

    def scaled(self, chosen: Mask, rest: float | Floats) -> JobReplay:
        """With a part of the time of some operations."""
        part = np.where(chosen, rest, 1.0)
        own, typical = (np.rint(part * times).astype(np.int64) for times in (self.own, self.typical))
        return replace(self, own=own, typical=typical)


class Wave(NamedTuple):
    """Units that run when those in earlier waves have, an operation or an instance each; arrays of indices."""

    ops: Ints  # by unit
    before: Ints  # what they wait for, by the unit that waits
    first: Ints  # where each unit begins in `before`
    unit: Ints  # of each operation, within the wave


def replay(ops: pl.DataFrame, after: Ints, before: Ints) -> JobReplay | None:
    """The steps of a job, ready to be run again; None where that cannot be.

    That is, where there are none, a run takes no time, or operations wait for each other in a ring.

    `ops` has one row per operation, those of type `START` first, one per rank and run:
        rank; step; run: that of steps that follow each other
        type: as "backward" or "all_reduce"
        kind: compute, collective or p2p
        start_ns, dur_ns: as recorded, waiting included, on one clock
        instance: id, within the step, of the collective or of the send and its receive; null for compute, and where
            what it waits for is not known: then the whole duration counts as transfer
        group: operations of one type and group would take as long as each other if nothing straggled
        and any column that tells ranks or operations apart, for `JobReplay.of`.
    Each row of `after` waits for the row of `before` that is in the same place; all but the first rows wait for one.
    """
    if ops.is_empty():
        return None
    together, instance = pl.col("instance").is_not_null(), ["step", "instance"]
    transfer = pl.col("transfer_ns")
    usual = pl.when(pl.col("kind") == "compute").then(transfer.mean()).otherwise(transfer.median())
    rows = (
        ops.with_columns(pl.col("type", "kind").cast(pl.Categorical), run=pl.col("run").rank("dense").cast(int) - 1)
        .with_columns(pl.col("dur_ns").clip(lower_bound=0), unit=pl.int_range(pl.len(), dtype=pl.Int64))
        .with_columns(
            unit=pl.when(together).then(pl.col("unit").first().over(instance)).otherwise("unit"),
            transfer_ns=pl.when(together).then(pl.col("dur_ns").min().over(instance)).otherwise("dur_ns"),
        )
        .with_columns(typical_ns=usual.round().cast(pl.Int64).over(_ALIKE))
    )
    waves = _waves(rows["unit"].to_numpy(), after, before)
    if waves is None:
        return None
    took = ops.group_by("run").agg(ns=END_NS.max() - pl.col("start_ns").min()).sort("run")["ns"]
    job = JobReplay(
        rows.drop("unit", "transfer_ns", "typical_ns"),
        rows["transfer_ns"].to_numpy(),
        rows["typical_ns"].to_numpy(),
        int((ops["type"] == START).sum()),
        waves,
        took.to_numpy() / 1e6,
        ops["step"].n_unique(),
    )
    return job if job.runs_ms.all() and job.ideal.runs_ms.all() else None


def _waves(unit: Ints, after: Ints, before: Ints) -> list[Wave] | None:
    """Each unit in the wave after that of the latest it waits for; None where some wait in a ring.

    `unit` is that of each row. The rows of the first wave wait for nothing; it is left out.
    """
    wave = _depths(len(unit), unit[before], unit[after])
    if wave is None:
        return None
    ops, edges = np.lexsort((unit, wave[unit])), np.lexsort((unit[after], wave[unit[after]]))
    waiting = unit[after[edges]]
    nth, numbers = np.cumsum(np.diff(unit[ops], prepend=-1) != 0), np.arange(1, wave.max() + 2)
    firsts = np.flatnonzero(np.diff(waiting, prepend=-1))
    cuts = (np.searchsorted(sorted_, numbers) for sorted_ in (wave[unit[ops]], wave[waiting], wave[waiting[firsts]]))
    bounds = zip(*(pairwise(cut.tolist()) for cut in cuts), strict=True)
    return [Wave(ops[a:b], before[edges[c:d]], firsts[e:f] - c, nth[a:b] - nth[a]) for (a, b), (c, d), (e, f) in bounds]


def _depths(units: int, before: Ints, after: Ints) -> Ints | None:
    """By unit, one more than the depth of the deepest that it waits for; None where some wait in a ring."""
    order = np.argsort(before, kind="stable")
    targets, first = after[order], np.searchsorted(before[order], np.arange(units + 1))
    missing = np.bincount(after, minlength=units)
    depth = np.full(units, -1)
    front, number = np.flatnonzero(missing == 0), 0
    while len(front):
        depth[front] = number
        count = first[front + 1] - first[front]
        reached = targets[np.repeat(first[front] - np.cumsum(count) + count, count) + np.arange(count.sum())]
        np.subtract.at(missing, reached, 1)
        front = np.unique(reached)
        front, number = front[missing[front] == 0], number + 1
    return depth if (depth >= 0).all() else None
