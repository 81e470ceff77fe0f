"""What `nsys stats` says of public recordings, and plain SQL over them."""

from __future__ import annotations

import csv
import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.engine import check
from advisor.errors import NoRuns
from advisor.model.profile import Profile
from tests import profiles

SHARED = Path(__file__).parents[2].parent / "shared"
TRACES, ORACLES = SHARED / "traces/nsys", SHARED / "oracles/nsys"
pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason="../shared is not here")

KERNELS = pl.col("kind").is_in(["kernel", "collective"]) & ~pl.col("name").cast(pl.String).str.starts_with(
    "CUDA graph "
)
WAYS = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}

Summary = dict[str, tuple[int, int, float, int, int]]


def with_oracle(report: str) -> list[str]:
    return sorted(path.name.removesuffix(f"_{report}.csv") for path in ORACLES.glob(f"*_{report}.csv"))


@cache
def profile(trace: str) -> Profile:
    return profiles.read(TRACES / f"{trace}.sqlite")


def summary(ops: pl.DataFrame, value: str = "dur_ns", name: pl.Expr | None = None) -> Summary:
    """Per name: number, total, median, least, most."""
    name = pl.col("name").cast(pl.String) if name is None else name
    values = pl.col(value)
    found = ops.group_by(name.alias("called")).agg(
        n=pl.len(), a=values.sum(), b=values.median(), c=values.min(), d=values.max()
    )
    return {row[0]: row[1:] for row in found.rows()}


