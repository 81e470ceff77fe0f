"""Ranks that differ in what they do by themselves: the same one late in every step, or another one each time."""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import (
    ALONE,
    SOURCE,
    TYPICAL,
    OwnSteps,
    all_own_steps,
    moving,
    own_steps,
    persistent,
    typical,
    unknown_loss,
    unknown_split,
)
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures_jobs
from advisor.model.arrays import Floats

_USUAL: Final = 0.25  # quantile: of two ranks that pause in turn each does in half of the steps


SKEW_MS = Metric(
    "skew_ms",
    "Step time lost because the ranks do not take equally long.",
    f"mean over steps of the largest alone time - typical mean = persistent + moving; {ALONE}; {TYPICAL}",
    SOURCE,
)
SKEW_SHARE = Metric(
    "skew_share",
    "Part of the step lost because the ranks do not take equally long.",
    "skew_ms / mean step",
    SOURCE,
)
COMMON_STEPS = Metric("common_steps", "Steps that all ranks use.", "number of them", unit="count")
PERSISTENT_SKEW_MS = Metric(
    "persistent_skew_ms",
    "Time per step that the rank which is latest on average takes beyond the typical rank.",
    f"max over ranks of the mean alone time - typical mean; {ALONE}; {TYPICAL}",
    SOURCE,
)
MOVING_SKEW_MS = Metric(
    "moving_skew_ms",
    "Time per step that is lost because another rank is late each time.",
    "mean over steps of the largest alone time - largest mean of a rank",
    SOURCE,
)
MOVING_SKEW_SHARE = Metric(
    "moving_skew_share",
    "Part of the step that is lost because another rank is late each time.",
    "moving_skew_ms / mean step",
    SOURCE,
)
MOVING_LEAST_MS = Metric(
    "moving_least_ms",
    "What evening that out saves at least.",
    "the same for the step without waiting, so that every rank's exposed transfers stay as they are; at most "
    "moving_skew_ms",
)
MOVING_MOST_MS = Metric(
    "moving_most_ms",
    "What evening that out saves at most.",
    "mean over steps of the largest alone time - the level that is left: the mean over ranks and steps, or more"
    " where a rank takes longer for good: the mean over steps of the rank that has most in all other steps; over"
    " the common steps or over all complete ones, whose unevenness may be the same, where that is more",
    "cross-validation: in few steps the largest mean of a rank is large by chance too",
)
MOVING_HOST_MS = Metric(
    "moving_host_ms",
    "The moving part of the time that is neither kernels nor waiting for input: the device waits for the host.",
    "moving_skew_ms, of alone time - time in kernels - waiting for input",
)
PAUSES_LEAST_MS = Metric(
    "pauses_least_ms",
    "What the job's step gets shorter by at least if no rank's host paused.",
    "mean over steps of the largest step without waiting - the same once each rank has, of what is neither kernels"
    " nor waiting for input, no more than its lower quartile over steps",
)
PAUSES_MOST_MS = Metric(
    "pauses_most_ms",
    "What the job's step gets shorter by at most if no rank's host paused.",
    "mean step - largest mean over steps of a rank's alone time, of the rest no more than its lower quartile; over"
    " the common steps or over all complete ones, where that is more",
)
PERSISTENT_COMPUTE_MS = Metric(
    "persistent_compute_ms",
    "The persistent part of the time in kernels.",
    "persistent_skew_ms, of work alone",
)
MOVING_COMPUTE_MS = Metric(
    "moving_compute_ms", "The moving part of the time in kernels.", "moving_skew_ms, of work alone"
)
PERSISTENT_INPUT_MS = Metric(
    "persistent_input_ms",
    "The persistent part of the time that ranks wait for input.",
    "persistent_skew_ms, of the time that the device idles while the loader is asked",
)
MOVING_INPUT_MS = Metric(
    "moving_input_ms",
    "The part of the time that ranks wait for input that moves from rank to rank.",
    "moving_skew_ms, of that time",
)
MOVING_CAUSES = Metric(
    "moving_causes",
    "What the latest rank of each step has more of than the typical one.",
    "mean over steps of (its time in kernels, waiting for input, rest) - the typical rank's in that step",
    unit="text",
)


