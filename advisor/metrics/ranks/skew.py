"""Ranks that differ: the same one late in every step, another one each time, and what stragglers cost in a replay."""

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.collectives import waited_for
from advisor.analysis.job.job import Job
from advisor.analysis.job.own_steps import (
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
of_loss("skew_ms", _loss_ms)
measure("inner_skew_ms", _inner_ms)
of_loss("skew_share", lambda job: job.once(own_steps).share(_loss_ms(job)))
of_loss("inner_compute_ms", _inner_compute_ms)
of_loss("common_steps", lambda job: len(job.steps), unit="count")

of_split = of_jobs(__name__, unknown=unknown_split)
split = of_split.parts_of(own_steps)
split("persistent_skew_ms", lambda steps: persistent(steps.alone))
split("moving_skew_ms", lambda steps: moving(steps.alone))
split("moving_skew_share", lambda steps: steps.share(moving(steps.alone)))
of_split.saving("balance", _balanced_ms)
split("moving_host_ms", lambda steps: moving(steps.other))
of_split.saving("pauses", _unpaused_ms)
for _of, _part in (("compute", "work"), ("input", "input")):
    split(f"persistent_{_of}_ms", partial(_of_part, persistent, _part))
    split(f"moving_{_of}_ms", partial(_of_part, moving, _part))
split("moving_causes", lambda steps: steps.largest(_moving_parts(steps)))


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


def _lasts(steps: OwnSteps) -> bool:
    """Whether the latest rank is later than the others over the steps by more than steps differ among themselves."""
    behind = steps.alone[steps.latest] - typical(np.delete(steps.alone, steps.latest, axis=0))
    return bool(behind.mean() > _BY_CHANCE * behind.std(ddof=1) / np.sqrt(len(behind)))


def _late_ms(steps: OwnSteps) -> float:
    return max(0.0, float(np.median(steps.alone[steps.latest] - typical(steps.alone)))) if _lasts(steps) else 0.0


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


of_split("late_rank_alone", lambda job: lone(job, _late_of(job)), unit="rank")
of_split("late_ranks", lambda job: words(job, _late_of(job)), unit="text")
of_split("late_ranks_logged_share", lambda job: waited_for(job, {job.ranks[i].worker for i in _late_of(job)}))
of_split(
    "late_ranks_dimension",
    lambda job: next((place.dimension for place in in_common(job, _late_of(job))), ""),
    unit="text",
)
split("late_rank_steps", lambda steps: int(np.isin(steps.alone.argmax(axis=0), _late(steps)).sum()), unit="count")
split("late_rank_ms", _late_ms)
split("late_rank_share", lambda steps: steps.share(_late_ms(steps)))
split("late_rank_least_ms", _ahead_of_next)
split("late_rank_uneven_ms", lambda steps: float(steps.alone[steps.latest].mean() - steps.alone.mean()))
split("late_rank_host_ms", lambda steps: max(0.0, _beyond(steps)["other"]))
split("late_rank_causes", lambda steps: steps.largest(_beyond(steps)))
split("late_rank_more_kernels", _more_kernels)


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
of_stragglers("straggler_slowdown", lambda steps: steps.slowdown, unit="ratio")
of_stragglers("straggler_rank_explains", _rank_explains, unit="share")
