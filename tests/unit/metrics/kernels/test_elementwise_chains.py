from __future__ import annotations

import json

import pytest

from tests.device_bound import ADD, REDUCE, op, queued
from tests.tables import metrics_of, on_host, profile, step, view

OPS = [op("aten::mul", [4096, 4096]), op("aten::tanh", [4096, 4096])]


def test_a_chain_becomes_one_kernel_between_its_shortest_and_twice_its_longest():
    ran = [(ADD, us, {"on": i % 2}) for i, us in enumerate((100, 120, 140, 120))]
    values = metrics_of(queued(*ran, (REDUCE, 500, {}), ops=OPS))
    assert values["elementwise_chain_share"] == pytest.approx(0.48)
    assert values["elementwise_chain_ms"] == pytest.approx(0.48)
    assert values["elementwise_chain_ops"] == "aten::mul (0.24 ms), aten::tanh (0.24 ms)"
    assert values["elementwise_chains_per_step"] == 1
    assert values["elementwise_chain_kernels"] == 4
    assert values["chain_gain_ms"] == pytest.approx(0.38)
    assert values["chain_least_gain_ms"] == pytest.approx(0.20)


def test_each_chain_is_fused_by_itself():
    ran = [(ADD, 100, {"on": 0})] * 3 + [(REDUCE, 80, {})] + [(ADD, 20, {"on": 1})] * 5
    values = metrics_of(queued(*ran, ops=OPS))
    assert (values["elementwise_chains_per_step"], values["elementwise_chain_kernels"]) == (2, 4)
    assert values["chain_gain_ms"] == pytest.approx(0.2 + 0.08)
    assert values["chain_least_gain_ms"] == pytest.approx(0.1 + 0.06)


def test_a_chain_never_gets_slower_by_fusing():
    ran = [(ADD, 10, {"on": 0}), (ADD, 10, {"on": 0}), (ADD, 400, {"on": 0})]
    assert metrics_of(queued(*ran, ops=OPS))["chain_least_gain_ms"] == 0


def test_without_chains_all_is_zero():
    values = metrics_of(queued((REDUCE, 80, {})))
    assert values["elementwise_chain_share"] == values["elementwise_chain_kernels"] == values["chain_gain_ms"] == 0
    assert values["elementwise_chain_ops"] == ""


@pytest.mark.parametrize(("second", "least"), [("aten::mul", 0.04), ("aten::tanh", 0.0)])
def test_on_a_cpu_functions_are_computed_again(second: str, least: float):
    """60, 60 and 80 us in a row: one op of 160 us at most, or of 280 us if a tanh of 60 and one of 80 are fused."""
    names = ["aten::mul", second, "aten::tanh" if second == "aten::tanh" else "aten::add"]
    shapes = json.dumps([[64, 64]])
    ops = [
        on_host("op", start, end, name=name, shapes=shapes, dtypes='["float"]', step=1)
        for name, start, end in zip(names, (0, 60, 120), (60, 120, 200), strict=True)
    ]
    values = metrics_of(view(profile([], ops, [step(1, 0, 400, device=None)])))
    assert values["chain_least_gain_ms"] == pytest.approx(least)
    assert values["chain_gain_ms"] == pytest.approx(0.14)
