"""All ranks of a job together: one clock, the collectives that they met in, and who waited for whom.

Collectives are matched by the group's sequence number where all ranks bear one, else by their order back from the end
of the step; a send is matched with its receive by the two ranks and the order between them.
Members of a collective leave it together: where the ends of a match do not coincide, or its shortest member does not
span the time from the last arrival to the end, the match is wrong and nothing is said about it (the self-check of
ByteDance's straggler study, OSDI 2025: 0.97 to 1.00 where the grouping is right, 0.25 to 0.91 where it is not).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from advisor import text
from advisor.analysis.job.network import RECEIVER, SENDER, between_stages, islands, placement
from advisor.analysis.job.rank import CALLS, Rank
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals, Ints
from advisor.vocabulary.kinds import POINT_TO_POINT

_CLOSE_NS: Final = 20_000  # ends of one collective coincide so nearly: eight V100 in one host differ by at most 7 us
_CLOSE_SHARE: Final = 0.1  # or by this part of its shortest member
_CHANCE: Final = 0.02  # or so nearly, against the time between two of a kind, that a wrong match of all has this chance
_CLOSE_SPACING: Final = 0.3  # of that time at most: a match with the next one would be all of it apart
_CLOSE_MOST: Final = 0.5  # of the shortest member, where only the spacing allows so much, or twice what is always close
_CLOSE_LONGEST: Final = 0.01  # or by this part of its longest: no call of a rank's queue ends while that one waits
_CLOSE_ON_HOST: Final = 0.25  # the same of calls on the host: threads wait for a CPU
_CLOSE_KNOWN: Final = 0.05  # of the longest, where the kind is believed: its order is known then
_TRUSTED_SHARE: Final = 0.9  # of a kind's matches that must pass for the kind to be believed
_BELIEVED_SHARE: Final = 0.8  # of the time in collectives that must be in trusted matches: busy hosts leave late
_TOGETHER: Final = 0.5  # of the work of the device that has the next to most, at the same time as the one with most
_ROUNDED_NS: Final = 2  # per kernel: a file that is written again rounds; of two GPUs half of the kernels differ by 30
_MANY_KERNELS: Final = 8  # own choice: old profilers round to microseconds, in which a few may agree by chance
_SAME_CLOCK_NS: Final = 1_000_000  # files whose collectives end this close together share a host's clock
_MOST_CALLS: Final = 1 << 19  # of all ranks: a replay takes 2 kB and 10 us for each
_SITTING_NS: Final = 60_000_000_000  # hosts of one job whose clocks are set at all differ by less

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Job:
    """The ranks of one job, in order of worker and device; `logs` of its collectives lay beside the profiles."""

    ranks: Sequence[Rank]
    logs: Sequence[pl.DataFrame] = ()
    _computed: dict[Callable[[Job], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, compute: Callable[[Job], T]) -> T:
        """`compute(self)`, computed at its first use: several metrics share it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        result: T = self._computed[compute]
        return result

    @cached_property
    def world_size(self) -> int | None:
        """How many ranks the job has: as the ranks were told, at least as many as were recorded; None if unknown."""
        sizes = [rank.world_size for rank in self.ranks if rank.world_size]
        if sizes:
            return max(*sizes, len(self.ranks))
        return len(self.ranks) if len(self.ranks) > 1 else None

    @cached_property
    def several_devices(self) -> bool:
        """Whether a process drives several devices: its number alone does not say which rank is meant."""
        return len({rank.worker for rank in self.ranks}) < len(self.ranks)

    @cached_property
    def names(self) -> list[str]:
        """What tables call each rank: `rank 3`, or `worker 0, GPU 3` where a process drives several devices."""
        return [text.rank(rank.worker, rank.device if self.several_devices else None) for rank in self.ranks]

    @cached_property
    def guests(self) -> list[int]:
        """Positions of devices that a process works on beside its own: it meets the other ranks on another device."""
        meets = [bool(rank.calls.height) for rank in self.ranks]
        at_home = {rank.worker for rank, met in zip(self.ranks, meets, strict=True) if met}
        return [i for i, rank in enumerate(self.ranks) if not meets[i] and rank.worker in at_home]

    @cached_property
    def apart(self) -> list[int]:
        """Positions of ranks that recorded none of the steps that most did: cut off, or recorded at another time."""
        complete = {i: set(rank.steps["step"]) for i, rank in enumerate(self.ranks) if i not in self.guests}
        times = Counter(step for steps in complete.values() for step in steps)
        common = {step for step, ranks in times.items() if 2 * ranks >= len(complete)}
        return [i for i, steps in complete.items() if common and not steps & common]

    @cached_property
    def members(self) -> list[int]:
        """Positions of the ranks that make up the job: all but the guests and those apart."""
        return [i for i in range(len(self.ranks)) if i not in self.guests and i not in self.apart]

    @cached_property
    def steps(self) -> list[int]:
        """Numbers of the steps that every member uses: what is told of the job is of steps that the bar shows."""
        used = [set(self.ranks[i].steps.filter("used")["step"]) for i in self.members]
        return sorted(set.intersection(*used)) if used else []

    @cached_property
    def examined(self) -> list[int]:
        """The common steps whose calls are looked at one by one: the first that have no more than so many, or one."""
        calls = self.calls.filter(pl.col("step").is_in(self.steps)).group_by("step").len().sort("step")
        few = calls.filter(pl.col("len").cum_sum() <= _MOST_CALLS)["step"].to_list()
        return self.steps if len(few) == calls.height else few or self.steps[:1]

    @cached_property
    def whole_steps(self) -> list[int]:
        """Numbers of the steps that every member recorded whole, the uneven ones too."""
        complete = [set(self.ranks[i].steps["step"]) for i in self.members]
        return sorted(set.intersection(*complete)) if complete else []

    @cached_property
    def offsets_ns(self) -> Ints:
        """How far each rank's clock is ahead of the first one's: the median by which its collectives end later.

        It is held against a rank that is placed already.
        """
        met = self._matches.filter(pl.col("instance").is_not_null()).select("rank", "instance", "end_ns")
        met = met.filter(pl.len().over("instance") > 1)
        offsets = _placed(met, len(self.ranks)) if met.height else np.zeros(len(self.ranks), np.int64)
        return np.zeros_like(offsets) if np.abs(offsets).max(initial=0) < _SAME_CLOCK_NS else offsets

    @cached_property
    def _matches(self) -> pl.DataFrame:
        """Every rank's calls with the `instance` they are part of, on the files' own clocks."""
        calls = [
            r.calls.select(pl.lit(i, pl.Int64).alias("rank"), pl.lit(r.worker, pl.Int32).alias("worker"), *CALLS)
            for i, r in enumerate(self.ranks)
        ]
        matched = _matched(pl.concat([pl.DataFrame(schema={"rank": pl.Int64, "worker": pl.Int32, **CALLS}), *calls]))
        strange = pl.col("rank").is_in(self.apart)
        return matched.with_columns(instance=pl.when(~strange).then("instance"))

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Every rank's collectives on the common clock, a row per rank and call.

        Columns: those of CALLS but `sequence`, `rank` (position in `ranks`), `worker` (its number), `instance`; `met`
        (recorded ranks that took part), `trusted` (the match passes the self-check), and where it does `last` (rank
        that arrived last), `wait_ns` (until the last arrival) and `transfer_ns` (from then to the end); `staged` (a
        send or receive that goes around no ring).
        """
        ahead = pl.Series(self.offsets_ns[self._matches["rank"].to_numpy()], dtype=pl.Int64)
        calls = _judged(self._matches.with_columns(pl.col("start_ns", "end_ns") - ahead))
        return calls.with_columns(staged=between_stages(calls))

    @cached_property
    def matched_share(self) -> float | None:
        """Part of the time in collectives of steps that is in trusted matches; None where there are none.

        One process's devices are of one job: where only one of them has collectives, its partners are not here.
        """
        calls = self._by_group.filter(~pl.col("alone"), pl.any_horizontal(pl.col("step", "instance").is_not_null()))
        if calls["rank"].n_unique() < 2 and len({self.ranks[i].worker for i in self.members}) == 1:  # noqa: PLR2004
            return None
        length = (calls["end_ns"] - calls["start_ns"]).to_numpy()
        trusted = (calls["trusted"] & ~calls["strange"]).to_numpy()
        return float(length[trusted].sum() / length.sum()) if length.sum() else None

    @cached_property
    def strangers(self) -> list[list[int]]:
        """Positions of members by whom they meet, directly or through others; empty where all of them do.

        Groups that never meet are no fault in themselves: there may be no collective of all ranks.
        """
        met = self.calls.filter("trusted", pl.col("rank").is_in(self.members)).select("instance", "rank").unique()
        groups = islands(self.members, met.sort("instance", "rank").group_by("instance").agg("rank")["rank"].unique())
        return groups if len(groups) > 1 else []

    @cached_property
    def sittings(self) -> list[list[int]]:
        """Positions of ranks by when they were recorded, by their files' clocks; empty where it was at one time.

        Over a minute lies between one and the next, and no rank of one meets a rank of another: clocks may differ.
        """
        timed = sorted((*self.span_ns(i), i) for i, rank in enumerate(self.ranks) if rank.steps.height)
        sittings: list[list[int]] = []
        until = 0
        for start, end, i in timed:
            if not sittings or start > until + _SITTING_NS:
                sittings.append([])
            sittings[-1].append(i)
            until = max(until, end)
        sitting = {i: n for n, ranks in enumerate(sittings) for i in ranks}
        met = self.calls.filter("trusted").select("instance", pl.col("rank").replace_strict(sitting, default=None))
        across = met.group_by("instance").agg(pl.n_unique("rank"))["rank"]
        return sittings if len(sittings) > 1 and not (across > 1).any() else []

    @cached_property
    def copies(self) -> list[int]:
        """Positions of ranks of several files that are one recording, whatever its clock: each kernel takes as long."""
        alike = defaultdict[tuple[object, ...], list[Rank]](list)
        for rank in self.ranks:
            alike[rank.device, *rank.kernels.select("name", "grid", "block", "number").rows()].append(rank)
        pairs = chain.from_iterable(pairwise(sorted(ranks, key=_longest)) for ranks in alike.values())
        workers = {rank.worker for pair in pairs if _are_copies(*pair) for rank in pair}
        return [i for i, rank in enumerate(self.ranks) if rank.worker in workers]

    def span_ns(self, position: int) -> tuple[int, int]:
        """From when to when that rank's steps last, by its own file's clock."""
        steps = self.ranks[position].steps
        ends = steps["start_ns"] + steps["dur_ns"]
        return int(steps["start_ns"].to_numpy().min()), int(ends.to_numpy().max())

    @cached_property
    def mixed(self) -> bool:
        """Whether matches join some of the members, but a group holds ranks that are strangers to each other."""
        return bool(self._by_group["strange"].any() and len(self.strangers) < len(self.members))

    @cached_property
    def _by_group(self) -> pl.DataFrame:
        """The members' calls; `strange`: the group has a recorded rank that theirs never meets, `alone`: no other."""
        calls = self.calls.filter(pl.col("rank").is_in(self.members))
        groups = calls.select("worker", "ranks", "group_size").unique(maintain_order=True)
        listed = placement(groups["ranks"], groups["group_size"], None)["ranks"].to_list()
        home = {self.ranks[i].worker: n for n, island in enumerate(self.strangers) for i in island}
        here = {self.ranks[i].worker for i in self.members}
        answers: list[tuple[bool, bool]] = []
        for (own, _, size), ranks in zip(groups.rows(), listed, strict=True):
            group = here if (size or 0) >= (self.world_size or math.inf) else set(ranks or ())
            others = here & group - {own}
            answers.append((any(home.get(other) != home.get(own) for other in others), own in group and not others))
        known = pl.DataFrame(answers, schema={"strange": pl.Boolean, "alone": pl.Boolean}, orient="row")
        return calls.join(groups.hstack(known), on=groups.columns, nulls_equal=True, maintain_order="left")

    @cached_property
    def peers(self) -> bool:
        """Whether the members are devices of one process that compute at the same time and wait for each other.

        Devices that compute in turn are the stages of one model: how long each takes by itself says nothing.
        """
        members = [self.ranks[position] for position in self.members]
        one_process = len(members) > 1 and len({rank.worker for rank in members}) == 1
        if not one_process or not any(rank.peer_waits.total for rank in members):
            return False
        *_, less, most = sorted((rank.work for rank in members), key=lambda work: work.total)
        return (less & most).total >= _TOGETHER * less.total

    @cached_property
    def missing(self) -> Missing | None:
        """Why nothing can be said of who waits for whom; None where it can."""
        here, all_ = len(self.members), self.world_size
        if here <= 1:
            return Missing("ranks_missing", **({"world": all_} if all_ else {}))
        if self.matched_share is None and not self.peers:
            return Missing("no_shared_collective")
        if self.matched_share is not None and self.matched_share < _BELIEVED_SHARE:
            code = "groups_never_meet" if self.mixed else "collectives_unmatched"
            return Missing(code, share=1 - self.matched_share)
        return None if self.steps else Missing("no_common_step")

    @cached_property
    def pace(self) -> pl.DataFrame:
        """A row per member and common step: what it does by itself, and what it waits for the others.

        Columns: rank, step, dur_ns, wait_ns (waiting for a later rank that no kernel of its own covers), transfer_ns
        (the rest of the time in collectives that none covers), own_ns = dur_ns - wait_ns, work_ns, ops_ns, input_ns,
        kernels;
        paired_ns is the part of wait_ns in sends and receives between stages.
        """
        return self.whole_pace.filter(pl.col("step").is_in(self.steps))

    @cached_property
    def whole_pace(self) -> pl.DataFrame:
        """The same over `whole_steps`."""
        calls = by_rank(self.calls, len(self.ranks))
        return pl.concat([_pace(i, self.ranks[i], calls[i], self) for i in self.members])

    @cached_property
    def waits(self) -> pl.DataFrame:
        """Who waits for whom, over the common steps: rank, last, wait_ns (not covered by the waiter's kernels)."""
        waiting = pl.col("trusted") & pl.col("step").is_in(self.steps) & (pl.col("rank") != pl.col("last"))
        calls = self.calls.select(pl.col("rank", "last", "start_ns", "wait_ns").filter(waiting))
        exposed = calls.with_columns(pl.col("wait_ns") - self.covered_ns(calls, "wait_ns"))
        return exposed.group_by("rank", "last").agg(pl.sum("wait_ns")).sort("rank", "last")

    def covered_ns(self, calls: pl.DataFrame, length: str, pause_ns: int = 0) -> pl.Series:
        """How much of so long from its start each call's rank runs kernels, and such pauses between them."""
        covered = []
        for rank, of_rank, ahead in zip(self.ranks, by_rank(calls, len(self.ranks)), self.offsets_ns, strict=True):
            start = of_rank["start_ns"].to_numpy() + ahead
            covered.append(rank.work.bridged(pause_ns).within(start, start + of_rank[length].to_numpy()))
        return pl.Series(np.concatenate(covered))


