from __future__ import annotations

import pytest

from advisor.analysis.device.kernels import part
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import A100, Row, metrics_of, on_host

COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
N = 8 << 20  # elements
H100 = A100 | {"name": "NVIDIA H100 80GB HBM3", "capability": 9.0, "sm_count": 132}
UNLISTED = A100 | {"name": "NVIDIA GeForce GTX 1080", "capability": 6.1, "sm_count": 20, "memory_gbs": 320.0}
HALF, FULL = op("aten::copy_", [N], dtype="c10::Half"), op("aten::native_layer_norm", [N], dtype="float")
WEIGHT, PRODUCT = op("aten::copy_", [512], dtype="float"), op("aten::mm", [4096, 2048], [2048, 4096], dtype="c10::Half")
OPS = [HALF, FULL, WEIGHT, PRODUCT]


@pytest.mark.parametrize(("device", "gbs"), [(A100, 2039), (H100, 3352), (UNLISTED, 320)])
def test_a_pair_on_the_same_values_moves_them_twice_too_often(device: Row, gbs: float):
    # copy (half to float), a small copy of weights, norm on the same 8 Mi values, then a product.
    ran = [(COPY, 400, {"on": 0}), (COPY, 5, {"on": 2}), (NORM, 400, {"on": 1}), (GEMM, 175, {"on": 3})]
    values = metrics_of(queued(*ran, ops=OPS, device=device))
    assert values["moving_kernel_share"] == pytest.approx(805 / 980)
    assert values["moving_ms"] == pytest.approx(0.805)
    assert values["moving_kinds"] == "copy kernels (41 %), norms (41 %)"
    assert values["chain_links"] == "aten::copy_ then aten::native_layer_norm (1 x, 0.4 ms)"
    assert values["fusable_bytes"] == 2 * N * 4  # written as float, and read
    most_ms = 2 * N * 4 / gbs / 1e6
    assert values["fusable_gain_ms"] == pytest.approx(most_ms, rel=0.01)
    assert values["fusable_least_gain_ms"] == pytest.approx(most_ms / 2, rel=0.01)


def test_a_product_between_them_ends_a_chain():
    ran = [(COPY, 400, {"on": 0}), (GEMM, 175, {"on": 3}), (NORM, 400, {"on": 1})]
    values = metrics_of(queued(*ran, ops=[HALF, FULL, WEIGHT, op("aten::mm", [N, 1], [1, 1], dtype="c10::Half")]))
    assert (values["fusable_bytes"], values["chain_links"]) == (0, None)


def test_values_of_another_size_or_unknown_type_are_no_chain():
    other = op("aten::add", [N // 2], dtype="float")
    untyped = on_host("op", 0, 1, name="aten::add", shapes=f"[[{N}]]")
    for second in (other, untyped):
        values = metrics_of(queued((COPY, 400, {"on": 0}), (ADD, 400, {"on": 1}), ops=[HALF, second]))
        assert values["fusable_bytes"] == 0


@pytest.mark.parametrize(("times", "chained"), [(16, 16), (17, 0)])
def test_a_kernel_that_repeats_its_work_many_times_is_no_chain(times: int, chained: int):
    ran = queued(*[(ADD, 400, {"on": 0})] * times, ops=[op("aten::add", [N], dtype="float")])
    assert part(ran, "chain").height == chained
