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


of_ranks(__name__)("peers_recorded", lambda job, _: len(job.ranks) - 1, unit="count").says(
    "Other ranks of the job whose traces are here, too.", "worker and device pairs - 1"
)
measure = of_jobs(__name__)
measure("ranks_recorded", lambda job: len(job.ranks), unit="count").says(
    "Ranks whose traces are here.", "number of worker and device pairs"
)
measure("ranks_apart", lambda job: listing([job.names[i] for i in job.apart]), unit="text").says(
    "Ranks that are left out where ranks are compared.",
    "those that recorded whole none of the steps that half of the ranks or more did: cut off, or at another time",
)
measure(
    "ranks_strangers", lambda job: " and ".join(_range(job, of) for of in job.strangers if job.mixed), unit="text"
).says(
    "Ranks that never meet though the same group holds them: their files may be of different jobs.",
    "sets of ranks that no trusted match joins, where their collectives are of a group that holds ranks of another"
    " set; empty where there are none",
)
measure("ranks_sittings", lambda job: "; ".join(_sittings(job)), unit="text").says(
    "Ranks by when they were recorded, where that was not at one time: their files may be of different jobs.",
    "sets of ranks over a minute apart by their files' clocks, of which none meets a rank of another; empty where"
    " it was at one time",
)
measure("ranks_copied", lambda job: _range(job, job.copies) if job.copies else "", unit="text").says(
    "Ranks whose files are copies of one recording; empty where there are none.",
    "those of several files in which each of 8 kernels or more takes the same time, to 2 ns a run, or all of them as"
    " much longer; of fewer kernels, those whose complete steps are the same",
)
measure("ranks_unread_awaited", _awaited, unit="text").says(
    "Ranks that were not read and that the others wait for; empty where there are none.",
    "members of groups in which all read ranks stay longer than in the quickest group of the kind, by 5 % of the steps",
)
measure("ranks_in_job", lambda job: job.world_size or Missing("world_size_unknown"), unit="count").says(
    "Ranks that the job has.", "the world size that the ranks report, at least ranks_recorded"
)
measure("matched_share", lambda job: job.matched_share if len(job.ranks) > 1 else None).says(
    "Part of the time in collectives whose members on the other ranks were found.",
    "time in matches that pass the self-check / time in collectives of groups with another rank here; the check: ends"
    " coincide within 20 µs or a tenth of the shortest member, which spans the time from the last arrival to the end",
    "the self-check of ByteDance's straggler study (OSDI 2025)",
)
measure(
    "clock_shift_ms", lambda job: float(np.ptp(job.offsets_ns)) / 1e6 if (job.calls["met"] > 1).any() else None
).says(
    "By how much the ranks' clocks differ at most; everything else here has it taken off.",
    "largest difference between the median ends of the collectives of two ranks, 0 below 1 ms: one host",
    "dPRO (MLSys 2022) on why clocks must be aligned",
)
