"""Which ranks of the job were recorded, and how well their recordings fit together."""

from collections.abc import Iterable

import numpy as np

from advisor.analysis.job.job import Job
from advisor.metrics.metric import of_jobs, of_ranks
from advisor.model.missing import Missing
from advisor.text import lapse, listing, runs_of


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


of_ranks(__name__)("peers_recorded", lambda job, _: len(job.ranks) - 1, unit="count")
measure = of_jobs(__name__)
measure("ranks_recorded", lambda job: len(job.ranks), unit="count")
measure("ranks_apart", lambda job: listing([job.names[i] for i in job.apart]), unit="text")
measure("ranks_strangers", lambda job: " and ".join(_strangers(job)), unit="text")
measure("ranks_sittings", lambda job: "; ".join(_sittings(job)), unit="text")
measure("ranks_in_job", lambda job: job.world_size or Missing("world_size_unknown"), unit="count")
measure("matched_share", lambda job: job.matched_share if len(job.ranks) > 1 else None)
measure(
    "clock_shift_ms", lambda job: None if job.clock.residual_ns is None else float(np.ptp(job.clock.offsets_ns)) / 1e6
)
