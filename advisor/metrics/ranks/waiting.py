"""How long each rank waits for the others in collectives, and for whom."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value, tabulates_jobs
from advisor.metrics.old import Metric, Values, measures_jobs, measures_ranks
from advisor.metrics.rank_identity import Identity
from advisor.model.missing import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT

_SOURCE: Final = "wait = latest start - own start, transfer = the rest, as TraceLens and ByteDance's study have it"
_GUEST: Final = Missing("guest_device")
_APART: Final = Missing("other_steps")
_AWAITED_LEAST: Final = 0.5  # of all waiting
_RULE: Final = "over the steps that every rank uses; only time that no kernel of the rank's own covers"

WAIT_MS = Metric("wait_ms", "Time per step in which the rank waits for a later one.", _RULE, _SOURCE)
WAIT_SHARE = Metric(
    "wait_share",
    "Part of the step in which the rank waits for a later one.",
    "wait_ms / mean of the common steps",
    _SOURCE,
)
TRANSFER_MS = Metric(
    "transfer_ms",
    "Time per step in which data moves between ranks and nothing else runs on the device.",
    "time in collectives that none of the rank's kernels covers, less wait_ms",
    _SOURCE,
)
OWN_STEP_MS = Metric(
    "own_step_ms",
    "What the step takes this rank by itself: the slowest rank's sets the job's pace.",
    "mean of the common steps - wait_ms",
    _SOURCE,
)
OWN_WHOLE_STEP_MS = Metric(
    "own_whole_step_ms",
    "What the step takes this rank by itself, the uneven steps included, which savings count too.",
    "mean over all steps that every rank recorded whole of (step - exposed waiting)",
    _SOURCE,
)
ALONE_WHOLE_STEP_MS = Metric(
    "alone_whole_step_ms",
    "What the step takes this rank without exposed collectives, the uneven steps included.",
    "mean over the same steps of (step - time in collectives that no kernel of the rank's own covers)",
    _SOURCE,
)
OWN_STEP_EXCESS_MS = Metric(
    "own_step_excess_ms",
    "By how much longer the step takes this rank by itself than the typical rank.",
    "own_step_ms - its lower median over the ranks: of two, that of the one that does less",
    _SOURCE,
)
_WAITS: Final = (
    *(WAIT_MS, WAIT_SHARE, TRANSFER_MS),
    *(OWN_STEP_MS, OWN_WHOLE_STEP_MS, ALONE_WHOLE_STEP_MS, OWN_STEP_EXCESS_MS),
)


@measures_ranks(*_WAITS)
def waits(job: Job, position: int) -> Values:
    """One rank's waiting."""
    missing = job.missing or (_GUEST if position in job.guests else _APART if position in job.apart else None)
    return dict.fromkeys(_WAITS, missing) if missing else _waits(job, pl.col("rank") == position)


def _waits(job: Job, of_rank: pl.Expr) -> dict[Metric, Value]:
    complete, pace = job.whole_pace.filter(of_rank), job.pace.filter(of_rank)
    means = pace.select((pl.col("dur_ns", "wait_ns", "transfer_ns", "own_ns").mean()) / 1e6).row(0, named=True)
    return {
        WAIT_MS: means["wait_ns"],
        WAIT_SHARE: means["wait_ns"] / means["dur_ns"] if means["dur_ns"] else None,
        TRANSFER_MS: means["transfer_ns"],
        OWN_STEP_MS: means["own_ns"],
        OWN_WHOLE_STEP_MS: complete.select(pl.mean("own_ns") / 1e6).item(),
        ALONE_WHOLE_STEP_MS: complete.select((pl.mean("own_ns") - pl.mean("transfer_ns")) / 1e6).item(),
        OWN_STEP_EXCESS_MS: means["own_ns"] - job.once(_typical_own_ms),
    }


