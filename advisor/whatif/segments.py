"""What the ranks of a profiled job did, as operations that wait for each other: the input of `job_replay.replay`.

A profiler records kernels, not dependencies. What collectives wait for and what waits for them is told from the times
(Lumos, MLSys 2025, and Daydream, USENIX ATC 2020, build the same graph from launches and stream events, where a trace
holds them): kernels between two points where a collective starts, or where one ends that was waited for, are one
segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS
from advisor.whatif import job_replay

COMPUTE: Final = "compute"
HOST: Final = "host"

_EVENT_NS: Final = 10_000  # a kernel that starts so soon after a collective had waited for its end on the device
_LATER: Final = 10  # or by the host: the kernels start after a tenth of the wait, where chance seldom has an end fall
_HALF: Final = 0.5
_QUEUED_NS: Final = 10_000  # a collective that starts so soon after the one before it on its stream was queued
_NEVER: Final = 1 << 62  # later than any time on the axis
_COLUMNS: Final = ["op", "rank", "step", "queue", "type", "kind", "start_ns", "dur_ns", "instance", "group"]
_BEGIN, _END_OF, _START_OF, _END = range(4)  # what cuts a step, in the order of cuts at one instant


def replayed(job: Job) -> job_replay.JobReplay | None:
    """The examined steps, run again; ranks by their place in the job. None where that cannot be."""
    offsets = {i: int(job.offsets_ns[i]) for i in job.members}
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
    ops, edges = operations(busy, windows, calls)
    return job_replay.replay(ops.join(_runs(windows), on="step", maintain_order="left"), edges)


def _runs(windows: pl.DataFrame) -> pl.DataFrame:
    """The run of each step: those that begin on every rank where the one before ends are one."""
    by_rank = windows.sort("rank", "step").with_columns(
        follows=(pl.col("start_ns") == pl.col("end_ns").shift(1)).over("rank").fill_null(value=False)
    )
    steps = by_rank.group_by("step").agg(pl.col("follows").all()).sort("step")
    return steps.select("step", run=(~pl.col("follows")).cum_sum().cast(pl.Int64))


def operations(
    busy: Mapping[int, Intervals], steps: pl.DataFrame, collectives: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operations and edges of the given steps, as `job_replay.replay` takes them.

    `busy` says by rank when kernels other than collectives ran. `steps` has one row per rank and step: rank, step,
    start_ns, end_ns. `collectives` has one row per rank and collective: rank, step, start_ns, end_ns, instance, type,
    stream; `instance` as in `job_replay.replay`. Those of other steps are left out. One clock per rank.

    Per rank, segments run in order: of each the idle time (type `HOST`, its host was not there with work) and then the
    kernels (type `COMPUTE`). Idle time in which the device waited for a collective belongs to neither. A collective
    waits for the segment that ends where it starts, or only for the one before it on its stream if it starts right
    after that; what it took beyond to start is of type `HOST`. A segment waits for a collective if kernels started
    right after its end on an idle device, in at least half of the steps and ranks that have such a collective.
    So replayed unchanged, all starts as recorded. Segments are alike (`group`) if the same cut precedes them: the
    n-th collective of a type, on ranks and steps with the same number of each. A rank on which a collective was queued
    is cut where it would have been ready by what the other ranks and steps show, so that like is compared with like.
    """
    windows = _windows(steps, collectives)
    ran = _collectives(windows, collectives)
    axis = _Axis.of(busy, windows, ran)
    ran = ran.with_columns(_waits(axis, ran))
    cuts, cut_of_start, cut_of_end = _cuts(axis, windows, ran)
    sure = np.ones(len(cuts), bool)
    sure[cut_of_start] = ~ran["queued"].to_numpy()
    awaited = ran.filter("waited")
    waiting = Intervals.of(awaited["idle_from"].to_numpy(), axis.place(awaited, "end_ns"))
    first = 2 * len(cuts)
    ops = pl.concat(
        [_segments(axis, cuts.with_columns(pl.Series("sure", sure)), waiting), _transfers(axis, ran, waiting, first)],
        how="diagonal",
    )
    waited, queued = ran["waited"].to_numpy(), ran["queued"].to_numpy()
    edges = pl.DataFrame(
        {
            "op": np.concatenate((first + 2 * np.flatnonzero(~queued), 2 * cut_of_end)),
            "after": np.concatenate((2 * cut_of_start[~queued] - 1, first + 2 * np.flatnonzero(waited) + 1)),
        }
    )
    return ops.select(_COLUMNS), edges


