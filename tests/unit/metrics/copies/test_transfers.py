from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from advisor.metrics import METRICS
from advisor.metrics.metric import Value
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import Row, kernel, metrics_of, on_device, on_host, pageable, profile, step, view

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


def left(row: Mapping[str, Any]) -> tuple[float, float]:
    """What of the exposed time pinned copies leave, at the least and at the most saved."""
    exposed = row["pageable_copy_exposed_ms"]
    return exposed - row["pinning_least_gain_ms"], exposed - row["pinning_gain_ms"]


def test_pinned_the_exposed_part_shrinks_as_the_copy_does():
    # At the link's rate the 40 us are 10: a quarter of the 20 exposed us remains.
    assert left(values(profile(DEVICE, steps=STEP)))[0] == pytest.approx(0.005, rel=1e-4)


def test_a_copy_faster_than_the_link_gains_nothing():
    row = values(profile([pageable(0, 1, bytes=10**6)], steps=STEP))
    assert (row["pinning_least_gain_ms"], row["pageable_copy_exposed_ms"]) == (0, pytest.approx(0.001))


def test_copies_to_pageable_memory_count_and_those_between_devices_do_not():
    to_host = on_device("memcpy", 0, 10, source_memory="device", target_memory="pageable")
    on_its_own = on_device("memcpy", 20, 30, source_memory="device", target_memory="device")
    assert exposed_us(to_host, on_its_own, on_device("memcpy", 40, 50)) == pytest.approx(10)


def test_what_goes_to_the_host_is_told_apart():
    back = on_device("memcpy", 40, 70, copy_kind="DtoH", source_memory="device", target_memory="pageable")
    assert values(profile([pageable(0, 10), back], steps=STEP))["pageable_to_host_part"] == pytest.approx(0.75)
    assert values(profile([kernel(0, 10)], steps=STEP))["pageable_to_host_part"] == 0


def test_what_comes_out_and_goes_in_again_is_a_round_trip():
    """In, in, out, out, in, out: of 60 us, two copies out and one in belong together as one pair."""

    def copied(start: int, kind: str, size: int = 1_000_000) -> dict[str, object]:
        source, target = ("pageable", "device") if kind == "HtoD" else ("device", "pageable")
        where = {"copy_kind": kind, "source_memory": source, "target_memory": target, "bytes": size}
        return on_device("memcpy", start, start + 10, **where)

    kinds = ["HtoD", "HtoD", "DtoH", "DtoH", "HtoD", "DtoH"]
    there_and_back = [copied(15 * number, kind) for number, kind in enumerate(kinds)]
    part = "pageable_round_trip_part"
    assert values(profile(there_and_back, steps=STEP))[part] == pytest.approx(20 / 60)
    small = [copied(15 * number, kind, size=999_999) for number, kind in enumerate(kinds)]
    assert values(profile(small, steps=STEP))[part] == 0
    other = [copied(0, "DtoH"), copied(20, "HtoD", size=2_000_000)]
    assert values(profile(other, steps=STEP))[part] == 0


def test_an_array_returns_where_as_many_bytes_go_the_other_way_from_and_to_pinned_memory():
    """Of 1 MB in and out, 10 us each, a kernel hides 5; 2 MB go in alone, and pageable memory has rules of its own."""

    def copied(start: int, kind: str, size: int = 1_000_000, memory: str = "pinned") -> dict[str, object]:
        source, target = (memory, "device") if kind == "HtoD" else ("device", memory)
        where = {"copy_kind": kind, "source_memory": source, "target_memory": target, "bytes": size}
        return on_device("memcpy", start, start + 10, **where)

    returning = [copied(0, "HtoD"), copied(30, "DtoH"), kernel(35, 50)]
    others = [copied(50, "HtoD", 2_000_000), copied(60, "HtoD", 999_999), copied(70, "DtoH", 999_999)]
    pageable_too = [copied(80, "HtoD", 3_000_000, "pageable"), copied(90, "DtoH", 3_000_000, "pageable")]
    row = values(profile([*returning, *others, *pageable_too], steps=STEP))
    assert row["returning_copy_ms"] == pytest.approx(0.015)


def test_equal_pieces_on_several_streams_are_parts_of_one_array():
    """Each of two pieces goes in and comes back once, on a stream of its own: nothing of it can stay."""
    row = values(profile([piece(at, kind, stream) for stream in (1, 2) for at, kind in MOVES], steps=STEP))
    assert row["returning_copy_ms"] == 0
    row = values(profile([piece(at, kind, 1) for at, kind in MOVES], steps=STEP))
    assert row["returning_copy_ms"] > 0


MOVES = ((0, "HtoD"), (30, "DtoH"))


