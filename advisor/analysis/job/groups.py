"""Ranks that stand out together, and what they have in common."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.analysis.job.job import Job
from advisor.analysis.job.network import placement
from advisor.model.arrays import Floats, Ints
from advisor.text import listing, runs_of

_NEARER: Final = 0.5  # of the way from the typical rank to the one that stands out most: who is beyond is like it


def outstanding(values: Floats, usual: float) -> Ints:
    """Rows of the values that are nearer to the largest one than to the usual one; that of the largest at least."""
    most = float(values.max())
    return np.flatnonzero(values >= min(most, usual + _NEARER * (most - usual)))


def words(job: Job, positions: Sequence[int]) -> str:
    """`rank 3`, or `ranks 4-7 (host node2)` with the host or the group of processes that these ranks alone have."""
    if len(positions) == 1 or job.several_devices:
        return listing([job.names[position] for position in positions])
    numbers = [job.ranks[position].worker for position in positions]
    common = _host(job, positions) or _group(job, numbers)
    return f"ranks {runs_of(numbers)}" + (f" ({common})" if common else "")


def _host(job: Job, positions: Sequence[int]) -> str | None:
    hosts = {job.ranks[position].facts.get("host") for position in positions}
    beside = {job.ranks[other].facts.get("host") for other in job.members if other not in positions}
    return f"host {hosts.pop()}" if len(hosts) == 1 and None not in hosts and not hosts & beside else None


def _group(job: Job, numbers: Sequence[int]) -> str | None:
    """A process group of just these ranks."""
    groups = job.calls.select("group", "ranks", "group_size").unique(maintain_order=True).drop_nulls("group")
    listed = placement(groups["ranks"], groups["group_size"], None)["ranks"].to_list()
    names = (name for name, ranks in zip(groups["group"], listed, strict=True) if ranks == sorted(numbers))
    name = next(names, None)
    return f"group {name}" if name else None
