"""Savings that recordings claim, held against repairs that are measured without a profiler; writes docs/recorded.md.

    python benchmarks/recorded.py [--only WORD] [--frameworks PYTHON]

A job and its repair run in turns. The job is recorded by hand and by `advisor record`; where the report names a number
of loader processes, that number is the repair. `--frameworks` is a Python that has TensorFlow and JAX.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import torch
import yaml

ROOT: Final = Path(__file__).parents[1]
MAKE: Final = ROOT / "fixtures" / "make"
sys.path.append(str(MAKE))

from recorder import CPU, FAULTS, Setup, Training, measure, warm_heap  # noqa: E402 - the scripts are no package
from recorder import Truth as Measured  # noqa: E402

import advisor  # noqa: E402
from advisor.engine import check  # noqa: E402
from advisor.model.report import Run  # noqa: E402
from advisor.recording.inside.threads import work  # noqa: E402
from advisor.trials.session import cpu_time  # noqa: E402

PAGE: Final = ROOT / "docs/recorded.md"
NARROW: Final = {"batch": 4, "width": 64}
TINY: Final = {"chain": 30, "fused_activation": True, "side": 8, "batch": 4}
LOADS: Final = ((0, 0.5), (0, 1.0), (0, 2.0), (0, 4.0), (0, 8.0), (1, 2.0), (1, 8.0))  # processes, loading / the rest
REPAIRS: Final[tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]] = (
    ("loader-sleep", {}, {"read_ms": 0.0}),
    ("loader-sleep", {"read_ms": 2.0, "width": 64}, {"read_ms": 0.0}),
    ("zero-workers", {}, {}),
    ("zero-workers", NARROW, {}),
    ("tiny-kernels", {}, {}),
    ("tiny-kernels", {"batch": 16}, {}),
    ("for-loop-optimizer", {}, {}),
    ("for-loop-optimizer", {"depth": 6, "width": 64}, {}),
    ("unfused-attention", {}, {}),
    ("elementwise-chains", {}, {}),
    ("elementwise-chains", {}, {"fused_activation": False, "compiled": True}),
    ("elementwise-chains", TINY, {"compiled": True}),
    ("elementwise-chains", {**TINY, "side": 32}, {"compiled": True}),
)
FRAMEWORKS: Final = (
    *(("record_tf.py", fault) for fault in ("serial-map", "generator", "eager", "retrace")),
    *(("record_jax.py", fault) for fault in ("slow-loader", "recompile", "missing-jit")),
)
LOADER: Final = ("single-process-data-loader", "input-bound")
_WORKERS: Final = r"num_workers=(\d+)"
_SKIP: Final = 10
_ACTIVE: Final = 10
_TRIES: Final = 2  # that count, of two pairs of blocks each
_QUIET: Final = 0.05  # of one CPU
_HEADS: Final = ("job", "recorded", "step", "repair saves", "claimed", "the middle misses by")


T = TypeVar("T")
Job = Callable[[str], Iterable["Outcome"]]


class Truth(NamedTuple):
    """What a repair saves of a step, in ms: the median, and the range of four fifths of the pairs of blocks."""

    step_ms: float
    saved_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Outcome:
    """A recorded job, what its repair saves and the interval that the report claims, in ms of the job's own step."""

    name: str
    way: str
    truth: Truth
    claim: tuple[float, float] | None

    @property
    def holds(self) -> bool:
        """Whether the interval meets the range that was measured."""
        low, high = self.claim or (0.0, 0.0)
        return low <= self.truth.high_ms and self.truth.low_ms <= high

    @property
    def miss(self) -> float:
        """How far the middle of the interval is from the truth, as a share of the step."""
        return abs(sum(self.claim or (0.0, 0.0)) / 2 - self.truth.saved_ms) / self.truth.step_ms


