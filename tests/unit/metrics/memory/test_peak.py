from __future__ import annotations

import pytest

from advisor.metrics.memory.peak import (
    FRAGMENTATION,
    FREE_MEMORY_BYTES,
    HEAP_MEMORY_BYTES,
    LIFETIME_PEAK_MEMORY_BYTES,
    PEAK_MEMORY_BYTES,
    PEAK_MEMORY_SHARE,
    RESERVED_MEMORY_BYTES,
    STACK_MEMORY_BYTES,
    memory,
)
from advisor.model.missing import Missing
from advisor.model.profile import Profile
from tests.tables import V100, Row, by_metric, kernel, on_host, profile, step, view

memory = by_metric(memory)

GIB = 1 << 30


def total(at: int, allocated: float | None, reserved: float | None, **columns: object) -> Row:
    """What the allocator holds at a moment, in GiB."""
    of = {"allocated_bytes": allocated and int(allocated * GIB), "reserved_bytes": reserved and int(reserved * GIB)}
    return {"worker": 0, "device": 0, "at_ns": at, "bytes": 1} | of | columns


def of(*allocations: Row, **more: list[Row]) -> Profile:
    return profile(steps=[step(1, 0, 100)], allocations=list(allocations), **more)


def test_peak_over_the_whole_recording_and_what_the_allocator_held_idle_when_fullest():
    # The most is allocated at 2; the most is reserved from 3 on, when at last 4 of 10 are used.
    values = memory(
        view(of(total(1, 2, 4), total(2, 8, 8), total(3, 6, 10), total(900_000, 4, 10), total(950_000, 1, 9)))
    )
    assert values[PEAK_MEMORY_BYTES] == 8 * GIB
    assert values[PEAK_MEMORY_SHARE] == 0.5  # of 16
    assert values[RESERVED_MEMORY_BYTES] == 10 * GIB
    assert values[FRAGMENTATION] == pytest.approx(0.6)


def test_the_order_of_rows_does_not_matter():
    rows = [total(1, 2, 4), total(2, 8, 8), total(3, 6, 10), total(4, 4, 10)]
    assert memory(view(of(*rows))) == memory(view(of(*rows[::-1])))


def test_other_devices_the_host_and_rows_without_totals_do_not_count():
    others = [total(1, 9, 9, device=1), total(1, 9, 9, device=None), total(2, None, None), total(2, 9, 9, worker=1)]
    assert memory(view(of(total(1, 2, 4), *others)))[PEAK_MEMORY_BYTES] == 2 * GIB


def test_what_was_not_recorded_is_missing():
    assert set(map(type, memory(view(of())).values())) == {Missing}
    values = memory(view(of(total(1, 2, None), devices=[V100 | {"memory_bytes": None}])))
    assert values[PEAK_MEMORY_BYTES] == 2 * GIB
    assert isinstance(values[PEAK_MEMORY_SHARE], Missing)
    assert isinstance(values[FREE_MEMORY_BYTES], Missing)
    assert isinstance(values[LIFETIME_PEAK_MEMORY_BYTES], Missing)
    assert not {RESERVED_MEMORY_BYTES, FRAGMENTATION} & values.keys()


def test_the_peak_is_of_heap_and_stack_together():
    # at us 2 heap 3 and no stack; at us 5 heap 1 and stack 4, where 11 are free; the recording begins at us 1
    rows = [total(2_000, 3, None), total(5_000, 1, None, stack_bytes=4 * GIB, available_bytes=11 * GIB)]
    earlier = [row | {"lifetime_peak_bytes": 7 * GIB} for row in rows]
    values = memory(view(profile(host_ops=[on_host("op", 1, 2)], steps=[step(1, 0, 100)], allocations=earlier)))
    assert values[PEAK_MEMORY_BYTES] == 5 * GIB
    assert (values[HEAP_MEMORY_BYTES], values[STACK_MEMORY_BYTES], values[FREE_MEMORY_BYTES]) == (
        1 * GIB,
        4 * GIB,
        11 * GIB,
    )
    assert values[LIFETIME_PEAK_MEMORY_BYTES] == 7 * GIB


def test_the_place_of_the_peak_is_where_it_was_reached_first():
    places = PEAK_MEMORY_BYTES.where
    assert places
    rows = places(view(of(total(7, 8, 8), total(3, 8, 8), total(1, 2, 4), total(9, None, None))))
    assert rows.select("table", "start_ns").rows() == [("allocations", 3)]


def test_memory_that_an_allocator_takes_all_at_once():
    """Of 10 bytes 8 are used at the peak; of the 2 that are free half are outside the largest piece."""
    rows = [
        {"worker": 0, "device": 0, "at_ns": at, "allocated_bytes": a, "available_bytes": 10 - a, "fragmentation": f}
        for at, a, f in ((1, 4, 0.0), (2, 8, 0.5), (3, 6, 0.9))
    ]
    values = memory(view(profile([kernel(0, 1)], steps=[step(1, 0, 10)], allocations=rows)))
    assert (values[RESERVED_MEMORY_BYTES], values[PEAK_MEMORY_BYTES]) == (10, 8)
    assert values[FRAGMENTATION] == pytest.approx(0.1)
