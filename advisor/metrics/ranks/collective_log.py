"""What a log of collectives shows: which rank the others wait for in a hang, who arrives last, how fast data moves.

No clocks are compared. Members of a collective leave it together, so the one that is in it for the shortest time
arrived last, and the others waited for as much longer as they were in it (TraceLens measures transfers so).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import polars as pl

from advisor import text
from advisor.analysis.job.job import Job
from advisor.analysis.job.network import bus_factor
from advisor.metrics.metric import Value, of_jobs, tabulates_jobs
from advisor.model.missing import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT

_TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")  # no member leaves earlier
_GROUP: Final = ["group", "ranks"]
_MOST: Final = 0.5  # of the members of a group: so many wait before those without a log are said to be missing


class Hang(NamedTuple):
    """A collective that some ranks of a group wait in and others have not entered; numbers of ranks, ascending.

    `op`, `group_name`, `sequence` and `line` are those of the ranks in it. `waiting` are all ranks that wait in any
    collective, of another group too. `elsewhere` called another collective of the group in its place, `absent` none so
    far, and `unlogged` have no log here. `last_calls` says for each that has one what it called last.
    """

    op: str
    group_name: str
    sequence: int
    line: str | None
    waiting: list[int]
    absent: list[int]
    elsewhere: list[int]
    unlogged: list[int]
    last_calls: list[str]

    @property
    def missing(self) -> list[int]:
        """The ranks that keep the others waiting."""
        return sorted({*self.absent, *self.elsewhere, *self.unlogged})


def log(job: Job) -> pl.DataFrame:
    """The logged calls of all ranks, in the order of each rank's log: the columns of `collective_log`."""
    logs = {rank.worker: rank.log for rank in job.ranks}  # one per process, whatever its devices
    return pl.concat(list(logs.values())) if logs else pl.DataFrame()


def hang(job: Job) -> Hang | Missing:
    """The collective that keeps the job from going on; where one hang waits for another, that other one."""
    calls = job.once(log)
    if not calls.height:
        return Missing("no_collective_log")
    if not calls["completed"].count():
        return Missing("progress_not_logged")
    together = calls.filter(~pl.col("op").is_in(POINT_TO_POINT).fill_null(value=False))
    done = pl.col("sequence").filter("completed").max().over(*_GROUP, "worker").fill_null(-1)
    together = together.with_columns(is_open=pl.col("completed").not_() & (pl.col("sequence") > done))
    some_open = together.filter(pl.col("is_open").any().over(_GROUP))
    groups = [_hang(of_group, calls) for _, of_group in some_open.group_by(_GROUP, maintain_order=True)]
    hangs = [stuck for stuck in groups if stuck]
    waits = {rank for stuck in hangs for rank in stuck.waiting}
    causes = [stuck for stuck in hangs if not waits.issuperset(stuck.missing)]
    first = next(iter(causes or hangs), None)
    if first:
        return first._replace(waiting=sorted(waits))
    logs = calls["worker"].n_unique()
    is_known = calls["completed"].all() or logs >= (job.world_size or logs)
    return Missing("no_rank_missing" if is_known else "ranks_not_logged")


def _hang(of_group: pl.DataFrame, calls: pl.DataFrame) -> Hang | None:
    """The first collective of a group that is open, if ranks are missing in it."""
    opened = of_group.filter("is_open")
    waiting = opened.filter(pl.col("sequence") == pl.col("sequence").min())
    number, op = waiting["sequence"][0], waiting["op"].mode().sort()[0]
    entered = waiting.filter(pl.col("op").eq_missing(op))
    last = dict(of_group.group_by("worker").agg(pl.max("sequence")).rows())
    logged = {*calls["worker"]}
    listed = (of_group["ranks"][0] or "").split(",")
    members = {int(rank) for rank in listed if rank} or {*last}
    elsewhere = waiting.filter(pl.col("op").ne_missing(op))["worker"].unique().sort().to_list()
    stuck = Hang(
        op=op or "a collective",
        group_name=entered["group_name"][0],
        sequence=number,
        line=next(iter(entered["line"].drop_nulls().mode().sort()), None),
        waiting=sorted({*opened["worker"]} - {*elsewhere}),
        absent=sorted(rank for rank in members & logged if last.get(rank, -1) < number),
        elsewhere=elsewhere,
        unlogged=sorted(members - logged) if opened["worker"].n_unique() >= _MOST * len(members) else [],
        last_calls=[],
    )
    return stuck._replace(last_calls=list(_called_last(calls, stuck.missing))) if stuck.missing else None