@pytest.mark.parametrize(("many", "returning_ms"), [(8, 0.32), (7, 0)])
def test_pieces_in_a_row_are_one_array_with_the_time_between_them(many: int, returning_ms: float):
    """Eight of 10 us every 20 take 150 us to the device, nine with the rest 170 us back."""
    sizes = {("HtoD", 0): [1_000_000] * many, ("DtoH", 200): [many * 100_000, *[900_000] * many]}
    moved = [
        piece(start + 20 * n, kind, 1) | {"bytes": size}
        for (kind, start), pieces in sizes.items()
        for n, size in enumerate(pieces)
    ]
    row = values(profile([*moved, kernel(160, 190)], steps=[step(1, 0, 1000)]))
    assert row["returning_copy_ms"] == pytest.approx(returning_ms)


def piece(start: int, kind: str, stream: int) -> Row:
    source, target = ("pinned", "device") if kind == "HtoD" else ("device", "pinned")
    where = {"copy_kind": kind, "source_memory": source, "target_memory": target, "bytes": 1_000_000}
    return on_device("memcpy", start + stream, start + stream + 10, **(where | {"stream": stream}))


def test_a_program_of_its_own_can_do_without_round_trips():
    """Out, in, in: two of three copies of 10 us go out and in again, and the third is left of their 30 us."""
    out = on_device("memcpy", 0, 10, copy_kind="DtoH", source_memory="device", target_memory="pageable", bytes=10**6)
    copies = [out, pageable(20, 30, bytes=10**6), pageable(40, 50, bytes=10**6)]
    marked = view(profile(copies, steps=[*STEP, step(2, 100, 200)]))
    own = replace(marked, process={**marked.process, "framework": "cuda"}, _computed={})
    assert left(metrics_of(own))[1] == pytest.approx(left(metrics_of(marked))[1] / 3)


@pytest.mark.parametrize(
    ("name", "free_us", "kept"),
    [
        ("nvkernel_solve_F1L204_2", 1, 0.5 * (1 - 0.3 / 20)),  # 1 us x 300 GB/s of 2 x 10 MB
        ("main_12_gpu", 100, 0.0),  # the host has time to read all of it
        ("stencil(float *)", 1, 0.0),  # what goes in may be another array
    ],
)
def test_arrays_of_directives_that_the_host_has_no_time_to_touch_stay_on_the_device(name, free_us, kept):
    """In, kernel, out, twice: out and in again are 90 of 180 us, during which the host is in the driver."""
    size = {"bytes": 10**7}
    device = [
        row
        for at in (0, 100)
        for row in (
            pageable(at, at + 40, **size),
            kernel(at + 40, at + 50, name=name),
            back(at + 50, at + 100, **size),
        )
    ]
    steps, driver = [*STEP, step(2, 100, 200)], on_host("runtime", 0, 200 - free_us, name="cuMemcpyDtoHAsync_v2")
    row = values(profile(device, [driver], steps))
    assert row["pageable_untouched_part"] == pytest.approx(kept)
    assert row["pinning_least_gain_ms"] >= 0.09 * kept


def test_copies_that_overlap_count_once_and_a_memset_hides_nothing():
    assert exposed_us(pageable(0, 20), pageable(10, 30, stream=8), on_device("memset", 0, 30)) == pytest.approx(30)


def test_per_step_means_per_step_used():
    steps = [step(1, 0, 100), step(2, 100, 200), step(3, 200, 300, incomplete="cut")]
    row = values(profile([pageable(10, 20, bytes=8), pageable(210, 250, bytes=8)], steps=steps))
    assert (row["pageable_copy_exposed_ms"], row["pageable_copy_bytes_per_step"]) == (pytest.approx(0.005), 4)


def back(start: float, end: float, memory: str = "pageable", **columns: object) -> dict[str, object]:
    columns = {"copy_kind": "DtoH", "source_memory": "device", "target_memory": memory, **columns}
    return on_device("memcpy", start, end, **columns)


def test_without_kernels_pinned_copies_hide_only_behind_those_of_the_other_direction():
    # us: in 40 and back 30, one after the other; at the link's rate 10 and 20, of which the longer remains
    there = pageable(0, 40, bytes=round(10_000 * PINNED_NS), copy_kind="HtoD")
    row = values(profile([there, back(40, 70, bytes=round(20_000 * PINNED_NS))], steps=STEP))
    assert row["pageable_copy_gbs"] == pytest.approx(PINNED_NS * 30 / 70, rel=1e-4)
    assert left(row) == pytest.approx((0.030, 0.020), rel=1e-4)


def test_what_is_done_once_hides_no_copy_behind_what_needs_it():
    size = round(20_000 * PINNED_NS)
    row = values(profile([pageable(0, 400, bytes=size), kernel(410, 510)]))
    assert left(row) == pytest.approx((0.020 + 0.62e-6 * size, 0.88 * 0.020), rel=1e-3)


