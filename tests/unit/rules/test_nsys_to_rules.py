"""From an export with every optional trace to what the rules say of it: threads, calls, scheduling and counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.engine import check, compare
from advisor.errors import UsageError
from advisor.model.report import Run
from advisor.options import Options
from advisor.text import in_words
from tests.strategies_nsys import RUNTIME, Row, call, launched, nvtx, string, tid, together, write

MS = 1_000_000
STEP = 10 * MS
LOADING = 777
GPU: Row = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalMemory": 80 << 30,
    "smCount": 108,
    "cuDevice": 0,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxWarpsPerSm": 64,
    "threadsPerWarp": 32,
}


def job(steps: int = 4) -> dict[str, list[Row]]:
    """Steps of 10 ms: 4 in which a batch is asked for and its loader reads, 2 off CPU, then ten kernels of 0.4 ms."""
    parts: list[dict[str, list[Row]]] = []
    for number in range(steps):
        at = (number + 1) * STEP
        ranges = [nvtx(at, at + STEP - 1, f"step {number}"), nvtx(at + 1, at + 4 * MS, "load batch")]
        read = {"start": at + 2, "end": at + 4 * MS - 2, "globalTid": tid(200, LOADING), "nameId": string("read")}
        away = {"start": at + 4 * MS, "cpu": 1, "isSchedIn": 0, "globalTid": tid(100), "threadState": 1}
        back = {"start": at + 6 * MS, "cpu": 5, "isSchedIn": 1, "globalTid": tid(100), "threadState": 0}
        parts.append({"NVTX_EVENTS": ranges, "OSRT_API": [read], "SCHED_EVENTS": [away, back]})
        for k in range(10):
            begin = at + 6 * MS + k * 400_000
            ran = launched(at + 6 * MS + 10 * k, begin + 200, begin + 400_100, 100 * number + k + 1)
            parts.append({table: list(rows) for table, rows in ran.items()})
    counters = [(1, "SMs Active [Throughput %]", 20), (2, "DRAM Read Bandwidth [Throughput %]", 70)]
    counters.append((3, "SM Issue [Throughput %]", 10))
    samples = [
        {"timestamp": at, "typeId": 256, "metricId": metric, "value": value}
        for at in range(STEP, (steps + 1) * STEP, 100_000)
        for metric, _, value in counters
    ]
    rest: dict[str, list[Row]] = {
        RUNTIME: [call(-60_000 * MS, -59_999 * MS, "cuInit")],
        "ENUM_SAMPLING_THREAD_STATE": [{"id": 1, "label": "Running"}],
        "ThreadNames": [{"nameId": string("pt_data_worker"), "globalTid": tid(200, LOADING)}],
        "TARGET_INFO_GPU": [GPU],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": 100}],
        "TARGET_INFO_GPU_METRICS": [{"typeId": 256, "metricId": m, "metricName": name} for m, name, _ in counters],
        "GPU_METRICS": samples,
    }
    return together(*parts, rest)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (made,) = check([str(write(tmp_path / "job.sqlite", job()))]).runs
    return made


def test_each_trace_reaches_its_rule(run: Run):
    told = run.metrics["worker"][0]
    assert told["loader_blocked_share"] == pytest.approx(0.4, abs=0.01)
    assert in_words(told["loader_blocked_calls"]) == "read (4 ms)"
    assert told["cpu_starved_share"] == pytest.approx(0.2, abs=0.01)
    assert told["cpu_migrations_per_step"] == 1
    assert told["sm_active_share"] == pytest.approx(0.2)
    assert told["memory_bound_share"] == 1
    assert told["once_ms"] == pytest.approx(60_016, abs=0.01)
    rules = {found.rule for found in run.findings} | {s.rule for found in run.findings for s in found.symptoms}
    assert {"os-blocked-loader", "cpu-starved", "memory-bound", "low-sm-activity", "one-time-work"} <= rules


def test_what_is_saved_in_all_is_never_more_than_the_step(run: Run):
    savings = [found.saving for found in run.findings if found.saving]
    assert sum(saving.high_ms for saving in savings) <= run.metrics["worker"][0]["step_mean_ms"]


@pytest.mark.soak
def test_profiles_of_one_job_by_two_profilers_are_two_runs_and_that_is_said(tmp_path: Path):
    write(tmp_path / "job.sqlite", job())
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 9, "pid": 1, "tid": 1}
    (tmp_path / "job.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    runs = check([str(tmp_path)]).runs
    assert sorted(run.source.format for run in runs) == ["kineto", "nsys"]
    said = "this folder holds kineto and nsys profiles: each format is a separate run, even if of one job"
    assert all(said in [note.words for note in run.source.notes] for run in runs)
    (alone,) = check([str(tmp_path / "job.sqlite")]).runs
    assert said not in [note.words for note in alone.source.notes]


def test_a_comparison_takes_named_ranges_for_steps_and_says_how_else(tmp_path: Path):
    """Two recordings of the same ranges, which hold too little work each to be found by themselves."""
    sides = []
    for name in ("before", "after"):
        starts = range(100_000, 1_300_000, 100_000)
        parts = [launched(at + 500, at + 1_000, at + 5_000, at, name="gemm") for at in starts]
        ranges = [nvtx(at, at + 90_000, f"iter {at}") for at in starts]
        sides.append(str(write(tmp_path / f"{name}.sqlite", together(*parts, {"NVTX_EVENTS": ranges}))))
    without = compare(sides[:1], sides[1:])
    assert without.reason.code == "no_marked_step_nsys"
    timed = compare(sides[:1], sides[1:], Options(step_range=r"iter \d+"))
    assert (timed.verdict, timed.base.steps) == ("same", 11)
    (tmp_path / "saved.json").write_bytes(b'{"advisor_version": "0"}')
    with pytest.raises(UsageError, match=r"--step-range iter: .* is a saved report, whose steps are fixed"):
        compare([str(tmp_path / "saved.json")], sides[1:], Options(step_range="iter"))