def _called_last(calls: pl.DataFrame, ranks: Sequence[int]) -> Iterable[str]:
    """`rank 2 called broadcast 6 of default_pg (train.py:10) last`."""
    last = calls.filter(pl.col("worker").is_in(ranks)).unique("worker", keep="last", maintain_order=True)
    for call in last.sort("worker").iter_rows(named=True):
        where = f" ({call['line']})" if call["line"] else ""
        state = {False: "is in", True: "has left"}.get(call["completed"], "called")
        yield f"{text.rank(call['worker'])} {state} {call['op']} {call['sequence']} of {call['group_name']}{where}"


def timed(job: Job) -> pl.DataFrame:
    """Calls that several ranks logged the time of, and that all of them leave together.

    Columns: those of the log, `last` (worker that arrived last), `wait_ns`, `transfer_ns` (of the one that waited for
    nobody), and `moved` (bytes x bus factor).
    """
    calls = job.once(log)
    if not calls.height:
        return calls
    known = calls.filter(pl.col("op").is_in(_TOGETHER), pl.col("dur_ns") > 0)
    key = [*_GROUP, "op", "sequence"]
    known = known.unique([*key, "worker"], keep="none", maintain_order=True)
    met = known.filter(pl.len().over(key) > 1)
    return met.with_columns(
        last=pl.col("worker").sort_by("dur_ns").first().over(key),
        transfer_ns=pl.min("dur_ns").over(key),
        wait_ns=pl.col("dur_ns") - pl.min("dur_ns").over(key),
        moved=pl.col("bytes") * bus_factor(pl.col("op"), pl.col("group_size")),
    )


@tabulates_jobs("communicator")
def communicators(job: Job) -> pl.DataFrame:
    """A row per group and op whose times were logged, the most time first.

    Columns: group, op, group_size, calls (collectives), bytes (median), bus_gbs (of the ranks that wait for nobody),
    wait_share (of the ranks' time in them), last (worker that is awaited longest), last_share (of the waiting).
    """
    calls = job.once(timed)
    if not calls.height:
        return calls
    collectives = calls.unique(["group", "ranks", "op", "sequence"], maintain_order=True)
    of = ["group", "ranks", "op"]
    rows = collectives.group_by(of, maintain_order=True).agg(
        pl.first("group_name", "group_size"),
        calls=pl.len(),
        bytes=pl.median("bytes").cast(pl.Int64),
        bus_gbs=(pl.sum("moved") / pl.col("transfer_ns").filter(pl.col("moved").is_not_null()).sum()).fill_nan(None),
    )
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


def _missing_ranks(stuck: Hang) -> str:
    """`rank 2 and rank 5 (no log here)`."""
    kinds = {"": stuck.absent, " (in another collective)": stuck.elsewhere, " (no log here)": stuck.unlogged}
    return text.listing([f"{text.listed_ranks(ranks)}{what}" for what, ranks in kinds.items() if ranks])


def _last_calls(stuck: Hang) -> str:
    more = len(stuck.last_calls) - _MOST_CALLS
    return "; ".join(stuck.last_calls[:_MOST_CALLS]) + (f"; {more:,} more" if more > 0 else "")