def _text(form: str, *columns: pl.Expr | str) -> pl.Expr:
    """A text of few values on millions of rows."""
    return pl.format(form, *columns).cast(pl.Categorical)


@dataclass(frozen=True, slots=True)
class _Axis:
    """All ranks one after the other on one axis of time, so that one search serves them all."""

    ranks: Ints  # sorted
    origin: int
    span: int
    busy: Intervals

    @classmethod
    def of(cls, busy: Mapping[int, Intervals], windows: pl.DataFrame, ran: pl.DataFrame) -> _Axis:
        ranks = windows["rank"].unique().sort().to_numpy()
        unions = {rank: busy.get(rank, EMPTY) for rank in ranks.tolist()}
        bounds = [time for union in unions.values() for time in (*union.starts[:1], *union.ends[-1:])]
        ends = [frame[name].to_numpy() for frame in (windows, ran) for name in ("start_ns", "end_ns")]
        times = np.concatenate([np.array(bounds, np.int64), *ends])
        origin = int(times.min()) if len(times) else 0
        span = int(times.max()) - origin + 1 if len(times) else 1
        shifts = {rank: at * span - origin for at, rank in enumerate(ranks.tolist())}
        ran_from = np.concatenate([EMPTY.starts, *(union.starts + shifts[rank] for rank, union in unions.items())])
        ran_until = np.concatenate([EMPTY.ends, *(union.ends + shifts[rank] for rank, union in unions.items())])
        return cls(ranks, origin, span, Intervals.of(ran_from, ran_until))

    def place(self, frame: pl.DataFrame, name: str) -> Ints:
        """The times of a column, on the axis."""
        return frame[name].to_numpy() + self._shift(frame)

    def clock(self, frame: pl.DataFrame, name: str) -> pl.Series:
        """The times of a column on the axis, on the clock of their rank."""
        return frame[name] - self._shift(frame)

    def _shift(self, frame: pl.DataFrame) -> Ints:
        shift: Ints = np.searchsorted(self.ranks, frame["rank"].to_numpy()) * self.span - self.origin
        return shift

    def idle_around(self, times: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """From when to when the device idles around each of the times; from after the time where it is busy."""
        after = np.searchsorted(self.busy.starts, times, side="left")
        starts = np.append(self.busy.starts, _NEVER)
        ends = np.append(-_NEVER, self.busy.ends)
        return np.maximum(begin, ends[after]), np.minimum(end, starts[after])


def _windows(steps: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """The steps by rank, with `window` (row) and `alike`: the same for those with the same number of each type."""
    types = collectives.group_by("rank", "step").agg(types=pl.col("type").cast(pl.String).sort().str.join("\n"))
    return (
        steps.select("rank", "step", "start_ns", "end_ns")
        .join(types, on=["rank", "step"], how="left")
        .with_columns(alike=pl.col("types").fill_null("").rank("dense"))
        .drop("types")
        .sort("rank", "step")
        .with_row_index("window")
    )


def _collectives(windows: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Collectives of the steps, from their window's begin at the earliest.

    With `place`, the type and its number; `since`, the time since the one before on its stream ended; and whether it
    was `queued` behind that.
    """
    of_window = windows.rename({"start_ns": "begin_ns", "end_ns": "until_ns"})
    nth = pl.int_range(pl.len()).over("window", "type")
    before = pl.col("end_ns").shift(1).over("window", "stream")
    return (
        collectives.with_columns(pl.col("type").cast(pl.Categorical))
        .join(of_window, on=["rank", "step"])
        .with_columns(pl.col("start_ns").clip("begin_ns", "until_ns"))
        .with_columns(pl.max_horizontal("start_ns", "end_ns").alias("end_ns"))
        .sort("window", "start_ns", "end_ns", "stream")
        .with_columns(place=_text("{} {}", "type", nth), since=pl.col("start_ns") - before)
        .with_columns(queued=(pl.col("since") <= _QUEUED_NS).fill_null(value=False))
    )


def _waits(axis: _Axis, ran: pl.DataFrame) -> list[pl.Series]:
    """Whether a segment waits for the collective, and since when (on the axis) the device was idle when it ended."""
    begin, until, end = (axis.place(ran, name) for name in ("begin_ns", "until_ns", "end_ns"))
    idle_from, idle_until = axis.idle_around(end, begin, until)
    idle, later = end - idle_from, idle_until - end
    soon = ((later <= _EVENT_NS) & (2 * later <= idle)) | (_LATER * later <= idle)
    within = end <= until
    resumes = ran.select("alike", "place", resumes=soon & (idle > 0) & within)
    usual = resumes.select(pl.col("resumes").mean().over("alike", "place")).to_series().to_numpy() >= _HALF
    return [pl.Series("waited", usual & within, pl.Boolean), pl.Series("idle_from", idle_from)]


def _cuts(axis: _Axis, windows: pl.DataFrame, ran: pl.DataFrame) -> tuple[pl.DataFrame, Ints, Ints]:
    """What cuts the steps, in order: rank, step, at (axis), what, group; the rows of starts and of waited ends."""
    ends = ran.filter("waited")
    parts = [
        (windows, "start_ns", _BEGIN, pl.lit("")),
        (ends, "end_ns", _END_OF, pl.col("place")),
        (ran, "start_ns", _START_OF, pl.col("place")),
        (windows, "end_ns", _END, pl.lit("")),
    ]
    cuts = pl.concat(
        frame.select(
            "window",
            "rank",
            "step",
            at=pl.Series(axis.place(frame, name)),
            what=pl.lit(what),
            group=_text("{} {} {}", "alike", pl.lit(what), place),
            row=pl.int_range(pl.len()),
        )
        for frame, name, what, place in parts
    ).sort("window", "at", "what", "row")
    cut_of_start = np.empty(len(ran), np.int64)
    cut_of_end = np.empty(len(ends), np.int64)
    for what, rows in ((_START_OF, cut_of_start), (_END_OF, cut_of_end)):
        at = np.flatnonzero((cuts["what"] == what).to_numpy())
        rows[cuts["row"].to_numpy()[at]] = at
    return cuts, cut_of_start, cut_of_end


def _segments(axis: _Axis, cuts: pl.DataFrame, waiting: Intervals) -> pl.DataFrame:
    """The host's and the kernels' part of the segment after each cut: op 2n and 2n + 1 for the n-th cut."""
    start = cuts["at"].to_numpy()
    end = np.append(start[1:], 0)
    kernels = axis.busy.within(start, end)
    idle = end - start - kernels - waiting.within(start, end)
    segments = cuts.with_columns(
        pl.Series("start_ns", axis.clock(cuts, "at")),
        pl.Series("kernels", kernels),
        pl.Series("idle", idle),
        op=2 * pl.int_range(pl.len(), dtype=pl.Int64),
    )
    segments = _earliest(segments.filter(pl.col("what") != _END))
    host = segments.with_columns(type=_text(HOST), dur_ns="idle")
    compute = segments.with_columns(
        pl.col("start_ns") + pl.col("idle"), pl.col("op") + 1, type=_text(COMPUTE), dur_ns="kernels"
    )
    return pl.concat([host, compute]).with_columns(queue=_text(COMPUTE), kind=_text("compute"))


def _earliest(cuts: pl.DataFrame) -> pl.DataFrame:
    """The segments, cut where collectives that were queued would have started had they not been.

    That was when the least part of the step's kernels (and idle time) was over that was in any rank and step; and not
    before the cut before it. Between the cuts that are sure, kernels and idle time stay what they are together.
    """
    parts = ("kernels", "idle")
    over = [pl.col(name).cum_sum().shift(fill_value=0).over("window").alias(f"{name}_over") for name in parts]
    all_of = [pl.col(name).sum().over("window").alias(f"{name}_all") for name in parts]
    return (
        cuts.with_columns(*over, *all_of)
        .with_columns(_least(name).alias(f"{name}_least") for name in parts)
        .with_columns(_moved(name).cum_max().over("window").alias(f"{name}_over") for name in parts)
        .with_columns(_until_next(name).alias(name) for name in parts)
        .with_columns(start_ns=pl.when("sure").then("start_ns"))
        .with_columns(done=pl.sum_horizontal("kernels_over", "idle_over"))
        .with_columns(pl.col("start_ns").forward_fill() + pl.col("done") - pl.when("sure").then("done").forward_fill())
    )


def _least(name: str) -> pl.Expr:
    """The least share of the step's that was over at cuts of this group."""
    share = pl.when(pl.col(f"{name}_all") > 0).then(pl.col(f"{name}_over") / pl.col(f"{name}_all"))
    return share.min().over("group").fill_null(0)


def _moved(name: str) -> pl.Expr:
    least = (pl.col(f"{name}_least") * pl.col(f"{name}_all")).floor().cast(pl.Int64)
    return pl.when("sure").then(f"{name}_over").otherwise(least)


def _until_next(name: str) -> pl.Expr:
    following = pl.col(f"{name}_over").shift(-1).over("window")
    return pl.coalesce(following, f"{name}_all") - pl.col(f"{name}_over")


def _transfers(axis: _Axis, ran: pl.DataFrame, waiting: Intervals, first: int) -> pl.DataFrame:
    """The collectives, each after what it took beyond to start: op first + 2n and first + 2n + 1 for the n-th."""
    start, ends = axis.place(ran, "start_ns"), axis.place(ran.filter("waited"), "end_ns")
    ready = np.where(ran["queued"].to_numpy(), -_NEVER, _segment_end(start, waiting, ends))
    since = ran["since"].fill_null(_NEVER).to_numpy()
    took = np.maximum(0, np.minimum(start - ready, since))
    calls = ran.with_columns(
        pl.Series("took", took),
        op=first + 2 * pl.int_range(pl.len(), dtype=pl.Int64),
        queue=_text("stream {}", "stream"),
    )
    host = calls.with_columns(
        pl.col("start_ns") - pl.col("took"),
        type=_text(HOST),
        kind=_text("compute"),
        dur_ns="took",
        group=_text("{} launch of {}", "alike", "place"),
        instance=pl.lit(None, ran["instance"].dtype),
    )
    transfer = calls.with_columns(
        pl.col("op") + 1,
        kind=_text("collective"),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        group=_text("{} {}", "alike", "place"),
    )
    return pl.concat([host, transfer])


def _segment_end(times: Ints, waiting: Intervals, ends: Ints) -> Ints:
    """When the segment before each of the times was done: then, or when the device began to wait."""
    since = np.searchsorted(waiting.starts, times, side="right")
    begins = np.append(-_NEVER, waiting.starts)[since]
    idle = times < np.append(-_NEVER, waiting.ends)[since]
    ended = np.append(-_NEVER, np.sort(ends))
    latest = ended[np.searchsorted(ended, times, side="right") - 1]
    done: Ints = np.where(idle, np.maximum(begins, latest), times)
    return done
