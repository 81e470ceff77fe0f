"""How long each rank waits for the others in collectives, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.metrics.metric import Metric, Value, measures_jobs, measures_ranks, tabulates_jobs
from advisor.model.missing import Missing
from advisor.text import lapse, listing, runs_of

_SOURCE: Final = "wait = latest start - own start, transfer = the rest, as TraceLens and ByteDance's study have it"
_GUEST: Final = Missing("guest_device")
_APART: Final = Missing("other_steps")
_RULE: Final = "over the steps that every rank uses; only time that no kernel of the rank's own covers"

WAIT_MS = Metric("wait_ms", "ms", "Time per step in which the rank waits for a later one.", _RULE, _SOURCE)
WAIT_SHARE = Metric(
    "wait_share",
    "share",
    "Part of the step in which the rank waits for a later one.",
    "wait_ms / mean of the common steps",
    _SOURCE,
)
TRANSFER_MS = Metric(
    "transfer_ms",
    "ms",
    "Time per step in which data moves between ranks and nothing else runs on the device.",
    "time in collectives that none of the rank's kernels covers, less wait_ms",
    _SOURCE,
)
OWN_STEP_MS = Metric(
    "own_step_ms",
    "ms",
    "What the step takes this rank by itself: the slowest rank's sets the job's pace.",
    "mean of the common steps - wait_ms",
    _SOURCE,
)
OWN_WHOLE_STEP_MS = Metric(
    "own_whole_step_ms",
    "ms",
    "What the step takes this rank by itself, the uneven steps included, which savings count too.",
    "mean over all steps that every rank recorded whole of (step - exposed waiting)",
    _SOURCE,
)
ALONE_WHOLE_STEP_MS = Metric(
    "alone_whole_step_ms",
    "ms",
    "What the step takes this rank without exposed collectives, the uneven steps included.",
    "mean over the same steps of (step - time in collectives that no kernel of the rank's own covers)",
    _SOURCE,
)
OWN_STEP_EXCESS_MS = Metric(
    "own_step_excess_ms",
    "ms",
    "By how much longer the step takes this rank by itself than the typical rank.",
    "own_step_ms - its lower median over the ranks: of two, that of the one that does less",
    _SOURCE,
)
PEERS_RECORDED = Metric(
    "peers_recorded", "count", "Other ranks of the job whose traces are here, too.", "worker and device pairs - 1"
)
_WAITS: Final = (
    *(WAIT_MS, WAIT_SHARE, TRANSFER_MS),
    *(OWN_STEP_MS, OWN_WHOLE_STEP_MS, ALONE_WHOLE_STEP_MS, OWN_STEP_EXCESS_MS),
)


@measures_ranks(*_WAITS)
def waits(job: Job, position: int) -> Mapping[Metric, Value]:
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
    "ms",
    "What waiting for later ranks in the steps left out as uneven adds to the mean step.",
    "sum over those steps of exposed waiting / steps that every rank recorded whole; 0 if it is unknown",
    _SOURCE,
)


@measures_ranks(PEERS_RECORDED)
def peers(job: Job, position: int) -> Mapping[Metric, Value]:
    """Whether the others were recorded: who has done so needs no advice to do it."""
    return {PEERS_RECORDED: sum(other != position for other in range(len(job.ranks)))}


@measures_ranks(OUTLIER_AWAITED_MS)
def awaited(job: Job, position: int) -> Mapping[Metric, Value]:
    """Steps that were long because another rank was late are no fault of this one."""
    if not job.ranks[position].steps["used"].any():
        return {}
    if job.missing or position not in job.members or not job.whole_steps:
        return {OUTLIER_AWAITED_MS: 0.0}
    used = job.ranks[position].steps.filter("used")["step"]
    outliers = job.whole_pace.filter(pl.col("rank") == position, ~pl.col("step").is_in(used.implode()))
    return {OUTLIER_AWAITED_MS: float(outliers["wait_ns"].sum()) / 1e6 / len(job.whole_steps)}


RANKS_RECORDED = Metric("ranks_recorded", "count", "Ranks whose traces are here.", "number of worker and device pairs")
RANKS_APART = Metric(
    "ranks_apart",
    "text",
    "Ranks that are left out where ranks are compared.",
    "those that recorded whole none of the steps that half of the ranks or more did: cut off, or at another time",
)
RANKS_STRANGERS = Metric(
    "ranks_strangers",
    "text",
    "Ranks that never meet though the same group holds them: their files may be of different jobs.",
    "sets of ranks that no trusted match joins, where their collectives are of a group that holds ranks of another"
    " set; empty where there are none",
)
RANKS_SITTINGS = Metric(
    "ranks_sittings",
    "text",
    "Ranks by when they were recorded, where that was not at one time: their files may be of different jobs.",
    "sets of ranks over a minute apart by their files' clocks, of which none meets a rank of another; empty where"
    " it was at one time",
)
RANKS_IN_JOB = Metric(
    "ranks_in_job",
    "count",
    "Ranks that the job has.",
    "the world size that the ranks report, at least ranks_recorded",
)
MATCHED_SHARE = Metric(
    "matched_share",
    "share",
    "Part of the time in collectives whose members on the other ranks were found.",
    "time in matches that pass the self-check / time in collectives; the check: ends coincide within 20 µs or a"
    " tenth of the shortest member, which spans the time from the last arrival to the end",
    "the self-check of ByteDance's straggler study (OSDI 2025)",
)
CLOCK_SHIFT_MS = Metric(
    "clock_shift_ms",
    "ms",
    "By how much the ranks' clocks differ at most; everything else here has it taken off.",
    "largest difference between the median ends of the collectives of two ranks, 0 below 1 ms: one host",
    "dPRO (MLSys 2022) on why clocks must be aligned",
)
CLOCK_RESIDUAL_US = Metric(
    "clock_residual_us",
    "us",
    "How far apart the ends of a collective still are on the common clock.",
    "median over collectives of (last end - first end)",
)


@measures_jobs(
    *(RANKS_RECORDED, RANKS_APART, RANKS_STRANGERS, RANKS_SITTINGS, RANKS_IN_JOB),
    *(MATCHED_SHARE, CLOCK_SHIFT_MS, CLOCK_RESIDUAL_US),
)
def ranks(job: Job) -> Mapping[Metric, Value]:
    """How much of the job is here, and how well the ranks fit together."""
    offsets, residual_ns = job.clock.offsets_ns, job.clock.residual_ns
    return {
        RANKS_RECORDED: len(job.ranks),
        RANKS_APART: listing([job.names[i] for i in job.apart]),
        RANKS_STRANGERS: " and ".join(_strangers(job)),
        RANKS_SITTINGS: "; ".join(_sittings(job)),
        RANKS_IN_JOB: job.world_size or Missing("world_size_unknown"),
        MATCHED_SHARE: job.matched_share if len(job.ranks) > 1 else None,
        CLOCK_SHIFT_MS: None if residual_ns is None else float(offsets.max() - offsets.min()) / 1e6,
        CLOCK_RESIDUAL_US: None if residual_ns is None else residual_ns / 1e3,
    }


def _strangers(job: Job) -> list[str]:
    """The sets of ranks that are strangers to each other though one group holds them."""
    return [_range(job, ranks) for ranks in job.strangers] if job.mixed else []


def _sittings(job: Job) -> list[str]:
    """`rank 0`, `5 h later ranks 1 to 3`."""
    ranges: list[str] = []
    until = 0
    for ranks in job.sittings:
        spans = [job.span_ns(i) for i in ranks]
        later = f"{lapse(min(start for start, _ in spans) - until)} later " if ranges else ""
        ranges.append(later + _range(job, ranks))
        until = max(end for _, end in spans)
    return ranges


def _range(job: Job, ranks: Iterable[int]) -> str:
    workers = {job.ranks[i].worker for i in ranks}
    return f"rank{'s' if len(workers) > 1 else ''} {runs_of(workers)}"


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
