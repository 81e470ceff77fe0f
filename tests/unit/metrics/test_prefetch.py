from __future__ import annotations

import pytest

from advisor.lens import Lane
from advisor.metrics.prefetch import prefetch
from tests.tables import Row, kernel, lane, on_device, profile, step

PINNED = {"copy_kind": "HtoD", "source_memory": "pinned", "target_memory": "device", "bytes": 2_000_000}


def copied(start: float = 20, end: float = 320, stream: int = 7, **columns: object) -> Row:
    return on_device("memcpy", start, end, 2, **PINNED | {"stream": stream} | columns)


def with_kernels(copy: Row) -> Lane:
    """A copy, then two kernels from 320 to 1000 us."""
    ran = [copy, kernel(320, 620, 3), kernel(620, 1000, 4)]
    return lane(profile(ran, steps=[step(1, 0, 1000, host=(0, 5))]))


def test_a_copy_on_the_kernels_stream_can_be_made_ahead():
    found = prefetch(with_kernels(copied()))
    assert found["exposed_copy_share"] == pytest.approx(0.3)
    assert found["exposed_copy_ms"] == pytest.approx(0.3)
    assert found["exposed_copy_bytes_per_step"] == 2_000_000
    assert found["copy_gain_ms"] == pytest.approx(0.3, abs=0.002)
    assert found["copy_least_gain_ms"] == pytest.approx(0.21, abs=0.002)


@pytest.mark.parametrize(
    "columns",
    [{"bytes": 999_999}, {"source_memory": "pageable"}, {"copy_kind": "DtoH"}],
    ids=["small", "pageable", "to the host"],
)
def test_other_copies_are_left_out(columns: dict[str, object]):
    found = prefetch(with_kernels(copied(**columns)))
    assert set(found.values()) == {0}


def test_a_copy_from_memory_of_unknown_kind_counts():
    assert prefetch(with_kernels(copied(source_memory=None)))["exposed_copy_share"] == pytest.approx(0.3)


def test_what_runs_beside_a_kernel_is_hidden_and_never_gained():
    found = prefetch(with_kernels(copied(220, 520, stream=9)))
    assert found["exposed_copy_share"] == pytest.approx(0.1)
    assert found["copy_gain_ms"] <= 0.1


def test_without_launches_the_exposed_time_is_the_most():
    ran = [on_device("memcpy", 0, 300, **PINNED), kernel(200, 1000)]
    found = prefetch(lane(profile(ran, steps=[step(1, 0, 1000)])))
    assert found["copy_least_gain_ms"] == 0
    assert found["copy_gain_ms"] == pytest.approx(0.2)


def test_copies_in_one_stream_with_kernels_are_told_from_those_in_one_of_their_own():
    assert prefetch(with_kernels(copied(stream=7)))["exposed_copy_same_stream_share"] == 1
    assert prefetch(with_kernels(copied(stream=9)))["exposed_copy_same_stream_share"] == 0
