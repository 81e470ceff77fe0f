from __future__ import annotations

from math import sqrt

import pytest

from tests.tables import metrics_of, profile, step, values_of, view

NO_STEP = {"steps": 0, "steps_cut": 0, "step_ms": None, "step_mean_ms": None, "step_cv": None}


def test_median_mean_and_unevenness_of_the_steps_used():
    steps = [step(1, 0, 90), step(2, 90, 190), step(3, 190, 300), step(4, 300, 440)]
    found = metrics_of(view(profile(steps=[*steps, step(5, 440, 9_000, incomplete="cut")])))
    assert (found["steps"], found["step_ms"], found["step_mean_ms"]) == (4, pytest.approx(0.105), pytest.approx(0.11))
    assert found["step_cv"] == pytest.approx(sqrt((400 + 100 + 0 + 900) / 3) / 110)


def test_one_step_has_no_unevenness():
    assert metrics_of(view(profile(steps=[step(1, 0, 90)])))["step_cv"] is None


def test_steps_without_length_are_none():
    """A share of no time fires rules: nothing is at least 5 % of nothing."""
    assert values_of(NO_STEP, view(profile(steps=[step(1, 5, 5), step(2, 5, 5)]))) == NO_STEP


def test_no_step_is_used():
    assert values_of(NO_STEP, view(profile(steps=[step(1, 0, 90, incomplete="cut")]))) == NO_STEP


def test_steps_that_the_file_s_end_cuts_are_counted():
    steps = [step(1, 0, 90), step(2, 90, 180, incomplete="file_cut")]
    assert metrics_of(view(profile(steps=steps)))["steps_cut"] == 1
