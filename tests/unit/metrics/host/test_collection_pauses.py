from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from tests.tables import cpu_steps, kernel, metrics_of, on_host, profile, step, values_of, view, worker_row

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
    # 90 us in three steps, 70 without the longest
    expected = {"gc_pause_ms": 0.020, "gc_pauses_ms": 0.030, "gc_recurring_ms": 0.070 / 3, "gc_called_part": 2 / 3}
    expected |= {"gc_called_steps_part": 1.0}
    assert values_of(expected, cpu_steps(ops, 3)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("end_us", "others", "expected"),
    [
        (95, [], Missing("no_python_calls")),  # 5 us of 100 in which nothing was recorded
        (96, [], 0.0),  # less: no pauses that are worth a finding
        (50, [on_host("python", 90, 95, name="main.py(3): train")], 0.0),  # they would have been recorded
        (50, [on_host("input", 50, 98, name="next")], 0.0),
        (50, [on_host("annotation", 0, 100, name="epoch")], Missing("no_python_calls")),  # shows nothing of what runs
    ],
)
def test_pauses_are_unknown_where_they_may_lie_in_time_of_which_nothing_was_recorded(end_us, others, expected):
    values = metrics_of(cpu_steps([on_host("op", 0, end_us, name="aten::mm"), *others], 3))
    assert values["gc_pauses_ms"] == expected


def test_steps_in_which_the_program_asks_for_a_collection_are_counted():
    calls = [on_host("gc", 20, 50, name=CALLED), on_host("gc", 120, 150, name="Python GC")]
    steps = [step(n, 100 * n, 100 * (n + 1), device=None) for n in range(2)]
    of = profile([], [on_host("op", 0, 10, name="aten::mm"), *calls], steps)
    assert metrics_of(view(of))["gc_called_steps_part"] == 0.5


def test_without_collections_there_is_no_pause():
    row = worker_row(profile([kernel(0, 100)], [on_host("op", 0, 10)]))
    assert (row["gc_pause_ms"], row["gc_pauses_ms"], row["gc_called_part"]) == (0, 0, 0)
