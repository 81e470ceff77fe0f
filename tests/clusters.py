"""Simulated jobs of many nodes as the ranks that are compared, without their files: 256 ranks take seconds."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from advisor.analysis.job.rank import CALLS, Rank
from advisor.inputs.hardware import match
from advisor.model.intervals import Intervals
from advisor.model.profile import SCHEMAS
from tests.ranks import KERNELS, STEPS

sys.path.append(str(Path(__file__).parents[1] / "fixtures" / "make"))

from simulator import CLUSTER_FAULTS
from simulator.large import GPUS_PER_NODE, Large

LOG = SCHEMAS["collective_log"] | {"op": pl.String()}


class Cluster:
    """The ranks of a simulated job, each made when it is asked for."""

    def __init__(self, large: Large) -> None:
        large.run()
        self.large = large
        self._ops = defaultdict(list)
        for record in large.records:
            for place, rank in enumerate(record.who.tolist()):
                self._ops[rank].append((record, place))

    def rank(self, number: int) -> Rank:
        return _rank(self.large, number, self._ops[number])

    def log(self, number: int) -> pl.DataFrame:
        """What NCCL's Inspector would have written of a rank, of every collective."""
        calls = self.rank(number).calls.filter(pl.col("op").cast(pl.String).is_in(["send", "recv"]).not_())
        known = calls.with_columns(
            worker=number,
            group_name="group",
            called_ns="start_ns",
            dur_ns=pl.col("end_ns") - pl.col("start_ns"),
            line=pl.lit(None),
            completed=pl.lit(None),
            ranks=pl.lit(None),
        )
        return known.select(pl.col(name).cast(dtype) for name, dtype in LOG.items())


def cluster(fault: str, seed: int, ranks: int, steps: int = 4, layers: int = 2) -> tuple[Cluster, str]:
    """The job with this fault, and where it is, in the words that the report must have."""
    large, place = CLUSTER_FAULTS[fault].job(seed, ranks, steps)
    large.layers = layers
    return Cluster(large), place.says.replace("-", "\N{EN DASH}")


def _rank(large: Large, rank: int, ops: list[tuple[Any, int]]) -> Rank:
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
