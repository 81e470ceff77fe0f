"""Ranks that differ in what they do by themselves: the same one late in every step, or another one each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.analysis.job.job import Job
from advisor.metrics.identity import Identity
from advisor.metrics.metric import Metric, Value, Values, measures_jobs
from advisor.model.missing import Missing
from advisor.text import ms
from advisor.vocabulary import POINT_TO_POINT

_ENOUGH_STEPS: Final = 3
_TELLING_SHARE: Final = 0.1  # of the lateness: parts below are not named
_TELLING_COUNT: Final = 0.05  # more kernels than the typical rank: fewer are not named
_MOSTLY: Final = 0.5
_BY_CHANCE: Final = 2  # standard errors: of two ranks that are late in turn one is late more often
_USUAL: Final = 0.25  # quantile: of two ranks that pause in turn each does in half of the steps
_IN_STAGES: Final = Missing("pipeline_stages")
_PARTS: Final = {"work": "kernels", "input": "waiting for input", "other": "other work of the host, or idling"}
_SOURCE: Final = (
    "persistent against moving as ByteDance's straggler study (OSDI 2025) tells a bad worker from uneven data"
)
_ALONE: Final = "alone time = step - time in collectives that no kernel of the rank's own covers"
_TYPICAL: Final = "typical = the lower median over ranks"

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Ranks:
    """What each rank does in each common step, in ms; arrays of shape (ranks, steps).

    `alone` is the step without collectives that nothing hides, `own` the step without waiting for others in them,
    `work` the part in kernels (without a device: in ops), `input` that of waiting for the loader; `kernels` is the
    number of kernels.
    """

    step_ms: float
    own: Floats
    alone: Floats
    work: Floats
    input: Floats
    kernels: Floats

    @property
    def other(self) -> Floats:
        """What is neither a kernel nor waiting for input."""
        rest: Floats = self.alone - self.work - self.input
        return rest

    @property
    def latest(self) -> int:
        """Row of the rank that does most by itself."""
        return int(self.alone.mean(axis=1).argmax())


def _ranks(job: Job) -> _Ranks:
    return _cells(job, job.pace)


def _whole_ranks(job: Job) -> _Ranks:
    """The same over all complete steps, the uneven ones too."""
    return _cells(job, job.whole_pace)


def _cells(job: Job, pace: pl.DataFrame) -> _Ranks:
    pace = pace.with_columns(alone_ns=pl.col("own_ns") - pl.col("transfer_ns")).sort("rank", "step")

    def table(column: str, scale: float) -> Floats:
        cells: Floats = pace[column].to_numpy().reshape(len(job.members), -1) / scale
        return cells

    own, alone, work, ops, idle = (table(f"{name}_ns", 1e6) for name in ("own", "alone", "work", "ops", "input"))
    step_ms = float(table("dur_ns", 1e6).mean())
    return _Ranks(step_ms, own, alone, work + ops, idle, table("kernels", 1))


def _typical(values: Floats) -> Floats:
    """The lower median over ranks: of two, the one that does less."""
    middle: Floats = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return middle


def _persistent(values: Floats) -> float:
    means = values.mean(axis=1)
    return float(means.max() - _typical(means))


def _moving(values: Floats) -> float:
    return float(values.max(axis=0).mean() - values.mean(axis=1).max())


WAITING_SHARE = Metric(
    "waiting_share",
    "share",
    "Part of all ranks' time that passes waiting for later ranks.",
    "mean over ranks and common steps of exposed waiting / mean step",
    "wait = latest start - own start, as TraceLens and ByteDance's study have it",
)
WAITING_MOST = Identity.of("waiting_most", "The rank that waits longest for others.", "largest mean exposed waiting")
WAITING_MOST_SHARE = Metric(
    "waiting_most_share", "share", "Part of its time that this rank waits.", "mean exposed waiting / mean step"
)
PIPELINE_WAIT_SHARE = Metric(
    "pipeline_wait_share",
    "share",
    "Part of all ranks' time that passes waiting for another rank to send or receive: the bubbles of a pipeline.",
    "the same of exposed waiting in sends and receives; 0 where there are none",
)
AWAITED_MOST = Identity.of(
    "awaited_most",
    "The rank that the others mostly wait for.",
    "largest sum of exposed waiting for it, if awaited_most_share is a half or more",
)
AWAITED_MOST_SHARE = Metric(
    "awaited_most_share",
    "share",
    "Part of the waiting that is for the rank which is waited for longest.",
    "largest sum of exposed waiting for one rank / sum for all",
)
_WAITING: Final = (
    *(WAITING_SHARE, *WAITING_MOST, WAITING_MOST_SHARE, PIPELINE_WAIT_SHARE),
    *(*AWAITED_MOST, AWAITED_MOST_SHARE),
)


@measures_jobs(*_WAITING)
def waiting(job: Job) -> Mapping[Metric, Value]:
    """Who waits, and for whom."""
    if job.missing:
        sends = job.calls.filter(pl.col("op").is_in(POINT_TO_POINT) | pl.col("op").is_null()).height
        return dict.fromkeys(_WAITING, job.missing) | ({} if sends else {PIPELINE_WAIT_SHARE: 0.0})
    return _waiting(job) | _awaited(job)


def _waiting(job: Job) -> dict[Metric, Value]:
    by_rank = job.pace.group_by("rank", maintain_order=True).agg(pl.mean("wait_ns", "paired_ns", "dur_ns"))
    most = by_rank.sort("wait_ns", descending=True, maintain_order=True).row(0, named=True)
    return {
        WAITING_SHARE: _ratio(by_rank["wait_ns"].mean(), by_rank["dur_ns"].mean()),
        PIPELINE_WAIT_SHARE: _ratio(by_rank["paired_ns"].mean(), by_rank["dur_ns"].mean()),
        **WAITING_MOST.values(job, most["rank"]),
        WAITING_MOST_SHARE: _ratio(most["wait_ns"], most["dur_ns"]),
    }


def _awaited(job: Job) -> dict[Metric, Value]:
    by_rank = job.waits.group_by("last").agg(pl.sum("wait_ns")).sort("wait_ns", "last", descending=[True, False])
    spent = by_rank["wait_ns"].to_numpy()
    longest = float(spent[0] / spent.sum()) if spent.sum() else 0.0
    nobody = dict.fromkeys(AWAITED_MOST, Missing("no_rank_awaited_most"))
    rank = AWAITED_MOST.values(job, by_rank["last"][0]) if longest >= _MOSTLY else nobody
    return {**rank, AWAITED_MOST_SHARE: longest}


def _ratio(part: object, total: object) -> Value:
    return part / total if isinstance(part, float) and isinstance(total, float) and total else None


SKEW_MS = Metric(
    "skew_ms",
    "ms",
    "Step time lost because the ranks do not take equally long.",
    f"mean over steps of the largest alone time - typical mean = persistent + moving; {_ALONE}; {_TYPICAL}",
    _SOURCE,
)
SKEW_SHARE = Metric(
    "skew_share",
    "share",
    "Part of the step lost because the ranks do not take equally long.",
    "skew_ms / mean step",
    _SOURCE,
)
COMMON_STEPS = Metric("common_steps", "count", "Steps that all ranks use.", "number of them")
PERSISTENT_SKEW_MS = Metric(
    "persistent_skew_ms",
    "ms",
    "Time per step that the rank which is latest on average takes beyond the typical rank.",
    f"max over ranks of the mean alone time - typical mean; {_ALONE}; {_TYPICAL}",
    _SOURCE,
)
MOVING_SKEW_MS = Metric(
    "moving_skew_ms",
    "ms",
    "Time per step that is lost because another rank is late each time.",
    "mean over steps of the largest alone time - largest mean of a rank",
    _SOURCE,
)
MOVING_SKEW_SHARE = Metric(
    "moving_skew_share",
    "share",
    "Part of the step that is lost because another rank is late each time.",
    "moving_skew_ms / mean step",
    _SOURCE,
)
MOVING_LEAST_MS = Metric(
    "moving_least_ms",
    "ms",
    "What evening that out saves at least.",
    "the same for the step without waiting, so that every rank's exposed transfers stay as they are; at most "
    "moving_skew_ms",
)
MOVING_MOST_MS = Metric(
    "moving_most_ms",
    "ms",
    "What evening that out saves at most.",
    "mean over steps of the largest alone time - the level that is left: the mean over ranks and steps, or more"
    " where a rank takes longer for good: the mean over steps of the rank that has most in all other steps; over"
    " the common steps or over all complete ones, whose unevenness may be the same, where that is more",
    "cross-validation: in few steps the largest mean of a rank is large by chance too",
)
MOVING_HOST_MS = Metric(
    "moving_host_ms",
    "ms",
    "The moving part of the time that is neither kernels nor waiting for input: the device waits for the host.",
    "moving_skew_ms, of alone time - time in kernels - waiting for input",
)
PAUSES_LEAST_MS = Metric(
    "pauses_least_ms",
    "ms",
    "What the job's step gets shorter by at least if no rank's host paused.",
    "mean over steps of the largest step without waiting - the same once each rank has, of what is neither kernels"
    " nor waiting for input, no more than its lower quartile over steps",
)
PAUSES_MOST_MS = Metric(
    "pauses_most_ms",
    "ms",
    "What the job's step gets shorter by at most if no rank's host paused.",
    "mean step - largest mean over steps of a rank's alone time, of the rest no more than its lower quartile; over"
    " the common steps or over all complete ones, where that is more",
)
PERSISTENT_COMPUTE_MS = Metric(
    "persistent_compute_ms",
    "ms",
    "The persistent part of the time in kernels.",
    "persistent_skew_ms, of work alone",
)
MOVING_COMPUTE_MS = Metric(
    "moving_compute_ms", "ms", "The moving part of the time in kernels.", "moving_skew_ms, of work alone"
)
PERSISTENT_INPUT_MS = Metric(
    "persistent_input_ms",
    "ms",
    "The persistent part of the time that ranks wait for input.",
    "persistent_skew_ms, of the time that the device idles while the loader is asked",
)
MOVING_INPUT_MS = Metric(
    "moving_input_ms",
    "ms",
    "The part of the time that ranks wait for input that moves from rank to rank.",
    "moving_skew_ms, of that time",
)
MOVING_CAUSES = Metric(
    "moving_causes",
    "text",
    "What the latest rank of each step has more of than the typical one.",
    "mean over steps of (its time in kernels, waiting for input, rest) - the typical rank's in that step",
)
LATE_RANK = Identity.of("late_rank", "The rank that does most by itself.", f"largest mean alone time; {_ALONE}")
LATE_RANK_STEPS = Metric(
    "late_rank_steps", "count", "In how many of the common steps the late rank is the latest.", "largest alone time"
)
LATE_RANK_MS = Metric(
    "late_rank_ms",
    "ms",
    "By how much the latest rank is usually late; 0 where it may be the latest by chance.",
    f"median over steps of (its alone time - typical alone time in the step), if the mean of its alone time - that"
    f" of the typical other rank is more than {_BY_CHANCE} standard errors; {_TYPICAL}",
    _SOURCE,
)
LATE_RANK_SHARE = Metric(
    "late_rank_share",
    "share",
    "Part of the step by which the latest rank is usually late.",
    "late_rank_ms / mean step",
    _SOURCE,
)
LATE_RANK_LEAST_MS = Metric(
    "late_rank_least_ms",
    "ms",
    "By how much the latest rank is later than the next latest.",
    "mean step without waiting - the next largest of another rank, 0 to persistent_skew_ms",
)
LATE_RANK_UNEVEN_MS = Metric(
    "late_rank_uneven_ms",
    "ms",
    "By how much the latest rank is later than all ranks would be if they did equal parts of what they do now.",
    f"its mean alone time - the mean of all ranks'; {_ALONE}",
)
LATE_RANK_HOST_MS = Metric(
    "late_rank_host_ms",
    "ms",
    "How much more the latest rank has of what is neither kernels (without a device: ops) nor waiting for input.",
    "its mean alone time - time in kernels (without a device: in ops) - waiting for input, beyond the typical rank's, "
    "at least 0",
)
LATE_RANK_CAUSES = Metric(
    "late_rank_causes",
    "text",
    "What the latest rank has more of than the typical one.",
    "its mean time in kernels, waiting for input and the rest, and its number of kernels, beyond the typical ones",
)
LATE_RANK_KERNELS_RATIO = Metric(
    "late_rank_kernels_ratio",
    "ratio",
    "How many times as many kernels the latest rank runs as the typical rank.",
    "mean number of kernels per step / typical mean",
)
_SPLIT: Final = (
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
    *LATE_RANK,
    LATE_RANK_STEPS,
    LATE_RANK_MS,
    LATE_RANK_SHARE,
    LATE_RANK_LEAST_MS,
    LATE_RANK_UNEVEN_MS,
    LATE_RANK_HOST_MS,
    LATE_RANK_CAUSES,
    LATE_RANK_KERNELS_RATIO,
)
_SKEW: Final = (SKEW_MS, SKEW_SHARE, COMMON_STEPS, *_SPLIT)


@measures_jobs(*_SKEW)
def skew(job: Job) -> Values:
    """What unevenness between ranks costs, and whether it is always the same rank."""
    if job.missing:
        return job.missing
    if _staged(job):
        return _IN_STAGES
    return _loss(job) | _whose(job)


def _loss(job: Job) -> dict[Metric, Value]:
    ranks = job.once(_ranks)
    loss_ms = _persistent(ranks.alone) + _moving(ranks.alone)
    share = min(1.0, loss_ms / ranks.step_ms) if ranks.step_ms else None
    return {SKEW_MS: loss_ms, SKEW_SHARE: share, COMMON_STEPS: len(job.steps)}


def _whose(job: Job) -> dict[Metric, Value]:
    """Whose the loss is, and in what."""
    if (count := len(job.steps)) < _ENOUGH_STEPS:
        return dict.fromkeys(_SPLIT, Missing("few_common_steps", steps=count, needed=_ENOUGH_STEPS))
    ranks = job.once(_ranks)
    latest = LATE_RANK.values(job, job.members[ranks.latest])
    return _split(ranks) | _at_most((ranks, job.once(_whole_ranks))) | latest | _late(ranks)


def _staged(job: Job) -> bool:
    """Whether ranks wait for each other in sends and receives rather than in collectives."""
    waited = job.pace.select(pl.sum("paired_ns", "wait_ns")).row(0)
    return bool(waited[0] > _MOSTLY * waited[1])


def _split(ranks: _Ranks) -> dict[Metric, Value]:
    moving = _moving(ranks.alone)
    return {
        PERSISTENT_SKEW_MS: _persistent(ranks.alone),
        MOVING_SKEW_MS: moving,
        MOVING_SKEW_SHARE: min(1.0, moving / ranks.step_ms) if ranks.step_ms else None,
        MOVING_LEAST_MS: min(moving, _moving(ranks.own)),
        MOVING_HOST_MS: _moving(ranks.other),
        PAUSES_LEAST_MS: _pauses_least(ranks),
        PERSISTENT_COMPUTE_MS: _persistent(ranks.work),
        MOVING_COMPUTE_MS: _moving(ranks.work),
        PERSISTENT_INPUT_MS: _persistent(ranks.input),
        MOVING_INPUT_MS: _moving(ranks.input),
        MOVING_CAUSES: _in_words(ranks, _moving_parts(ranks)),
    }


def _evened_out(values: Floats) -> float:
    """What each rank has once the steps are alike: the mean, or what one has for good.

    The rank with the largest mean has it in part by chance: so the one that is looked at in a step is that with the
    largest mean of all other steps.
    """
    others = values.sum(axis=1, keepdims=True) - values
    lasting = np.take_along_axis(values, others.argmax(axis=0)[None, :], axis=0)
    return float(max(values.mean(), lasting.mean()))


def _at_most(several: tuple[_Ranks, ...]) -> dict[Metric, Value]:
    """The most that evening out gives back, over some steps or over others."""
    return {
        MOVING_MOST_MS: max(float(r.alone.max(axis=0).mean()) - _evened_out(r.alone) for r in several),
        PAUSES_MOST_MS: max(r.step_ms - float((r.alone - _paused(r)).mean(axis=1).max()) for r in several),
    }


def _pauses_least(ranks: _Ranks) -> float:
    """What the job's step surely loses to them."""
    return float(ranks.own.max(axis=0).mean() - (ranks.own - _paused(ranks)).max(axis=0).mean())


