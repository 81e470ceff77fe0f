"""What stragglers cost: the steps of all ranks replayed with every operation at its typical duration."""

from typing import Final

from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value, of_jobs
from advisor.model.missing import Missing
from advisor.whatif.job_replay import START, JobReplay
from advisor.whatif.replay import TRUSTED_ERROR
from advisor.whatif.segments import COMPUTE, HOST, replayed

_TYPES: Final = {
    COMPUTE: "kernels",
    HOST: "hosts that launch late",
    START: "ranks that begin late",
}
_NO_SLOWDOWN: Final = Missing("no_straggler_slowdown")
_SOURCE: Final = (
    "what-if analysis of ByteDance's straggler study (OSDI 2025, arXiv 2505.05713), on the recorded kernels"
)


def _unknown(job: Job) -> Missing | None:
    """Also where the replay of the unchanged steps is too far off."""
    if job.missing:
        return job.missing
    if (steps := job.once(replayed)) is None:
        return Missing("circular_wait")
    return Missing("replay_off", share=abs(steps.error)) if abs(steps.error) > TRUSTED_ERROR else None


def _replay(job: Job) -> JobReplay:
    steps = job.once(replayed)
    assert steps  # noqa: S101 - else the metric is unknown
    return steps


def _rank_explains(job: Job) -> Value:
    """The share of the rank that explains most."""
    share = _replay(job).explained("rank")["explained_share"][0]
    return _NO_SLOWDOWN if share is None else min(1.0, max(0.0, float(share)))


def _operation(job: Job) -> Value:
    """The type of operation that explains most."""
    type_, share = _replay(job).explained("type").row(0)
    return _NO_SLOWDOWN if share is None else _TYPES.get(type_, type_)


measure = of_jobs(__name__, unknown=_unknown)
measure("straggler_slowdown", lambda job: _replay(job).slowdown, unit="ratio").says(
    "How many times as long the step takes as without stragglers; ranks that begin late count too.",
    "replayed step / step replayed with every operation at the mean (kernels) or median (transfers) of its like; "
    "steps that follow each other are one run, from the first rank's begin to the last one's end",
    _SOURCE,
)
measure("straggler_rank_explains", _rank_explains, unit="share").says(
    "Part of the slow-down by stragglers that one rank explains.",
    "(step - step with only its operations typical) / (step - step with all typical), 0 to 1; the largest of a rank",
    _SOURCE,
)
measure("straggler_operation", _operation, unit="text").says(
    "The type of operation that explains most of the slow-down by stragglers.",
    "largest (step - step with one type typical): kernels, late launches, late begin of the run, or a collective",
)