@measures_jobs(SKEW_MS, SKEW_SHARE, COMMON_STEPS)
def skew(job: Job) -> Values:
    """What unevenness between ranks costs."""
    if why := unknown_loss(job):
        return why
    steps = job.once(own_steps)
    loss_ms = persistent(steps.alone) + moving(steps.alone)
    return {SKEW_MS: loss_ms, SKEW_SHARE: steps.share(loss_ms), COMMON_STEPS: len(job.steps)}


@measures_jobs(
    PERSISTENT_SKEW_MS,
    MOVING_SKEW_MS,
    MOVING_SKEW_SHARE,
    MOVING_LEAST_MS,
    MOVING_MOST_MS,
    MOVING_HOST_MS,
    PAUSES_LEAST_MS,
    PAUSES_MOST_MS,
    PERSISTENT_COMPUTE_MS,
    MOVING_COMPUTE_MS,
    PERSISTENT_INPUT_MS,
    MOVING_INPUT_MS,
    MOVING_CAUSES,
)
def split(job: Job) -> Values:
    """Whether it is always the same rank."""
    if why := unknown_split(job):
        return why
    steps = job.once(own_steps)
    return _split(steps) | _at_most((steps, job.once(all_own_steps)))


def _split(steps: OwnSteps) -> dict[Metric, Value]:
    moving_ms = moving(steps.alone)
    return {
        PERSISTENT_SKEW_MS: persistent(steps.alone),
        MOVING_SKEW_MS: moving_ms,
        MOVING_SKEW_SHARE: steps.share(moving_ms),
        MOVING_LEAST_MS: min(moving_ms, moving(steps.own)),
        MOVING_HOST_MS: moving(steps.other),
        PAUSES_LEAST_MS: _pauses_least(steps),
        PERSISTENT_COMPUTE_MS: persistent(steps.work),
        MOVING_COMPUTE_MS: moving(steps.work),
        PERSISTENT_INPUT_MS: persistent(steps.input),
        MOVING_INPUT_MS: moving(steps.input),
        MOVING_CAUSES: steps.words(_moving_parts(steps)),
    }


def _evened_out(values: Floats) -> float:
    """What each rank has once the steps are alike: the mean, or what one has for good.

    The rank with the largest mean has it in part by chance: so the one that is looked at in a step is that with the
    largest mean of all other steps.
    """
    others = values.sum(axis=1, keepdims=True) - values
    lasting = np.take_along_axis(values, others.argmax(axis=0)[None, :], axis=0)
    return float(max(values.mean(), lasting.mean()))


def _at_most(spans: tuple[OwnSteps, ...]) -> dict[Metric, Value]:
    """The most that evening out gives back, over some steps or over others."""
    return {
        MOVING_MOST_MS: max(float(r.alone.max(axis=0).mean()) - _evened_out(r.alone) for r in spans),
        PAUSES_MOST_MS: max(r.step_ms - float((r.alone - _paused(r)).mean(axis=1).max()) for r in spans),
    }


def _pauses_least(steps: OwnSteps) -> float:
    """What the job's step surely loses to them."""
    return float(steps.own.max(axis=0).mean() - (steps.own - _paused(steps)).max(axis=0).mean())


def _paused(steps: OwnSteps) -> Floats:
    """Host work of a step that the rank does not have in its usual one."""
    usual = np.quantile(steps.other, _USUAL, axis=1, method="lower", keepdims=True)
    more: Floats = (steps.other - usual).clip(0)
    return more


def _moving_parts(steps: OwnSteps) -> dict[str, float]:
    """By part, how much more of it the latest rank of a step has than the typical one: mean over steps, in ms."""
    latest = steps.alone.argmax(axis=0)[None, :]
    return {
        part: float((np.take_along_axis(cells, latest, axis=0)[0] - typical(cells)).mean())
        for part, cells in steps.parts.items()
    }