def _paused(ranks: _Ranks) -> Floats:
    """Host work of a step that the rank does not have in its usual one."""
    usual = np.quantile(ranks.other, _USUAL, axis=1, method="lower", keepdims=True)
    more: Floats = (ranks.other - usual).clip(0)
    return more


def _moving_parts(ranks: _Ranks) -> dict[str, float]:
    """By part, how much more of it the latest rank of a step has than the typical one: mean over steps, in ms."""
    latest = ranks.alone.argmax(axis=0)[None, :]
    parts = {part: getattr(ranks, part) for part in _PARTS}
    return {
        part: float((np.take_along_axis(cells, latest, axis=0)[0] - _typical(cells)).mean())
        for part, cells in parts.items()
    }


def _late(ranks: _Ranks) -> dict[Metric, Value]:
    late = ranks.latest
    usually = max(0.0, float(np.median(ranks.alone[late] - _typical(ranks.alone)))) if _lasts(ranks) else 0.0
    beyond = {part: _beyond_typical(getattr(ranks, part), late) for part in _PARTS}
    kernels = ranks.kernels.mean(axis=1)
    usual = float(_typical(kernels))
    return {
        LATE_RANK_STEPS: int((ranks.alone.argmax(axis=0) == late).sum()),
        LATE_RANK_MS: usually,
        LATE_RANK_SHARE: min(1.0, usually / ranks.step_ms) if ranks.step_ms else None,
        LATE_RANK_LEAST_MS: _ahead_of_next(ranks),
        LATE_RANK_UNEVEN_MS: float(ranks.alone[late].mean() - ranks.alone.mean()),
        LATE_RANK_HOST_MS: max(0.0, beyond["other"]),
        LATE_RANK_CAUSES: _in_words(ranks, beyond) + _more_kernels(float(kernels[late]), usual),
        LATE_RANK_KERNELS_RATIO: float(kernels[late]) / usual if usual else None,
    }


