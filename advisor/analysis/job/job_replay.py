"""A job's recorded steps as the straggler what-if replays them."""

from typing import Final

import polars as pl

from advisor.analysis.job import segments, stragglers
from advisor.analysis.job.job import Job
from advisor.model.profile import END_NS

MOST_ERROR: Final = 0.05  # ByteDance leaves out jobs whose replay is further off


def replayed(job: Job) -> stragglers.Replay | None:
    """The steps that all ranks recorded, as operations that wait for each other; ranks by their place in the job."""
    offsets = {i: int(job.clock.offsets_ns[i]) for i in job.members}
    busy = {i: job.ranks[i].work.shifted(-offset) for i, offset in offsets.items()}
    begin = pl.col("start_ns")
    windows = [
        job.ranks[i]
        .steps.filter(pl.col("step").is_in(job.steps))
        .select(rank=pl.lit(i, pl.Int64), step=pl.col("step").cast(pl.Int64), start_ns=begin - offset, end_ns="dur_ns")
        .with_columns(end_ns=begin + pl.col("end_ns"))
        for i, offset in offsets.items()
    ]
    calls = job.calls.filter(pl.col("step").is_in(job.steps)).select(
        "rank",
        pl.col("step").cast(pl.Int64),
        "start_ns",
        "end_ns",
        instance=pl.when("trusted").then("instance"),
        type=pl.col("op").fill_null("collective"),
        stream=pl.col("stream").fill_null(0),
    )
    every = pl.concat(windows)
    return stragglers.replay(*segments.operations(busy, every, calls), carried=_carried(job, every))


def _carried(job: Job, windows: pl.DataFrame) -> pl.DataFrame:
    """By how much each rank ends a step later than the first one begins the next: step (the next), rank, carried_ns."""
    end = END_NS
    before = [
        job.ranks[i].steps.select(
            pl.col("step").cast(pl.Int64) + 1, rank=pl.lit(i, pl.Int64), ended_ns=end - int(job.clock.offsets_ns[i])
        )
        for i in job.members
    ]
    first = windows.group_by("step").agg(first_ns=pl.min("start_ns"))
    late = pl.concat(before).join(first, on="step")
    return late.select("step", "rank", carried_ns=(pl.col("ended_ns") - pl.col("first_ns")).clip(0))
