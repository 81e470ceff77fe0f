from __future__ import annotations

import pytest

from advisor.metrics import METRICS
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import V100, Row, kernel, metrics_of, on_host, profile, step, view

GIB = 1 << 30


def total(at: int, allocated: float | None, reserved: float | None, **columns: object) -> Row:
    """What the allocator holds at a moment, in GiB."""
    of = {"allocated_bytes": allocated and int(allocated * GIB), "reserved_bytes": reserved and int(reserved * GIB)}
    return {"worker": 0, "device": 0, "at_ns": at, "bytes": 1} | of | columns


def of(*allocations: Row, **more: list[Row]) -> Profile:
    return profile(steps=[step(1, 0, 100)], allocations=list(allocations), **more)


def test_peak_over_the_whole_recording_and_what_the_allocator_held_idle_when_fullest():
    # The most is allocated at 2; the most is reserved from 3 on, when at last 4 of 10 are used.
    values = metrics_of(
        view(of(total(1, 2, 4), total(2, 8, 8), total(3, 6, 10), total(900_000, 4, 10), total(950_000, 1, 9)))
    )
    assert values["peak_memory_bytes"] == 8 * GIB
    assert values["peak_memory_share"] == 0.5  # of 16
    assert values["reserved_memory_bytes"] == 10 * GIB
    assert values["fragmentation"] == pytest.approx(0.6)


def test_the_order_of_rows_does_not_matter():
    rows = [total(1, 2, 4), total(2, 8, 8), total(3, 6, 10), total(4, 4, 10)]
    assert metrics_of(view(of(*rows))) == metrics_of(view(of(*rows[::-1])))


def test_other_devices_the_host_and_rows_without_totals_do_not_count():
    others = [total(1, 9, 9, device=1), total(1, 9, 9, device=None), total(2, None, None), total(2, 9, 9, worker=1)]
    assert metrics_of(view(of(total(1, 2, 4), *others)))["peak_memory_bytes"] == 2 * GIB


@pytest.mark.parametrize(("capacity", "share"), [(2 * GIB, 1.0), (2 * GIB - 1, Missing("memory_size_unknown"))])
def test_memory_smaller_than_what_was_held_is_of_no_known_size(capacity: int, share: float | Missing):
    values = metrics_of(view(of(total(1, 2, 4), devices=[V100 | {"memory_bytes": capacity}])))
    assert values["peak_memory_share"] == share


def test_what_was_not_recorded_is_missing():
    nothing = metrics_of(view(of()))
    assert nothing["peak_memory_bytes"] == nothing["fragmentation"] == Missing("no_allocation")
    values = metrics_of(view(of(total(1, 2, None), devices=[V100 | {"memory_bytes": None}])))
    assert values["peak_memory_bytes"] == 2 * GIB
    assert isinstance(values["peak_memory_share"], Missing)
    assert values["reserved_memory_bytes"] is values["fragmentation"] is None


def test_the_peak_is_of_heap_and_stack_together():
    # at us 2 heap 3 and no stack; at us 5 heap 1 and stack 4; the recording begins at us 1
    rows = [total(2_000, 3, None), total(5_000, 1, None, stack_bytes=4 * GIB)]
    values = metrics_of(view(profile(host_ops=[on_host("op", 1, 2)], steps=[step(1, 0, 100)], allocations=rows)))
    assert values["peak_memory_bytes"] == 5 * GIB


def test_the_place_of_the_peak_is_where_it_was_reached_first():
    places = METRICS["peak_memory_bytes"].where
    assert places
    rows = places(view(of(total(7, 8, 8), total(3, 8, 8), total(1, 2, 4), total(9, None, None))))
    assert rows.select("table", "start_ns").rows() == [("allocations", 3)]


def test_memory_that_an_allocator_takes_all_at_once():
    """Of 10 bytes 8 are used at the peak; of the 2 that are free half are outside the largest piece."""
    rows = [
        {"worker": 0, "device": 0, "at_ns": at, "allocated_bytes": a, "available_bytes": 10 - a, "fragmentation": f}
        for at, a, f in ((1, 4, 0.0), (2, 8, 0.5), (3, 6, 0.9))
    ]
    values = metrics_of(view(profile([kernel(0, 1)], steps=[step(1, 0, 10)], allocations=rows)))
    assert (values["reserved_memory_bytes"], values["peak_memory_bytes"]) == (10, 8)
    assert values["fragmentation"] == pytest.approx(0.1)
