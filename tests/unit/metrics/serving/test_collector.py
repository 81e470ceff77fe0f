from __future__ import annotations

import pytest

from tests.tables import kernel, on_host, profile, step, worker_row


def test_a_collection_counts_while_the_device_idles():
    ops = [kernel(0, 100), kernel(400, 500), kernel(520, 600)]
    collections = [on_host("gc", 50, 350), on_host("gc", 505, 515), on_host("gc", 520, 590)]
    row = worker_row(profile(ops, collections))
    assert row["gc_pause_ms"] == pytest.approx(0.250)
    assert row["gc_pauses_ms"] == pytest.approx(0.260)


def test_a_collection_that_made_a_step_uneven_counts_too():
    ends = [100, 200, 300, 400, 800]
    steps = [step(i, start, end) for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]
    ops = [kernel(end - 100, end) for end in ends]
    row = worker_row(profile(ops, [on_host("gc", 400, 690)], steps), "steady")
    assert row["gc_pause_ms"] == pytest.approx(0.290)
    assert row["gc_pauses_ms"] == pytest.approx(0.290 / 5)


def test_without_collections_there_is_no_pause():
    row = worker_row(profile([kernel(0, 100)]))
    assert (row["gc_pause_ms"], row["gc_pauses_ms"]) == (0, 0)
