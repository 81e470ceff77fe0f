"""Comparisons of steps that the recorder timed without the profiler: on quiet machines and on busy ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
import pytest

from advisor.model.report import Run
from advisor.present.shifts import rows
from tests.effort import every
from tests.unit.comparing.test_compare import held, ops, run

STEP_MS = 50.0


def timed(times_ms: Sequence[float], delay_ms: float | None = 0.0, **given: object) -> Run:
    """A run on CPUs whose steps were timed without the profiler, less `delay_ms` of waits each; 100 ms recorded."""
    recorded = run(device_row=[{"worker": 0, "device": None, "step_mean_ms": 100.0}], **given)
    steps = recorded.source.steps.model_copy(
        update={
            "worker": 0,
            "unprofiled_ms": median(times_ms),
            "unprofiled_steps_ms": tuple(times_ms),
            "unprofiled_delay_ms": delay_ms,
        }
    )
    source = recorded.source.model_copy(update={"steps": steps, "devices": ()})
    part = {"worker": 0, "device": None, "part": "operators", "share": 1.0}
    return recorded.model_copy(update={"source": source, "metrics": {**recorded.metrics, "accounting": (part,)}})


def quiet(times: float, seed: int) -> Run:
    """Twenty steps of `times` 50 ms; they vary by 3 %, the runs by 1 %: what two cores without other programs give."""
    rng = np.random.default_rng(seed)
    return timed(STEP_MS * times * rng.normal(1, 0.01) * rng.normal(1, 0.03, 20).clip(0.9, 1.1))


@pytest.mark.parametrize("seed", every(5, range(10)))
def test_on_a_quiet_machine_a_tenth_is_seen_and_the_same_program_is_not(seed: int):
    assert held(quiet(1, seed), quiet(1, seed + 100)).verdict not in {"slower", "faster"}
    for times in (1.1, 1.2, 1.4):
        slower = held(quiet(1, seed), quiet(times, seed + 100))
        assert (slower.verdict, slower.change and slower.change.ratio) == ("slower", pytest.approx(times, rel=0.06))
        assert held(quiet(times, seed), quiet(1, seed + 100)).verdict == "faster"


def test_the_steps_without_the_profiler_count_where_all_runs_have_them():
    known = held(quiet(1, 0), quiet(1.2, 1))
    assert (known.base.is_unprofiled, known.base.steps) == (True, 20)
    mixed = held(quiet(1, 0), run())
    assert (mixed.base.is_unprofiled, mixed.base.median_ms) == (False, pytest.approx(100, rel=0.05))


def test_the_parts_of_steps_that_were_timed_without_the_profiler_add_up_to_them():
    *parts, verdict = rows(held(timed([50.0] * 20), timed([60.0] * 20)))
    assert (verdict.base_ms, verdict.head_ms) == (pytest.approx(50), pytest.approx(60))
    assert sum(part.base_ms for part in parts) == pytest.approx(50)


@pytest.mark.parametrize(
    ("base_ms", "head_ms", "verdict"),
    [
        (0.0, 20.0, "inconclusive"),  # 20 of 90 ms
        (20.0, 0.0, "inconclusive"),  # 20 of 70 ms
        (2.0, 10.0, "slower"),  # 10 of 80 ms
        (None, 0.0, "slower"),  # not noted
    ],
)
def test_a_busy_machine_moves_the_pace_of_the_work_between_the_waits(base_ms, head_ms, verdict: str):
    known = held(timed([50.0] * 20, base_ms), timed([70.0] * 20, head_ms))
    assert known.verdict == verdict
    if verdict == "inconclusive":
        assert "record each side 3 times in turns" in known.reason.words


def test_three_runs_of_each_side_show_how_far_a_busy_machine_moves_them():
    base, head = (
        [timed([ms + n % 3 for n in range(20)], 40.0) for ms in side] for side in ((40, 50, 45), (80, 95, 88))
    )
    known = held(base, head)
    assert (known.verdict, known.change and known.change.of) == ("slower", "mean")
    assert known.change
    assert known.change.low < 1.7 < 263 / 135 < known.change.high  # means of the runs, 41 to 51 and 81 to 96 ms
    others = [timed([ms + 1 for ms in of.source.steps.unprofiled_steps_ms], 40.0) for of in base]
    same = held(base, others)
    assert (same.verdict, same.reason.code) == ("inconclusive", "noise_of_runs")


@pytest.mark.parametrize(
    ("delay_ms", "verdict", "caution"), [(1.0, "slower", "other_pace"), (6.0, "inconclusive", None)]
)
def test_ops_that_all_got_slower_on_a_quiet_machine_are_the_changes_own(delay_ms: float, verdict: str, caution):
    known = held(timed([50.0] * 20, op=ops(1)), timed([80.0] * 20, delay_ms, op=ops(1.6)))
    assert (known.verdict, next((each.code for each in known.cautions), None)) == (verdict, caution)
