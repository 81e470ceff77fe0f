from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from advisor.analysis.device.kernel_gains import gains_ms, memory_ns
from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.replay import replay, trusted_replay
from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView
from advisor.inputs.hardware import match
from tests.device_bound import ADD, GEMM, queued
from tests.tables import kernel, profile, step, view

HALF, QUARTER = pl.col("dur_ns") * 0.5, pl.col("dur_ns") * 0.25


def test_a_device_bound_step_gives_back_what_its_kernels_lose():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}), (GEMM, 200, {}))
    products = kernels(steps).filter(pl.col("family") == "gemm")
    assert gains_ms(steps, products, HALF, QUARTER) == (pytest.approx(0.3), pytest.approx(0.45))


def test_a_kernel_that_is_gone_takes_its_pause_along():
    ran = [kernel(20 + 102 * i, 120 + 102 * i, 2 + i) for i in range(4)]  # 100 us each, 2 us apart
    steps = view(profile(ran, steps=[step(1, 0, 426, host=(0, 6))]))
    second = kernels(steps)[1:2]
    assert gains_ms(steps, second, pl.lit(0), pl.lit(0)) == (pytest.approx(0.102), pytest.approx(0.102))


def test_nothing_is_gained_where_nothing_changes():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}))
    assert gains_ms(steps, kernels(steps).clear(), HALF, QUARTER) == (0, 0)
    assert gains_ms(steps, kernels(steps), pl.col("dur_ns"), pl.col("dur_ns")) == (0, 0)


# us       0         100       200       300       400    Each kernel is launched after the one before it is over.
# launch   |         |         |         |
# kernel    ========  ========  ========  ========         80 of 100
def host_bound() -> DeviceView:
    ran = [kernel(t + 10, t + 90, t + 4) for t in range(0, 400, 100)]
    return view(profile(ran, steps=[step(1, 0, 400)]))


def test_a_host_that_sets_the_pace_gives_nothing_back_for_certain():
    steps = host_bound()
    slower = pl.lit(70_000)
    low, high = gains_ms(steps, kernels(steps), slower, slower)
    assert low == pytest.approx(0.01, abs=0.011)  # the last kernel at most
    assert 0.03 <= high <= 0.04  # with the host at 50 us the device sets the pace: 10 us of each kernel


def test_without_launches_only_the_upper_end_is_told():
    steps = view(profile([kernel(0, 40), kernel(40, 80)], steps=[step(1, 0, 100)]))
    assert gains_ms(steps, kernels(steps), HALF, QUARTER) == (0, pytest.approx(0.06))


def test_what_the_host_launches_ahead_for_steps_that_are_not_used_is_not_replayed():
    ran = [kernel(100 * i + 20, 100 * i + 120, 10 * i + 2) for i in range(6)]
    marks = [step(i, 0 if i == 0 else 100 * i + 20, 100 * i + 120, host=(10 * i, 10 * i + 5)) for i in range(6)]
    steps = select_steps(profile(ran, steps=marks), "0:3").views[0]
    assert replay(steps).error == pytest.approx(0, abs=0.01)
    assert trusted_replay(steps) is not None


def test_durations_are_changed_by_id_in_any_order():
    steps = replay(queued((ADD, 100, {}), (GEMM, 200, {}), (ADD, 300, {})))
    changed = steps.with_durations(np.array([2, 0, 99]), np.array([10_000, 20_000, 7]))
    assert dict(zip(changed.op.tolist(), changed.dur.tolist(), strict=True)) == {0: 20_000, 1: 200_000, 2: 10_000}
    assert steps.with_durations(np.array([], np.int64), np.array([], np.int64)).dur.tolist() == steps.dur.tolist()


def test_moving_bytes_takes_as_long_as_the_bandwidth_says():
    a100 = match("NVIDIA A100-SXM4-80GB")
    rows = pl.DataFrame({"moved": [2_039_000, None]})
    assert rows.select(memory_ns(pl.col("moved"), a100, 0.5)).to_series().to_list() == [pytest.approx(2_000), 0]
    assert rows.select(memory_ns(pl.col("moved"), None, 0.5)).to_series().to_list() == [0]


def test_the_same_view_twice_gives_the_same():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}))
    again = replace(steps)
    assert gains_ms(steps, kernels(steps), HALF, QUARTER) == gains_ms(again, kernels(again), HALF, QUARTER)
