"""Steps that grow: steadily and from end to end, or not at all."""

import pytest

from advisor.model.clause import Missing
from tests.tables import metrics_of, on_host, profile, step, view

STEADY = [10.0 + at for at in range(20)]


def growth(pace_ms: list[float] | None, **times: float) -> object:
    process = [{"worker": 0, **times, "pace_ms": pace_ms, "pace_steps": [45, 380] if pace_ms else None}]
    made = profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)], workers=process)
    return metrics_of(view(made))["step_growth"]


@pytest.mark.parametrize(
    ("pace_ms", "expected"),
    [
        (STEADY, 28.5 / 10.5),
        ([10.0] * 10 + [30.0] * 10, 1.0),  # once, and not with each step: half of the ranks are of one value
        ([10.0] * 19 + [90.0], 1.0),
        (STEADY[::-1], 1.0),
    ],
)
def test_growth_is_steady(pace_ms: list[float], expected: float):
    assert growth(pace_ms) == pytest.approx(expected)


def test_the_steps_around_the_recording_come_first():
    """Of the 190 pairs of pieces the later one is longer in 132, 69 %; of 231 with these two in 173, 75 %."""
    pace_ms = [10.0] * 8 + [20.0] * 6 + [30.0] * 6
    assert growth(pace_ms) == 1
    assert growth(pace_ms, before_ms=8.0, after_ms=9.0) == 3


def test_of_few_steps_nothing_is_known():
    assert isinstance(growth(None), Missing)
