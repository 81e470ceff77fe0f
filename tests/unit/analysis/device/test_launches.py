"""Steps that lack kernels of their launches: three of 100 us, each with four launches 10 us apart."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from advisor.analysis.device.launches import launches
from advisor.analysis.device.selection import select_steps
from tests.tables import Row, kernel, on_device, on_host, profile, step

STEPS = [step(number, 100 * number, 100 * number + 100) for number in range(6)]


def why_left_out(absent: set[int], steps: int = 6, marks: Sequence[Row] = STEPS) -> list[str | None]:
    """Of a recording that lacks the kernels of these launches, counted from 0."""
    host: list[Row] = []
    device: list[Row] = []
    for number in range(4 * steps):
        at = 100 * (number // 4) + 10 * (number % 4)
        if number in absent:
            host.append(on_host("runtime", at, at + 1, name="cudaLaunchKernel"))
        else:
            device.append(kernel(at + 5, at + 15, launched=at + 1))
    return select_steps(profile(device, host, marks[:steps])).steps["left_out"].to_list()


def test_a_step_with_all_its_kernels_is_used():
    assert why_left_out(set()) == [None] * 6


def test_a_step_that_lacks_kernels_is_left_out_and_so_is_the_one_after_it():
    assert why_left_out({9, 10}) == [None, None, "kernels_absent", "kernels_absent", None, None]


def test_where_too_few_others_would_remain_such_steps_are_used():
    assert why_left_out({5, 13}, steps=5) == [None] * 5


def test_graphs_whose_nodes_are_never_recorded_cut_nothing():
    calls = [on_host("runtime", 50 * at, 50 * at + 1, name="cudaGraphLaunch") for at in range(4)]
    made = profile([kernel(5, 15, launched=1)], calls, STEPS[:2])
    assert select_steps(made).steps["left_out"].to_list()[0] is None


@pytest.mark.parametrize(("call", "lost"), [("cudaLaunchKernel", 3), ("cudaGraphLaunch", 0)])
def test_where_only_copies_were_recorded_all_kernels_are_absent(call: str, lost: int):
    calls = [on_host("runtime", 30 * at, 30 * at + 1, name=call) for at in range(3)]
    copy = on_device("memcpy", 5, 15)
    (only,) = select_steps(profile([copy], calls, STEPS[:2])).views
    calls_of_kernels = launches(only.host, only.ops, 1)
    assert calls_of_kernels.select(pl.sum("is_lost", "is_tail")).row(0) == (lost, 0)


@pytest.mark.parametrize(("kernels", "lost"), [(3, 0), (2, 3)])
def test_where_no_op_has_its_call_none_is_absent(kernels: int, lost: int):
    """As where the clocks do not fit: there are as many ops without a call as calls without an op."""
    calls = [on_host("runtime", 30 * at, 30 * at + 1, name="cudaLaunchKernel") for at in range(3)]
    made = profile([kernel(30 * at + 5, 30 * at + 15) for at in range(kernels)], calls, STEPS[:2])
    (only,) = select_steps(made).views
    assert launches(only.host, only.ops, 1)["is_lost"].sum() == lost


@pytest.mark.parametrize("steps", [2, 6])
def test_a_step_whose_last_kernel_is_absent_was_cut(steps: int):
    assert why_left_out({4 * steps - 1}, steps) == [*[None] * (steps - 1), "ended_early"]


@pytest.mark.parametrize(("absent", "why"), [({23}, "ended_early"), (set(), None)])
def test_what_a_last_step_lacks_is_told_only_where_launches_lack_kernels(absent: set[int], why: str | None):
    """The last of six steps has less work than the others, all of which was recorded or not."""
    marks = [row | {"incomplete": "less_work" if row["step"] == 5 else None} for row in STEPS[:6]]
    assert why_left_out(absent, 6, marks) == [*[None] * 5, why or "less_work"]


def absent_at_the_end(many: int, call: str, wait: int | None, cleared: int = 0) -> tuple[int, int]:
    """(launches that are lost for sure, launches that may never have run): one with its kernel, then `many` without.

    A library clears memory on `cleared` other streams.
    """
    host = [on_host("runtime", 2 * at, 2 * at + 1, name=call) for at in range(1, many + 1)]
    if wait is not None:
        host.append(on_host("runtime", 2 * wait + 1, 2 * wait + 2, name="cudaDeviceSynchronize"))
    known = kernel(1, 2, launched=1)
    known["call"]["name"] = call
    device = [known, *(on_device("memset", 0, 1, stream=100 + stream) for stream in range(cleared))]
    (only,) = select_steps(profile(device, host, [step(0, 0, 2 * many + 4)])).views
    lost = launches(only.host, only.ops, 1).filter("is_lost")["is_tail"]
    return (~lost).sum(), lost.sum()


@pytest.mark.parametrize(
    ("many", "call", "wait", "expected"),
    [
        (1024, "cudaLaunchKernel", None, (0, 1024)),
        (1025, "cudaLaunchKernel", None, (1, 1024)),
        (1025, "hipLaunchKernel", None, (0, 1025)),
        (10, "cudaLaunchKernel", 7, (7, 3)),
    ],
)
def test_launches_that_no_queue_holds_or_that_the_host_waited_for_have_run(
    many: int, call: str, wait: int | None, expected: tuple[int, int]
):
    assert absent_at_the_end(many, call, wait) == expected


def test_streams_that_only_clear_memory_hold_no_launches():
    """NCCL has a stream for each channel of each peer; programs launch to one or two."""
    assert absent_at_the_end(1030, "cudaLaunchKernel", None, cleared=3) == (6, 1024)
