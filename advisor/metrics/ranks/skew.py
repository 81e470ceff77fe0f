"""Ranks that differ: the same one late in every step, another one each time, and what stragglers cost in a replay."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.collectives import waited_for
from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import (
    ALONE,
    SOURCE,
    TYPICAL,
    OwnSteps,
    all_own_steps,
    moving,
    outstanding,
    own_steps,
    persistent,
    typical,
    unknown_loss,
    unknown_split,
)
from advisor.analysis.job.topology import in_common, lone, words
from advisor.metrics.metric import Value, of_jobs
from advisor.model.clause import Missing
from advisor.model.intervals import Floats
from advisor.whatif.job_replay import JobReplay, replayed
from advisor.whatif.replay import TRUSTED_ERROR

_SPANS: Final = (own_steps, all_own_steps)  # the common steps, and all complete ones
_USUAL: Final = 0.25  # quantile: of two ranks that pause in turn each does in half of the steps


def _loss_ms(job: Job) -> float:
    alone = job.once(own_steps).alone
    return persistent(alone) + moving(alone) + job.once(_inner_compute_ms)


def _inner_ms(steps: OwnSteps) -> float:
    """What even the rank that waits least in a step waits: others are late at some of its collectives."""
    return max(0.0, steps.step_ms - float(steps.own.max(axis=0).mean()))


def _inner_compute_ms(job: Job) -> float:
    """Where the last rank computes for longer since its collective before than others do, it is its work that is late.

    Of what it takes longer than the typical rank, the part that it also computes longer.
    """
    calls = job.calls.with_columns(since=pl.col("end_ns").shift(1).over("rank", "step"))
    calls = calls.filter("trusted", pl.col("step").is_in(job.steps), pl.col("since") < pl.col("start_ns"))
    stretches = calls.select(
        "rank", "last", "step", "instance", start_ns="since", took=pl.col("start_ns") - pl.col("since")
    )
    stretches = stretches.with_columns(worked=job.covered_ns(stretches, "took"))
    more = [(pl.col(of) - pl.median(of).over("step", "instance")).clip(0) for of in ("took", "worked")]
    late = stretches.with_columns(more).filter(pl.col("rank") == pl.col("last"))
    worked, took = late.select(pl.min_horizontal("worked", "took").sum(), pl.sum("took")).row(0)
    return _inner_ms(job.once(own_steps)) * float(worked / took) if took else 0.0


def _evened_out(values: Floats) -> float:
    """What each rank has once the steps are alike: the mean, or what one has for good.

    The rank with the largest mean has it in part by chance: so the one that is looked at in a step is that with the
    largest mean of all other steps.
    """
    others = values.sum(axis=1, keepdims=True) - values
    lasting = np.take_along_axis(values, others.argmax(axis=0)[None, :], axis=0)
    return float(max(values.mean(), lasting.mean()))


def _balanced_ms(job: Job) -> tuple[float, float]:
    """At least each rank's exposed transfers stay; at most complete steps may be as uneven as all common ones."""
    steps = job.once(own_steps)
    most = max(float(s.alone.max(axis=0).mean()) - _evened_out(s.alone) for s in map(job.once, _SPANS))
    return min(moving(steps.alone), moving(steps.own)), most


def _unpaused_ms(job: Job) -> tuple[float, float]:
    """At least each rank's exposed transfers stay."""
    steps = job.once(own_steps)
    least = float(steps.own.max(axis=0).mean() - (steps.own - _paused(steps)).max(axis=0).mean())
    return least, max(s.step_ms - float((s.alone - _paused(s)).mean(axis=1).max()) for s in map(job.once, _SPANS))


def _paused(steps: OwnSteps) -> Floats:
    """Host work of a step that the rank does not have in its usual one."""
    usual = np.quantile(steps.other, _USUAL, axis=1, method="lower", keepdims=True)
    return (steps.other - usual).clip(0)


def _moving_parts(steps: OwnSteps) -> dict[str, float]:
    """By part, how much more of it the latest rank of a step has than the typical one: mean over steps, in ms."""
    latest = steps.alone.argmax(axis=0)[None, :]
    return {
        part: float((np.take_along_axis(cells, latest, axis=0)[0] - typical(cells)).mean())
        for part, cells in steps.parts.items()
    }


def _of_part(split: Callable[[Floats], float], part: str, steps: OwnSteps) -> float:
    return split(steps.parts[part])


