"""What the rules say of public Nsight Systems recordings, held against `nsys analyze` and plain SQL."""

from __future__ import annotations

import csv
import re
import sqlite3
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.model.finding import Finding
from advisor.model.report import Run
from tests import profiles
from tests.effort import soak

SHARED = Path(__file__).parents[2].parent / "shared"
TRACES, ORACLES = SHARED / "traces/nsys", SHARED / "oracles/nsys"
pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason="../shared is not here")

REFUSED = ("no-cuda-activity", "no-metadata-table", "titanrtx-schema3.0")
READ = sorted(path.stem for path in TRACES.glob("*.sqlite") if path.stem not in REFUSED)
NSYS_ONLY = {"os-blocked-loader", "cpu-starved", "memory-bound", "low-sm-activity"}


def path(trace: str) -> str:
    return str(TRACES / f"{trace}.sqlite")


@cache
def run(trace: str) -> Run:
    (made,) = profiles.check(path(trace)).runs
    return made


def finding(trace: str, rule: str) -> Finding:
    return next(found for found in run(trace).findings if found.rule == rule)


def rows_of(trace: str, report: str) -> list[dict[str, str]]:
    with (ORACLES / f"{trace}_{report}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def with_oracle(report: str) -> list[str]:
    return sorted(found.name.removesuffix(f"_{report}.csv") for found in ORACLES.glob(f"*_{report}.csv"))


def sql(trace: str, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path(trace)}?mode=ro&immutable=1", uri=True)
    rows = connection.execute(query).fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize("trace", ["llm-2.7b-a100-pageable", "llm-2.7b-a100-nvtx"])
def test_loading_the_model_is_start_up_and_tf32_comes_first(trace: str):
    assert run(trace).findings[0].rule == "tf32-off"
    startup = finding(trace, "one-time-work")
    assert startup.saving is None
    told = {evidence.metric: evidence.value for evidence in startup.evidence}
    copied = sql(trace, "select sum(end - start) / 1e6, sum(bytes) from CUPTI_ACTIVITY_KIND_MEMCPY")
    assert (told["startup_copy_ms"], told["startup_copy_bytes"]) == (pytest.approx(copied[0][0]), copied[0][1])
    assert told["startup_pageable_bytes"] == 13_627_402_240
    assert len(startup.where) == 10
    assert "pageable-copies" in run(trace).passed


def test_all_idle_time_after_start_up_has_a_cause():
    (view,) = select_steps(profiles.read(path("llm-2.7b-a100-pageable"))).views
    shares = run("llm-2.7b-a100-pageable").metrics["worker"][0]
    idle_ms = shares["idle_share"] * view.total_ns / 1e6
    assert idle_ms == pytest.approx(540, abs=1)  # nsys analyze lists no gap at all
    assert (shares["host_bound_idle_share"] + shares["start_up_idle_share"]) / shares["idle_share"] > 0.97
    assert shares["unknown_idle_share"] == 0


def test_what_graphs_hide_could_not_be_told():
    graphs = run("llm-2.7b-a100-cuda-graph")
    unknown = {entry.rule for entry in graphs.not_evaluable}
    assert {
        "tf32-off",
        "amp-unused",
        "unfused-attention",
        "elementwise-chains",
        "small-kernels",
        "few-blocks",
    } <= unknown
    assert {"tail-wave", "optimizer-not-fused", "layout-transposes", "misaligned-matmul"} <= unknown
    assert [finding.rule for finding in graphs.findings] == ["graphs-recorded-whole"]
    assert graphs.source.steps.used == 9  # ten launches of one graph
    told = graphs.metrics["worker"][0]
    assert told["device_busy_share"] > 0.99
    assert told["idle_share"] is told["dependency_idle_share"] is told["kernels_per_step"] is None


@pytest.mark.soak
@pytest.mark.parametrize("trace", ["two-gpu-before", "two-gpu-h100-window"])
def test_each_gpu_is_told_by_itself(trace: str):
    of_device = sql(trace, "select deviceId, count(*) from CUPTI_ACTIVITY_KIND_KERNEL group by 1 order by 1")
    views = select_steps(profiles.read(path(trace))).views
    assert [view.device for view in views] == [device for device, _ in of_device]
    rows = run(trace).metrics["worker"]
    assert [row["kernels_per_step"] + row["collectives_per_step"] for row in rows] == [n for _, n in of_device]
    assert all(row["device_busy_share"] > 0.85 for row in rows)


def test_nccl_is_named_with_what_nothing_hides():
    nccl = sql(
        "two-gpu-before",
        "select k.deviceId, count(*), sum(k.end - k.start) / 1e6 from CUPTI_ACTIVITY_KIND_KERNEL k "
        "join StringIds s on s.id = k.demangledName where s.value like 'nccl%' group by 1 order by 1",
    )
    for (_, number, total_ms), row in zip(nccl, run("two-gpu-before").metrics["worker"], strict=True):
        assert [(of.name, of.count) for of in row["collective_calls"]] == [("send_recv", number)]
        assert row["exposed_communication_ms"] == pytest.approx(total_ms)  # on the one stream that there is
        assert row["overlap_share"] == 0


def test_places_are_at_the_times_that_nsight_systems_shows():
    """The longest wait for a launch is found at the end of an op, in the export's own time."""
    place = finding("two-gpu-before", "launch-bound").where[0]
    device_ops = "select deviceId, end from CUPTI_ACTIVITY_KIND_KERNEL union all select deviceId, end from "
    ends = sql("two-gpu-before", device_ops + "CUPTI_ACTIVITY_KIND_MEMCPY")
    assert (place.device, round(place.at_ms * 1e6)) in ends


def test_weights_fetched_on_the_kernels_stream_are_one_finding():
    copies = finding("two-gpu-h100-window", "copy-not-overlapped")
    told = {evidence.metric: evidence.value for evidence in copies.evidence}
    assert told["exposed_copy_same_stream_share"] == 1
    assert copies.scope.workers == (0, 1)


def test_a_blocking_copy_from_pageable_memory_is_one_finding_with_its_call():
    for trace in ("saxpy-mpi-a100-schema2.9", "cloverleaf-a100-schema3.13"):
        copies = finding(trace, "synchronous-memcpy")
        assert " by cudaMemcpy (" in copies.says
        assert all(" by cudaMemcpy" in place.name for place in copies.where)
        assert any(", then the device idles for " in place.name for place in copies.where)
        assert "pageable-copies" in {symptom.rule for symptom in copies.symptoms}


@pytest.mark.parametrize("trace", soak(READ, unless=profiles.is_common))
def test_nothing_absurd_is_said(trace: str):
    made = run(trace)
    for row in made.metrics["worker"]:
        shares = {name: row[name] for name in row if name.endswith("_share") and row[name] is not None}
        assert {name: share for name, share in shares.items() if not -1e-9 <= share <= 1 + 1e-9} == {}
    step_ms = max(row["step_mean_ms"] for row in made.metrics["worker"])
    savings = [found.saving for found in made.findings if found.saving]
    assert all(0 <= saving.low_ms <= saving.high_ms <= step_ms for saving in savings)
    assert sum(saving.high_ms for saving in savings if saving) <= step_ms * 1.0001


# ------------------------------------------------------------------------------------------ the peer's rules


@pytest.mark.parametrize("trace", with_oracle("cuda_api_sync"))
def test_every_synchronising_call_that_nsys_lists_is_one(trace: str):
    listed = Counter(int(row["Duration (ns)"]) for row in rows_of(trace, "cuda_api_sync"))
    made = profiles.read(path(trace)).host_ops
    waits = Counter(made.filter(pl.col("kind") == "sync")["dur_ns"].to_list())
    assert listed <= waits


@pytest.mark.parametrize("trace", with_oracle("cuda_memcpy_async"))
def test_every_pageable_copy_that_nsys_lists_is_one(trace: str):
    listed = Counter(int(row["Duration (ns)"]) for row in rows_of(trace, "cuda_memcpy_async"))
    made = profiles.read(path(trace)).device_ops
    either = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    assert listed <= Counter(made.filter(either)["dur_ns"].to_list())


def test_gaps_that_nsys_sees_in_graphs_are_busy():
    assert [int(row["Duration (ns)"]) > 500_000_000 for row in rows_of("llm-2.7b-a100-cuda-graph", "gpu_gaps")]
    assert run("llm-2.7b-a100-cuda-graph").metrics["worker"][0]["device_busy_share"] > 0.99


def test_rules_on_what_only_nsight_shows_are_silent_elsewhere():
    (made,) = profiles.check(SHARED / "traces/kineto/resnet50-v100-workers0").runs
    assert set(made.not_applicable) >= NSYS_ONLY
    assert not {entry.rule for entry in made.not_evaluable} & NSYS_ONLY


@pytest.mark.parametrize("trace", soak(READ, unless=profiles.is_common))
def test_nobody_who_used_nsys_is_sent_to_another_profiler(trace: str):
    told = [(fix.do, fix.code, fix.link) for found in run(trace).findings for fix in found.fixes]
    reasons = [why for entry in run(trace).not_evaluable for why in entry.missing.values()]
    assert not re.search(r"torch\.profiler|stable/profiler|tf\.profiler|jax\.profiler|with_stack", f"{told} {reasons}")


@pytest.mark.parametrize("trace", ["saxpy-mpi-a100-schema2.9", "cloverleaf-a100-schema3.13"])
def test_a_program_of_no_framework_is_told_of_none(trace: str):
    assert {fix.framework for found in run(trace).findings for fix in found.fixes} <= {"cuda", "any"}
    assert run(trace).source.framework == "cuda"
