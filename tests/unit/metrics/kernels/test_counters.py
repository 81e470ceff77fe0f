from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.metric import Value
from advisor.model.clause import Missing
from tests.tables import US, Row, kernel, metrics_of, profile, step, view


def samples(at: int, **rates: float) -> list[Row]:
    """Samples at `at` us of the counters given, of the first device."""
    row = {"worker": 0, "device": 0, "at_ns": at * US}
    return [row | {"metric": metric, "value": value} for metric, value in rates.items()]


def values(rows: list[Row]) -> Mapping[str, Value]:
    """Of a step from 0 to 200 us in which a kernel runs until 100."""
    return metrics_of(view(profile([kernel(0, 100)], steps=[step(1, 0, 200)], gpu_samples=rows)))


def every_us(until: int = 200, **rates: float) -> list[Row]:
    return [row for at in range(until) for row in samples(at, **rates)]


def test_means_are_over_the_time_in_which_the_device_is_busy():
    busy = every_us(100, sm_active=0.4, tensor_active=0.2, dram_read=0.3, dram_write=0.1)
    idle = [row for at in range(100, 200) for row in samples(at, sm_active=0, tensor_active=0, dram_read=0)]
    row = values(busy + idle)
    means = (row["sm_active_share"], row["tensor_active_share"], row["dram_share"])
    assert means == pytest.approx((0.4, 0.2, 0.4))


@pytest.mark.parametrize(
    ("rates", "memory", "compute"),
    [
        ({"dram_read": 0.5, "dram_write": 0.1, "tensor_active": 0.3}, 1, 0),
        ({"dram_read": 0.59, "dram_write": 0.0, "tensor_active": 0.3}, 0, 0),
        ({"dram_read": 0.2, "dram_write": 0.1, "tensor_active": 0.6}, 0, 1),
        ({"dram_read": 0.7, "dram_write": 0.0, "sm_issue": 0.8}, 0, 1),
        ({"dram_read": 0.7, "dram_write": 0.0, "sm_issue": 0.7}, 0, 0),
    ],
    ids=["memory", "neither", "tensor cores", "issue", "both alike"],
)
def test_what_limits_is_used_most_and_to_60_percent(rates: dict[str, float], memory: float, compute: float):
    row = values(every_us(**rates))
    assert (row["memory_bound_share"], row["compute_bound_share"]) == (memory, compute)


def test_samples_outside_the_steps_and_of_other_devices_do_not_count():
    others = [row | {"device": 1} for row in every_us(dram_read=0.9, tensor_active=0.0)]
    later = [row for at in range(300, 600) for row in samples(at, dram_read=0.9, tensor_active=0.0)]
    row = values([*every_us(dram_read=0.1, tensor_active=0.0), *others, *later])
    assert row["memory_bound_share"] == 0


def test_a_counter_that_was_not_sampled_is_unknown():
    row = values(every_us(sm_active=0.5))
    assert row["sm_active_share"] == pytest.approx(0.5)
    others = ("tensor_active_share", "dram_share", "memory_bound_share", "compute_bound_share")
    assert {row[name] for name in others} == {Missing("counters_not_sampled")}


def test_few_samples_tell_nothing():
    row = values(every_us(99, sm_active=0.5))
    assert {row[name] for name in ("sm_active_share", "memory_bound_share")} == {
        Missing("few_samples", samples=99, needed=100)
    }
