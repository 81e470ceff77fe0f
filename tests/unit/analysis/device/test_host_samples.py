"""Functions of the program in stretches of idle time, from samples of the threads that launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from advisor.analysis.device.idle import functions_in, gaps, runs_in
from advisor.analysis.device.view import DeviceView
from tests.tables import kernel, metrics_of, profile, step, view

US = 1_000


def samples(stack: list[str], *at: float, thread: int = 1) -> list[dict[str, Any]]:
    """One sample per instant (us) in these functions, the innermost first."""
    return [{"worker": 0, "thread": thread, "at_ns": int(us * US), "functions": stack} for us in at]


def seen(*rows: list[dict[str, Any]]) -> DeviceView:
    return view(profile([kernel(0, 10)], steps=[step(1, 0, 10)], host_samples=[row for each in rows for row in each]))


def functions(of: DeviceView, *stretches: tuple[int, int]) -> list[tuple[Any, ...]]:
    starts, ends = np.array(stretches).T * US
    return functions_in(of, starts, ends).select("stretch", "function", "samples", "ns").rows()


def test_the_innermost_function_that_holds_four_fifths_stands_for_what_it_calls():
    solve, leaf = ["a: solve", "a: main"], ["a: norm", "a: solve", "a: main"]
    of = seen(samples(solve, 0, 10, 20), samples(leaf, 30, 40), samples(["a: main"], 50))
    assert functions(of, (0, 60)) == [(0, "a: solve", 5, 50 * US), (0, "a: main", 1, 10 * US)]


def test_without_such_a_function_each_sample_counts_for_its_innermost():
    of = seen(samples(["a: read"], 0, 10, 20), samples(["a: sort"], 30), samples([], 40))
    assert functions(of, (0, 50)) == [(0, "a: read", 3, 30 * US), (0, None, 1, 10 * US), (0, "a: sort", 1, 10 * US)]


def test_only_the_thread_with_most_samples_counts_and_no_longer_than_the_stretch():
    of = seen(samples(["a: f"], 0, 10, 20, 30), samples(["a: g"], 1, 11, thread=2), samples(["a: f"], 45, 55))
    assert functions(of, (0, 35), (40, 100)) == [(0, "a: f", 4, 35 * US), (1, "a: f", 2, 20 * US)]
    assert runs_in(of, *np.array([(0, 40), (35, 100)]) * US).tolist() == [True, False]  # in half of the second it slept


def test_without_samples_nothing_runs():
    assert not runs_in(seen(), np.array([0]), np.array([9])).any()


@pytest.mark.parametrize(("functions", "cause"), [(["a: write"], "host_bound_ns"), ([], "unknown_ns")])
def test_what_runs_in_a_gap_before_an_op_that_no_call_launched_is_its_cause(functions: list[str], cause: str):
    device = [kernel(0, 10, -1), kernel(5_010, 5_020)]
    rows = samples(functions, *range(10, 5_010, 100))
    of = view(profile(device, steps=[step(1, 0, 5_020)], host_samples=rows))
    assert of.once(gaps)[cause].to_list() == [5_000 * US]


def test_the_function_that_the_device_waits_for_has_its_share_of_the_step():
    """The device idles from 10 to 5,010 us, until a call at 5,000 us; 40 of 50 samples of 100 us are in `write`."""
    device = [kernel(0, 10, -1), kernel(5_010, 10_000, 5_010)]
    write, rest = (
        samples(["a.out: write", "a.out: main"], *range(10, 4_010, 100)),
        samples([], *range(4_010, 9_910, 100)),
    )
    values = metrics_of(view(profile(device, steps=[step(1, 0, 10_000)], host_samples=write + rest)))
    assert values["line_share"] == pytest.approx(0.4)
    assert values["line_place"] == "`write` of a.out"
    assert values["line_gain_ms"] == pytest.approx(10 * (0.4 + 2 * (0.6 * 0.4**2 / 40) ** 0.5))


@pytest.mark.parametrize(("framework", "share"), [("cuda", 0.8), ("pytorch", 0.0)])
def test_in_a_short_gap_a_program_without_ops_to_dispatch_does_work_of_its_own(framework: str, share: float):
    """Ten steps of 1 ms, each with a kernel of 0.2 ms, and 0.8 ms in `move` until the next is launched."""
    device = [kernel(1_000 * n, 1_000 * n + 200, 1_000 * n - 10 if n else -1) for n in range(10)]
    move = samples(["a.out: move"], *(1_000 * n + 200 + 100 * k for n in range(10) for k in range(8)))
    busy = samples([], *(1_000 * n + 100 * k for n in range(10) for k in range(2)))
    told = profile(device, steps=[step(1, 0, 10_000)], host_samples=move + busy)
    workers = told.workers.with_columns(framework=pl.lit(framework))
    assert metrics_of(view(replace(told, workers=workers)))["line_share"] == pytest.approx(share, abs=0.01)
