from __future__ import annotations

import runpy
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from advisor.inputs.readers import nsys
from advisor.model.profile import SCHEMAS
from tests.strategies_nsys import KERNEL, nvtx, string, tid, together, training, write

ROOT = Path(__file__).parents[2]
made = runpy.run_path(str(ROOT / "benchmarks/enlarge_nsys.py"))
GAP_NS = 1_000_000
CALLS = [
    {"start": 1_000 * i, "end": 1_000 * i + 20_000, "globalTid": tid(100), "nameId": string("read")} for i in (1, 2)
]
SMALL = together(training(3), {"OSRT_API": CALLS, "NVTX_EVENTS": [nvtx(900, 30_000, "run")]})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    short = write(folder / "short.sqlite", SMALL)
    made["enlarge"](short, folder / "long.sqlite", kernels=61, os_events=20, samples=7)
    return folder / "long.sqlite"


def rows(export: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(export)) as connection:
        return connection.execute(query).fetchall()


def test_copies_follow_each_other_until_there_are_enough_kernels(large: Path):
    starts = [start for (start,) in rows(large, "select start from CUPTI_ACTIVITY_KIND_KERNEL order by start")]
    span = 30_000 - 900 + GAP_NS
    assert len(starts) == 90
    assert [starts[i + 30] - starts[i] for i in range(60)] == [span] * 60


def test_each_copy_links_its_own_launches(large: Path):
    tables = "CUPTI_ACTIVITY_KIND_KERNEL k join CUPTI_ACTIVITY_KIND_RUNTIME r"
    assert rows(large, f"select count(*) from {tables} on r.correlationId = k.correlationId") == [(90,)]  # noqa: S608 - ours
    profile = nsys.read(large, "large")
    assert profile.device_ops["launch"].null_count() == 0
    assert profile.steps["name"].to_list() == ["run", "run", "run"]  # each copy is one step now


def test_threads_are_added_until_there_are_enough_calls_and_samples(large: Path):
    assert rows(large, "select count(*), count(distinct globalTid) from OSRT_API") == [(24, 4)]
    assert rows(large, "select count(*), sum(isSchedIn) from SCHED_EVENTS") == [(10, 5)]
    assert rows(large, "select count(*) from COMPOSITE_EVENTS") == [(7,)]
    assert rows(large, "select count(*), max(stackDepth) from SAMPLING_CALLCHAINS") == [(14, 1)]


def test_a_lean_copy_holds_only_what_is_named(large: Path):
    lean = large.with_name("lean.sqlite")
    made["keep_only"](large, lean, [KERNEL, "OSRT_API", "ABSENT"])
    assert rows(lean, "select name from sqlite_master") == [(KERNEL,), ("OSRT_API",)]
    assert rows(lean, "select * from OSRT_API") == rows(large, "select * from OSRT_API")


def test_without_the_tables_that_nothing_needs_the_profile_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told = {"EXPORT_META_DATA": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2022.1"}], "UCP_WORKERS": [{"id": 1}]}
    whole, lean = write(tmp_path / "whole.sqlite", together(SMALL, told)), tmp_path / "lean.sqlite"
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    bench = runpy.run_path(str(ROOT / "benchmarks/nsys.py"))
    made["keep_only"](whole, lean, bench["needed_tables"](bench["needed"](whole)))
    assert rows(lean, "select name from sqlite_master where name in ('UCP_WORKERS', 'EXPORT_META_DATA')") == [
        ("EXPORT_META_DATA",)
    ]
    read = [nsys.read(export, "report.sqlite") for export in (whole, lean)]
    for table in SCHEMAS:
        assert getattr(read[0], table).equals(getattr(read[1], table)), table
