"""A pipeline of ranks: its stages, its micro-batches, and how much of its bubbles they account for."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures_jobs
from advisor.model.missing import Missing
from advisor.vocabulary.kinds import POINT_TO_POINT

_SOURCE: Final = "GPipe (NeurIPS 2019) and Megatron-LM (SC 2021): bubbles of (stages - 1) / micro-batches"


PIPELINE_WAIT_MS = Metric(
    "pipeline_wait_ms",
    "Time per step that ranks wait for another rank to send or receive.",
    "mean over ranks and common steps of exposed waiting in sends and receives",
)
PIPELINE_STAGES = Metric(
    "pipeline_stages",
    "Stages of the pipeline.",
    "ranks that are joined by sends and receives; the median where there are several pipelines",
    unit="count",
)
MICRO_BATCHES = Metric(
    "micro_batches",
    "Messages per step from one stage to the next: micro-batches, times the chunks that a rank holds.",
    "sends (or receives) per rank, peer and common step; the median over ranks and peers",
)
SCHEDULE_BUBBLE_SHARE = Metric(
    "schedule_bubble_share",
    "Part of the step that the pipeline idles for by its schedule, had all stages equal work.",
    "(pipeline_stages - 1) / (micro_batches + pipeline_stages - 1)",
    _SOURCE,
)
SCHEDULE_BUBBLE_MS = Metric(
    "schedule_bubble_ms",
    "How much of the waiting that accounts for.",
    "(mean step - pipeline_wait_ms) x (pipeline_stages - 1) / micro_batches, at most pipeline_wait_ms",
    _SOURCE,
)
PIPELINE_WORK_MS = Metric(
    "pipeline_work_ms",
    "Time per step that a rank of the pipeline is not waiting: what smaller micro-batches make less efficient.",
    "mean step - pipeline_wait_ms",
)
STAGE_IMBALANCE_MS = Metric(
    "uneven_stages_ms",
    "Waiting in the pipeline that is no bubble: stages of unequal work, or messages that nothing hides.",
    "pipeline_wait_ms - schedule_bubble_ms",
)
_PIPELINE: Final = (
    *(PIPELINE_WAIT_MS, PIPELINE_STAGES, MICRO_BATCHES, SCHEDULE_BUBBLE_SHARE),
    *(SCHEDULE_BUBBLE_MS, PIPELINE_WORK_MS, STAGE_IMBALANCE_MS),
)


@measures_jobs(*_PIPELINE)
def bubbles(job: Job) -> Values:
    """What a pipeline waits, and how much of it by its schedule; nothing where the ranks are no pipeline."""
    calls = job.calls.filter(pl.col("op").is_in(POINT_TO_POINT), pl.col("step").is_in(job.steps))
    if not calls.height:
        return Missing("no_point_to_point")
    if job.missing:
        return job.missing
    step_ms, wait_ms = (float(job.pace[column].to_numpy().mean()) / 1e6 for column in ("dur_ns", "paired_ns"))
    calls = calls.filter(pl.col("peer").is_not_null())
    if not calls.height:
        return dict.fromkeys(_PIPELINE, Missing("peers_not_recorded")) | {PIPELINE_WAIT_MS: wait_ms}
    return _of_schedule(step_ms, wait_ms, _stages(job, calls), _messages(job, calls))


def _of_schedule(step_ms: float, wait_ms: float, stages: int, messages: float) -> dict[Metric, Value]:
    by_schedule = min(wait_ms, (step_ms - wait_ms) * (stages - 1) / messages)
    return {
        PIPELINE_WAIT_MS: wait_ms,
        PIPELINE_STAGES: stages,
        MICRO_BATCHES: messages,
        SCHEDULE_BUBBLE_SHARE: (stages - 1) / (messages + stages - 1),
        SCHEDULE_BUBBLE_MS: by_schedule,
        PIPELINE_WORK_MS: step_ms - wait_ms,
        STAGE_IMBALANCE_MS: wait_ms - by_schedule,
    }


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
