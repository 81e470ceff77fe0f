"""Which ranks of the job were recorded, and how well their recordings fit together."""

from collections.abc import Iterable

import numpy as np

from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import blamed
from advisor.metrics.metric import of_jobs, of_ranks
from advisor.model.clause import Missing
from advisor.text import lapse, listed_ranks, listing


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
    return listed_ranks({job.ranks[i].worker for i in ranks})


def _awaited(job: Job) -> str | Missing:
    unread = set(range(job.world_size or 0)) - {rank.worker for rank in job.ranks}
    late = blamed(job, unread) if unread and not job.several_devices else Missing("all_ranks_read")
    return late if isinstance(late, Missing) else listed_ranks(late) if late else ""


of_ranks(__name__)("peers_recorded", lambda job, _: len(job.ranks) - 1, unit="count")
measure = of_jobs(__name__)
measure("ranks_recorded", lambda job: len(job.ranks), unit="count")
measure("ranks_apart", lambda job: listing([job.names[i] for i in job.apart]), unit="text")
measure("ranks_strangers", lambda job: " and ".join(_range(job, of) for of in job.strangers if job.mixed), unit="text")
measure("ranks_sittings", lambda job: "; ".join(_sittings(job)), unit="text")
measure("ranks_copied", lambda job: _range(job, job.copies) if job.copies else "", unit="text")
measure("ranks_unread_awaited", _awaited, unit="text")
measure("ranks_in_job", lambda job: job.world_size or Missing("world_size_unknown"), unit="count")
measure("matched_share", lambda job: job.matched_share if len(job.ranks) > 1 else None)
measure("clock_shift_ms", lambda job: float(np.ptp(job.offsets_ns)) / 1e6 if (job.calls["met"] > 1).any() else None)
