"""One view reduced to what comparing ranks needs."""

from __future__ import annotations

import pytest

from advisor.analysis.job.rank import CALLS, rank_of
from tests.tables import US, V100, kernel, on_device, on_host, profile, step, view


def reduced(ops, host=(), steps=None, **tables):
    return rank_of(view(profile(ops, host or [on_host("op", 0, 1)], steps or [step(1, 0, 100)], **tables)))


def test_steps_hold_work_input_kernels_and_their_first():
    ops = [kernel(10, 30), kernel(20, 40), on_device("memcpy", 50, 60), kernel(120, 130)]
    host = [on_host("input", 40, 70)]
    made = reduced(ops, host, [step(1, 0, 100), step(2, 100, 200), step(3, 200, 300)])
    columns = ("step", "work_ns", "input_ns", "kernels", "first_ns")
    assert made.steps.select(columns).rows() == [
        (1, 30 * US, 20 * US, 2, 10 * US),  # of the wait the copy covers 10 us
        (2, 10 * US, 0, 1, 120 * US),
        (3, 0, 0, 0, None),
    ]


def test_uneven_steps_are_kept_and_marked():
    ops = [kernel(0, 1)]
    steps = [step(n, 100 * n, 100 * n + 100) for n in range(5)] + [step(5, 500, 2000)]
    made = rank_of(view(profile(ops, [on_host("op", 0, 1)], steps), "steady"))
    assert made.steps["used"].to_list() == [True] * 5 + [False]


def test_without_a_device_ops_are_the_work_but_for_their_collectives():
    host = [on_host("op", 10, 60), on_host("collective", 40, 80, thread=2), on_host("annotation", 0, 100)]
    made = reduced([], host, [step(1, 0, 100, device=None)], devices=())
    assert made.steps.select("work_ns", "ops_ns").rows() == [(0, 30 * US)]


def test_a_collective_is_no_work():
    made = reduced([kernel(0, 10), on_device("collective", 5, 50)])
    assert made.steps["work_ns"].to_list() == [10 * US]
    assert made.steps["kernels"].to_list() == [1]
    assert made.work.total == 10 * US


def test_calls_bear_the_step_that_they_start_in():
    ops = [on_device("collective", start, start + 150) for start in (10, 160, 210)]
    made = reduced(ops, steps=[step(1, 0, 100), step(2, 200, 300)])
    assert made.calls["step"].to_list() == [1, None, 2]
    assert list(made.calls.columns) == list(CALLS)


def test_calls_bear_what_is_known_of_the_collective():
    told = [
        {"device_op": 1, "worker": 0, "op": "allreduce", "group": "data", "sequence": 4, "bytes": 8, "group_size": 2}
    ]
    made = reduced([kernel(0, 5), on_device("collective", 10, 20)], collectives=told)
    row = made.calls.row(0, named=True)
    assert (row["op"], row["group"], row["sequence"], row["bytes"], row["end_ns"]) == (
        "allreduce",
        "data",
        4,
        8,
        20 * US,
    )


def test_without_a_device_the_hosts_collectives_count():
    host = [on_host("collective", 10, 20, name="gloo:all_reduce"), on_host("op", 0, 50)]
    made = rank_of(view(profile([], host, [step(1, 0, 100, device=None)])))
    assert made.calls.select("start_ns", "end_ns", "on_host", "step").rows() == [(10 * US, 20 * US, True, 1)]


def test_kernels_are_told_apart_by_name_grid_and_block():
    shape = {"name": "gemm", "grid": 8, "block": 128}
    ops = [kernel(0, 10, **shape), kernel(20, 40, **shape), kernel(50, 60, **shape | {"grid": 9})]
    made = reduced(ops)
    rows = made.kernels.sort("grid").select("name", "grid", "block", "number", "median_ns", "total_ns").rows()
    assert rows == [("gemm", 8, 128, 2, 15 * US, 30 * US), ("gemm", 9, 128, 1, 10 * US, 10 * US)]


@pytest.mark.parametrize("seen", [1, 4])
def test_visible_devices_are_those_that_the_process_lists(seen):
    devices = [V100 | {"device": number} for number in range(seen)]
    assert reduced([kernel(0, 10)], devices=devices).visible == seen