def main() -> None:
    """Measure, record and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a word of the names of jobs; prints their rows and writes no page")
    parser.add_argument("--frameworks", default=sys.executable, help="a Python that has TensorFlow and JAX")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warm_heap()
    outcomes = []
    for name, job in (*_repairs(), *_loaders(), *_elsewhere(options.frameworks)):
        for outcome in job(name) if options.only in name else ():
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
    print(_sum("all", outcomes))
    if not options.only:
        PAGE.write_text("\n".join(page(outcomes)) + "\n", encoding="utf-8")


def _repairs() -> Iterator[tuple[str, Job]]:
    """Faults of the recorder with its repairs, or with others."""
    for fault, sizes, repair in REPAIRS:
        faulty, fixed = FAULTS[fault].setups(CPU)
        variants = replace(faulty, **sizes), replace(fixed, **{**sizes, **repair})
        words = (", ".join(f"{key} {value}" for key, value in switches.items()) for switches in (sizes, repair))
        yield f"{fault} ({'; '.join(words)})", partial(_repaired, fault, *variants)


def _repaired(fault: str, faulty: Setup, fixed: Setup, name: str) -> Iterator[Outcome]:
    truth = _truth(faulty, fixed)
    for way, record in WAYS.items():
        yield Outcome(name, way, truth, _claim(_run(faulty, record), FAULTS[fault].fires[CPU], truth.step_ms))


def _loaders() -> Iterator[tuple[str, Job]]:
    """Loading that takes from half to eight times the rest of the step, and waits or computes."""
    for computes, (workers, load) in product((False, True), LOADS):
        name = f"loader, {workers} workers, {'computes' if computes else 'waits'}, load {load:g}"
        yield name, partial(_advised, workers, computes, load)


def _advised(workers: int, computes: bool, load: float, name: str) -> Iterator[Outcome]:  # noqa: FBT001
    """The job with as many loader processes as its report advises; the next report must not advise them again."""
    bare = replace(FAULTS["zero-workers"].setups(CPU)[0], read_ms=0.0)
    read_ms = load * _rest_ms(bare) / bare.batch
    faulty = replace(bare, workers=workers, read_ms=read_ms, read_computes=computes)
    for way, record in WAYS.items():
        run = _run(faulty, record)
        advice = _advice(run)
        if advice is None:
            continue
        fixed = replace(faulty, workers=advice)
        again = _advice(_run(fixed, record))
        truth = _truth(faulty, fixed)
        words = f"{name}, {advice} advised, then {again or 'none'}"
        yield Outcome(words, way, truth, _claim(run, LOADER, truth.step_ms))


def _advice(run: Run) -> int | None:
    """The number of loader processes that the report's first fix of them names."""
    texts = [fix.do for finding in run.findings if finding.rule in LOADER for fix in finding.fixes]
    return next((int(number[1]) for text in texts if (number := re.search(_WORKERS, text))), None)


def _elsewhere(python: str) -> Iterator[tuple[str, Job]]:
    """Loops of TensorFlow and JAX, measured and recorded by the recorders of the fixtures."""
    for script, fault in FRAMEWORKS:
        yield f"{script.removeprefix('record_')[:-3]}, {fault}", partial(_fixture, python, script, fault)


def _fixture(python: str, script: str, fault: str, name: str) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, str(MAKE / script), "--fault", fault, "-o", folder], check=True, capture_output=True)
        facts = yaml.safe_load(Path(folder, "case.yaml").read_text("utf-8"))
        (run,) = check([folder]).runs
    truth = _truth_of(facts["truth"])
    yield Outcome(name, "by hand", truth, _claim(run, facts["must_fire"], truth.step_ms))


@cache
def _rest_ms(bare: Setup) -> float:
    return _truth(bare, bare).step_ms


def _truth(faulty: Setup, fixed: Setup) -> Truth:
    tries = _quietest(lambda: measure((faulty, fixed), CPU, steps=12, pairs=1, repeats=2), _TRIES)
    sides = (np.concatenate([getattr(tried, side) for tried in tries]) for side in ("faulty", "fixed"))
    return _truth_of(Measured(*sides).facts)


def _truth_of(facts: Mapping[str, Any]) -> Truth:
    """Of medians; of means where the fault strikes in some steps only."""
    of = "_mean" * bool(facts.get("uneven"))
    ends = (facts["spread"][f"{end}_ms"] for end in ("low", "high"))
    return Truth(facts[f"faulty{of}_step_ms"], facts[f"saved{of}_ms"], *ends)


def _run(setup: Setup, record: Callable[[Training, Path], None]) -> Run:
    """The report of a recording."""

    def recorded() -> str:
        path = tempfile.mkdtemp(dir=folder)
        record(Training(setup, CPU), Path(path))
        return path

    with tempfile.TemporaryDirectory() as folder:
        return check(_quietest(recorded, 1)).runs[0]


