from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.comparing.significance import Contrast, Cycle, contrast, mean_contrast, wander, welch
from advisor.errors import UsageError

BEFORE = np.array([187.95, 175.15, 179.73, 174.56, 182.17, 165.98])
AFTER = np.array([182.31, 126.18, 127.18, 123.08, 163.46, 124.2])


def test_six_against_six_as_worked_out_by_hand():
    found = contrast([BEFORE], [AFTER])
    assert found.ratio == pytest.approx(126.68 / 177.44)
    # 31 of the 36 pairs are shorter after: 19 of the 924 arrangements are as extreme, either way
    assert found.p == pytest.approx(2 * 19 / 924)
    assert found.least_p == pytest.approx(2 / 924)
    assert found.low < found.ratio < found.high < 1 / 1.02
    assert found.differs(0.02)


def test_two_steps_a_side_cannot_differ():
    found = contrast([np.array([1.0, 1.1])], [np.array([9.0, 9.1])])
    assert found.least_p == pytest.approx(1 / 3)
    assert found.undecidable
    assert not found.differs(0.02)


@pytest.mark.parametrize(
    ("found", "differs"),
    [
        (Contrast(1.05, 1.01, 1.09, 0.001, 20, 0.0), True),
        (Contrast(0.95, 0.91, 0.99, 0.001, 20, 0.0), True),
        (Contrast(1.05, 1.01, 1.09, 0.02, 20, 0.0), False),  # from ten steps on p < 0.01
        (Contrast(1.05, 0.99, 1.11, 0.001, 20, 0.0), False),  # the interval holds 1
        (Contrast(1.019, 1.01, 1.03, 0.001, 20, 0.0), False),  # under 2 %
        (Contrast(1.05, 1.03, 1.09, 0.04, 6, 0.0), True),
        (Contrast(1.05, 1.01, 1.09, 0.04, 6, 0.0), False),  # few steps: the interval has to lie beyond 2 %
        (Contrast(1.05, 1.03, 1.09, 0.06, 6, 0.0), False),
        (Contrast(1.5, 1.4, 1.6, 0.0079, 5, 0.0079), True),  # five: all of one side longer than all of the other
        (Contrast(1.5, 1.4, 1.6, 0.016, 5, 0.0079), False),
        (Contrast(1.5, 1.4, 1.6, 0.029, 4, 0.0), False),  # under five steps nothing
    ],
)
def test_what_differs(found, differs):
    assert found.differs(0.02) == differs


def test_a_constant_ratio_has_no_width():
    found = contrast([np.full(10, 4.0)], [np.full(10, 6.0)])
    assert (found.low, found.ratio, found.high) == (1.5, 1.5, 1.5)


def test_runs_that_differ_make_the_interval_wider_than_their_steps_do():
    quiet = [np.full(10, 100.0) + np.arange(10) / 100 for _ in range(4)]
    straying = [np.full(10, level) + np.arange(10) / 100 for level in (90.0, 97.0, 103.0, 110.0)]
    one = contrast([np.concatenate(straying)], quiet)
    several = contrast(straying, quiet)
    assert several.high - several.low > one.high - one.low


def test_the_bootstrap_of_one_sample_is_the_textbook_one():
    sample = np.array([1.0, 2.0, 3.0])
    found = contrast([np.ones(3)], [sample])
    # P(median = 1) = P(two or three of three draws are the smallest) = 7/27: both tails are fatter than 2.5 %
    assert (found.low, found.high) == (1.0, 3.0)


def test_runs_of_different_lengths_are_pooled():
    found = contrast([np.array([2.0]), np.array([2.0, 2.0, 2.0])], [np.array([3.0, 3.0])])
    assert (found.low, found.ratio, found.high) == (1.5, 1.5, 1.5)


def cycle(usual: list[float], recurring: list[float], every: int = 0) -> Cycle:
    return Cycle(np.array(usual), np.array(recurring), 1 / every if every else 0.0, np.array([0.0]))


