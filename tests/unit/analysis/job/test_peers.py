"""Devices of one process that wait for each other without a collective, by hand; times in microseconds."""

from __future__ import annotations

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.rank import rank_of
from tests.ranks import job
from tests.tables import US, V100, kernel, on_device, on_host, profile, step


# us       0        100      200  248 250    300         GPU 0 adds what GPU 1 copies to it.
# GPU 0    =========|                 |======|
# GPU 1    ==================|~~~~|
def feeding(called: float, *, second: tuple[float, float] = (0, 200), devices_seen: int = 2):
    ops = [
        kernel(0, 100, 0, device=0),
        kernel(250, 300, called, device=0),
        kernel(*second, 1, device=1),
        on_device("memcpy", 200, 248, 2, device=1),
    ]
    host = [on_host("op", 0, 10)]
    steps = [step(1, 0, 300, device=0), step(1, 0, 300, device=1)]
    devices = [V100 | {"device": 0}, V100 | {"device": 1}]
    views = select_steps(profile(ops, host, steps, devices=devices), "all").views
    return job(*map(rank_of, views[:devices_seen]))


def test_a_device_that_begins_where_another_ends_had_waited_for_it():
    made = feeding(called=20)
    assert made.missing is None
    assert [rank.peer_waits.total for rank in made.ranks] == [150 * US, 0]
    assert made.pace.select("rank", "wait_ns", "own_ns").rows() == [(0, 150 * US, 150 * US), (1, 0, 300 * US)]


def test_a_device_alone_has_no_peers():
    assert feeding(called=20, devices_seen=1).peers is False


def test_a_device_whose_work_is_launched_later_waits_for_the_host():
    assert feeding(called=245).missing is not None


@pytest.mark.parametrize("second", [(100, 200)])
def test_devices_that_compute_in_turn_are_stages(second):
    assert feeding(called=20, second=second).missing is not None
