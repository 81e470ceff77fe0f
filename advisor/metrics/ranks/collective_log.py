"""What a log of collectives shows: whom a hang waits for, who arrives last, and how fast data moves."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor import text
from advisor.analysis.job.collective_log import Hang, communicators, hang, log, timed
from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value, of_jobs, tabulates_jobs
from advisor.model.missing import Missing

_MOST_CALLS: Final = 3
_NS_PER_HOUR: Final = 3.6e12


def _of_hang(value: Callable[[Hang], Value]) -> Callable[[Job], Value]:
    def of(job: Job) -> Value:
        stuck = job.once(hang)
        return stuck if isinstance(stuck, Missing) else value(stuck)

    return of


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


of_hang = of_jobs(__name__)
of_hang("hang_missing_ranks", _missing_count, unit="count").says(
    "Ranks that others wait for in a collective when the logs end.",
    "members of the group that have not called its first open collective, that called another one in its place, or"
    " that have no log while half of the members or more wait",
    "PyTorch, torch/distributed/flight_recorder: collectives are matched by group and sequence number",
)
of_hang("hang_missing", _of_hang(_missing_ranks), unit="text").says(
    "Which ranks others wait for in a collective when the logs end.", "the ranks of hang_missing_ranks"
)
of_hang("hang_waiting_ranks", _of_hang(lambda stuck: len(stuck.waiting)), unit="count").says(
    "Ranks that wait in a collective when the logs end.",
    "ranks with an open collective in a group in which ranks are missing",
)
of_hang(
    "hang_collective", _of_hang(lambda stuck: f"{stuck.op} {stuck.sequence} of {stuck.group_name}"), unit="text"
).says(
    "The collective that ranks wait in when the logs end.",
    "operation, number in its group, and group; where a hang waits for another, of that other",
)
of_hang("hang_line", _of_hang(lambda stuck: stuck.line or Missing("no_logged_line")), unit="text").says(
    "The line of the program that called this collective.",
    "innermost frame of the program's own code; the most frequent",
)
of_hang("hang_last_calls", _of_hang(_last_calls), unit="text").says(
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


@tabulates_jobs("communicator")
def communicator_table(job: Job) -> pl.DataFrame:
    """A row per group and op of a log of collectives, the most time first.

    Columns: group, op, group_size, calls (collectives), bytes (median), bus_gbs (of the rank that waits for nobody),
    wait_share (of the ranks' time), last (the rank that is waited for longest), last_share (of the waiting).
    """
    return job.once(communicators)
