"""Logs of collectives that were written without a profiler: all calls, and who arrived last in those with times.

No clocks are compared. Members of a collective leave it together, so the one that is in it for the shortest time
arrived last, and the others waited for as much longer as they were in it (TraceLens measures transfers so).
"""

from collections.abc import Collection
from typing import Final

import polars as pl

from advisor.analysis.job.job import Job
from advisor.analysis.job.network import bus_factor
from advisor.model.clause import Missing

GROUP: Final = ["group", "ranks"]  # the columns that tell a process group
_TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")  # no member leaves earlier


def log(job: Job) -> pl.DataFrame:
    """The logged calls of all ranks, in the order of each rank's log: the columns of `collective_log`."""
    own = {rank.worker: rank.log for rank in job.ranks}  # one per process, whatever its devices
    return pl.concat([*own.values(), *job.logs]) if own else pl.DataFrame()


def timed(job: Job) -> pl.DataFrame:
    """Calls that several ranks logged the time of, and that all of them leave together.

    Columns: those of the log, `last` (worker that arrived last), `wait_ns`, `transfer_ns` (of the one that waited for
    nobody), and `moved` (bytes x bus factor).
    """
    calls = job.once(log)
    if not calls.height:
        return calls
    known = calls.filter(pl.col("op").is_in(_TOGETHER), pl.col("dur_ns") > 0)
    key = [*GROUP, "op", "sequence"]
    known = known.unique([*key, "worker"], keep="none", maintain_order=True)
    met = known.filter(pl.len().over(key) > 1)
    return met.with_columns(
        last=pl.col("worker").sort_by("dur_ns").first().over(key),
        transfer_ns=pl.min("dur_ns").over(key),
        wait_ns=pl.col("dur_ns") - pl.min("dur_ns").over(key),
        moved=pl.col("bytes") * bus_factor(pl.col("op"), pl.col("group_size")),
    )


def untimed(job: Job) -> Missing | None:
    """Why nobody can be said to wait in logged collectives; None where it can."""
    if job.once(timed).height:
        return None
    return Missing("no_logged_times" if job.once(log).height else "no_collective_log")


def waited_for(job: Job, workers: Collection[int]) -> float | Missing:
    """The part of the waiting in the logged collectives of these workers' groups that is for them.

    Elsewhere ranks wait for those that they made late.
    """
    if why := untimed(job):
        return why
    theirs = job.once(timed).filter(pl.col("worker").is_in(workers).any().over(GROUP))
    waits, of_them = theirs["wait_ns"].to_numpy(), theirs["last"].is_in(workers).to_numpy()
    return float(waits[of_them].sum() / waits.sum()) if waits.sum() else 0.0