def _typical_own_ms(job: Job) -> float:
    own = job.pace.group_by("rank").agg(pl.mean("own_ns"))["own_ns"]
    return float(np.sort(own.to_numpy())[(len(own) - 1) // 2]) / 1e6


OUTLIER_AWAITED_MS = Metric(
    "outlier_awaited_ms",
    "What waiting for later ranks in the steps left out as uneven adds to the mean step.",
    "sum over those steps of exposed waiting / steps that every rank recorded whole; 0 if it is unknown",
    _SOURCE,
)


@measures_ranks(OUTLIER_AWAITED_MS)
def awaited(job: Job, position: int) -> Values:
    """Steps that were long because another rank was late are no fault of this one."""
    if not job.ranks[position].steps["used"].any():
        return {}
    if job.missing or position not in job.members or not job.whole_steps:
        return {OUTLIER_AWAITED_MS: 0.0}
    used = job.ranks[position].steps.filter("used")["step"]
    outliers = job.whole_pace.filter(pl.col("rank") == position, ~pl.col("step").is_in(used.implode()))
    return {OUTLIER_AWAITED_MS: float(outliers["wait_ns"].sum()) / 1e6 / len(job.whole_steps)}


@tabulates_jobs("pace")
def paces(job: Job) -> pl.DataFrame:
    """A row per rank and common step, where there are several ranks.

    Columns: rank (position), name, step, step_ms, own_ms, wait_ms; the last two null where waiting cannot be told.
    """
    names = pl.Series(job.names, dtype=pl.String)
    known = pl.lit(len(job.ranks) > 1 and job.missing is None)
    rows = job.pace if len(job.ranks) > 1 else job.pace.clear()
    return rows.select(
        rank="rank",
        name=names.gather(rows["rank"]),
        step="step",
        step_ms=pl.col("dur_ns") / 1e6,
        own_ms=pl.when(known).then(pl.col("own_ns") / 1e6),
        wait_ms=pl.when(known).then(pl.col("wait_ns") / 1e6),
    )


@tabulates_jobs("wait")
def who_waits(job: Job) -> pl.DataFrame:
    """A row per pair of ranks: waiting, awaited (positions), waiting_name, awaited_name, wait_ms per step."""
    if job.missing:
        schema = {"waiting": pl.Int64, "awaited": pl.Int64, "waiting_name": pl.String, "awaited_name": pl.String}
        return pl.DataFrame(schema=schema | {"wait_ms": pl.Float64})
    names = pl.Series(job.names)
    return job.waits.select(
        waiting="rank",
        awaited="last",
        waiting_name=names.gather(job.waits["rank"]),
        awaited_name=names.gather(job.waits["last"]),
        wait_ms=pl.col("wait_ns") / 1e6 / len(job.steps),
    )


WAITING_SHARE = Metric(
    "waiting_share",
    "Part of all ranks' time that passes waiting for later ranks.",
    "mean over ranks and common steps of exposed waiting / mean step",
    "wait = latest start - own start, as TraceLens and ByteDance's study have it",
)
WAITING_MOST = Identity.of("waiting_most", "The rank that waits longest for others.", "largest mean exposed waiting")
WAITING_MOST_SHARE = Metric(
    "waiting_most_share", "Part of its time that this rank waits.", "mean exposed waiting / mean step"
)
PIPELINE_WAIT_SHARE = Metric(
    "pipeline_wait_share",
    "Part of all ranks' time that passes waiting for another rank to send or receive: the bubbles of a pipeline.",
    "the same of exposed waiting in sends and receives; 0 where there are none",
)
AWAITED_MOST = Identity.of(
    "awaited_most",
    "The rank that the others mostly wait for.",
    "largest sum of exposed waiting for it, if awaited_most_share is a half or more",
)
AWAITED_MOST_SHARE = Metric(
    "awaited_most_share",
    "Part of the waiting that is for the rank which is waited for longest.",
    "largest sum of exposed waiting for one rank / sum for all",
)
_WAITING: Final = (
    *(WAITING_SHARE, *WAITING_MOST, WAITING_MOST_SHARE, PIPELINE_WAIT_SHARE),
    *(*AWAITED_MOST, AWAITED_MOST_SHARE),
)


@measures_jobs(*_WAITING)
def waiting_of_all(job: Job) -> Values:
    """Who waits, and for whom."""
    if job.missing:
        sends = job.calls.filter(pl.col("op").is_in(POINT_TO_POINT) | pl.col("op").is_null()).height
        return dict.fromkeys(_WAITING, job.missing) | ({} if sends else {PIPELINE_WAIT_SHARE: 0.0})
    return _waiting(job) | _awaited(job)


def _waiting(job: Job) -> dict[Metric, Value]:
    by_rank = job.pace.group_by("rank", maintain_order=True).agg(pl.mean("wait_ns", "paired_ns", "dur_ns"))
    most = by_rank.sort("wait_ns", descending=True, maintain_order=True).row(0, named=True)
    return {
        WAITING_SHARE: _ratio(by_rank["wait_ns"].mean(), by_rank["dur_ns"].mean()),
        PIPELINE_WAIT_SHARE: _ratio(by_rank["paired_ns"].mean(), by_rank["dur_ns"].mean()),
        **WAITING_MOST.values(job, most["rank"]),
        WAITING_MOST_SHARE: _ratio(most["wait_ns"], most["dur_ns"]),
    }


def _awaited(job: Job) -> dict[Metric, Value]:
    by_rank = job.waits.group_by("last").agg(pl.sum("wait_ns")).sort("wait_ns", "last", descending=[True, False])
    spent = by_rank["wait_ns"].to_numpy()
    longest = float(spent[0] / spent.sum()) if spent.sum() else 0.0
    nobody = dict.fromkeys(AWAITED_MOST, Missing("no_rank_awaited_most"))
    rank = AWAITED_MOST.values(job, by_rank["last"][0]) if longest >= _AWAITED_LEAST else nobody
    return {**rank, AWAITED_MOST_SHARE: longest}


def _ratio(part: object, total: object) -> Value:
    return part / total if isinstance(part, float) and isinstance(total, float) and total else None
