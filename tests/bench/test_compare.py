"""The study behind the verdicts, in small: false alarms on recorded jobs, and a slow-down of a known size."""

from __future__ import annotations

import runpy
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.comparing import compare
from advisor.engine import check
from tests.effort import every

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.soak  # the statistics are in tests/unit/comparing/test_significance.py

NOISIEST = ("torch-cpu-elementwise-chains", "torch-cpu-unfused-attention", "torch-cpu-tiny-kernels")


@cache
def study() -> dict[str, Any]:
    """What the script holds: it imports statistics that take a second."""
    return runpy.run_path(str(ROOT / "benchmarks/compare.py"))


def slower(base: np.ndarray, head: np.ndarray) -> bool:
    return bool(study()["slower"](base, head))


@pytest.mark.parametrize("job", every(3, NOISIEST))
def test_halves_of_one_recording_raise_at_most_one_alarm_in_a_hundred(job: str):
    """All ways to split its steps: 252 of ten."""
    run = check([str(ROOT / "fixtures" / job)]).runs[0]
    steps = np.array(compare([run], [run], advisor_version="").base.series[0].steps_ms)
    each = range(len(steps))
    halves = [np.isin(each, half) for half in combinations(each, len(steps) // 2)]
    assert len(halves) > 100
    assert sum(slower(steps[half], steps[~half]) for half in halves) <= 0.01 * len(halves)


def test_five_per_cent_are_found_with_twenty_steps_a_side():
    """Steps that vary by 2 %; docs/compare.md has the other noises, and thousands of trials."""
    rng = np.random.default_rng(0)
    drawn = np.exp(0.02 * rng.standard_normal((100, 2, 20)))
    assert sum(slower(base, 1.05 * head) for base, head in drawn) >= 95


def test_a_second_recording_of_the_same_job_is_not_slower():
    rng = np.random.default_rng(0)
    drawn = np.exp(0.05 * rng.standard_normal((200, 2, 20)))
    assert sum(slower(base, head) for base, head in drawn) <= 2
