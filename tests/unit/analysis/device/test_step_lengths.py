from __future__ import annotations

import numpy as np
import pytest

from advisor.analysis.device.steady_steps import two_lengths


def lengths(*durations):
    return tuple(part.tolist() for part in two_lengths(np.array(durations)))


def test_every_other_step_is_longer():
    assert lengths(36, 86, 37, 87, 36) == ([36, 36, 37], [86, 87])


def test_one_longer_step_is_no_second_length():
    assert lengths(36, 86, 37, 37, 36) == ([], [])


@pytest.mark.parametrize("durations", [(100, 102, 104, 106), (100, 120, 130, 150), (100, 100, 110, 110), (36, 86, 37)])
def test_steps_that_merely_vary_are_of_one_length(durations):
    assert lengths(*durations) == ([], [])


def test_the_gap_counts_from_a_tenth():
    assert lengths(100, 100, 111, 111) == ([100, 100], [111, 111])
