from __future__ import annotations

import pytest

from advisor.metrics.memory.peak import memory
from advisor.metrics.metric import METRICS
from advisor.model.missing import Missing
from advisor.model.profile import Profile
from tests.tables import V100, Row, on_host, profile, step, view

GIB = 1 << 30


def held(at: int, allocated: float | None, reserved: float | None, **columns: object) -> Row:
    """What the allocator holds at a moment, in GiB."""
    of = {"allocated_bytes": allocated and int(allocated * GIB), "reserved_bytes": reserved and int(reserved * GIB)}
    return {"worker": 0, "device": 0, "at_ns": at, "bytes": 1} | of | columns


def of(*allocations: Row, **more: list[Row]) -> Profile:
    return profile(steps=[step(1, 0, 100)], allocations=list(allocations), **more)


def test_peak_over_the_whole_recording_and_what_the_allocator_held_idle_when_fullest():
    # The most is allocated at 2; the most is reserved from 3 on, when at last 4 of 10 are used.
    found = memory(view(of(held(1, 2, 4), held(2, 8, 8), held(3, 6, 10), held(900_000, 4, 10), held(950_000, 1, 9))))
    assert found["peak_memory_bytes"] == 8 * GIB
    assert found["peak_memory_share"] == 0.5  # of 16
    assert found["reserved_memory_bytes"] == 10 * GIB
    assert found["fragmentation"] == pytest.approx(0.6)


def test_the_order_of_rows_does_not_matter():
    rows = [held(1, 2, 4), held(2, 8, 8), held(3, 6, 10), held(4, 4, 10)]
    assert memory(view(of(*rows))) == memory(view(of(*rows[::-1])))


def test_other_devices_the_host_and_rows_without_totals_do_not_count():
    others = [held(1, 9, 9, device=1), held(1, 9, 9, device=None), held(2, None, None), held(2, 9, 9, worker=1)]
    assert memory(view(of(held(1, 2, 4), *others)))["peak_memory_bytes"] == 2 * GIB


def test_what_was_not_recorded_is_missing():
    assert set(map(type, memory(view(of())).values())) == {Missing}
    found = memory(view(of(held(1, 2, None), devices=[V100 | {"memory_bytes": None}])))
    assert found["peak_memory_bytes"] == 2 * GIB
    assert isinstance(found["peak_memory_share"], Missing)
    assert isinstance(found["free_memory_bytes"], Missing)
    assert isinstance(found["lifetime_peak_memory_bytes"], Missing)
    assert not {"reserved_memory_bytes", "fragmentation"} & found.keys()


def test_the_peak_is_of_heap_and_stack_together():
    # at us 2 heap 3 and no stack; at us 5 heap 1 and stack 4, where 11 are free; the recording begins at us 1
    rows = [held(2_000, 3, None), held(5_000, 1, None, stack_bytes=4 * GIB, available_bytes=11 * GIB)]
    earlier = [row | {"lifetime_peak_bytes": 7 * GIB} for row in rows]
    found = memory(view(profile(host_ops=[on_host("op", 1, 2)], steps=[step(1, 0, 100)], allocations=earlier)))
    assert found["peak_memory_bytes"] == 5 * GIB
    assert (found["heap_memory_bytes"], found["stack_memory_bytes"], found["free_memory_bytes"]) == (
        1 * GIB,
        4 * GIB,
        11 * GIB,
    )
    assert found["peak_memory_at_ms"] == pytest.approx(0.004)
    assert found["lifetime_peak_memory_bytes"] == 7 * GIB


def test_the_place_of_the_peak_is_where_it_was_reached_first():
    places = METRICS["peak_memory_bytes"].where
    assert places
    rows = places(view(of(held(7, 8, 8), held(3, 8, 8), held(1, 2, 4), held(9, None, None))))
    assert rows.select("table", "start_ns").rows() == [("allocations", 3)]