def stats(trace: str, report: str, key: str, *, scale: float = 1) -> Summary:
    """The same from a report of nsys; several lines of one name are put together (of which the median is not known)."""
    lines = defaultdict(list)
    with (ORACLES / f"{trace}_{report}.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            lines[re.sub(r"_v\d{4,}$", "", line[key])].append({re.sub(r" \(.*\)", "", k): v for k, v in line.items()})

    def number(line: dict[str, str], *names: str) -> float:
        return float(next(line[name] for name in names if name in line)) * scale

    assert all(len(of) == 1 for of in lines.values())
    return {
        name: (
            int(line.get("Instances") or line.get("Num Calls") or line["Count"]),
            round(number(line, "Total Time", "Total")),
            number(line, "Med"),
            round(number(line, "Min")),
            round(number(line, "Max")),
        )
        for name, (line,) in lines.items()
    }


def alike(found: Summary, expected: Summary) -> None:
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        assert found[name] == pytest.approx(row, abs=0.05), name


@pytest.mark.parametrize("trace", with_oracle("cuda_gpu_kern_sum"))
def test_kernels_equal_nsys_stats(trace: str):
    alike(summary(profile(trace).device_ops.filter(KERNELS)), stats(trace, "cuda_gpu_kern_sum", "Name"))


@pytest.mark.parametrize("trace", with_oracle("cuda_gpu_kern_sum"))
def test_the_report_holds_what_nsys_stats_prints(trace: str):
    """Per name: instances, total, average, median, least, most and standard deviation; of one process on one device."""
    (run,) = profiles.check(TRACES / f"{trace}.sqlite").runs
    columns = ("calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "sd_ns")
    tables = [("cuda_gpu_kern_sum", "Name", "activity", ("kernel", "collective"))]
    if trace not in {"saxpy-mpi-a100-schema2.9", "h200-single-step"}:  # see below: other processes, calls counted twice
        tables.append(("cuda_api_sum", "Name", "call", ("api",)))
    for oracle, key, table, kinds in tables:
        found = defaultdict(list)
        for row in run.metrics[table]:
            if row["kind"] in kinds and not str(row["name"]).startswith("CUDA graph "):
                found[row["name"]].append([row[column] for column in columns])
        with (ORACLES / f"{trace}_{oracle}.csv").open(newline="") as file:
            for line in csv.DictReader(file):
                told = {re.sub(r" \(.*\)", "", head): value for head, value in line.items()}
                rows = found.pop(re.sub(r"_v\d{4,}$", "", line[key]))
                if len(rows) > 1:  # of two processes: the sums tell
                    assert sum(row[0] for row in rows) == int(told.get("Instances") or told["Num Calls"])
                    continue
                named = [told.get("Instances") or told["Num Calls"], told.get("Total Time"), told.get("Avg")]
                named += [told.get(name) for name in ("Med", "Min", "Max", "StdDev")]
                known = [(a, float(b)) for a, b in zip(rows[0], named, strict=True) if b and a is not None]
                assert [a for a, _ in known] == pytest.approx([b for _, b in known], abs=0.06)
        assert not found


@pytest.mark.parametrize("trace", [t for t in with_oracle("cuda_api_sum") if not t.startswith(("saxpy", "h200"))])
def test_calls_equal_nsys_stats(trace: str):
    calls = profile(trace).host_ops.filter(pl.col("kind").is_in(["runtime", "sync", "allocator"]))
    alike(summary(calls), stats(trace, "cuda_api_sum", "Name"))


def test_calls_of_a_process_without_a_device_are_left_out():
    of_process = (
        "select count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_RUNTIME where (globalTid >> 24) & 0xffffff = "
    )
    calls = profile("h200-single-step").host_ops.filter(pl.col("kind").is_in(["runtime", "sync", "allocator"]))
    assert sql("h200-single-step", of_process + "50556") == [(calls.height, calls["dur_ns"].sum())]
    assert sql("h200-single-step", of_process + "50922")[0][0] == 2


def test_calls_that_a_backtrace_repeats_count_once():
    names = profile("saxpy-mpi-a100-schema2.9").host_ops["name"].cast(pl.String)
    assert (names == "cudaMemcpy").sum() == 15  # nsys stats lists them twice


@pytest.mark.parametrize("trace", with_oracle("cuda_gpu_mem_time_sum"))
def test_copies_equal_nsys_stats(trace: str):
    moved = profile(trace).device_ops.filter(pl.col("kind").is_in(["memcpy", "memset"]))
    way = pl.format("[CUDA memcpy {}]", pl.col("copy_kind").cast(pl.String).replace(WAYS))
    name = pl.when(pl.col("kind") == "memset").then(pl.lit("[CUDA memset]")).otherwise(way)
    alike(summary(moved, name=name), stats(trace, "cuda_gpu_mem_time_sum", "Operation"))
    sizes, told = summary(moved, "bytes", name), stats(trace, "cuda_gpu_mem_size_sum", "Operation", scale=1e6)
    for operation, (count, total, *_) in told.items():
        assert sizes[operation][0] == count
        assert sizes[operation][1] == pytest.approx(total, abs=501)  # rounded to KB


@pytest.mark.parametrize("trace", ["h200-single-step", "llm-2.7b-a100-nvtx", "llm-3070ti-17k-kernels"])
def test_ranges_equal_nsys_stats(trace: str):
    found = defaultdict(list)
    ranges = profile(trace).host_ops.filter(pl.col("kind").is_in(["op", "annotation", "input", "step", "compile"]))
    for name, dur in ranges.select("name", "dur_ns").rows():
        found[name].append(dur)
    with (ORACLES / f"{trace}_nvtx_pushpop_sum.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            durations = found.pop(re.sub(r"^[^:]*:(?!:)", "", line["Range"]))
            told = [float(line[c]) for c in ("Instances", "Total Time (ns)", "Med (ns)", "Min (ns)", "Max (ns)")]
            assert [len(durations), sum(durations), median(durations), min(durations), max(durations)] == pytest.approx(
                told, abs=0.05
            )
    assert not found


# ------------------------------------------------------------------------------------------ plain SQL


def sql(trace: str, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{TRACES / trace}.sqlite?mode=ro&immutable=1", uri=True) as connection:
        rows = connection.execute(query).fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize("trace", ["two-gpu-before", "two-gpu-h100-window"])
def test_processes_keep_their_ops_and_launches_apart(trace: str):
    made = profile(trace)
    counted = sql(
        trace,
        "select (globalPid >> 24) & 0xffffff, deviceId, count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_KERNEL "
        "group by 1, 2 order by 1",
    )
    ops = made.device_ops.filter(KERNELS).join(made.workers.select("worker", "pid"), on="worker")
    assert ops.group_by("pid", "device").agg(pl.len(), pl.sum("dur_ns")).sort("pid").rows() == counted
    joined = sql(
        trace,
        "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join CUPTI_ACTIVITY_KIND_RUNTIME r on "
        "r.correlationId = k.correlationId and r.globalTid >> 24 = k.globalPid >> 24",
    )
    assert ops["launch"].count() == joined[0][0]


@pytest.mark.parametrize("trace", ["llm-2.7b-a100-pageable", "llm-2.7b-a100-nvtx"])
def test_pageable_copies_before_the_first_kernel_are_start_up(trace: str):
    made = profile(trace)
    pageable = made.device_ops.filter(pl.col("source_memory") == "pageable")
    assert (pageable.height, pageable["bytes"].sum()) == (292, 13_627_402_240)
    (view,) = select_steps(made).views
    assert pageable.select((pl.col("start_ns") + pl.col("dur_ns")).max()).item() < view.starts[0]


def test_graph_launches_keep_the_device_busy():
    (view,) = select_steps(profile("llm-2.7b-a100-cuda-graph")).views
    assert view.share(view.busy) > 0.997
    assert "--cuda-graph-trace=node" in profile("llm-2.7b-a100-cuda-graph").lacks["device_ops.grid"].words


def test_steps_are_found_where_ranges_are_steps_and_nowhere_else():
    found = {
        path.stem: profile(path.stem).steps["name"].unique().sort().to_list()
        for path in TRACES.glob("*.sqlite")
        if path.stem not in REFUSED
    }
    # the ten of its benchmark: the five that call themselves warm-up steps, each with a Forward of its own, give way
    assert found.pop("llm-3070ti-17k-kernels") == ["Forward"]
    repeats = {trace: len(steps) for trace, steps in found.items() if steps}  # equal sequences of launches, by number
    loops = {"cloverleaf-a100-schema3.13": 5, "llm-2.7b-a100-cuda-graph": 10, "saxpy-mpi-a100-schema2.9": 5}
    assert repeats == loops | {"non-nvidia-gpus-listed": 5}
    assert profile("llm-3070ti-17k-kernels").steps.height == 10


REFUSED = ("no-cuda-activity", "no-metadata-table")


@pytest.mark.parametrize("trace", REFUSED)
def test_what_holds_no_gpu_work_is_refused_in_a_line(trace: str):
    with pytest.raises(NoRuns, match=rf"{trace}\.sqlite: no GPU activity in it") as caught:
        check([str(TRACES / f"{trace}.sqlite")])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("truncated-half.nsys.sqlite", "the database is damaged or cut short; export it again"),
        ("lfs-pointer.report1.sqlite", "a Git LFS pointer in place of the file"),
        ("lfs-pointer.report1.nsys-rep", "a Git LFS pointer in place of the file"),
        (
            "truncated-4KB.nsys-rep",
            "is not on the PATH. Where it is, run this, and give the .sqlite file that it writes: `nsys export --type",
        ),
    ],
)
def test_broken_files_are_refused_in_a_line(file: str, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoRuns, match=re.escape(says)):
        check([str(SHARED / "traces/malformed" / file)])


def test_without_the_kernels_table_no_verdict_falls_on_the_device():
    (run,) = check([str(SHARED / "traces/malformed/no-kernel-table.nsys.sqlite")]).runs
    assert "kernels were launched" in run.source.lacks["device_ops"].words
    (finding,) = run.findings
    assert finding.rule == "kernels-not-recorded"
    assert run.accounting is None
    assert run.verdict.startswith("The recording has 7,328 launches and no kernel")
    assert "cudaFree (2.87 s)" in finding.says  # the host's part is told


def changed(target: Path, trace: str, statement: str) -> Path:
    target.write_bytes((TRACES / f"{trace}.sqlite").read_bytes())
    with closing(sqlite3.connect(target)) as base:
        base.execute(statement)
        base.commit()
    return target


def test_idle_time_is_no_loss_where_the_copies_have_no_place_in_time(tmp_path: Path):
    lost = "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = 9223372036854775807"
    (run,) = check([str(changed(tmp_path / "lost.sqlite", "two-gpu-h100-window", lost))]).runs
    assert run.accounting is None
    assert not run.actions
    assert run.verdict.startswith("Too little was recorded to judge this job: 904 of 4,368 device ops have no sound")
    assert "the device may work while it seems idle" in run.verdict


def test_ranges_alone_are_a_recording_without_the_gpu():
    (run,) = check([str(TRACES / "titanrtx-schema3.0.sqlite")]).runs
    assert [(finding.rule, finding.severity) for finding in run.findings] == [("cpu-beside-gpu", "high")]
    assert "NVIDIA TITAN RTX" in run.findings[0].says
    assert "find_centers (20.6 s)" in run.findings[0].says


def test_no_report_or_table_bears_the_environment():
    with_names = "select value from TARGET_INFO_SYSTEM_ENV where length(value) > 12 and name not like '%GPU%'"
    trace = "llm-2.7b-a100-nvtx"
    secrets = {value for (value,) in sql(trace, with_names)}
    made = profile(trace)
    kept = "".join(made.host_ops["name"].cast(pl.String).unique()) + str(made.workers.to_dicts()) + str(made.lacks)
    assert not [value for value in secrets if value in kept]


# ------------------------------------------------------------------------------------------ every schema

SCHEMAS = {  # schema, processes that used a device, what they are of
    "saxpy-mpi-a100-schema2.9": ("2.9.1", 1, "cuda"),
    "cloverleaf-a100-schema3.13": ("3.13.2", 1, "cuda"),
    "llm-2.7b-a100-nvtx": ("3.16.1", 1, "pytorch"),
    "llm-2.7b-a100-pageable": ("3.16.1", 1, "pytorch"),
    "llm-2.7b-a100-cuda-graph": ("3.16.1", 1, "pytorch"),
    "h200-single-step": ("3.17.1", 1, "pytorch"),
    "llm-3070ti-17k-kernels": ("3.17.2", 1, "pytorch"),
    "non-nvidia-gpus-listed": ("3.25.0", 1, "pytorch"),
    "two-gpu-before": ("3.25.0", 2, "pytorch"),
    "two-gpu-h100-window": ("3.25.0", 2, "pytorch"),
}
ON_DEVICE = {"KERNEL": ["kernel", "collective"], "MEMCPY": ["memcpy"], "MEMSET": ["memset"]}


@pytest.mark.parametrize(("trace", "expected"), SCHEMAS.items())
def test_every_schema_gives_the_rows_that_sql_counts(trace: str, expected: tuple[str, int, str]):
    made = profile(trace)
    schema, processes, framework = expected
    assert all(producer.endswith(f", schema {schema}") for producer in made.workers["producer"])
    assert made.workers["framework"].to_list() == [framework] * processes
    there = {name for (name,) in sql(trace, "select name from sqlite_master")}
    ops = made.device_ops.filter(~pl.col("name").cast(pl.String).str.starts_with("CUDA graph "))
    for table, kinds in ON_DEVICE.items():
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        counted = sql(trace, f'select count(*), total("end" - start) from {name}')[0] if name in there else (0, 0)  # noqa: S608 - ours
        found = ops.filter(pl.col("kind").is_in(kinds))
        assert (found.height, found["dur_ns"].sum()) == counted, table
    graphs = made.device_ops.height - ops.height
    whole = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    assert graphs <= (sql(trace, f"select count(*) from {whole}")[0][0] if whole in there else 0)  # noqa: S608 - ours