of_loss = of_jobs(__name__, unknown=unknown_loss)
measure = of_loss.parts_of(own_steps)
of_loss("skew_ms", _loss_ms).says(
    "Step time lost because the ranks do not take equally long.",
    f"mean over steps of the largest alone time - typical mean, which is persistent + moving; + inner_compute_ms; "
    f"{ALONE}; {TYPICAL}",
    SOURCE,
)
measure("inner_skew_ms", _inner_ms).says(
    "Step time lost because different ranks are late at the collectives of one step.",
    "mean step - mean over steps of the longest step without waiting: so long even the rank waits that waits least",
)
of_loss("skew_share", lambda job: job.once(own_steps).share(_loss_ms(job))).says(
    "Part of the step lost because the ranks do not take equally long.", "skew_ms / mean step", SOURCE
)
of_loss("inner_compute_ms", _inner_compute_ms).says(
    "The part of inner_skew_ms in kernels: these ranks have more work, and are not kept from it.",
    "inner_skew_ms x the part of what the last rank takes longer since its collective before, than the typical rank, "
    "in which it also computes longer; the sum over collectives",
)
of_loss("common_steps", lambda job: len(job.steps), unit="count").says("Steps that all ranks use.", "number of them")

of_split = of_jobs(__name__, unknown=unknown_split)
split = of_split.parts_of(own_steps)
split("persistent_skew_ms", lambda steps: persistent(steps.alone)).says(
    "Time per step that the rank which is latest on average takes beyond the typical rank.",
    f"max over ranks of the mean alone time - typical mean; {ALONE}; {TYPICAL}",
    SOURCE,
)
split("moving_skew_ms", lambda steps: moving(steps.alone)).says(
    "Time per step that is lost because another rank is late each time.",
    "mean over steps of the largest alone time - largest mean of a rank",
    SOURCE,
)
split("moving_skew_share", lambda steps: steps.share(moving(steps.alone))).says(
    "Part of the step that is lost because another rank is late each time.", "moving_skew_ms / mean step", SOURCE
)
of_split.saving("balance", _balanced_ms).says("evening out the ranks in each step")
split("moving_host_ms", lambda steps: moving(steps.other)).says(
    "The moving part of the time that is neither kernels nor waiting for input: the device waits for the host.",
    "moving_skew_ms, of alone time - time in kernels - waiting for input",
)
of_split.saving("pauses", _unpaused_ms).says("a host without pauses on every rank")
for _of, _part, _what in (
    ("compute", "work", "time in kernels"),
    ("input", "input", "time that ranks wait for input, the device idle while the loader is asked"),
):
    split(f"persistent_{_of}_ms", partial(_of_part, persistent, _part)).says(
        f"The persistent part of the {_what}.", "persistent_skew_ms, of that time alone"
    )
    split(f"moving_{_of}_ms", partial(_of_part, moving, _part)).says(
        f"The part of the {_what} that moves from rank to rank.", "moving_skew_ms, of that time alone"
    )
split("moving_causes", lambda steps: steps.largest(_moving_parts(steps))).says(
    "What the latest rank of each step has more of than the typical one.",
    "mean over steps of (its time in kernels, waiting for input, rest) - the typical rank's in that step",
)


_MORE_KERNELS: Final = 0.05  # more kernels than the typical rank: fewer are not named
_BY_CHANCE: Final = 2  # standard errors: of two ranks that are late in turn one is late more often


def _late(steps: OwnSteps) -> list[int]:
    """Rows of the ranks that are late: of the latest one, and of those that are nearer to it than to the typical one.

    Where they are more than half of the ranks, they are typical.
    """
    alone = steps.alone.mean(axis=1)
    rows: list[int] = outstanding(alone, float(typical(alone))).tolist()
    return rows if len(rows) <= len(alone) // 2 else [steps.latest]


def _ahead_of_next(steps: OwnSteps) -> float:
    """By how much the latest rank is later than the next latest that is not late with it."""
    own = steps.own.mean(axis=1)
    return float(np.clip(own[steps.latest] - np.delete(own, _late(steps)).max(), 0, persistent(steps.alone)))


def _late_ms(steps: OwnSteps) -> float:
    """Zero where the latest rank is not later than the others by more than steps differ among themselves."""
    behind = steps.alone[steps.latest] - typical(np.delete(steps.alone, steps.latest, axis=0))
    lasts = behind.mean() > _BY_CHANCE * behind.std(ddof=1) / np.sqrt(len(behind))
    return max(0.0, float(np.median(steps.alone[steps.latest] - typical(steps.alone)))) if lasts else 0.0


def _beyond(steps: OwnSteps) -> dict[str, float]:
    """By part, by how much the latest rank's mean exceeds the typical one."""
    means = {part: cells.mean(axis=1) for part, cells in steps.parts.items()}
    return {part: float(of_ranks[steps.latest] - typical(of_ranks)) for part, of_ranks in means.items()}


def _more_kernels(steps: OwnSteps) -> float:
    means = steps.kernels.mean(axis=1)
    usual = float(typical(means))
    return float(means[steps.latest]) - usual if means[steps.latest] > (1 + _MORE_KERNELS) * usual > 0 else 0.0


