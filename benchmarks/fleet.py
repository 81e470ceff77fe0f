"""What a fleet costs: the week's report over a store of many runs, and what ingest takes beside checking.

`python benchmarks/fleet.py [RUNS]` makes a synthetic store (a million runs of a year by default) in a temporary folder
and prints time and peak memory of `advisor fleet report` as the store grows, then what an ingest gets through with one
process, against checking the same traces one after the other and against the floor: inflating and decoding them.
"""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from enlarge import enlarge

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
TRACE_BYTES: Final = 100_000_000
_MB: Final = 1e6


def main() -> None:
    """Print both tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="advisor-fleet-") as folder:
        store = Store(f"{folder}/store")
        print("| runs in the store | weeks | of the week | report | of a core | peak memory |")
        print("| --: | --: | --: | --: | --: | --: |", flush=True)
        fill(store, runs // WEEKS, folder)
        print("\n| one process | MB/s | MB/s of a core | of the floor |\n| --- | --: | --: | --: |")
        floor = None
        for name, cost, text in throughput(folder):
            rate = text / _MB / cost.cpu_s
            floor = floor or rate
            print(f"| {name} | {text / _MB / cost.wall_s:.1f} | {rate:.1f} | {rate / floor:.2f} |", flush=True)


def fill(store: Store, per_week: int, folder: str) -> None:
    """A year, written backwards week by week; reported on when there is a quarter of it, half, and all."""
    rng = np.random.default_rng(0)
    for number, week in enumerate([LAST, *reversed(weeks_before(LAST, WEEKS - 1))], start=1):
        rows = made(week, per_week, rng)
        store.write(rows, "week", [week], [week])
        if number in {WEEKS // 4, WEEKS // 2, WEEKS}:
            took = reported(store, folder)
            told = f"| {number * per_week:,} | {number} | {per_week:,} | {took.wall_s:.1f} s | {took.cpu_s:.1f} s"
            print(f"{told} | {took.peak_bytes / 1e9:.2f} GB |", flush=True)


class Cost(NamedTuple):
    """What a command took, its child processes included."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def cost(*command: str) -> Cost:
    """The cost of a command; the peak is that of the largest one so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, after.ru_maxrss * 1024)


def reported(store: Store, folder: str) -> Cost:
    """Of `advisor fleet report`."""
    return cost("-m", "advisor", "fleet", "report", "--store", store.uri, "-o", f"{folder}/fleet.json")


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
        breakdown=pl.Series([f'{{"compute": {b:.4f}, "unknown": {1 - b:.4f}}}' for b in busy]),
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


def throughput(folder: str) -> Iterator[tuple[str, Cost, int]]:
    """What was done, what it took, and the bytes of text in the traces that it read."""
    root, store = Path(folder) / "traces", f"{folder}/ingested"
    short = next(iter(sorted((ROOT / "fixtures").glob("*/*.pt.trace.json.gz"))))
    for number in range(TRACES):
        (root / f"job{number}").mkdir(parents=True)
        enlarge(short, root / f"job{number}/rank0.pt.trace.json.gz", TRACE_BYTES + number)
    traces = sorted(root.rglob("*.gz"))
    text = sum(len(gzip.decompress(trace.read_bytes())) for trace in traces)
    ingest = ("-m", "advisor", "fleet", "ingest", str(root), "--store", store, "--processes", "1")
    ways: dict[str, tuple[str, ...]] = {
        "floor: inflate and decode, keep nothing": ("benchmarks/floor.py", "chunks", *map(str, traces)),
        "`advisor check`": ("-m", "advisor", "check", str(root), "--processes", "1"),
        "`advisor fleet ingest`": ingest,
        "the same again": ingest,
    }
    for name, command in ways.items():
        yield name, cost(*command), text


if __name__ == "__main__":
    main()
