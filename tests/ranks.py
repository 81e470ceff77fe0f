"""Jobs of several ranks built by hand: times in microseconds, one dict per rank, only what the test is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.rank import CALLS, Rank
from advisor.metrics import Measurements, Part, conclude, measure_part
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import Profile
from tests.tables import US, V100, Row, kernel, on_device, on_host, profile, step

STEPS = {
    **dict.fromkeys(("step", "start_ns", "dur_ns", "host_start_ns"), pl.Int64),
    "used": pl.Boolean,
    **dict.fromkeys(("work_ns", "ops_ns", "input_ns", "kernels", "first_ns", "called_ns"), pl.Int64),
}
KERNELS = {"name": pl.String, "grid": pl.Int64, "block": pl.Int32, "number": pl.UInt32} | dict.fromkeys(
    ("median_ns", "total_ns"), pl.Float64
)


def call(start: float, end: float, **columns: object) -> Row:
    """A collective on the device, in step 1."""
    told = {"on_host": False, "step": 1, "stream": 20, "op": "allreduce"}
    return told | columns | {"start_ns": round(start * US), "end_ns": round(end * US)}


def spent(number: int, start: float, end: float, **columns: object) -> Row:
    """A step that is used; `columns` in ns."""
    base = {"step": number, "used": True, "work_ns": 0, "ops_ns": 0, "input_ns": 0, "kernels": 1}
    return base | {"start_ns": round(start * US), "dur_ns": round((end - start) * US)} | columns


def rank(  # noqa: PLR0913 - a rank's tables, each optional
    worker: int,
    calls: Sequence[Row] = (),
    steps: Sequence[Row] = (),
    work: Sequence[tuple[float, float]] = (),
    *,
    device: int | None = 0,
    ahead: float = 0,
    facts: Mapping[str, Any] | None = None,
    kernels: Sequence[Row] = (),
    visible: int | None = None,
) -> Rank:
    """One rank, whose clock is `ahead` by so many microseconds."""
    shift = round(ahead * US)
    busy = Intervals.of([a * US + shift for a, _ in work], [b * US + shift for _, b in work]) if work else EMPTY
    told = pl.DataFrame([{"id": i} | row for i, row in enumerate(calls)], schema_overrides=CALLS)
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in CALLS.items() if name not in told.columns]
    shown = told.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in CALLS.items())
    rows = [{name: row.get(name) for name in STEPS} for row in steps]
    return Rank(
        worker=worker,
        device=device,
        facts=facts or {},
        gpu=None,
        visible=visible,
        steps=pl.DataFrame(rows, schema=STEPS).with_columns(
            pl.col("step").cast(pl.Int32), pl.col("start_ns", "first_ns", "called_ns") + shift
        ),
        calls=shown.with_columns(pl.col("start_ns", "end_ns") + shift),
        work=busy,
        kernels=pl.DataFrame(list(kernels), schema=KERNELS),
    )


def job(*ranks: Rank) -> Job:
    return job_of(ranks)


def part(worker: int, own: Sequence[float], *, longest: Sequence[float], ahead: float = 0, size: int = 8) -> Part:
    """What is measured of one rank of a data-parallel job: in step i it computes for `own[i]` us, then all sum up.

    The sum begins when the rank that computes for `longest[i]` has arrived, and takes 100 us.
    """
    return measure_part(select_steps(recorded(worker, own, longest=longest, ahead=ahead, size=size), "all"))


def recorded(
    worker: int, own: Sequence[float], *, longest: Sequence[float], ahead: float = 0, size: int = 8
) -> Profile:
    ops, steps, told = [], [], []
    at = 0.0
    for number, (mine, most) in enumerate(zip(own, longest, strict=True)):
        begin, end = at + ahead, at + most + 100 + ahead
        columns = {"worker": worker, "device": 0}
        ops.append(kernel(begin, begin + mine, begin - 5, name="volta_sgemm", grid=number, block=128, **columns))
        ops.append(on_device("collective", begin + mine, end, begin - 3, name="ncclKernel_AllReduce", **columns))
        told.append({"device_op": 2 * number + 1, "worker": worker, "op": "allreduce", "group_size": size})
        steps.append(step(number, begin, end, **columns))
        at += most + 100
    host = [on_host("op", steps[0]["start_ns"] / US, at + ahead, worker=worker)]
    workers = [{"worker": worker, "rank": worker, "world_size": size, "framework": "pytorch"}]
    return profile(ops, host, steps, devices=[V100 | {"worker": worker}], collectives=told, workers=workers)


def together(parts: Sequence[Part]) -> Measurements:
    return conclude(parts)
