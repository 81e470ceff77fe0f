"""Which ranks the recorded ones waited for, where their recordings were not read: by the groups that they wait in."""

from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import chain
from typing import Final

import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.network import placement
from advisor.vocabulary.kinds import POINT_TO_POINT

_LEAST_SHARE: Final = 0.05  # of the steps, as for a late rank: ranks that are all right differ by up to half of it
_SUSPECT: Final = 0.5  # of the longest wait that no read rank explains: below, another rank is the reason
_LENGTH: Final = pl.col("end_ns") - pl.col("start_ns")


def blamed(job: Job, unread: set[int]) -> list[int]:
    """The numbers of unread ranks that the read ones wait for in most groups, those first that share it with fewest.

    A group's shortest member waits for nobody who was read. What it takes longer than in the quickest group that does
    the same, it waits for an unread member. All groups of a late rank wait: the one that waits least counts. An unread
    rank that meets the last one of a group without waiting is late with it, and passes that on to its other groups.
    """
    groups = job.once(_unexplained).rows()
    least_ns = _LEAST_SHARE * max(int(rank.steps["dur_ns"].sum()) for rank in job.ranks)
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