def _beyond_typical(cells: Floats, row: int) -> float:
    """By how much one rank's mean exceeds the typical one."""
    means = cells.mean(axis=1)
    return float(means[row] - _typical(means))


def _ahead_of_next(ranks: _Ranks) -> float:
    """By how much the latest rank is later than the next latest."""
    own, late = ranks.own.mean(axis=1), ranks.latest
    return float(np.clip(own[late] - np.delete(own, late).max(), 0, _persistent(ranks.alone)))


def _lasts(ranks: _Ranks) -> bool:
    """Whether the latest rank is later than the others over the steps by more than steps differ among themselves."""
    behind = ranks.alone[ranks.latest] - _typical(np.delete(ranks.alone, ranks.latest, axis=0))
    return bool(behind.mean() > _BY_CHANCE * behind.std(ddof=1) / np.sqrt(len(behind)))


def _in_words(ranks: _Ranks, more: Mapping[str, float]) -> str:
    """`kernels (12 ms more), waiting for input (3 ms more)`; empty where nothing is more."""
    parts = _PARTS | ({} if ranks.kernels.any() else {"work": "ops"})
    total = sum(max(0.0, value) for value in more.values())
    large = sorted(((value, part) for part, value in more.items() if value > _TELLING_SHARE * total), reverse=True)
    return ", ".join(f"{parts[part]} ({ms(value)} more)" for value, part in large)


def _more_kernels(kernels: float, usual: float) -> str:
    if not usual or kernels <= (1 + _TELLING_COUNT) * usual:
        return ""
    return f"; it runs {kernels:.0f} kernels, others {usual:.0f}"