def test_means_of_whole_periods_are_held_against_each_other():
    """Every fourth step: (3 x 10 + 50) / 4 = 20, though three of five recorded steps recur; ten others take 10."""
    base, head = cycle([8, 12], [48, 50, 52], 4), cycle([9, 11] * 5, [])
    found = mean_contrast(base, head)
    assert base.mean == 20
    assert found.ratio == pytest.approx(0.5)
    # variances of the means: 0.75^2 x 8 / 2, 0.25^2 x 4 / 3, and 10 / 9 / 10, relative to 20^2 and to 10^2
    errors = [2.25 / 400, 1 / 12 / 400, 1 / 9 / 100]
    # degrees of freedom: (0.006944)^2 / (0.005625^2 / 1 + 0.000208^2 / 2 + 0.001111^2 / 9) = 1.5165
    reach = 5.92560 * math.sqrt(sum(errors))  # of Student's t
    assert (found.low, found.high) == pytest.approx((0.5 * math.exp(-reach), 0.5 * math.exp(reach)))
    assert (found.of, found.steps) == ("mean", 5)


@pytest.mark.parametrize(("steps", "decidable"), [(8, True), (7, False)])
def test_a_side_that_repeats_nothing_has_to_hold_two_periods(steps, decidable):
    found = mean_contrast(
        cycle([10.0, 10.1] * 8, [50.0, 50.1, 50.2, 50.3], 4), cycle([10.0 + i for i in range(steps)], [])
    )
    assert found.undecidable != decidable


def test_runs_that_differ_vary_as_their_means_do():
    steps = cycle([9, 11] * 5, [49, 51], 5)
    alike, apart = (steps._replace(runs=np.array(runs)) for runs in ([18.0, 18.1], [14.0, 22.0]))
    assert steps.errors() == alike.errors()
    assert apart.errors() == [(pytest.approx(16 / 18**2), 1)]


def test_even_steps_that_recur_have_no_width():
    found = mean_contrast(cycle([10.0] * 8, [50.0] * 2, 5), cycle([10.0] * 10, []))
    assert found.low == found.high == pytest.approx(10 / 18)
    assert found.p == 0


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12), st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12))
def test_the_interval_turns_with_the_sides(base: list[float], head: list[float]):
    forth, back = contrast([np.array(base)], [np.array(head)]), contrast([np.array(head)], [np.array(base)])
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert forth.p == pytest.approx(back.p)
    assert forth.differs(0.02) == back.differs(0.02) or min(forth.p, abs(math.log(forth.ratio))) < 0.2
    assert 0 < forth.low <= forth.high


def test_ten_runs_tell_how_far_they_stray():
    assert wander([np.array([1.0])] * 9) is None
    assert wander([np.array([1.0])] * 10) == 0
    levels = [np.array([100.0 if n % 2 else 110.0]) for n in range(10)]
    assert 0.1 <= (wander(levels) or 0) < 0.2


def test_welch_by_hand_and_adjusted():
    first = [np.array([10.0, 10.0, 10.0, 5.0]), np.array([1.0, 1.0, 0.0, 1.0]), np.array([10.0, 10.0, 9.0, 1.0])]
    second = [np.array([12.0, 10.1, 11.0, 9.0]), np.array([1.0, 1.0, 0.0, 1.0]), np.array([10.0, 10.0, 9.0, 9.0])]
    p = welch(first, second)
    # t = 2 / sqrt(0.2) = 4.47 with 18 degrees of freedom; one of two tests that can be made, so doubled
    assert p[0] == pytest.approx(2 * 0.000294, rel=0.02)
    assert p[1] == pytest.approx(0.826, abs=0.001)
    assert np.isnan(p[2])  # no spread on either side
    assert np.isnan(p[3])  # one call


def test_without_scipy_a_comparison_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UsageError, match=r"needs SciPy: pip install 'gpu-advisor\[compare\]'"):
        contrast([np.array([1.0, 2.0])], [np.array([1.0, 2.0])])