@pytest.mark.parametrize(("kernel_us", "left_us"), [(10, 20), (25, 5), (40, 0)])
def test_pinned_copies_hide_behind_kernels_as_long_as_these_run(kernel_us: float, left_us: float):
    there = pageable(0, 40, bytes=round(30_000 * PINNED_NS))
    row = values(profile([there, kernel(50, 50 + kernel_us)], steps=STEP))
    assert left(row)[1] == pytest.approx(left_us / 1e3, rel=1e-3, abs=1e-9)


def pinned(start: float, end: float, **columns: object) -> dict[str, object]:
    columns = {"copy_kind": "HtoD", "source_memory": "pinned", "target_memory": "device", "bytes": 10**6, **columns}
    return on_device("memcpy", start, end, **columns)


MEGABYTE_US = 1e3 / PINNED_NS  # 72 of a step of 1000 us


@pytest.mark.parametrize(
    ("copies", "gained_us"),
    [
        ([pinned(0, 400)], 400 - MEGABYTE_US),
        ([pinned(0, 400), back(400, 700, "pinned", bytes=10**6)], 700 - 2 * MEGABYTE_US),
        ([pinned(0, 60)], 0),  # faster than the link of the table: an NVLink to the host
        ([pinned(0, 400, bytes=999_999)], 0),
        ([pinned(0, 400, copy_kind="DtoD", source_memory="device")], 0),
        ([pageable(0, 400, bytes=10**6)], 0),
    ],
    ids=["in", "in and back", "fast", "small", "within the device", "pageable"],
)
def test_pinned_copies_gain_what_they_take_beyond_the_rate_of_the_link(copies, gained_us):
    row = values(profile(copies, steps=[step(1, 0, 1000)]))
    assert row["full_link_gain_ms"] == pytest.approx(gained_us / 1e3, abs=1e-5)


def test_the_link_is_known_of_known_devices_alone():
    assert values(profile([pinned(0, 400)], steps=STEP))["pcie_gbs"] == 15.75
    row = values(profile([pinned(0, 40)], steps=STEP, devices=[]))
    assert isinstance(row["pcie_gbs"], Missing)
    assert isinstance(row["full_link_gain_ms"], Missing)
    assert isinstance(values(profile([pageable(0, 40, bytes=8)], steps=STEP, devices=[]))["pinning_gain_ms"], Missing)


def test_without_pageable_copies_there_is_nothing_to_gain():
    row = values(profile([kernel(0, 10)], steps=STEP))
    names = ("pageable_copy_share", "pageable_copy_bytes_per_step", "pageable_copy_exposed_ms", "memcpy_ms")
    assert {row[name] for name in (*names, "pinning_least_gain_ms", "pinning_gain_ms", "full_link_gain_ms")} == {0.0}


def test_what_was_not_recorded_is_missing():
    assert isinstance(values(profile([pageable(0, 10, bytes=8)], steps=STEP, devices=[]))["pinning_gain_ms"], Missing)
    unsized = values(profile([pageable(0, 10, bytes=8), pageable(20, 30)], steps=STEP))
    assert isinstance(unsized["pinning_gain_ms"], Missing)
    assert isinstance(unsized["pageable_copy_bytes_per_step"], Missing)
    assert isinstance(unsized["pageable_copy_gbs"], Missing)
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


def test_what_is_copied_once_pays_for_pinning_its_memory():
    """10 MB at 0.62 s a GB take 6.2 ms more at the least saved; at most the program has pinned them for others.

    At the link's full rate of 15.75 GB/s they take 0.63 of their 30 ms, at 88 % of it 0.72.
    """
    copies = [pageable(0, 10_000, bytes=4_000_000), kernel(10_000, 11_000), pageable(11_000, 31_000, bytes=6_000_000)]
    once, steps = values(profile(copies)), values(profile(copies, steps=[step(1, 0, 31_000)]))
    assert once["pinning_cost_ms"] == pytest.approx(2.6)
    assert once["pinning_gain_ms"] == pytest.approx(30 - 10 / 15.75)
    assert once["pinning_least_gain_ms"] == pytest.approx(30 - 10 / (0.88 * 15.75) - 6.2)
    assert steps["pinning_cost_ms"] == 0
    assert steps["pinning_least_gain_ms"] == pytest.approx(30 - 10 / (0.88 * 15.75))


def test_pinning_may_take_longer_than_it_saves():
    once = values(profile([pageable(0, 2_000, bytes=4_000_000), kernel(2_000, 3_000)]))
    assert once["pinning_least_gain_ms"] == 0
    assert once["pinning_gain_ms"] == pytest.approx(2 - 4 / 15.75)
