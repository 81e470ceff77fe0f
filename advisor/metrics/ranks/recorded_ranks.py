"""Which ranks of the job were recorded, and how well their recordings fit together."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.analysis.job.job import Job
from advisor.metrics.old import Metric, Values, measures_jobs, measures_ranks
from advisor.model.missing import Missing
from advisor.text import lapse, listing, runs_of

PEERS_RECORDED = Metric(
    "peers_recorded", "Other ranks of the job whose traces are here, too.", "worker and device pairs - 1", unit="count"
)


@measures_ranks(PEERS_RECORDED)
def peers(job: Job, position: int) -> Values:
    """Whether the others were recorded: who has done so needs no advice to do it."""
    return {PEERS_RECORDED: sum(other != position for other in range(len(job.ranks)))}


RANKS_RECORDED = Metric(
    "ranks_recorded", "Ranks whose traces are here.", "number of worker and device pairs", unit="count"
)
RANKS_APART = Metric(
    "ranks_apart",
    "Ranks that are left out where ranks are compared.",
    "those that recorded whole none of the steps that half of the ranks or more did: cut off, or at another time",
    unit="text",
)
RANKS_STRANGERS = Metric(
    "ranks_strangers",
    "Ranks that never meet though the same group holds them: their files may be of different jobs.",
    "sets of ranks that no trusted match joins, where their collectives are of a group that holds ranks of another"
    " set; empty where there are none",
    unit="text",
)
RANKS_SITTINGS = Metric(
    "ranks_sittings",
    "Ranks by when they were recorded, where that was not at one time: their files may be of different jobs.",
    "sets of ranks over a minute apart by their files' clocks, of which none meets a rank of another; empty where"
    " it was at one time",
    unit="text",
)
RANKS_IN_JOB = Metric(
    "ranks_in_job",
    "Ranks that the job has.",
    "the world size that the ranks report, at least ranks_recorded",
    unit="count",
)
MATCHED_SHARE = Metric(
    "matched_share",
    "Part of the time in collectives whose members on the other ranks were found.",
    "time in matches that pass the self-check / time in collectives; the check: ends coincide within 20 µs or a"
    " tenth of the shortest member, which spans the time from the last arrival to the end",
    "the self-check of ByteDance's straggler study (OSDI 2025)",
)
CLOCK_SHIFT_MS = Metric(
    "clock_shift_ms",
    "By how much the ranks' clocks differ at most; everything else here has it taken off.",
    "largest difference between the median ends of the collectives of two ranks, 0 below 1 ms: one host",
    "dPRO (MLSys 2022) on why clocks must be aligned",
)
CLOCK_RESIDUAL_US = Metric(
    "clock_residual_us",
    "How far apart the ends of a collective still are on the common clock.",
    "median over collectives of (last end - first end)",
)


@measures_jobs(
    *(RANKS_RECORDED, RANKS_APART, RANKS_STRANGERS, RANKS_SITTINGS, RANKS_IN_JOB),
    *(MATCHED_SHARE, CLOCK_SHIFT_MS, CLOCK_RESIDUAL_US),
)
def ranks(job: Job) -> Values:
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
