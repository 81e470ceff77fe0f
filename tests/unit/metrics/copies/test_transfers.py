from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics import METRICS
from advisor.metrics.metric import Value
from advisor.model.missing import Missing
from advisor.model.profile import Profile
from tests.tables import kernel, metrics_of, on_device, pageable, profile, step, view

STEP = [step(1, 0, 100)]
PINNED_NS = 0.88 * 15.75  # bytes in a nanosecond over a V100's PCIe 3


def values(recording: Profile) -> Mapping[str, Value]:
    return metrics_of(view(recording))


def exposed_us(*device: dict[str, object]) -> float:
    exposed_ms = values(profile(device, steps=STEP))["pageable_copy_exposed_ms"]
    assert isinstance(exposed_ms, float)
    return exposed_ms * 1e3


# us            0    10   20   30   40   50   60   70
# pageable      ====================                     0 to 40
# kernel             =====                               10 to 20
# collective                   ==========                30 to 50
# pinned                                      =====      60 to 70
DEVICE = [
    pageable(0, 40, bytes=round(10_000 * PINNED_NS)),
    kernel(10, 20),
    on_device("collective", 30, 50),
    on_device("memcpy", 60, 70, source_memory="pinned", target_memory="device", bytes=10**9),
]


def test_a_pageable_copy_is_exposed_where_no_kernel_or_collective_runs():
    row = values(profile(DEVICE, steps=STEP))
    assert row["pageable_copy_share"] == pytest.approx(0.4)
    assert row["pageable_copy_exposed_ms"] == pytest.approx(0.02)
    assert row["memcpy_ms"] == pytest.approx(0.05)
    assert row["pageable_copy_bytes_per_step"] == round(10_000 * PINNED_NS)


def test_pinned_the_exposed_part_shrinks_as_the_copy_does():
    # At the link's rate the 40 us are 10: a quarter of the 20 exposed us remains.
    assert values(profile(DEVICE, steps=STEP))["pageable_copy_pinned_ms"] == pytest.approx(0.005, rel=1e-4)


def test_a_copy_faster_than_the_link_gains_nothing():
    row = values(profile([pageable(0, 1, bytes=10**6)], steps=STEP))
    assert row["pageable_copy_pinned_ms"] == row["pageable_copy_exposed_ms"] == pytest.approx(0.001)


def test_copies_to_pageable_memory_count_and_those_between_devices_do_not():
    to_host = on_device("memcpy", 0, 10, source_memory="device", target_memory="pageable")
    on_its_own = on_device("memcpy", 20, 30, source_memory="device", target_memory="device")
    assert exposed_us(to_host, on_its_own, on_device("memcpy", 40, 50)) == pytest.approx(10)


def test_what_goes_to_the_host_is_told_apart():
    back = on_device("memcpy", 40, 70, copy_kind="DtoH", source_memory="device", target_memory="pageable")
    assert values(profile([pageable(0, 10), back], steps=STEP))["pageable_to_host_part"] == pytest.approx(0.75)
    assert values(profile([kernel(0, 10)], steps=STEP))["pageable_to_host_part"] == 0


def test_copies_that_overlap_count_once_and_a_memset_hides_nothing():
    assert exposed_us(pageable(0, 20), pageable(10, 30, stream=8), on_device("memset", 0, 30)) == pytest.approx(30)


def test_per_step_means_per_step_used():
    steps = [step(1, 0, 100), step(2, 100, 200), step(3, 200, 300, incomplete="cut")]
    row = values(profile([pageable(10, 20, bytes=8), pageable(210, 250, bytes=8)], steps=steps))
    assert (row["pageable_copy_exposed_ms"], row["pageable_copy_bytes_per_step"]) == (pytest.approx(0.005), 4)


def test_without_pageable_copies_there_is_nothing_to_gain():
    row = values(profile([kernel(0, 10)], steps=STEP))
    names = ("pageable_copy_share", "pageable_copy_bytes_per_step", "pageable_copy_exposed_ms", "memcpy_ms")
    assert {row[name] for name in (*names, "pageable_copy_pinned_ms", "pageable_to_host_part")} == {0.0}


def test_what_was_not_recorded_is_missing():
    assert isinstance(
        values(profile([pageable(0, 10, bytes=8)], steps=STEP, devices=[]))["pageable_copy_pinned_ms"], Missing
    )
    unsized = values(profile([pageable(0, 10, bytes=8), pageable(20, 30)], steps=STEP))
    assert isinstance(unsized["pageable_copy_pinned_ms"], Missing)
    assert isinstance(unsized["pageable_copy_bytes_per_step"], Missing)
    assert unsized["pageable_copy_exposed_ms"] == pytest.approx(0.02)
    assert values(profile([pageable(0, 10)], steps=[step(1, 0, 100, incomplete="cut")]))["memcpy_ms"] is None


def test_places_are_the_longest_copies():
    places = METRICS["pageable_copy_share"].where
    assert places
    rows = places(view(profile([pageable(0, 5), *DEVICE, pageable(80, 90)], steps=STEP)))
    assert rows.select("table", "start_ns", "dur_ns").rows() == [
        ("device_ops", 0, 40_000),
        ("device_ops", 80_000, 10_000),
        ("device_ops", 0, 5_000),
    ]