def _awaited(job: Job) -> tuple[int, float]:
    """The worker that arrives last when the others wait longest, and its part of all their waiting."""
    waits = job.once(timed).group_by("last").agg(pl.sum("wait_ns")).sort("wait_ns", "last", descending=[True, False])
    total = int(waits["wait_ns"].to_numpy().sum())
    return waits["last"][0], waits["wait_ns"][0] / total if total else 0.0


def _last_share(job: Job) -> float:
    last = job.once(timed).unique(["group", "ranks", "op", "sequence"], maintain_order=True)["last"]
    return float((last == job.once(_awaited)[0]).to_numpy().mean())


def _wait_share(job: Job) -> float:
    calls = job.once(timed)
    return float(calls["wait_ns"].to_numpy().sum() / calls["dur_ns"].to_numpy().sum())


def _awaited_in(job: Job) -> Value:
    """The groups and ops in which it is waited for longest."""
    rows = job.once(communicators).filter(pl.col("last") == job.once(_awaited)[0]).head(_MOST_CALLS)
    return text.listing([f"{op} of {group}" for op, group in rows.select("op", "group").rows()]) or None


def _bandwidths(job: Job) -> Value:
    rows = job.once(communicators).filter(pl.col("bus_gbs").is_not_null()).head(_MOST_CALLS)
    each = rows.select("op", "group", "group_size", "bus_gbs").rows()
    return ", ".join(f"{op} of {group} ({size} ranks) {text.number(gbs)} GB/s" for op, group, size, gbs in each) or None


def _hours(job: Job) -> Value:
    called = job.once(log)["called_ns"].drop_nulls().to_numpy()
    return float(called.max() - called.min()) / _NS_PER_HOUR if len(called) else None


def _untimed(job: Job) -> Missing | None:
    if job.once(timed).height:
        return None
    return Missing("no_logged_times" if job.once(log).height else "no_collective_log")


of_hang = of_jobs(__name__).parts_of(hang)
of_jobs(__name__)("hang_missing_ranks", _missing_count, unit="count").says(
    "Ranks that others wait for in a collective when the logs end.",
    "members of the group that have not called its first open collective, that called another one in its place, or"
    " that have no log while half of the members or more wait",
    "PyTorch, torch/distributed/flight_recorder: collectives are matched by group and sequence number",
)
of_hang("hang_missing", _missing_ranks, unit="text").says(
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
of_hang("hang_last_calls", _last_calls, unit="text").says(
    "What the ranks that others wait for called last.", "last call in the log of each missing rank"
)

measure = of_jobs(__name__, unknown=_untimed)
measure("logged_hours", _hours, unit="number").says("Hours that the logs are of.", "last call - first call")
measure("logged_wait_share", _wait_share).says(
    "Part of the ranks' time in logged collectives that passes waiting for a later rank.",
    "sum over calls of (time in it - shortest time of any member) / sum of the times; of all_reduce, all_gather,"
    " reduce_scatter, all_to_all and barrier, which all members leave together",
    "TraceLens: the shortest member waits for nobody",
)
measure("logged_awaited", lambda job: job.once(_awaited)[0], unit="rank").says(
    "The rank that the others wait for longest in logged collectives.",
    "largest sum of waiting in those that it enters last",
)
measure("logged_awaited_share", lambda job: job.once(_awaited)[1]).says(
    "Part of the waiting in logged collectives that is for the rank which is waited for longest.",
    "waiting in the collectives that it enters last / all waiting",
)
measure("logged_awaited_last_share", _last_share).says(
    "Part of the logged collectives that the rank enters last which is waited for longest.",
    "number of them / number that several ranks logged",
)
measure("logged_awaited_in", _awaited_in, unit="text").says(
    "Collectives in which that rank is waited for longest.", "operation and group; the three with the most time"
)
measure("logged_bandwidths", _bandwidths, unit="text").says(
    "Bus bandwidth of logged collectives in GB/s; the three groups with the most time.",
    "sum of bytes x bus factor / sum of the shortest member's times",
    "nccl-tests, doc/PERFORMANCE.md",
)
