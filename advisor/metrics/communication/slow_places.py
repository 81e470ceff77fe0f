"""Where in the network data moves more slowly than between other ranks: a node, a link, a rail, a switch."""

from typing import Final

import polars as pl

from advisor.analysis.job.collectives import LARGE_BYTES, gain_ms, queue_costs, timed, traffic, untimed, why_none
from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import outstanding
from advisor.analysis.job.topology import common_places, nodes_of, places_of_groups
from advisor.metrics.metric import Value, of_jobs
from advisor.model.clause import Missing
from advisor.text import count, runs_of

_ENOUGH_CALLS: Final = 3
_ENOUGH_GROUPS: Final = 2  # of one size, so far apart, that do the same
_WHERE: Final = {"link": "between", "rail": "along"}


def _compared(job: Job) -> pl.DataFrame:
    """`_ratios` of the recorded transfers."""
    return _ratios(job, job.once(traffic).filter("told", pl.col("ends").is_not_null()))


def _ratios(job: Job, calls: pl.DataFrame) -> pl.DataFrame:
    """A row per group of ranks that others do the same as: its ranks' numbers, and its time over the typical group's.

    Groups do the same where their operation, size, type and bytes are equal and their ranks are on as many nodes. Where
    nobody knows on how many, none is compared: a link within a node is faster than one between nodes.
    """
    calls = calls.select("op", "bytes", "dtype", "ends", "transfer_ns", "instance")
    calls = calls.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("transfer_ns") > 0)
    nodes = calls.select("ends").unique()
    nodes = nodes.with_columns(
        nodes=pl.Series([nodes_of(job, ends) for ends in nodes["ends"].to_list()], dtype=pl.Int64)
    )
    alike = ["op", "bytes", "dtype", "size", "nodes"]
    calls = calls.join(nodes.drop_nulls(), on="ends").with_columns(size=pl.col("ends").list.len())
    groups = calls.group_by(*alike, "ends").agg(pl.median("transfer_ns"), calls=pl.col("instance").n_unique())
    groups = groups.filter(pl.col("calls") >= _ENOUGH_CALLS, pl.len().over(alike) >= _ENOUGH_GROUPS)
    usual = pl.col("transfer_ns").sort().get((pl.len() - 1) // 2).over(alike)
    spent, usually = ((pl.col(time) * pl.col("calls")).sum() for time in ("transfer_ns", "usual_ns"))
    of_ends = groups.with_columns(usual_ns=usual).group_by("ends").agg(ratio=spent / usually)
    return of_ends.sort("ratio", "ends", descending=[True, False])


def _slow(job: Job) -> pl.DataFrame:
    """The groups of ranks whose transfers are slow, the slowest first."""
    groups = job.once(_compared)
    return groups[outstanding(groups["ratio"].to_numpy(), 1.0)]


def _words(job: Job) -> str:
    """`between nodes 2-3`, `along rail 3`, `at node 17`; without a place the ranks of the slowest group."""
    groups, every = job.once(_slow), job.once(_compared)["ends"].to_list()
    if places := common_places(range(groups.height), places_of_groups(job, every)):  # the slow ones come first
        return f"{_WHERE.get(places[0].dimension, 'at')} {places[0].words}"
    others = f" and in {count(groups.height - 1, 'other group')}" if groups.height > 1 else ""
    return f"between ranks {runs_of(groups['ends'][0])}{others}"


def _gains_ms(job: Job) -> tuple[float, float]:
    """At most also of transfers that kernels hide: those that are queued after one wait for it."""
    # The calls of the slow groups, with what of each would be saved if it took as long as elsewhere.
    calls = job.once(traffic).join(job.once(_slow), on="ends")
    longer_ns = (pl.col("transfer_ns") * (1 - 1 / pl.col("ratio"))).cast(pl.Int64)
    calls = calls.with_columns(longer_ns=longer_ns, saved_ns=pl.min_horizontal(longer_ns, "exposed_ns"))
    return gain_ms(job, calls), gain_ms(job, queue_costs(calls, job.once(traffic)))


def _logged_ratio(job: Job) -> Value:
    """How many times as long the slow groups take in the logs: those all of whose ranks have a log."""
    if why := untimed(job):
        return why
    ends = pl.col("worker").unique().sort().over("group", "ranks", mapping_strategy="join")
    calls = job.once(timed).with_columns(ends=ends, dtype=None, instance=pl.struct("group", "ranks", "op", "sequence"))
    logged = _ratios(job, calls.filter(pl.col("ends").list.len() == pl.col("group_size")))
    ratios = logged.join(job.once(_slow).select("ends"), on="ends")["ratio"].to_numpy()
    return float(ratios.mean()) if len(ratios) else Missing("no_groups_alike")


of_places = of_jobs(
    __name__, unknown=lambda job: why_none(job) or (None if job.once(_compared).height else Missing("no_groups_alike"))
)
of_places("slow_place", _words, unit="text").says(
    "Where data moves slowest between the ranks: a node, the link between two nodes, nodes below one switch, a rail.",
    "the place with four fifths of the groups whose slow_place_ratio is nearer to the largest than to 1, where these"
    " are four fifths of its groups; without one the ranks of the slowest group",
)
of_places("slow_place_ratio", lambda job: max(1.0, job.once(_slow)["ratio"][0])).says(
    "How many times as long transfers take there as the same transfers between other ranks.",
    "of groups of ranks whose transfers have the same operation, bytes, type, number of ranks and of nodes, from 4 MiB"
    " and three calls on: sum of (median transfer x calls) / the same with the lower median over groups; the largest",
    "transfer = from the last arrival to the end, so that no late rank counts",
)
of_places("slow_place_logged_ratio", _logged_ratio, unit="ratio").says(
    "How many times as long transfers take there in logged collectives, over hours.",
    "slow_place_ratio of logged transfers; mean over the groups that slow_place counts, if all their ranks have a log",
)
of_places("slow_place_groups", lambda job: job.once(_slow).height, unit="count").says(
    "Groups of ranks whose transfers are slow there.", "those that slow_place counts"
)
of_places.saving("slow_place", _gains_ms).says("transfers that take as long there as elsewhere")
