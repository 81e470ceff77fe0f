"""Simulated jobs of many nodes as the ranks that are compared, without their files: 256 ranks take seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.rank import CALLS, Rank
from advisor.inputs.hardware import match
from advisor.model.intervals import Intervals
from tests.ranks import KERNELS, STEPS

sys.path.append(str(Path(__file__).parents[1] / "fixtures" / "make"))

from simulator import CLUSTER_FAULTS
from simulator.large import GPUS_PER_NODE, Large


def cluster(fault: str, seed: int, ranks: int, steps: int = 4, layers: int = 2) -> tuple[Job, str]:
    """The job with this fault, and where it is, in the words that the report must have."""
    large, place = CLUSTER_FAULTS[fault].job(seed, ranks, steps)
    large.layers = layers
    return job_of_cluster(large), place.says.replace("-", "\N{EN DASH}")


def job_of_cluster(large: Large) -> Job:
    large.run()
    ops = {rank: [] for rank in range(large.layout.ranks)}
    for record in large.records:
        for place, rank in enumerate(record.who.tolist()):
            ops[rank].append((record, place))
    return job_of([_rank(large, rank, ops[rank]) for rank in ops])


def _rank(large: Large, rank: int, ops: list) -> Rank:
    begins, ends = (np.array([mark[which][rank] for mark in large.marks]) for which in (1, 2))
    calls, work, kernels = [], [], []
    for number, (record, place) in enumerate(ops):
        start, end = int(record.begins[place]), int(record.ends[place])
        if record.facts:
            step = int(np.searchsorted(begins, start, side="right")) - 1
            placed = {"id": number, "stream": record.stream, "step": step, "start_ns": start, "end_ns": end}
            calls.append(_call(record.op.removeprefix("c10d::"), json.loads(f"{{{record.facts[place]}}}")) | placed)
        else:
            work.append((start, end))
            kernels.append((record.name, round(264 * large.loads[rank]), end - start))
    busy = Intervals.of([start for start, _ in work], [end for _, end in work])
    nothing = np.zeros(len(begins), np.int64)
    steps = dict.fromkeys(STEPS, [None] * len(begins)) | {
        "step": np.arange(len(begins)),
        "start_ns": begins,
        "dur_ns": ends - begins,
        "host_start_ns": begins,
        "used": nothing == 0,
        "work_ns": busy.within(begins, ends),
        "ops_ns": nothing,
        "input_ns": nothing,
        "kernels": nothing + len(work) // len(begins),
    }
    ran = pl.DataFrame(kernels, schema=["name", "grid", "dur_ns"], orient="row").with_columns(block=384)
    ran = ran.group_by("name", "grid", "block").agg(
        number=pl.len(), median_ns=pl.median("dur_ns"), total_ns=pl.sum("dur_ns")
    )
    return Rank(
        worker=rank,
        device=rank % GPUS_PER_NODE,
        facts={"world_size": large.layout.ranks},
        gpu=match("NVIDIA H100 80GB HBM3"),
        visible=GPUS_PER_NODE,
        has_marks=True,
        steps=pl.DataFrame(steps, schema=STEPS).with_columns(pl.col("step").cast(pl.Int32)),
        calls=pl.DataFrame(calls, schema=CALLS),
        work=busy,
        kernels=ran.select(pl.col(name).cast(dtype) for name, dtype in KERNELS.items()),
        trains=True,
    )


def _call(op: str, facts: dict[str, Any]) -> dict[str, Any]:
    """A row of `CALLS` from what PyTorch records, without its place and times."""
    elements = facts["Out msg nelems" if op == "all_gather" else "In msg nelems"]
    return dict.fromkeys(CALLS) | {
        "on_host": False,
        "op": op,
        "group": facts["Process Group Name"],
        "description": facts["Process Group Description"],
        "ranks": facts["Process Group Ranks"],
        "group_size": facts["Group size"],
        "sequence": facts["Seq"],
        "bytes": 4 * elements,
        "peer": facts.get("Dst Rank" if op == "send" else "Src Rank"),
        "dtype": facts["dtype"],
    }
