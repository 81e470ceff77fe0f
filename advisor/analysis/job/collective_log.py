"""What logs of collectives show of a job's ranks: which one the others wait for in a hang, and who arrives last.

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
    groups = [_hang(of_group, calls) for _, of_group in together.group_by(_GROUP, maintain_order=True)]
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
    done = pl.col("sequence").filter("completed").max().over("worker").fill_null(-1)
    is_open = pl.col("completed").not_() & (pl.col("sequence") > done)
    opened = of_group.filter(is_open)
    waiting = opened.filter(pl.col("sequence") == pl.col("sequence").min())
    if not waiting.height:
        return None
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
    return stuck._replace(last_calls=list(_last_calls(calls, stuck.missing))) if stuck.missing else None


def _last_calls(calls: pl.DataFrame, ranks: Sequence[int]) -> Iterable[str]:
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