def _late_of(job: Job) -> list[int]:
    """Positions of the late ranks."""
    return [job.members[row] for row in _late(job.once(own_steps))]


of_split("late_rank_alone", lambda job: lone(job, _late_of(job)), unit="rank").says(
    "The late rank; unknown where several are late together.", "late_ranks, if one"
)
of_split("late_ranks", lambda job: words(job, _late_of(job)), unit="text").says(
    "The ranks that are late together, and the host or process group that they alone have.",
    "ranks whose mean alone time is nearer to the largest than to the typical one, if at most half of all",
)
of_split("late_ranks_logged_share", lambda job: waited_for(job, {job.ranks[i].worker for i in _late_of(job)})).says(
    "Part of the waiting in the logged collectives of their groups that is for the ranks late in the recorded steps.",
    "waiting in the collectives that one of late_ranks enters last / all waiting in their groups",
)
of_split(
    "late_ranks_dimension",
    lambda job: next((place.dimension for place in in_common(job, _late_of(job))), ""),
    unit="text",
).says(
    "What kind of place the late ranks have in common; empty where they have none.",
    "of late_ranks: host, node, pipeline (the stage), expert, tensor, context, data (the replica), rail or group",
)
split("late_rank_steps", lambda steps: int(np.isin(steps.alone.argmax(axis=0), _late(steps)).sum()), unit="count").says(
    "In how many of the common steps one of the late ranks is the latest.", "largest alone time"
)
split("late_rank_ms", _late_ms).says(
    "By how much the latest rank is usually late; 0 where it may be the latest by chance.",
    f"median over steps of (its alone time - typical alone time in the step), if the mean of its alone time - that"
    f" of the typical other rank is more than {_BY_CHANCE} standard errors; {TYPICAL}",
    SOURCE,
)
split("late_rank_share", lambda steps: steps.share(_late_ms(steps))).says(
    "Part of the step by which the latest rank is usually late.", "late_rank_ms / mean step", SOURCE
)
split("late_rank_least_ms", _ahead_of_next).says(
    "By how much the latest rank is later than the next latest that is not late with it.",
    "mean step without waiting - the largest of a rank not in late_ranks, 0 to persistent_skew_ms",
)
split("late_rank_uneven_ms", lambda steps: float(steps.alone[steps.latest].mean() - steps.alone.mean())).says(
    "By how much the latest rank is later than all ranks would be if they did equal parts of what they do now.",
    f"its mean alone time - the mean of all ranks'; {ALONE}",
)
split("late_rank_host_ms", lambda steps: max(0.0, _beyond(steps)["other"])).says(
    "How much more the latest rank has of what is neither kernels (without a device: ops) nor waiting for input.",
    "its mean alone time - time in kernels (without a device: in ops) - waiting for input, beyond the typical rank's, "
    "at least 0",
)
split("late_rank_causes", lambda steps: steps.largest(_beyond(steps))).says(
    "What the latest rank has more of than the typical one.",
    "its mean time in kernels, waiting for input and the rest, beyond the typical ones",
)
split("late_rank_more_kernels", _more_kernels).says(
    "How many kernels per step the latest rank runs more than the typical one; 0 for under 5 % more.",
    "its mean number of kernels - the lower median over ranks",
)

_WHAT_IF: Final = (
    "what-if analysis of ByteDance's straggler study (OSDI 2025, arXiv 2505.05713), on the recorded kernels"
)


def _replay(job: Job) -> JobReplay | Missing:
    """Missing also where the replay of the unchanged steps is too far off."""
    if job.missing:
        return job.missing
    if (steps := job.once(replayed)) is None:
        return Missing("circular_wait")
    return Missing("replay_off", share=abs(steps.error)) if abs(steps.error) > TRUSTED_ERROR else steps


def _rank_explains(steps: JobReplay) -> Value:
    rank = int(np.bincount(steps.ops["rank"], steps.own - steps.typical).argmax())
    share = steps.explained(steps.of("rank", rank))
    return Missing("no_straggler_slowdown") if share is None else min(1.0, max(0.0, share))


of_stragglers = of_jobs(__name__).parts_of(_replay)
of_stragglers("straggler_slowdown", lambda steps: steps.slowdown, unit="ratio").says(
    "How many times as long the step takes as without stragglers; ranks that begin late count too.",
    "replayed step / step replayed with every operation at the mean (kernels) or median (transfers) of its like; "
    "steps that follow each other are one run, from the first rank's begin to the last one's end; of more than 524,288"
    " calls of collectives in the common steps, the first steps that have no more",
    _WHAT_IF,
)
of_stragglers("straggler_rank_explains", _rank_explains, unit="share").says(
    "Part of the slow-down by stragglers that the rank with most work beyond the typical ranks' explains.",
    "(step - step with only its operations typical) / (step - step with all typical), 0 to 1",
    _WHAT_IF,
)
