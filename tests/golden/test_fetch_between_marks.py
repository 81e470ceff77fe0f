"""A loop that asks for its batch before it marks the step: what a stranger's recording of a slow loader looks like."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import advisor
from advisor.engine import compare
from advisor.model.report import Run
from tests.effort import every

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures/make"))

from simulator import nsys
from simulator.faults import transformer
from simulator.gpus import GPUS
from simulator.trace import Trace, simulate

STEPS = 8
FORMATS = ("kineto", "nsys")


@cache
def recorded(workers: int) -> Trace:
    """One worker process makes a batch every 400 ms; the step itself takes 90."""
    loop = replace(transformer(GPUS["a100"]), workers=workers, load_ms=400.0, fetched_outside=True)
    return simulate(replace(loop, batch=6 * loop.batch), 5, STEPS)


def save(trace: Trace, folder: Path, form: str) -> str:
    if form == "nsys":
        return str(nsys.write(json.loads(trace.kineto()), folder / "report.sqlite"))
    path = folder / "rank0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(trace.kineto()))
    return str(path)


def checked(workers: int, folder: Path, form: str) -> Run:
    (run,) = advisor.check([save(recorded(workers), folder, form)]).runs
    return run


@pytest.mark.parametrize("form", FORMATS)
def test_the_wait_between_the_marks_is_the_first_finding_and_its_share_is_right(form, tmp_path):
    run = checked(1, tmp_path, form)
    steps = run.source.steps
    assert (steps.count, steps.used) == (STEPS, STEPS - 1)
    assert steps.step_mean_ms == pytest.approx(400, rel=0.1)
    assert run.metrics["run"][0]["device_busy_share"] == pytest.approx(0.2, abs=0.05)
    first = run.findings[0]
    assert first.rule == "input-bound"
    assert first.saving is not None
    assert steps.step_mean_ms is not None
    won = steps.step_mean_ms - fixed_ms()
    assert first.saving.low_ms <= won <= first.saving.high_ms


def fixed_ms() -> float:
    """Mean period of the same loop with enough workers."""
    starts = [step.start_ns for step in recorded(12).machine.steps]
    return (starts[-1] - starts[0]) / (len(starts) - 1) / 1e6


@pytest.mark.parametrize("form", every(2, FORMATS))
def test_a_comparison_with_the_loop_after_the_fix_says_so(form, tmp_path):
    sides = []
    for name, workers in (("slow", 1), ("fast", 12)):
        (tmp_path / name).mkdir()
        sides.append([save(recorded(workers), tmp_path / name, form)])
    found = compare(*sides)
    assert found.verdict == "faster"
    assert found.change is not None
    assert found.change.ratio == pytest.approx(fixed_ms() / 400, rel=0.1)
