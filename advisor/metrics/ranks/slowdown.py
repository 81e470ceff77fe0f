"""What stragglers cost: the steps of all ranks replayed with every operation at its typical duration."""

from typing import Final

import polars as pl

from advisor.analysis.job import segments, stragglers
from advisor.analysis.job.job import Job
from advisor.analysis.job.job_replay import MOST_ERROR, replayed
from advisor.metrics.metric import Value, of_jobs
from advisor.model.missing import Missing

_TYPES: Final = {
    segments.COMPUTE: "kernels",
    segments.HOST: "hosts that launch late",
    stragglers.START: "ranks that begin the step late",
}
_NO_SLOWDOWN: Final = Missing("no_straggler_slowdown")
_SOURCE: Final = (
    "what-if analysis of ByteDance's straggler study (OSDI 2025, arXiv 2505.05713), on the recorded kernels"
)


def _unreplayed(job: Job) -> Missing | None:
    return job.missing or (None if job.once(replayed) else Missing("circular_wait"))


def _unknown(job: Job) -> Missing | None:
    """Also where the replay of the unchanged steps is too far off."""
    if why := _unreplayed(job):
        return why
    off = _off(job)
    return Missing("replay_off", share=off) if off > MOST_ERROR else None


def _replay(job: Job) -> stragglers.Replay:
    steps = job.once(replayed)
    assert steps  # noqa: S101 - else the metric is unknown
    return steps


def _off(job: Job) -> float:
    return abs(_replay(job).error)


def _rank(job: Job) -> int | Missing:
    """The rank that explains most."""
    rank, _ = _first(_replay(job).by_rank, "rank")
    return _NO_SLOWDOWN if rank is None else int(rank)


def _operation(job: Job) -> Value:
    """The type of operation that explains most."""
    type_, _ = _first(_replay(job).by_type, "type")
    return _NO_SLOWDOWN if type_ is None else _TYPES.get(str(type_), str(type_))


def _first(shares: pl.DataFrame, column: str) -> tuple[int | str | None, Value]:
    """The first row's value and its share, 0 to 1; None where there is nothing to explain."""
    if not shares.height or shares["explained_share"][0] is None:
        return None, _NO_SLOWDOWN
    return shares[column][0], min(1.0, max(0.0, float(shares["explained_share"][0])))


of_jobs(__name__, unknown=_unreplayed)("straggler_replay_error", lambda job: min(1.0, _off(job)), unit="share").says(
    "How far the replay of the unchanged steps is off.",
    "|replayed mean step / recorded mean step - 1|; where it is above 5 %, the others could not be told",
    _SOURCE,
)
measure = of_jobs(__name__, unknown=_unknown)
measure("straggler_slowdown", lambda job: _replay(job).slowdown, unit="ratio").says(
    "How many times as long the step takes as without stragglers; ranks that begin the step late count too.",
    "replayed step / step replayed with every operation at the mean (kernels) or median (transfers) of its like; "
    "a step lasts from the last rank's end of the step before to the last rank's end",
    _SOURCE,
)
measure.rank("straggler_rank", _rank).says(
    "The rank that explains most of the slow-down by stragglers.", "largest straggler_rank_explains"
)
measure("straggler_rank_explains", lambda job: _first(_replay(job).by_rank, "rank")[1], unit="share").says(
    "Part of the slow-down by stragglers that one rank explains.",
    "(step - step with only its operations typical) / (step - step with all typical), 0 to 1",
    _SOURCE,
)
measure("straggler_operation", _operation, unit="text").says(
    "The type of operation that explains most of the slow-down by stragglers.",
    "largest (step - step with one type typical): kernels, late launches, late begin of the step, or a collective",
)