def _quietest(run: Callable[[], T], number: int) -> list[T]:
    """The results of those tries, of three times as many, in which other programs used the CPUs least."""
    tries: list[tuple[float, T]] = []
    while len(tries) < 3 * number and sum(others < _QUIET for others, _ in tries) < number:
        start, before = time.perf_counter(), _others_s()
        result = run()
        tries.append(((_others_s() - before) / (time.perf_counter() - start), result))
    return [result for _, result in sorted(tries, key=itemgetter(0))[:number]]


def _others_s() -> float:
    """What all programs have run so far but this one and its processes."""
    own = work()
    ticks, idle = cpu_time(Path("/proc/stat").read_text("ascii").splitlines(), range(os.cpu_count() or 1))
    return (ticks - idle) / os.sysconf("SC_CLK_TCK") - (own.run_ns / 1e9 if own else 0.0)


def _claim(run: Run, rules: Iterable[str], step_ms: float) -> tuple[float, float] | None:
    """In ms if the recording timed the step without the profiler; else its shares of this step."""
    savings = [f.saving for f in run.findings if f.rule in rules and f.saving and f.saving.high_ms > 0]
    unit, factor = ("ms", 1.0) if run.source.steps.unprofiled_ms else ("share", step_ms)
    low, high = (factor * sum(getattr(s, f"{end}_{unit}") for s in savings) for end in ("low", "high"))
    return (low, high) if savings else None


def _by_hand(training: Training, folder: Path) -> None:
    """As the documentation of PyTorch has it, with shapes."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=_SKIP, warmup=2, active=_ACTIVE, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(str(folder)),
        record_shapes=True,
    ) as profiler:
        for _ in range(_SKIP + 2 + _ACTIVE):
            training()
            profiler.step()


def _by_record(training: Training, folder: Path) -> None:
    with advisor.record(folder, skip=_SKIP, active=_ACTIVE) as recording:
        while recording.path is None:
            training()
            recording.step()


WAYS: Final = {"by hand": _by_hand, "`record`": _by_record}


def page(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The page, line by line."""
    yield from (
        "# Claimed by recordings and measured",
        "",
        "Small training loops with a known fault on a CPU. What the repair saves is measured without a profiler:",
        "the loop and its repaired twin run in turns. Each loop is recorded by hand with the profiler of its",
        "framework, and those of PyTorch with `advisor.record` too. A claim by hand is a share of the recorded",
        "step. A claim by `record` is in ms if it has the step without the profiler. An interval holds the truth if",
        "it meets the range of four fifths of the measured pairs. Of a loader, the repair is the number of",
        "processes that the report advises. Made by `python benchmarks/recorded.py`.",
        "",
        f"Last run on {dt.datetime.now(dt.UTC).date()}, torch {torch.__version__}, Python {platform.python_version()},",
        f"on {os.cpu_count()} CPUs that other programs share. Of PyTorch's jobs, those tries count in which others",
        f"used the CPUs least. At the end the load was {os.getloadavg()[2]:.1f}.",
        "",
        f"| {' | '.join(_HEADS)} |",
        f"|{' --- |' * len(_HEADS)}",
        *map(_row, outcomes),
        "",
        "| recorded | claims | the interval holds | the middle misses by, mean | median | median width |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_sum(way, [o for o in outcomes if o.way == way]) for way in WAYS),
        _sum("all", outcomes),
    )


def _sum(name: str, outcomes: Sequence[Outcome]) -> str:
    """How often the intervals hold, and how far their middles are off, as shares of the step."""
    known = [o for o in outcomes if o.claim]
    if not known:
        return f"| {name} | none | | | | |"
    misses = [o.miss for o in known]
    widths = [(o.claim[1] - o.claim[0]) / o.truth.step_ms for o in known if o.claim]
    shares = (statistics.mean(misses), statistics.median(misses), statistics.median(widths))
    cells = (name, f"{len(known)} of {len(outcomes)}", f"{sum(o.holds for o in known)} of {len(known)}")
    return f"| {' | '.join((*cells, *(f'{share:.1%}' for share in shares)))} |"


def _row(o: Outcome) -> str:
    t = o.truth
    saved = f"{t.saved_ms:.2f} ms ({t.low_ms:.2f}-{t.high_ms:.2f}), {t.saved_ms / t.step_ms:.0%}"
    claim = f"{o.claim[0]:.2f}-{o.claim[1]:.2f} ms" + " (misses)" * (not o.holds) if o.claim else "nothing"
    return f"| {' | '.join((o.name, o.way, f'{t.step_ms:.2f} ms', saved, claim, f'{o.miss:.1%}' if o.claim else ''))} |"


if __name__ == "__main__":
    main()
