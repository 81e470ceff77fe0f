from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import check
from advisor.metrics.steps.operations import activity, call
from tests.strategies_nsys import KERNEL, MEMCPY, copy, kernel, together, training, write
from tests.tables import kernel as of_kineto
from tests.tables import on_host, profile, view


def test_the_whole_recording_is_summed_up_by_name(tmp_path: Path):
    """Two ranges, no steps, hold 20 kernels of 40 ns; what comes before them counts too, of both devices apart."""
    early = {
        MEMCPY: [copy(10, 20, bytes=400), copy(30, 60, bytes=600, srcKind=1)],
        KERNEL: [kernel(100, 200), kernel(100, 160, "other", deviceId=1)],
    }
    (run,) = check([str(write(tmp_path / "a.sqlite", together(training(2), early)))]).runs
    found = {(row["device"], row["kind"], row["name"]): row for row in run.metrics["activity"]}
    assert set(found) == {(0, "kernel", "gemm"), (0, "memcpy", "Memcpy HtoD"), (1, "kernel", "other")}
    gemm, copies = found[0, "kernel", "gemm"], found[0, "memcpy", "Memcpy HtoD"]
    spread = ("calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")
    assert [gemm[name] for name in spread] == [21, 900, pytest.approx(900 / 21), 40, 40, 100]
    assert [copies[name] for name in spread] == [2, 40, 20, 20, 10, 30]
    assert [copies[f"{name}_bytes"] for name in ("total", "mean", "median", "min", "max")] == [1000, 500, 500, 400, 600]
    assert gemm["total_bytes"] is None
    calls = [(row["worker"], row["kind"], row["name"], row["calls"]) for row in run.metrics["call"]]
    assert (0, "api", "cudaLaunchKernel", 20) in calls
    assert len({row[1:3] for row in calls}) == len(calls)  # once for the process, not for each device


def test_other_profilers_have_tables_of_their_own():
    seen = view(profile([of_kineto(0, 5, 1)], [on_host("op", 0, 4)]))
    assert activity(seen).is_empty()
    assert call(seen).is_empty()
