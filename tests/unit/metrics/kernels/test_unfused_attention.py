from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, REDUCE, SOFTMAX, op, queued
from tests.tables import A100, V100, Row, metrics_of

FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>"
HEADS, LONG, DEEP = 64, 2048, 64


def written_out(dtype: str = "c10::BFloat16", device: Row = A100) -> DeviceView:
    """bmm 400 us, scaling 100, softmax 200, bmm 280: 980 of a step of 1000."""
    ops = [
        op("aten::bmm", [HEADS, LONG, DEEP], [HEADS, DEEP, LONG], dtype=dtype),
        op("aten::mul", [HEADS, LONG, LONG], dtype=dtype),
        op("aten::_softmax", [HEADS, LONG, LONG], dtype=dtype),
        op("aten::bmm", [HEADS, LONG, LONG], [HEADS, LONG, DEEP], dtype=dtype),
    ]
    ran = [(GEMM, 400, {"on": 0}), (ADD, 100, {"on": 1}), (SOFTMAX, 200, {"on": 2}), (GEMM, 280, {"on": 3})]
    return queued(*ran, ops=ops, device=device)


FLOPS = 2 * 2 * HEADS * LONG * LONG * DEEP  # two products


def test_a_fused_kernel_does_the_products_and_nothing_else():
    values = metrics_of(written_out())
    at_peak_ms = FLOPS / 312e12 * 1e3  # 0.22
    assert values["unfused_attention_share"] == pytest.approx(0.98)
    assert values["unfused_attention_ms"] == pytest.approx(0.98)
    assert values["unfused_attention_ops"] == "aten::bmm (0.68 ms), aten::_softmax (0.2 ms), aten::mul (0.1 ms)"
    assert values["attention_gain_ms"] == pytest.approx(0.98 - at_peak_ms / 0.75, abs=1e-3)
    assert values["attention_least_gain_ms"] == 0  # at a quarter of the peak it would take longer than now


def by_hand(*names: str) -> object:
    """ms of attention in: bmm 400 us, these ops of 2 x 30 us each, bmm 280."""
    ops = [op("aten::bmm"), *(op(name) for name in names), op("aten::bmm")]
    kernels = {"aten::max": REDUCE, "aten::sum": REDUCE}
    between = [(kernels.get(name, ADD), 30, {"on": i}) for i, name in enumerate(names, 1) for _ in range(2)]
    ran = [(GEMM, 400, {"on": 0}), *between, (GEMM, 280, {"on": len(ops) - 1})]
    return metrics_of(queued(*ran, ops=ops))["unfused_attention_ms"]


def test_an_exponential_that_is_summed_up_at_once_is_a_softmax():
    softmax = ("aten::max", "aten::sub", "aten::exp", "aten::sum", "aten::div")
    assert by_hand(*softmax) == pytest.approx(0.68 + 5 * 0.06)
    assert by_hand(*softmax[2:]) == pytest.approx(0.68 + 3 * 0.06)
    assert by_hand("aten::exp", "aten::div") == 0  # no sum
    assert by_hand("aten::exp", "aten::max", "aten::sum") == 0  # of other values
    assert by_hand("aten::max", *softmax) == 0  # another reduction in between


def test_fp32_is_emulated_with_three_products_of_tf32():
    at_peak_ms = FLOPS / (156e12 / 3) * 1e3
    assert metrics_of(written_out("float"))["attention_gain_ms"] == pytest.approx(max(0, 0.98 - at_peak_ms / 0.75))


def test_without_the_peak_13_to_50_percent_of_the_time_are_left():
    values = metrics_of(written_out(device=V100))  # no bf16 there
    assert values["attention_gain_ms"] == pytest.approx(0.98 * 0.87, abs=1e-3)
    assert values["attention_least_gain_ms"] == pytest.approx(0.98 * 0.5, abs=1e-3)


def test_fused_attention_is_none_of_it():
    assert metrics_of(queued((FLASH, 80, {})))["unfused_attention_share"] == 0


def test_without_ops_products_and_a_softmax_leave_it_open():
    open_ = metrics_of(queued((GEMM, 10, {}), (SOFTMAX, 10, {}), (GEMM, 10, {})))
    why = Missing("launching_ops_not_recorded")
    assert open_["unfused_attention_share"] == open_["unfused_attention_ops"] == open_["attention_gain_ms"] == why
    assert metrics_of(queued((GEMM, 10, {}), (ADD, 10, {})))["unfused_attention_share"] == 0
