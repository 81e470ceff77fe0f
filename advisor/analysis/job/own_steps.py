"""What each rank does in each common step, and how that differs: for good, or from step to step.

Also which ranks the recorded ones waited for, where their recordings were not read: by the groups that they wait in.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.network import placement
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import Floats, Ints
from advisor.vocabulary.kinds import POINT_TO_POINT

SOURCE: Final = (
    "persistent against moving as ByteDance's straggler study (OSDI 2025) tells a bad worker from uneven data"
)
ALONE: Final = "alone time = step - time in collectives that no kernel of the rank's own covers"
TYPICAL: Final = "typical = the lower median over ranks"
# What a rank's alone time consists of, by the name of the array, in words
PARTS: Final = {"work": "kernels", "input": "waiting for input", "other": "other work of the host, or idling"}
_ENOUGH_STEPS: Final = 3
_STAGED_SHARE: Final = 0.5  # of the waiting, in sends and receives
_LEAST_SHARE: Final = 0.1  # of the lateness: parts below are not named
_NEARER: Final = 0.5  # of the way from the typical rank to the one that stands out most: who is beyond is like it


@dataclass(frozen=True, eq=False)
class OwnSteps:
    """What each rank does in each common step, in ms; arrays of shape (ranks, steps)."""

    step_ms: float
    own: Floats  # the step without waiting for others in collectives
    alone: Floats  # the step without collectives that nothing hides
    work: Floats  # the part in kernels (without a device: in ops)
    input: Floats  # that of waiting for the loader
    kernels: Floats  # how many there are

    @property
    def other(self) -> Floats:
        """What is neither a kernel nor waiting for input."""
        return self.alone - self.work - self.input

    @property
    def latest(self) -> int:
        """Row of the rank that does most by itself."""
        return int(self.alone.mean(axis=1).argmax())

    @property
    def parts(self) -> dict[str, Floats]:
        """The arrays of `PARTS`."""
        return {part: getattr(self, part) for part in PARTS}

    def share(self, time_ms: float) -> float | None:
        """The time as a share of the mean step, at most 1; None where that is 0."""
        return min(1.0, time_ms / self.step_ms) if self.step_ms else None

    def largest(self, more_ms: Mapping[str, float]) -> Entries:
        """The parts that there is more of, in words, the most first."""
        parts = PARTS | ({} if self.kernels.any() else {"work": "ops"})
        total = sum(max(0.0, value) for value in more_ms.values())
        large = sorted(((value, part) for part, value in more_ms.items() if value > _LEAST_SHARE * total), reverse=True)
        return [{"name": parts[part], "ms": value} for value, part in large]


def own_steps(job: Job) -> OwnSteps:
    """Those of the steps that every rank uses."""
    return _cells(job, job.pace)


def all_own_steps(job: Job) -> OwnSteps:
    """Those of all complete steps, the uneven ones too."""
    return _cells(job, job.whole_pace)


def _cells(job: Job, pace: pl.DataFrame) -> OwnSteps:
    pace = pace.with_columns(alone_ns=pl.col("own_ns") - pl.col("transfer_ns")).sort("rank", "step")

    def table(column: str, scale: float) -> Floats:
        return pace[column].to_numpy().reshape(len(job.members), -1) / scale

    own, alone, work, ops, idle = (table(f"{name}_ns", 1e6) for name in ("own", "alone", "work", "ops", "input"))
    step_ms = float(table("dur_ns", 1e6).mean())
    return OwnSteps(step_ms, own, alone, work + ops, idle, table("kernels", 1))


def typical(values: Floats) -> Floats:
    """The lower median over ranks: of two, the one that does less."""
    middle: Floats = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return middle


def persistent(values: Floats) -> float:
    """By how much the largest mean of a rank exceeds the typical one."""
    means = values.mean(axis=1)
    return float(means.max() - typical(means))


def moving(values: Floats) -> float:
    """By how much the mean over steps of the largest value exceeds the largest mean of a rank."""
    return float(values.max(axis=0).mean() - values.mean(axis=1).max())


def unknown_loss(job: Job) -> Missing | None:
    """Why it is unknown what unevenness costs: also where ranks wait for each other in sends and receives."""
    if job.missing:
        return job.missing
    paired, waits = job.pace.select(pl.sum("paired_ns", "wait_ns")).row(0)
    return Missing("pipeline_stages") if paired > _STAGED_SHARE * waits else None


def unknown_split(job: Job) -> Missing | None:
    """Why it is unknown whose the loss is: also with too few steps."""
    if why := unknown_loss(job):
        return why
    few = len(job.steps) < _ENOUGH_STEPS
    return Missing("few_common_steps", steps=len(job.steps), needed=_ENOUGH_STEPS) if few else None


def outstanding(values: Floats, usual: float) -> Ints:
    """Rows of the values that are nearer to the largest one than to the usual one; that of the largest at least."""
    most = float(values.max())
    return np.flatnonzero(values >= min(most, usual + _NEARER * (most - usual)))


_LEAST_BLAME: Final = 0.05  # of the steps, as for a late rank: ranks that are all right differ by up to half of it
_SUSPECT: Final = 0.5  # of the longest wait that no read rank explains: below, another rank is the reason
_LENGTH: Final = pl.col("end_ns") - pl.col("start_ns")


def blamed(job: Job, unread: set[int]) -> list[int]:
    """The numbers of unread ranks that the read ones wait for in most groups, those first that share it with fewest.

    A group's shortest member waits for nobody who was read. What it takes longer than in the quickest group that does
    the same, it waits for an unread member. All groups of a late rank wait: the one that waits least counts. An unread
    rank that meets the last one of a group without waiting is late with it, and passes that on to its other groups.
    """
    groups = job.once(_unexplained).rows()
    least_ns = _LEAST_BLAME * max(int(rank.steps["dur_ns"].sum()) for rank in job.ranks)
    last = {job.ranks[position].worker for position in job.waits.filter(pl.col("wait_ns") >= least_ns)["last"]}
    passing_on = set(chain(*(ranks for ranks, wait_ns in groups if wait_ns < least_ns and last.intersection(ranks))))
    waits, sharing = defaultdict[int, list[int]](list), dict[int, int]()
    for ranks, wait_ns in groups:
        suspects = unread.intersection(ranks)
        for rank in suspects if wait_ns < least_ns or not passing_on & suspects else ():
            waits[rank].append(wait_ns)
            sharing[rank] = min(len(suspects), sharing.get(rank, len(suspects)))
    longest = max(map(min, waits.values()), default=0)
    late = [rank for rank, of_groups in waits.items() if max(1, least_ns) <= longest <= min(of_groups) / _SUSPECT]
    most = max((len(waits[rank]) for rank in late), default=0)
    return sorted((rank for rank in late if len(waits[rank]) == most), key=lambda rank: (sharing[rank], rank))


def least_known(job: Job, unread: Collection[int]) -> list[int]:
    """The numbers of the unread ranks that are in fewest groups with read ones: a late one shows there least."""
    met = Counter(rank for ranks in job.once(_unexplained)["ranks"].to_list() for rank in ranks)
    fewest = min(met[rank] for rank in unread)
    return sorted(rank for rank in unread if met[rank] == fewest)


def _unexplained(job: Job) -> pl.DataFrame:
    """A row per process group: its ranks' numbers, and how long all members that were read wait together in it."""
    calls = job.calls.drop_nulls(["ranks", "instance"]).filter(~pl.col("op").is_in(POINT_TO_POINT))
    kind = ["op", "bytes", "group_size"]
    shortest = calls.group_by("instance").agg(pl.first(*kind, "ranks"), length_ns=_LENGTH.min())
    groups = shortest.group_by(*kind, "ranks").agg(pl.median("length_ns"), calls=pl.len())
    longer_ns = (pl.col("length_ns") - pl.col("length_ns").min().over(kind)) * pl.col("calls")
    placed = placement(groups["ranks"], groups["group_size"], None)["ranks"]
    groups = groups.with_columns(placed, wait_ns=longer_ns.cast(pl.Int64))
    return groups.drop_nulls("ranks").group_by("ranks").agg(pl.sum("wait_ns"))
