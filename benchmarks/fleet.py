"""What a fleet costs: the week's report over a store of many runs, and what ingest takes beside checking.

`python benchmarks/fleet.py [RUNS]` makes a synthetic store (a million runs of a year by default) in a temporary folder
and prints time and peak memory of `advisor fleet report` as the store grows, then the throughput of an ingest in one
process against checking the same traces one after the other.
"""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from enlarge import enlarge

from advisor.engine import check
from advisor.fleet.engines import Local
from advisor.fleet.ingest import ingest
from advisor.fleet.labels import monday_of, weeks_before
from advisor.fleet.store import Store

ROOT: Final = Path(__file__).parents[1]
LAST: Final = "2026-W47"
WEEKS: Final = 52
JOBS: Final = 2000
PER_RUN: Final = 3  # findings
RULES: Final = (
    "input-bound",
    "launch-bound",
    "amp-unused",
    "tf32-off",
    "host-stalls",
    "small-kernels",
    "straggler-rank",
)
TRACES: Final = 4
TRACE_BYTES: Final = 30_000_000
_MB: Final = 1e6


def main() -> None:
    """Print both tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="advisor-fleet-") as folder:
        store = Store(f"{folder}/store")
        print("| runs in the store | weeks | of the week | report | peak memory |\n| --: | --: | --: | --: | --: |")
        fill(store, runs // WEEKS, folder)
        print("\n| ingest, one process | MB/s |\n| --- | --: |")
        for name, rate in throughput(folder):
            print(f"| {name} | {rate:.1f} |", flush=True)


def fill(store: Store, per_week: int, folder: str) -> None:
    """A year, written backwards week by week; reported on when there is a quarter of it, half, and all."""
    rng = np.random.default_rng(0)
    for number, week in enumerate([LAST, *reversed(weeks_before(LAST, WEEKS - 1))], start=1):
        rows = made(week, per_week, rng)
        store.write(rows, "week", [week], [week])
        if number in {WEEKS // 4, WEEKS // 2, WEEKS}:
            seconds, peak = reported(store, folder)
            told = f"| {number * per_week:,} | {number} | {per_week:,} | {seconds:.1f} s | {peak / 1e9:.2f} GB |"
            print(told, flush=True)


def reported(store: Store, folder: str) -> tuple[float, float]:
    """Seconds and bytes of the command, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-m", "advisor", "fleet", "report", "--store", store.uri, "-o", f"{folder}/fleet.json"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, max(after.ru_maxrss, before.ru_maxrss) * 1024


def made(week: str, number: int, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """A week of runs of 2,000 jobs, three findings each."""
    ids = [f"{week}-{i:06}" for i in range(number)]
    jobs = rng.integers(0, JOBS, number)
    busy = rng.uniform(0.2, 1.0, number)
    keys = {"week": week, "recording": ids, "run_id": ids}
    runs = pl.DataFrame(keys | {"path": ids, "name": ids, "fingerprint": ids}).with_columns(
        status=pl.lit("checked"),
        started=pl.lit(monday_of(week)),
        job=pl.Series([f"job{j}" for j in jobs]),
        team=pl.Series([f"team{j % 20}" for j in jobs]),
        owner=pl.Series([f"owner{j % 200}" for j in jobs]),
        model=pl.Series([f"model{j % 50}" for j in jobs]),
        gpu_type=pl.Series([("h100", "a100", "v100")[j % 3] for j in jobs]),
        gpus=pl.lit(8, pl.Int64),
        gpu_hours=pl.Series(rng.lognormal(3, 1, number)),
        step_ms=pl.Series((50 + jobs) * rng.lognormal(0, 0.03, number)),
        busy_share=pl.Series(busy),
        **{f"{end}_share": pl.Series(busy * by) for end, by in (("low", 0.1), ("high", 0.3), ("expected", 0.2))},
        breakdown=pl.Series([f'{{"compute": {b:.4f}, "other": {1 - b:.4f}}}' for b in busy]),
        verdict=pl.lit("synthetic"),
        passed=pl.lit(list(RULES[4:])),
        not_evaluable=pl.lit(["tail-wave"]),
        rule_set=pl.lit("r1"),
    )
    of = np.repeat(np.arange(number), PER_RUN)
    picked = [RULES[(jobs[i] + n) % len(RULES)] for n, i in enumerate(of)]
    findings = pl.DataFrame({"week": week, "run_id": [ids[i] for i in of], "rule": picked}).with_columns(
        recording=pl.col("run_id"),
        title=pl.col("rule"),
        severity=pl.lit("medium"),
        low_share=pl.lit(0.02),
        high_share=pl.lit(0.1),
        expected_share=pl.lit(0.05),
        worker=pl.lit(0, pl.Int64),
        says=pl.lit("synthetic"),
    )
    workers = pl.DataFrame(keys).with_columns(
        scope=pl.lit("worker"),
        worker=pl.lit(0, pl.Int32),
        device=pl.lit(0, pl.Int32),
        host=pl.Series([f"host{j % 500}" for j in jobs]),
    )
    return {"runs": runs, "findings": findings, "workers": workers}


def throughput(folder: str) -> list[tuple[str, float]]:
    """MB of traces, unpacked, per second and core: checking alone, and with all that ingest adds."""
    root, store = Path(folder) / "traces", Store(f"{folder}/ingested")
    short = next(iter(sorted((ROOT / "fixtures").glob("*/*.pt.trace.json.gz"))))
    for number in range(TRACES):
        (root / f"job{number}").mkdir(parents=True)
        enlarge(short, root / f"job{number}/rank0.pt.trace.json.gz", TRACE_BYTES + number)
    unpacked = sum(len(gzip.decompress(trace.read_bytes())) for trace in root.rglob("*.gz"))
    check([str(root / "job0")])  # imports and caches
    ways: dict[str, Callable[[], object]] = {
        "checking alone": lambda: check([str(root)]),
        "ingest, the start of its process included": lambda: ingest([str(root)], store, Local(1)),
        "ingest of what is known": lambda: ingest([str(root)], store, Local(1)),
    }
    return [(name, unpacked / _MB / _seconds(way)) for name, way in ways.items()]


def _seconds(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