def job_of(ranks: Sequence[Rank], logs: Sequence[pl.DataFrame] = ()) -> Job:
    """The job of these ranks, with logs from elsewhere."""
    return Job(sorted(ranks, key=lambda rank: (rank.worker, -1 if rank.device is None else rank.device)), logs)


def _matched(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with `instance`: equal for the calls of different ranks that are one collective, or a send and its recv.

    Every rank counts its sends and receives by itself, so that those are matched by their order between two ranks.
    """
    pair = pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False)
    keyed = calls.with_columns(
        family=pl.struct(
            "group",
            "ranks",
            op=pl.when(pair).then(pl.lit(POINT_TO_POINT[0])).otherwise("op"),
            sender=pl.when(pair).then(SENDER),
            receiver=pl.when(pair).then(RECEIVER),
        ).rank("dense")
    )
    numbered = (
        ~pair
        & pl.col("sequence").is_not_null().all().over("family")
        & pl.struct("rank", "sequence").is_unique().all().over("family")
    )
    # from the last one back: a recording that begins within a collective lacks the first
    order = pl.int_range(pl.len()).over("rank", "step", "family", order_by="start_ns", descending=True)
    keyed = keyed.with_columns(
        number=pl.when(numbered).then("sequence").otherwise(order),
        in_step=pl.when(~numbered).then(pl.col("step").fill_null(-1)),
    )
    instance = pl.struct("family", "in_step", "number").rank("dense")
    unknown = (~numbered & pl.col("step").is_null()) | (pair & pl.col("peer").is_null())
    return keyed.with_columns(instance=pl.when(~unknown).then(instance)).drop("sequence", "family", "number", "in_step")


def _longest(rank: Rank) -> tuple[float, list[int]]:
    """By what copies lie side by side: the part of its kernels' time that the longest take, and its first step."""
    times, begins = rank.kernels["total_ns"].to_numpy(), rank.steps["start_ns"].to_numpy()
    return times.max(initial=0) / max(1, times.sum()), begins[:1].tolist()


def _are_copies(first: Rank, other: Rank) -> bool:
    """Whether the same kernels take the same time, or all of them as much longer; of few kernels, the same steps."""
    own, its = (rank.kernels["total_ns"].to_numpy() for rank in (first, other))
    is_close = np.abs(own - its * (own.sum() / max(1, its.sum()))) <= _ROUNDED_NS * first.kernels["number"].to_numpy()
    is_telling = len(own) >= _MANY_KERNELS or (first.steps.height > 0 and first.steps.equals(other.steps))
    return first.worker != other.worker and is_telling and bool(is_close.all())


def _placed(met: pl.DataFrame, ranks: int) -> Ints:
    offsets = np.zeros(ranks, np.int64)
    placed, open_ = {int(met["rank"].min())}, set(met["rank"]) - {int(met["rank"].min())}  # type: ignore[arg-type]
    while open_:
        known = met.filter(pl.col("rank").is_in(list(placed)))
        known = known.with_columns(pl.col("end_ns") - pl.Series(offsets[known["rank"].to_numpy()]))
        ends = known.group_by("instance").agg(known_ns=pl.median("end_ns"))
        later = met.filter(pl.col("rank").is_in(list(open_))).join(ends, on="instance")
        if not later.height:
            placed.add(open_.pop())  # it shares no collective with the ranks before it: its clock stays as it is
            continue
        ahead = later.group_by("rank").agg(offset=(pl.col("end_ns") - pl.col("known_ns")).median())
        for rank, offset in ahead.rows():
            offsets[rank] = round(offset)
            placed.add(rank)
            open_.discard(rank)
    return offsets


def _judged(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with what their match tells, where it passes the self-check."""
    length = pl.col("end_ns") - pl.col("start_ns")
    known = pl.col("instance").is_not_null()
    last_start = pl.max("start_ns").over("instance")
    spread = pl.max("end_ns").over("instance") - pl.min("end_ns").over("instance")
    shortest = length.min().over("instance")
    span = pl.max("end_ns").over("instance") - last_start
    family = (pl.col("group"), pl.col("op"))
    spacing = pl.col("end_ns").sort().diff().median().over(pl.col("rank"), *family)
    calls = calls.with_columns(spacing_ns=spacing.fill_null(0))
    # Half of that part of the spacing lies on either side, and each match of the kind would have to hit it.
    apart = (_CHANCE ** (1 / pl.col("instance").n_unique().over(family)) / 2).clip(upper_bound=_CLOSE_SPACING)
    sparse = pl.min_horizontal(
        pl.median("spacing_ns").over("instance") * apart, pl.max_horizontal(shortest * _CLOSE_MOST, 2 * _CLOSE_NS)
    )
    longest = length.max().over("instance")
    waited = longest * pl.when("on_host").then(_CLOSE_ON_HOST).otherwise(_CLOSE_LONGEST)
    close = pl.max_horizontal(pl.lit(_CLOSE_NS), shortest * _CLOSE_SHARE, sparse, waited).cast(pl.Int64)
    checked = calls.with_columns(
        met=pl.when(known).then(pl.len().over("instance")).otherwise(1),
        coincides=known & (spread <= close) & ((span - shortest).abs() <= close),
    )
    several = pl.col("met") > 1
    believed = pl.col("coincides").filter(several).mean().over(family).fill_null(0) >= _TRUSTED_SHARE
    trusted = several & believed & (pl.col("coincides") | (known & (spread <= longest * _CLOSE_KNOWN)))
    last = pl.col("rank").sort_by("start_ns").last().over("instance")
    wait = (last_start - pl.col("start_ns")).clip(0, length)
    waits = {"last": last, "wait_ns": wait, "transfer_ns": length - wait}
    trusting = checked.with_columns(trusted=trusted).drop("coincides", "spacing_ns")
    return trusting.with_columns(pl.when("trusted").then(of).alias(name) for name, of in waits.items())


def by_rank(frame: pl.DataFrame, ranks: int) -> list[pl.DataFrame]:
    """The rows of each rank, by position, of a frame in the order of the ranks: no row is copied."""
    cuts = np.searchsorted(frame["rank"].to_numpy(), np.arange(ranks + 1)).tolist()
    return [frame.slice(begin, end - begin) for begin, end in pairwise(cuts)]


def _pace(position: int, rank: Rank, calls: pl.DataFrame, job: Job) -> pl.DataFrame:
    steps = rank.steps.filter(pl.col("step").is_in(job.whole_steps)).sort("step")
    start = steps["start_ns"].to_numpy() - job.offsets_ns[position]
    end = start + steps["dur_ns"].to_numpy()
    work = rank.work.shifted(-int(job.offsets_ns[position]))
    inside = Intervals.of(calls["start_ns"], calls["end_ns"])
    matched = calls.filter("trusted")
    paired = matched.filter("staged")
    exposed = (inside - work).within(start, end)
    among_calls = (_waiting(matched) - work).within(start, end)
    for_peers = rank.peer_waits.shifted(-int(job.offsets_ns[position])) if job.peers else EMPTY
    wait = ((_waiting(matched) | for_peers) - work).within(start, end)
    return steps.select(
        "step", "dur_ns", "work_ns", "ops_ns", "input_ns", "kernels", rank=pl.lit(position, pl.Int64)
    ).with_columns(
        wait_ns=pl.Series(wait),
        paired_ns=pl.Series((_waiting(paired) - work).within(start, end)),
        transfer_ns=pl.Series(exposed - among_calls),
        own_ns=pl.col("dur_ns") - pl.Series(wait),
    )


def _waiting(calls: pl.DataFrame) -> Intervals:
    """When a rank waits in these calls for the last one."""
    start = calls["start_ns"].to_numpy()
    return Intervals.of(start, start + calls["wait_ns"].to_numpy())
