"""Steps that grow: steadily and from end to end, or not at all."""

import pytest

from advisor.model.missing import Missing
from tests.tables import metrics_of, on_host, profile, step, view

STEADY = [10.0 + at for at in range(20)]


def growth(pace_ms: list[float] | None) -> object:
    process = [{"worker": 0, "pace_ms": pace_ms, "pace_steps": [45, 380] if pace_ms else None}]
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


def test_of_few_steps_nothing_is_known():
    assert isinstance(growth(None), Missing)
