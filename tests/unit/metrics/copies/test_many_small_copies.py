from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.metric import Value
from advisor.model.missing import Missing
from tests.tables import Row, kernel, metrics_of, on_device, profile, step, view


def small(start: float, *, launched: float | None = None, **columns: object) -> Row:
    """A copy of 2 us and 8 bytes to the device."""
    usual = {"copy_kind": "HtoD", "bytes": 8, "source_memory": "pinned", "target_memory": "device"}
    return on_device("memcpy", start, start + 2, launched, **usual | columns)


def values(*device: Row, end: float = 100) -> Mapping[str, Value]:
    return metrics_of(view(profile([*device, kernel(90, end, 80)], steps=[step(1, 0, end)])))


def test_small_copies_are_counted_and_all_but_one_per_direction_can_go():
    row = values(*(small(10 * i + 2, launched=10 * i + 1) for i in range(8)))
    assert row["small_copies_per_step"] == 8
    assert row["small_copy_bytes_per_step"] == 64
    gain = row["small_copy_gain_ms"]
    assert isinstance(gain, float)
    assert 0 < gain <= 0.007 + 7 * 0.002


@pytest.mark.parametrize(
    "columns",
    [{"bytes": 65_536}, {"copy_kind": "DtoD"}, {"copy_kind": "DtoH", "bytes": 1_023}],
    ids=["not small", "within the device", "a value read"],
)
def test_other_copies_are_left_out(columns: dict[str, object]):
    row = values(small(10, **columns), small(20, **columns))
    assert row["small_copies_per_step"] == row["small_copy_bytes_per_step"] == row["small_copy_gain_ms"] == 0


def test_each_direction_keeps_one():
    back = {"copy_kind": "DtoH", "bytes": 1_024}
    row = values(small(10), small(20, **back))
    assert row["small_copies_per_step"] == 2
    assert row["small_copy_gain_ms"] == 0


def test_without_launches_the_time_that_nothing_hides_is_the_most():
    ran = [small(10), small(20), small(30), kernel(31, 90)]
    row = metrics_of(view(profile(ran, steps=[step(1, 0, 90)])))
    assert row["small_copy_gain_ms"] == pytest.approx(0.003)  # 2 us of the second and 1 of the third


def test_without_sizes_nothing_is_known():
    assert isinstance(values(small(10, bytes=None))["small_copies_per_step"], Missing)
