from __future__ import annotations

import pytest

from advisor.metrics.host.garbage import pauses
from tests.tables import by_name, cpu_steps, kernel, on_host, profile, step, worker_row

CALLED = "<built-in function collect>"


def test_a_collection_counts_while_the_device_idles():
    ops = [kernel(0, 100), kernel(400, 500), kernel(520, 600)]
    collections = [on_host("gc", 50, 350), on_host("gc", 505, 515), on_host("gc", 520, 590)]
    row = worker_row(profile(ops, collections))
    assert row["gc_pause_ms"] == pytest.approx(0.250)
    assert row["gc_pauses_ms"] == pytest.approx(0.260)
    assert row["gc_called_part"] == 0


def test_a_collection_that_made_a_step_uneven_counts_too():
    ends = [100, 200, 300, 400, 800]
    steps = [step(i, start, end) for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]
    ops = [kernel(end - 100, end) for end in ends]
    row = worker_row(profile(ops, [on_host("gc", 400, 690)], steps), "steady")
    assert row["gc_pause_ms"] == pytest.approx(0.290)
    assert row["gc_pauses_ms"] == pytest.approx(0.290 / 5)


def test_without_a_device_a_collection_counts_while_no_op_runs():
    """Of 100 us, 30 in a collection that the program asks for, 10 of them beside an op, and 10 in Python's own."""
    ops = [
        on_host("op", 0, 30, name="aten::mm"),
        on_host("gc", 20, 50, name=CALLED),
        on_host("gc", 60, 70, name="Python GC"),
    ]
    assert by_name(pauses)(cpu_steps(ops, 3)) == pytest.approx(
        {"gc_pause_ms": 0.020, "gc_pauses_ms": 0.030, "gc_called_part": 2 / 3}
    )


def test_without_collections_there_is_no_pause():
    row = worker_row(profile([kernel(0, 100)], [on_host("op", 0, 10)]))
    assert (row["gc_pause_ms"], row["gc_pauses_ms"], row["gc_called_part"]) == (0, 0, 0)
