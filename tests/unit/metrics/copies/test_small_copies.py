from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.copies.small_copies import (
    SMALL_COPIES_PER_STEP,
    SMALL_COPY_BYTES_PER_STEP,
    SMALL_COPY_GAIN_MS,
    small_copies,
)
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric
from advisor.model.missing import Missing
from tests.tables import Row, by_metric, kernel, on_device, profile, step, view

small_copies = by_metric(small_copies)


def small(start: float, *, launched: float | None = None, **columns: object) -> Row:
    """A copy of 2 us and 8 bytes to the device."""
    usual = {"copy_kind": "HtoD", "bytes": 8, "source_memory": "pinned", "target_memory": "device"}
    return on_device("memcpy", start, start + 2, launched, **usual | columns)


def values(*device: Row, end: float = 100) -> Mapping[Metric, Value]:
    return small_copies(view(profile([*device, kernel(90, end, 80)], steps=[step(1, 0, end)])))


def test_small_copies_are_counted_and_all_but_one_per_direction_can_go():
    row = values(*(small(10 * i + 2, launched=10 * i + 1) for i in range(8)))
    assert row[SMALL_COPIES_PER_STEP] == 8
    assert row[SMALL_COPY_BYTES_PER_STEP] == 64
    gain = row[SMALL_COPY_GAIN_MS]
    assert isinstance(gain, float)
    assert 0 < gain <= 0.007 + 7 * 0.002


@pytest.mark.parametrize(
    "columns",
    [{"bytes": 65_536}, {"copy_kind": "DtoD"}, {"copy_kind": "DtoH", "bytes": 1_023}],
    ids=["not small", "within the device", "a value read"],
)
def test_other_copies_are_left_out(columns: dict[str, object]):
    assert set(values(small(10, **columns), small(20, **columns)).values()) == {0}


def test_each_direction_keeps_one():
    back = {"copy_kind": "DtoH", "bytes": 1_024}
    row = values(small(10), small(20, **back))
    assert row[SMALL_COPIES_PER_STEP] == 2
    assert row[SMALL_COPY_GAIN_MS] == 0


def test_without_launches_the_time_that_nothing_hides_is_the_most():
    ran = [small(10), small(20), small(30), kernel(31, 90)]
    row = small_copies(view(profile(ran, steps=[step(1, 0, 90)])))
    assert row[SMALL_COPY_GAIN_MS] == pytest.approx(0.003)  # 2 us of the second and 1 of the third


def test_without_sizes_nothing_is_known():
    assert isinstance(values(small(10, bytes=None))[SMALL_COPIES_PER_STEP], Missing)
