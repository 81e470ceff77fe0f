"""Savings of one job as recorded by hand and by `advisor record`, held against its repair; writes docs/recorded.md.

    python benchmarks/recorded.py [--only FAULT]

The truth is measured without a profiler: the faulty loop and its repaired twin in turns, waits for a CPU taken out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

ROOT: Final = Path(__file__).parents[1]
sys.path.append(str(ROOT / "fixtures" / "make"))

from recorder import CPU, FAULTS, Setup, Training, measure, warm_heap  # noqa: E402 - the scripts are no package
from recorder.clock import waited_s  # noqa: E402

import advisor  # noqa: E402
from advisor.engine import check  # noqa: E402

PAGE: Final = ROOT / "docs/recorded.md"
JOBS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("loader-sleep", {}),
    ("loader-sleep", {"read_ms": 2.0, "width": 64}),
    ("zero-workers", {}),
    ("zero-workers", {"batch": 4, "width": 64}),
    ("tiny-kernels", {}),
    ("tiny-kernels", {"batch": 16}),
)
_SKIP: Final = 10
_ACTIVE: Final = 10
_RECORDINGS: Final = 3
_HEADS: Final = ("job", "step", "repair saves", "by hand", "by hand, shares", "`record`", "`record`, shares")


class Interval(NamedTuple):
    """A saving as a report gives it, in ms and as shares of the step; and the step that the ms are of."""

    low_ms: float
    high_ms: float
    low_share: float
    high_share: float
    step_ms: float

    def holds_ms(self, truth: Outcome) -> bool:
        """Whether the repair saves as many milliseconds, give or take what its own measurement scatters."""
        return self.low_ms <= truth.high_ms and truth.low_ms <= self.high_ms

    def holds_share(self, truth: Outcome) -> bool:
        """The same of the share of the step."""
        return self.low_share <= truth.high_ms / truth.step_ms and truth.low_ms / truth.step_ms <= self.high_share


@dataclass(frozen=True)
class Outcome:
    """A job, what its repair saves (the median, and four fifths of the pairs of blocks), and what the reports say."""

    name: str
    step_ms: float
    saved_ms: float
    low_ms: float
    high_ms: float
    hand: Interval | None = None
    record: Interval | None = None


def main() -> None:
    """Measure, record and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a fault; prints its rows and writes no page")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    warm_heap()
    outcomes = []
    for fault, sizes in JOBS:
        if only in {None, fault}:
            outcomes.append(outcome(fault, sizes))
            print(_row(outcomes[-1]), flush=True)
    if only is None:
        PAGE.write_text("\n".join(page(outcomes)) + "\n", encoding="utf-8")


def outcome(fault: str, sizes: dict[str, Any]) -> Outcome:
    """One job: the truth about its repair, then both recordings."""
    faulty, fixed = (replace(setup, **sizes) for setup in FAULTS[fault].setups(CPU))
    fixed = replace(fixed, read_ms=0.0) if fault == "loader-sleep" else fixed
    facts: Any = measure((faulty, fixed), CPU, steps=15, pairs=2, repeats=4).facts
    name = f"{fault}, {', '.join(f'{key} {value:g}' for key, value in sizes.items())}" if sizes else fault
    return Outcome(
        name,
        facts["faulty_step_ms"],
        facts["saved_ms"],
        facts["spread"]["low_ms"],
        facts["spread"]["high_ms"],
        hand=_saving(fault, faulty, _by_hand),
        record=_saving(fault, faulty, _by_record),
    )


def _saving(fault: str, setup: Setup, record: Callable[[Training, Path], None]) -> Interval | None:
    """What the finding of this fault is said to save; of several recordings the one that waited least for a CPU."""
    with tempfile.TemporaryDirectory() as folder:
        waits = {}
        for number in range(_RECORDINGS):
            path = Path(folder, str(number))
            before = waited_s()
            record(Training(setup, CPU), path)
            waits[path] = waited_s() - before
        (run,) = check([str(min(waits, key=lambda path: waits[path]))]).runs
    findings = [f for f in run.findings if f.rule in FAULTS[fault].fires[CPU] and f.saving and f.saving.high_ms > 0]
    if not findings:
        return None
    low_ms, high_ms = (sum(getattr(f.saving, end) for f in findings) for end in ("low_ms", "high_ms"))
    step_ms = run.source.steps.length_ms or float("nan")
    return Interval(low_ms, high_ms, low_ms / step_ms, high_ms / step_ms, step_ms)


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


def page(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The page, line by line."""
    known = [o for o in outcomes if o.hand and o.record]
    yield from (
        "# Recorded by hand and by `advisor record`",
        "",
        "Small training loops with a known fault on a CPU. What the repair saves is measured without a profiler, the",
        "loop and its repaired twin in turns. Each loop is then recorded with `torch.profiler` by hand and with",
        "`advisor.record`, with shapes both times. An interval holds the truth if it meets the range of four fifths of",
        "the measured pairs. Made by `python benchmarks/recorded.py`.",
        "",
        f"Last run on {dt.datetime.now(dt.UTC).date()}, torch {torch.__version__}, Python {platform.python_version()},",
        "on two CPUs that other programs share. Where `record` found the steps before and after the recording too",
        "different to tell the step without the profiler, its milliseconds are of the recorded step.",
        "",
        f"| {' | '.join(_HEADS)} |",
        f"|{' --- |' * len(_HEADS)}",
        *map(_row, outcomes),
        "",
        f"Of {len(known)} jobs where both recordings name the fault:",
        "",
        "| recorded | shares hold | milliseconds hold | median width | of the step |",
        "| --- | --- | --- | --- | --- |",
        _sum("by hand", [(o, o.hand) for o in known if o.hand]),
        _sum("by `advisor record`", [(o, o.record) for o in known if o.record]),
    )


def _sum(name: str, rows: Sequence[tuple[Outcome, Interval]]) -> str:
    shares, times = sum(i.holds_share(o) for o, i in rows), sum(i.holds_ms(o) for o, i in rows)
    width_ms = statistics.median(i.high_ms - i.low_ms for _, i in rows)
    width = statistics.median((i.high_ms - i.low_ms) / o.step_ms for o, i in rows)
    return f"| {name} | {shares} of {len(rows)} | {times} of {len(rows)} | {width_ms:.2f} ms | {width:.0%} |"


def _row(o: Outcome) -> str:
    truth = f"{o.saved_ms:.2f} ms ({o.low_ms:.2f}-{o.high_ms:.2f}), {o.saved_ms / o.step_ms:.0%}"
    cells = [cell for interval in (o.hand, o.record) for cell in _cells(o, interval)]
    return f"| {' | '.join((o.name, f'{o.step_ms:.2f} ms', truth, *cells))} |"


def _cells(o: Outcome, interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "no finding", "no finding"
    times = f"{interval.low_ms:.2f}-{interval.high_ms:.2f} of {interval.step_ms:.2f} ms"
    shares = f"{interval.low_share:.0%}-{interval.high_share:.0%}"
    missed = [" (misses)" * (not holds) for holds in (interval.holds_ms(o), interval.holds_share(o))]
    return times + missed[0], shares + missed[1]


if __name__ == "__main__":
    main()
