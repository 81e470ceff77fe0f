"""The job's replay: the operations of all ranks run again, joined at what they meet in, with something changed.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.model.intervals import Floats, Ints, Mask
from advisor.model.profile import END_NS

START: Final = "start"
"""The type of the operation that stands for how much later than the first rank a rank begins the step."""

_LEAST_SHARE: Final = 0.001  # of the step; a smaller slow-down is not worth explaining
_ALIKE: Final = ["kind", "type", "group"]  # operations that would take as long as each other if nothing straggled


@dataclass(frozen=True)
class JobReplay:
    """The operations of a job's steps, and who waits for whom; see `replay`.

    `ops` holds the operations and one more of type `START` per rank and step, shape (ops,). Per op: `own` and
    `typical`, its duration without waiting, in ns. `recorded_ms` is the time of each run of `steps` steps in all, by
    run: from the first rank's begin to the last one's end. The first `begins` operations are those of type `START`;
    in each of `waves` are operations that wait for those in the waves before.
    """

    ops: pl.DataFrame
    own: Ints
    typical: Ints
    begins: int
    waves: Sequence[Wave]
    recorded_ms: Floats
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
        """How far the replayed mean step time is from the recorded one, as a share of it.

        ByteDance leaves out jobs where it is above 5 %.
        """
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
    """Operations that run when those in earlier waves have; arrays of indices.

    An operation that runs by itself, or an instance, is a unit. `ops` are sorted by unit, and `before`, what they wait
    for, by the unit that waits. `unit` is that of each operation within the wave, `first` where each begins in
    `before`.
    """

    ops: Ints
    before: Ints
    first: Ints
    unit: Ints


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
