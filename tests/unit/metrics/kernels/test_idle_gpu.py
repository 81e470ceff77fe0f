"""What a job on the CPU would take on a V100 of 80 multiprocessors: 12,288 and 20,480 GFLOP/s at 1.2 and 2 GHz."""

from __future__ import annotations

import json

import pytest

from advisor.model.clause import Missing
from tests.tables import A100, V100, metrics_of, on_host, profile, step, view

PRODUCT = {"name": "aten::mm", "shapes": json.dumps([[1000, 1000]] * 2)}  # 2 GFLOP, and 12 MB


def gains(product_us: float, other_us: float, step_us: float, devices: list[dict[str, object]], dtype: str = "float"):
    ops = [
        on_host("op", 0, product_us, step=1, dtypes=json.dumps([dtype] * 2), **PRODUCT),
        on_host("op", product_us, product_us + other_us, name="aten::sort", step=1),
    ]
    values = metrics_of(view(profile((), ops, [step(1, 0, step_us, device=None)], devices=devices)))
    return values["idle_gpu_least_gain_ms"], values["idle_gpu_gain_ms"]


def test_known_ops_take_their_flops_and_others_as_long_as_now_or_nothing():
    """At 30 % 0.543 ms on top of the other 10 ms of ops; at 80 % 0.122 ms, beside the 10 ms of no op."""
    least, most = gains(40_000, 10_000, 60_000, [V100])
    assert least == pytest.approx(50 - 10 - 2e3 / (12_288 * 0.3), rel=1e-4)
    assert most == pytest.approx(50)


def test_at_most_the_gpu_s_own_time_is_left():
    assert gains(40_000, 0, 40_000, [V100])[1] == pytest.approx(40 - 2e3 / (20_480 * 0.8), rel=1e-4)


def test_what_takes_longer_on_the_gpu_saves_nothing():
    assert gains(20, 0, 20, [V100]) == (0, 0)


def test_the_work_of_most_of_the_time_must_be_known():
    half = gains(10_000, 10_000, 20_000, [V100])
    assert half[1] == pytest.approx(20 - 2e3 / (20_480 * 0.8), rel=1e-4)
    assert gains(10_000, 11_000, 21_000, [V100]) == (Missing("work_unknown", share=10 / 21),) * 2


def test_double_precision_is_not_estimated():
    assert gains(10_000, 0, 10_000, [V100], "double") == (Missing("work_unknown", share=0.0),) * 2


def test_equal_gpus_are_one_and_of_different_ones_none_is_chosen():
    assert gains(40_000, 0, 40_000, [V100, V100 | {"device": 1}]) == gains(40_000, 0, 40_000, [V100])
    assert gains(40_000, 0, 40_000, [V100, A100 | {"device": 1}]) == (Missing("sm_count_unknown"),) * 2
