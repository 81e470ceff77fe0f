from __future__ import annotations

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.job import job_of
from advisor.analysis.job.rank import rank_of
from tests.tables import Row, kernel, metrics_of, profile, step

STEPS = [step(1, 0, 1000, device=device) for device in (0, 1)]


def values(*device: Row):
    views = select_steps(profile([*device], [], STEPS), "all").views
    return metrics_of(job_of([rank_of(view) for view in views]))


def test_devices_that_take_turns_gain_what_the_longest_leaves():
    """Of 1 ms the first computes 0.4 and the second 0.6: at most 0.4 ms less, at least half of 1.0 - 1.25 x 0.6."""
    found = values(kernel(0, 400, device=0), kernel(400, 1000, device=1))
    assert found["serial_devices"] == 2
    assert found["serial_share"] == 1
    assert found["serial_least_share"] == pytest.approx(0.4)
    assert found["serial_gain_ms"] == pytest.approx(0.4)
    assert found["serial_least_gain_ms"] == pytest.approx(0.5 * (1.0 - 1.25 * 0.6))


def test_devices_that_work_side_by_side_take_no_turns():
    """Both compute for 0.5 of 0.75 ms in which any does."""
    found = values(kernel(0, 500, device=0), kernel(250, 750, device=1))
    assert found["serial_share"] == pytest.approx(1 - 0.25 / 0.75)


def test_one_device_waits_for_no_other():
    found = values(kernel(0, 400, device=0))
    assert (found["serial_devices"], found["serial_share"], found["serial_gain_ms"]) == (1, 0, 0)
