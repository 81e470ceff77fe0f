from __future__ import annotations

import json

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import A100, V100, Row, metrics_of, on_host, profile, step, view

DGEMM = "volta_dgemm_128x64_nn"
DMMA = "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"
RTX3090 = A100 | {"name": "NVIDIA GeForce RTX 3090", "capability": 8.6, "sm_count": 82, "memory_bytes": 24 << 30}
OPS = [
    op("aten::mm", [1024, 1024], [1024, 1024], dtype="double"),
    op("aten::gelu", [1024, 1024], dtype="double"),
]


def call(name: str, start: float, end: float, dtype: str | None, *shapes: list[int]) -> Row:
    types = json.dumps([dtype] * len(shapes)) if dtype else None
    return on_host("op", start, end, name=name, shapes=json.dumps(shapes) if dtype else None, dtypes=types, step=1)


def on_cpu(*ops: Row) -> DeviceView:
    """A step of 1 ms."""
    worker = {"worker": 0, "framework": "pytorch"}
    return view(profile((), ops, [step(1, 0, 1000, device=None)], devices=(), workers=[worker]))


def test_on_a_cpu_products_and_all_else_in_64_bits_take_about_half_in_32_and_convolutions_a_quarter():
    """400 us of products, 200 us of a filter and 100 us of an activation in 64 bits; 100 us of a sum in 32."""
    values = metrics_of(
        on_cpu(
            call("aten::mm", 0, 400, "double", [64, 64], [64, 64]),
            call("aten::_slow_conv2d_forward", 400, 600, "double", [8, 64, 28, 28], [64, 64, 3, 3]),
            call("aten::gelu", 600, 700, "double", [64, 64]),
            call("aten::add", 700, 800, "float", [64, 64], [64, 64]),
        )
    )
    assert values["double_product_share"] == pytest.approx(0.6)
    assert values["double_product_ms"] == pytest.approx(0.6)
    assert values["double_product_ops"] == "aten::mm (0.4 ms), aten::_slow_conv2d_forward (0.2 ms)"
    assert values["double_least_gain_ms"] == pytest.approx(0.4 * 0.45 + 0.2 * 0.55 + 0.1 * 0.2)
    assert values["double_gain_ms"] == pytest.approx(0.4 * 0.65 + 0.2 * 0.85 + 0.1 * 0.7)


def test_a_sum_in_64_bits_is_no_product():
    values = metrics_of(
        on_cpu(call("aten::mm", 0, 400, "float", [64, 64], [64, 64]), call("aten::sum", 400, 900, "double", [64, 64]))
    )
    assert (values["double_product_share"], values["double_product_ops"], values["double_gain_ms"]) == (0, None, 0)


@pytest.mark.parametrize(
    "name",
    [
        "aten::linalg_cholesky_ex",
        "aten::_linalg_eigh",
        "aten::triangular_solve",
        "aten::_fft_r2c",
        "autograd::engine::evaluate_function: TanhBackwardBackward0",
    ],
)
def test_a_numerical_program_may_need_64_bits(name: str):
    product = call("aten::mm", 0, 400, "double", [64, 64], [64, 64])
    assert metrics_of(on_cpu(product, call(name, 400, 500, "double", [64, 64])))["double_product_share"] == Missing(
        "numerical_program"
    )
    others = ["aten::linalg_vector_norm", "autograd::engine::evaluate_function: TanhBackward0"]
    plain = [call(other, 400 + n, 401 + n, "double", [64, 64]) for n, other in enumerate(others)]
    assert metrics_of(on_cpu(product, *plain))["double_product_share"] == pytest.approx(0.4)
    single = call("aten::mm", 0, 400, "float", [64, 64], [64, 64])
    assert metrics_of(on_cpu(single, call(name, 400, 500, "float", [64, 64])))["double_product_share"] == 0


def test_without_types_nothing_is_known_on_a_cpu():
    values = metrics_of(on_cpu(call("aten::mm", 0, 400, None)))
    assert values["double_product_share"] == Missing("no_shapes")


@pytest.mark.parametrize(
    ("device", "name", "least", "most"),
    [
        (A100, DMMA, 0.0, 0.4),  # the same peak: at most the bytes halve
        (RTX3090, DGEMM, 0.8 * (1 - 1 / 22.4), 0.8 * (1 - 1 / 56)),  # 64 times the peak x 0.35 and x 0.875
        (V100, DGEMM, 0.0, 0.4),  # twice the peak x 0.35 is no gain
    ],
)
def test_on_a_gpu_it_depends_on_the_chip(device: Row, name: str, least: float, most: float):
    """800 us of a product of 1024 x 1024: its 12.6 MB in 32 bits take at most 17 us at 80 % of the bandwidth."""
    values = metrics_of(queued((name, 800, {"on": 0}), (ADD, 180, {}), ops=OPS, device=device))
    assert values["double_product_share"] == pytest.approx(0.8)
    assert values["double_least_gain_ms"] == pytest.approx(least, abs=1e-3)
    assert values["double_gain_ms"] == pytest.approx(most, abs=1e-3)


def test_on_a_gpu_the_kernels_name_tells_without_the_op_and_before_it():
    values = metrics_of(queued((DGEMM, 800, {}), (ADD, 180, {}), device=V100))
    assert values["double_product_share"] == pytest.approx(0.8)
    values = metrics_of(queued((GEMM, 800, {"on": 0}), (ADD, 180, {}), ops=OPS, device=A100))
    assert values["double_product_share"] == 0
