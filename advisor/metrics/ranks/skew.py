"""Ranks that differ in what they do by themselves: the same one late in every step, or another one each time."""

from collections.abc import Callable
from functools import partial
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
from advisor.metrics.metric import Value, of_jobs
from advisor.model.arrays import Floats

_USUAL: Final = 0.25  # quantile: of two ranks that pause in turn each does in half of the steps


def _loss_ms(steps: OwnSteps) -> float:
    return persistent(steps.alone) + moving(steps.alone)


def _evened_out(values: Floats) -> float:
    """What each rank has once the steps are alike: the mean, or what one has for good.

    The rank with the largest mean has it in part by chance: so the one that is looked at in a step is that with the
    largest mean of all other steps.
    """
    others = values.sum(axis=1, keepdims=True) - values
    lasting = np.take_along_axis(values, others.argmax(axis=0)[None, :], axis=0)
    return float(max(values.mean(), lasting.mean()))


def _spans(job: Job) -> tuple[OwnSteps, OwnSteps]:
    """The common steps, and all complete ones."""
    return job.once(own_steps), job.once(all_own_steps)


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


def _of_part(split: Callable[[Floats], float], part: str, steps: OwnSteps) -> float:
    return split(steps.parts[part])


def _of_steps(value: Callable[[OwnSteps], Value]) -> Callable[[Job], Value]:
    return lambda job: value(job.once(own_steps))


measure = of_jobs(__name__, unknown=unknown_loss)
measure("skew_ms", _of_steps(_loss_ms)).says(
    "Step time lost because the ranks do not take equally long.",
    f"mean over steps of the largest alone time - typical mean = persistent + moving; {ALONE}; {TYPICAL}",
    SOURCE,
)
measure("skew_share", _of_steps(lambda steps: steps.share(_loss_ms(steps)))).says(
    "Part of the step lost because the ranks do not take equally long.", "skew_ms / mean step", SOURCE
)
measure("common_steps", lambda job: len(job.steps), unit="count").says("Steps that all ranks use.", "number of them")

split = of_jobs(__name__, unknown=unknown_split)
split("persistent_skew_ms", _of_steps(lambda steps: persistent(steps.alone))).says(
    "Time per step that the rank which is latest on average takes beyond the typical rank.",
    f"max over ranks of the mean alone time - typical mean; {ALONE}; {TYPICAL}",
    SOURCE,
)
split("moving_skew_ms", _of_steps(lambda steps: moving(steps.alone))).says(
    "Time per step that is lost because another rank is late each time.",
    "mean over steps of the largest alone time - largest mean of a rank",
    SOURCE,
)
split("moving_skew_share", _of_steps(lambda steps: steps.share(moving(steps.alone)))).says(
    "Part of the step that is lost because another rank is late each time.", "moving_skew_ms / mean step", SOURCE
)
split("moving_least_ms", _of_steps(lambda steps: min(moving(steps.alone), moving(steps.own)))).says(
    "What evening that out saves at least.",
    "the same for the step without waiting, so that every rank's exposed transfers stay as they are; at most "
    "moving_skew_ms",
)
split(
    "moving_most_ms", lambda job: max(float(s.alone.max(axis=0).mean()) - _evened_out(s.alone) for s in _spans(job))
).says(
    "What evening that out saves at most.",
    "mean over steps of the largest alone time - the level that is left: the mean over ranks and steps, or more"
    " where a rank takes longer for good: the mean over steps of the rank that has most in all other steps; over"
    " the common steps or over all complete ones, whose unevenness may be the same, where that is more",
    "cross-validation: in few steps the largest mean of a rank is large by chance too",
)
split("moving_host_ms", _of_steps(lambda steps: moving(steps.other))).says(
    "The moving part of the time that is neither kernels nor waiting for input: the device waits for the host.",
    "moving_skew_ms, of alone time - time in kernels - waiting for input",
)
split("pauses_least_ms", _of_steps(_pauses_least)).says(
    "What the job's step gets shorter by at least if no rank's host paused.",
    "mean over steps of the largest step without waiting - the same once each rank has, of what is neither kernels"
    " nor waiting for input, no more than its lower quartile over steps",
)
split(
    "pauses_most_ms", lambda job: max(s.step_ms - float((s.alone - _paused(s)).mean(axis=1).max()) for s in _spans(job))
).says(
    "What the job's step gets shorter by at most if no rank's host paused.",
    "mean step - largest mean over steps of a rank's alone time, of the rest no more than its lower quartile; over"
    " the common steps or over all complete ones, where that is more",
)
for _of, _part, _what in (
    ("compute", "work", "time in kernels"),
    ("input", "input", "time that ranks wait for input, the device idle while the loader is asked"),
):
    split(f"persistent_{_of}_ms", _of_steps(partial(_of_part, persistent, _part))).says(
        f"The persistent part of the {_what}.", "persistent_skew_ms, of that time alone"
    )
    split(f"moving_{_of}_ms", _of_steps(partial(_of_part, moving, _part))).says(
        f"The part of the {_what} that moves from rank to rank.", "moving_skew_ms, of that time alone"
    )
split("moving_causes", _of_steps(lambda steps: steps.words(_moving_parts(steps))), unit="text").says(
    "What the latest rank of each step has more of than the typical one.",
    "mean over steps of (its time in kernels, waiting for input, rest) - the typical rank's in that step",
)
