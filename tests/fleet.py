"""Fleets built by hand: tiny traces in folders, rows of the store, and what the processes of an engine run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from advisor.engine import Jobs
from advisor.fleet import columns
from advisor.fleet import examine as room
from advisor.fleet.columns import KEYS, TABLES, Context, frame
from advisor.fleet.store import Store
from advisor.inputs.discover import Recording
from advisor.metrics import Metric
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.model.report import Unreadable
from advisor.options import Options
from advisor.rules.evaluation import MeasuredRun
from advisor.system.engines import Engine

WEEK = "2026-W47"
MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)


def trace(folder: Path, number: int = 1, rank: int | None = None) -> Path:
    """A trace of one step of `number` + 100 us with one kernel; another number gives another content."""
    folder.mkdir(parents=True, exist_ok=True)
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#1",
        "pid": 1,
        "tid": 1,
        "ts": 10,
        "dur": 100 + number,
    }
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 20,
        "dur": 50,
        "args": {"device": 0, "stream": 7},
    }
    told: dict[str, Any] = {"schemaVersion": 1, "traceEvents": [step, kernel]}
    if rank is not None:
        told["distributedInfo"] = {"rank": rank, "world_size": 2}
    file = folder / f"rank{rank or 0}.pt.trace.json"
    file.write_text(json.dumps(told))
    os.utime(file, (MONDAY.timestamp() + number,) * 2)
    return file


def broken(folder: Path, number: int = 1) -> Path:
    """A trace without events."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rank0.pt.trace.json"
    file.write_text(json.dumps({"schemaVersion": number, "traceEvents": []}))
    os.utime(file, (MONDAY.timestamp() + number,) * 2)
    return file


_measure = room.measured
_measurements: dict[object, tuple[str, Jobs]] = {}


def measured(recording: Recording, options: Options, selected: Sequence[Metric] = ()) -> tuple[Jobs, list[Unreadable]]:
    """The jobs in these files. The small traces of many tests are alike: each content is measured once in a process."""
    files = ((Path(file).name, Path(file).is_file() and Path(file).read_bytes()) for file in recording.copies)
    key = (*files, options.max_bytes, tuple((metric.name, metric.of) for metric in selected))
    if key not in _measurements:
        jobs, broken = _measure(recording, options, selected)
        if broken:
            return jobs, broken
        _measurements[key] = recording.name, jobs
    first, jobs = _measurements[key]
    return [(recording.name + name.removeprefix(first), *rest) for name, *rest in jobs], []


def asked_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, that does its work once for the same objects; it holds them, so that no other gets their ids."""
    known: dict[tuple[int, ...], tuple[object, Any]] = {}

    def ask(*of: object) -> Any:
        key = tuple(map(id, of))
        if key not in known:
            known[key] = of, function(*of)
        return known[key][1]

    return ask


asked = asked_once(room.measured_run)
judged = asked_once(room.judge)
_kept = asked_once(partial(columns.context_of, notes=(), file_notes=()))


def context_of(
    run: MeasuredRun, metrics: Sequence[Metric], notes: Sequence[Reason], file_notes: Sequence[Note]
) -> Context:
    """What has to be kept of a run; the places in it are looked up once."""
    more = {"notes": tuple(notes), "file_notes": tuple(map(Reason.of, file_notes))}
    return _kept(run, metrics).model_copy(update=more)


class _Here(Executor):
    """Does what it is given at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


Here = partial(Engine, lambda: 1, _Here)
"""An engine without processes."""


def run_row(run_id: str, **columns: Any) -> dict[str, Any]:
    """A checked run of 100 GPU-hours on an idle half: 10 ms a step."""
    base = {
        "week": WEEK,
        "recording": run_id,
        "run_id": run_id,
        "status": "checked",
        "name": run_id,
        "path": f"/{run_id}",
        "gpu_hours": 100.0,
        "recorded_hours": 0.1,
        "gpu_type": "a100",
        "gpus": 8,
        "step_ms": 10.0,
        "busy_share": 0.5,
        "low_share": 0.0,
        "high_share": 0.0,
        "expected_share": 0.0,
        "breakdown": '{"compute": 0.5, "unknown": 0.5}',
        "verdict": "v",
        "passed": [],
        "not_evaluable": [],
        "rule_set": "r1",
        "started": MONDAY,
    }
    return base | columns


def finding_row(
    run_id: str, rule: str = "input-bound", low: float = 0.1, high: float = 0.3, **columns: Any
) -> dict[str, Any]:
    """A finding worth 10 to 30 % of the step, of high confidence."""
    base = {
        "week": WEEK,
        "recording": run_id,
        "run_id": run_id,
        "rule": rule,
        "title": rule.title(),
        "severity": "high",
        "low_share": low,
        "high_share": high,
        "expected_share": (low + high) / 2,
        "rank": 1,
        "says": "it waits",
        "worker": 0,
        "workers": [0],
    }
    return base | columns


def stored(store: Store, **rows: list[dict[str, Any]]) -> Store:
    """The store with these rows, and every table that an ingest writes; a checked run is in those of all runs."""
    checked = [row for row in rows.get("runs", []) if row["status"] == "checked"]
    for name, value in (("reports", {"report": "{}"}), ("workers", {"scope": "run"})):
        there = {row["run_id"] for row in rows.setdefault(name, [])}
        rows[name] += [{key: row[key] for key in KEYS} | value for row in checked if row["run_id"] not in there]
    tables = {name: rows.get(name, []) for name in TABLES}
    runs = [row["run_id"] for of in rows.values() for row in of]
    store.write({name: frame(name, of) for name, of in tables.items()}, "run_id", runs)
    return store


def add_or_die(number: int) -> int:
    """One more than the number; 13 kills its process, 14 and 15 raise."""
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 14:
        raise ValueError("fourteen")
    if number == 15:
        raise pl.exceptions.PanicException("fifteen")
    return number + 1
