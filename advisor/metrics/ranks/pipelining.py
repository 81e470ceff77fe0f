"""A pipeline of ranks: its stages, its micro-batches, and how much of its bubbles they account for."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.metrics.metric import of_jobs
from advisor.model.missing import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT

_SOURCE: Final = "GPipe (NeurIPS 2019) and Megatron-LM (SC 2021): bubbles of (stages - 1) / micro-batches"


def _messages_of(job: Job) -> pl.DataFrame:
    return job.calls.filter(pl.col("op").is_in(POINT_TO_POINT), pl.col("step").is_in(job.steps))


def _unknown(job: Job) -> Missing | None:
    return job.missing if job.once(_messages_of).height else Missing("no_point_to_point")


def _unknown_schedule(job: Job) -> Missing | None:
    peers = job.once(_messages_of)["peer"].count()
    return _unknown(job) or (None if peers else Missing("peers_not_recorded"))


class _Schedule(NamedTuple):
    """A pipeline's mean step and waiting in ms, its stages, and messages from one to the next."""

    step_ms: float
    wait_ms: float
    stages: int
    messages: float

    @property
    def bubble_ms(self) -> float:
        """What the schedule makes it wait."""
        return min(self.wait_ms, (self.step_ms - self.wait_ms) * (self.stages - 1) / self.messages)


def _schedule(job: Job) -> _Schedule:
    calls = job.once(_messages_of).filter(pl.col("peer").is_not_null())
    return _Schedule(_mean_ms(job, "dur_ns"), _mean_ms(job, "paired_ns"), _stages(job, calls), _messages(job, calls))


def _mean_ms(job: Job, column: str) -> float:
    return float(job.pace[column].to_numpy().mean()) / 1e6


def _stages(job: Job, calls: pl.DataFrame) -> int:
    """The typical number of ranks that messages join, those that were not recorded too."""
    workers = pl.Series([rank.worker for rank in job.ranks], dtype=pl.Int64)
    pairs = calls.select(here=workers.gather(calls["rank"]), there=pl.col("peer").cast(pl.Int64)).unique()
    joined = {rank: rank for pair in pairs.rows() for rank in pair}

    def root(rank: int) -> int:
        while joined[rank] != rank:
            rank = joined[rank]
        return rank

    for here, there in pairs.rows():
        joined[root(here)] = root(there)
    _, sizes = np.unique([root(rank) for rank in joined], return_counts=True)
    return int(np.median(sizes))


def _messages(job: Job, calls: pl.DataFrame) -> float:
    counts = calls.group_by("rank", "peer", "op").len()["len"].to_numpy()
    return float(np.median(counts)) / len(job.steps)


of_jobs(__name__, unknown=_unknown)("pipeline_wait_ms", lambda job: _mean_ms(job, "paired_ns")).says(
    "Time per step that ranks wait for another rank to send or receive.",
    "mean over ranks and common steps of exposed waiting in sends and receives",
)
measure = of_jobs(__name__, unknown=_unknown_schedule)
measure("pipeline_stages", lambda job: job.once(_schedule).stages, unit="count").says(
    "Stages of the pipeline.",
    "ranks that are joined by sends and receives; the median where there are several pipelines",
)
measure("micro_batches", lambda job: job.once(_schedule).messages).says(
    "Messages per step from one stage to the next: micro-batches, times the chunks that a rank holds.",
    "sends (or receives) per rank, peer and common step; the median over ranks and peers",
)
measure(
    "schedule_bubble_share",
    lambda job: (job.once(_schedule).stages - 1) / (job.once(_schedule).messages + job.once(_schedule).stages - 1),
).says(
    "Part of the step that the pipeline idles for by its schedule, had all stages equal work.",
    "(pipeline_stages - 1) / (micro_batches + pipeline_stages - 1)",
    _SOURCE,
)
measure("schedule_bubble_ms", lambda job: job.once(_schedule).bubble_ms).says(
    "How much of the waiting that accounts for.",
    "(mean step - pipeline_wait_ms) x (pipeline_stages - 1) / micro_batches, at most pipeline_wait_ms",
    _SOURCE,
)
measure("pipeline_work_ms", lambda job: job.once(_schedule).step_ms - job.once(_schedule).wait_ms).says(
    "Time per step that a rank of the pipeline is not waiting: what smaller micro-batches make less efficient.",
    "mean step - pipeline_wait_ms",
)
measure("uneven_stages_ms", lambda job: job.once(_schedule).wait_ms - job.once(_schedule).bubble_ms).says(
    "Waiting in the pipeline that is no bubble: stages of unequal work, or messages that nothing hides.",
    "pipeline_wait_ms - schedule_bubble_ms",
)
