"""Kernels that wait for pages of managed memory, on timelines by hand; times in us, a V100 on PCIe 3."""

from __future__ import annotations

import pytest

from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_device, profile, step, view

BYTES_PER_US = 1e3 * 0.88 * 15.75  # over the link, prefetched
STEP = [step(1, 0, 10_000)]


def page(start: float, end: float, way: str = "HtoD", size: float = 0) -> Row:
    where = {"copy_kind": way, "source_memory": "managed", "target_memory": "managed"}
    return on_device("memcpy", start, end, bytes=round(size * BYTES_PER_US), **where)


def test_a_kernel_waits_while_pages_move_and_between_two_that_are_close():
    """Pages move for 100 + 100 + 200 us within a kernel; 400 us lie between the first two, 600 before the last."""
    pages = [page(1_000, 1_100, size=20), page(1_500, 1_600, size=20), page(2_200, 2_400, size=40)]
    row = metrics_of(view(profile([kernel(500, 3_000), *pages], steps=STEP)))
    assert row["page_wait_share"] == pytest.approx((100 + 100 + 200) / 10_000)
    moves = of_rule("managed-memory-faults", view(profile([kernel(500, 3_000), *pages], steps=STEP)))
    assert moves["page_moves_per_step"] == 3
    assert moves["page_moves_bytes_per_step"] == pytest.approx(80 * BYTES_PER_US, abs=3)
    assert row["prefetch_least_gain_ms"] == pytest.approx(0.4 - 0.08, rel=1e-3)
    assert row["prefetch_gain_ms"] == pytest.approx(0.8 - 0.08, rel=1e-3)


def test_pages_that_move_before_a_kernel_or_to_the_host_hold_up_none():
    pages = [page(0, 400), page(1_000, 1_500, "DtoH")]
    row = metrics_of(view(profile([kernel(500, 3_000), *pages], steps=STEP)))
    assert (row["page_wait_share"], row["prefetch_gain_ms"]) == (0, 0)


def test_a_gap_between_two_kernels_is_no_wait_of_either():
    pages = [page(900, 1_000), page(1_200, 1_300)]
    row = metrics_of(view(profile([kernel(0, 1_000), kernel(1_200, 2_000), *pages], steps=STEP)))
    assert row["page_wait_share"] == pytest.approx(200 / 10_000)


@pytest.mark.parametrize(("at", "is_split"), [(1_000, False), (4_000, True)])
def test_more_blocks_do_not_shorten_a_kernel_that_waits_for_pages(at: float, *, is_split: bool):
    own = kernel(500, 3_000, name="mine(int)", blocks_per_sm=0.01, block=256)
    row = metrics_of(view(profile([own, page(at, at + 100)], steps=STEP)))
    assert (row["more_blocks_gain_ms"] > 0) == is_split == (row["few_blocks_share"] > 0)


def test_the_host_waits_for_pages_that_it_reads_and_between_two_that_follow_one_another():
    """Pages for 400 us, 50 of them beside a kernel; 1,000 us lie between two, 12,000 before the last."""
    pages = [page(1_950, 2_100, "DtoH", 30), page(3_100, 3_200, "DtoH", 20), page(15_200, 15_350, "DtoH", 30)]
    row = metrics_of(view(profile([kernel(0, 2_000), *pages], steps=[step(1, 0, 20_000)])))
    assert row["fetch_share"] == pytest.approx((350 + 1_000) / 20_000)
    assert row["page_wait_share"] == 0
    fetches = of_rule("host-page-faults", view(profile(pages, steps=[step(1, 0, 20_000)])))
    assert fetches["fetches_per_step"] == 3
    assert fetches["fetches_bytes_per_step"] == pytest.approx(80 * BYTES_PER_US, abs=3)
    assert row["fetch_least_gain_ms"] == pytest.approx(0.35 - 0.08, rel=1e-3)
    assert row["fetch_gain_ms"] == pytest.approx(1.35 - 0.08, rel=1e-3)
