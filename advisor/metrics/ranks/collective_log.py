"""What a log of collectives shows: which rank the others wait for in a hang, who arrives last, how fast data moves."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import polars as pl

from advisor.analysis.job.collectives import GROUP, log, timed, untimed, waited_for
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import RECEIVER, SENDER, fastest_gbs
from advisor.metrics.metric import Value, of_jobs, tabulates_jobs
from advisor.model.clause import Entries, Missing
from advisor.text import listed_ranks, rank
from advisor.vocabulary.kinds import POINT_TO_POINT

_MOST: Final = 0.5  # of the members of a group: so many wait before those without a log are said to be missing


class Hang(NamedTuple):
    """A call that some ranks of a group wait in and others have not entered; numbers of ranks, ascending."""

    op: str
    group_name: str
    sequence: int
    line: str | None
    waiting: list[int]  # in any collective, of another group too
    absent: Sequence[int] = ()  # called none so far
    elsewhere: Sequence[int] = ()  # called another collective of the group in its place
    unlogged: Sequence[int] = ()  # have no log here
    last_calls: Sequence[dict[str, str]] = ()  # what each that has one called last

    @property
    def missing(self) -> list[int]:
        """The ranks that keep the others waiting."""
        return sorted({*self.absent, *self.elsewhere, *self.unlogged})


def hang(job: Job) -> Hang | Missing:
    """The collective that keeps the job from going on; where one hang waits for another, that other one."""
    calls = job.once(log)
    if not calls.height:
        return Missing("no_collective_log")
    if not calls["completed"].count():
        return Missing("progress_not_logged")
    message = pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False)
    together = calls.filter(~message)
    done = pl.col("sequence").filter("completed").max().over(*GROUP, "worker").fill_null(-1)
    together = together.with_columns(is_open=pl.col("completed").not_() & (pl.col("sequence") > done))
    of_rank = pl.col("sequence").max().over(*GROUP, "worker")  # calls before the last ones tell nothing more
    of_open = together.filter(pl.col("is_open").any().over(GROUP), pl.col("is_open") | (pl.col("sequence") == of_rank))
    logged = {*calls["worker"]}
    every = {*range(max(job.world_size or 0, int(calls["worker"].max()) + 1))}  # type: ignore[arg-type]  # integers
    waiting = {*together.filter("is_open")["worker"]}
    groups = [_hang(of_group, logged, every, waiting) for of_group in _of_each(of_open, *GROUP)]
    pairs = _alone_in_messages(calls.filter(message, pl.col("peer").is_not_null()), calls, job.world_size or 0)
    hangs = [stuck for stuck in (*groups, *pairs) if stuck.missing]
    waits = {rank for stuck in hangs for rank in stuck.waiting}
    causes = [stuck for stuck in hangs if not waits.issuperset(stuck.missing)]
    first = next(iter(causes or hangs), None)
    if first:
        return first._replace(waiting=sorted(waits), last_calls=[*_called_last(calls, first.missing)])
    logs = calls["worker"].n_unique()
    is_known = (calls["completed"].all() and logs > 1) or logs >= (job.world_size or len(every) + 1)
    return Missing("no_rank_missing" if is_known else "ranks_not_logged")


def _of_each(calls: pl.DataFrame, *keys: str) -> Iterator[list[dict[str, Any]]]:
    """The rows that have the same keys, in order: frames of them would take a millisecond for each of many groups."""
    rows = pl.struct("worker", "op", "sequence", "group_name", "line", "ranks", "peer", "is_open")
    return (of for (of,) in calls.group_by(keys, maintain_order=True).agg(of=rows).select("of").iter_rows())


def _hang(of_group: list[dict[str, Any]], logged: set[int], every: set[int], waits: set[int]) -> Hang:
    """The first collective of a group that is open; perhaps no rank is missing in it.

    `of_group` has the open calls and the last of each rank. A group that lists no ranks and holds all of several logs
    is of `every` rank, as far as their numbers tell. `logged` are the ranks with a log, and `waits` those that wait in
    any collective.
    """
    opened = [call for call in of_group if call["is_open"]]
    number = min(call["sequence"] for call in opened)
    waiting = [call for call in opened if call["sequence"] == number]
    op = _commonest(call["op"] for call in waiting)
    entered = [call for call in waiting if call["op"] == op]
    last = {call["worker"]: call["sequence"] for call in sorted(of_group, key=itemgetter("sequence"))}
    listed = (of_group[0]["ranks"] or "").split(",")
    members = {int(rank) for rank in listed if rank} or (every if len(logged) > 1 and logged <= {*last} else {*last})
    elsewhere = sorted({call["worker"] for call in waiting if call["op"] != op})
    return Hang(
        op=op or "a collective",
        group_name=entered[0]["group_name"],
        sequence=number,
        line=_commonest(call["line"] for call in entered if call["line"] is not None),
        waiting=sorted({call["worker"] for call in opened} - {*elsewhere}),
        absent=sorted(rank for rank in members & logged if last.get(rank, -1) < number),
        elsewhere=elsewhere,
        unlogged=sorted(members - logged) if len(waits & members) >= _MOST * len(members) else [],
    )


def _commonest(texts: Iterable[str | None]) -> str | None:
    """The text that is there most often, of several the first by the alphabet; None where there is none."""
    counts = Counter(texts)
    return min(counts, key=lambda text: (-counts[text], text or ""), default=None)


def _alone_in_messages(messages: pl.DataFrame, calls: pl.DataFrame, world_size: int) -> Iterator[Hang]:
    """The first send or receive between two ranks that waits at one end and has not been called at the other.

    Each rank numbers its messages by itself, so their open ones are matched in order, from the oldest on.
    """
    logged = {*calls["worker"]}
    ends = messages.with_columns(sender=SENDER, receiver=RECEIVER)
    done = pl.col("sequence").filter("completed").max().over(*GROUP, "worker", "op", "peer").fill_null(-1)
    opened = ends.with_columns(is_open=pl.col("completed").not_() & (pl.col("sequence") > done)).filter("is_open")
    for pair in _of_each(opened, *GROUP, "sender", "receiver"):
        less, more = sorted(([call for call in pair if call["op"] == op] for op in POINT_TO_POINT), key=len)
        if len(less) == len(more):
            continue
        call = more[len(less)]
        missing, is_logged = [call["peer"]], call["peer"] in logged
        first = Hang(call["op"], call["group_name"], call["sequence"], call["line"], waiting=[call["worker"]])
        if is_logged or len(logged) >= _MOST * world_size:
            yield first._replace(absent=missing) if is_logged else first._replace(unlogged=missing)


def _called_last(calls: pl.DataFrame, ranks: Sequence[int]) -> Iterator[dict[str, str]]:
    """Each rank with its last call."""
    last = calls.filter(pl.col("worker").is_in(ranks)).unique("worker", keep="last", maintain_order=True)
    for call in last.sort("worker").iter_rows(named=True):
        where = f", {call['line']}" if call["line"] else ""
        state = {False: "is in", True: "has left"}.get(call["completed"], "called")
        what = f"{state} {call['op']} {call['sequence']} of {call['group_name']}{where}"
        yield {"name": rank(call["worker"]), "what": what}


@tabulates_jobs("communicator")
def communicators(job: Job) -> pl.DataFrame:
    """A row per group and op whose times were logged, the most time first.

    Columns: group, op, group_size, calls (collectives), bytes (median), bus_gbs (that a link reaches),
    wait_share (of the ranks' time in them), last (worker that is awaited longest), last_share (of the waiting).
    """
    calls = job.once(timed)
    if not calls.height:
        return calls
    collectives = calls.unique(["group", "ranks", "op", "sequence"], maintain_order=True)
    of = ["group", "ranks", "op"]
    moved_ns = pl.col("transfer_ns").filter(pl.col("moved").is_not_null()).sum()
    rows = collectives.group_by(of, maintain_order=True).agg(
        pl.first("group_name", "group_size"),
        calls=pl.len(),
        bytes=pl.median("bytes").cast(pl.Int64),
        bus_gbs=pl.sum("moved") / moved_ns,
        algorithm_gbs=pl.col("bytes").filter(pl.col("moved").is_not_null()).sum() / moved_ns,
    )
    is_possible = pl.min_horizontal("bus_gbs", "algorithm_gbs") <= fastest_gbs(None)  # false of a NaN
    rows = rows.with_columns(bus_gbs=pl.when(is_possible).then("bus_gbs"))
    awaited = calls.group_by(*of, "last").agg(pl.sum("wait_ns", "dur_ns"))
    waits = awaited.group_by(of).agg(
        wait_share=pl.sum("wait_ns") / pl.sum("dur_ns"),
        last=pl.col("last").sort_by("wait_ns", "last", descending=[True, False]).first(),
        last_share=(pl.max("wait_ns") / pl.sum("wait_ns")).fill_nan(0.0),  # nobody waits
        total_ns=pl.sum("dur_ns"),
    )
    joined = rows.join(waits, on=of, nulls_equal=True).sort("total_ns", "group", "op", descending=[True, False, False])
    known = ("op", "group_size", "calls", "bytes", "bus_gbs", "wait_share", "last", "last_share")
    return joined.select(pl.col("group_name").alias("group"), *known)


_MOST_CALLS: Final = 3
_NS_PER_HOUR: Final = 3.6e12


def _missing_count(job: Job) -> Value:
    """0 where every rank is where the others are."""
    stuck = job.once(hang)
    if isinstance(stuck, Missing):
        return 0 if stuck.code == "no_rank_missing" else stuck
    return len(stuck.missing)


def _missing_ranks(stuck: Hang) -> Entries:
    kinds = {None: stuck.absent, "in another collective": stuck.elsewhere, "no log here": stuck.unlogged}
    return [{"name": listed_ranks(ranks), "what": what} for what, ranks in kinds.items() if ranks]


def _awaited(job: Job) -> int:
    """The worker that arrives last when the others wait longest."""
    waits = job.once(timed).group_by("last").agg(pl.sum("wait_ns")).sort("wait_ns", "last", descending=[True, False])
    return int(waits["last"][0])


def _hours(job: Job) -> Value:
    called = job.once(log)["called_ns"].drop_nulls().to_numpy()
    return float(called.max() - called.min()) / _NS_PER_HOUR if len(called) else None


of_hang = of_jobs(__name__).parts_of(hang)
of_jobs(__name__)("hang_missing_ranks", _missing_count, unit="count").says(
    "Ranks that others wait for in a collective or a message when the logs end.",
    "members of the group that have not called its first open collective, called another one in its place, or have no"
    " log while half or more wait; of a send or receive the other end, if it has not called that; a group that lists no"
    " members and is in all of several logs has all ranks up to the highest; unknown of one log of an unknown job",
    "PyTorch, torch/distributed/flight_recorder: collectives are matched by group and sequence number",
)
of_hang("hang_missing", _missing_ranks, unit="names").says(
    "Which ranks others wait for in a collective when the logs end.", "the ranks of hang_missing_ranks"
)
of_hang("hang_waiting_ranks", lambda stuck: len(stuck.waiting), unit="count").says(
    "Ranks that wait in a collective when the logs end.",
    "ranks with an open collective in a group in which ranks are missing",
)
of_hang("hang_collective", lambda stuck: f"{stuck.op} {stuck.sequence} of {stuck.group_name}", unit="text").says(
    "The collective that ranks wait in when the logs end.",
    "operation, number in its group, and group; where a hang waits for another, of that other",
)
of_hang("hang_line", lambda stuck: stuck.line or Missing("no_logged_line"), unit="text").says(
    "The line of the program that called this collective.",
    "innermost frame of the program's own code; the most frequent",
)
of_hang("hang_last_calls", lambda stuck: [*stuck.last_calls[:_MOST_CALLS]]).says(
    "What the first three ranks that others wait for called last.", "last call in the log of each missing rank"
)

measure = of_jobs(__name__, unknown=lambda job: None if job.once(log).height else Missing("no_collective_log"))
measure("logged_hours", _hours, unit="number").says("Hours that the logs are of.", "last call - first call")
measure("logged_states", lambda job: job.once(log)["completed"].count() or None, unit="count").says(
    "Logged calls of which it is known whether they have completed.", "number of them"
)
measure = of_jobs(__name__, unknown=untimed)
measure(
    "logged_wait_share", lambda job: float(job.once(timed).select(pl.sum("wait_ns") / pl.sum("dur_ns")).item())
).says(
    "Part of the ranks' time in logged collectives that passes waiting for a later rank.",
    "sum over calls of (time in it - shortest time of any member) / sum of the times; of all_reduce, all_gather,"
    " reduce_scatter, all_to_all and barrier, which all members leave together",
    "TraceLens: the shortest member waits for nobody",
)
measure("logged_awaited", _awaited, unit="rank").says(
    "The rank that the others wait for longest in logged collectives.",
    "largest sum of waiting in those that it enters last",
)
measure("logged_awaited_share", lambda job: waited_for(job, [job.once(_awaited)])).says(
    "Part of the waiting in the logged collectives of its groups that is for the rank which is waited for longest.",
    "waiting in the collectives that it enters last / all waiting in its groups: elsewhere ranks wait for those that"
    " it made late",
)
