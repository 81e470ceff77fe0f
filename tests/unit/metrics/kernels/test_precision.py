from __future__ import annotations

import pytest

from advisor.metrics.kernels.precision import mixed_precision, tf32
from advisor.metrics.metric import METRICS
from advisor.model.missing import Missing
from tests.device_bound import ADD, GEMM, SGEMM, op, queued
from tests.tables import A100, V100, Row

VOLTA = "volta_sgemm_128x64_nn"
TF32 = "ampere_sgemm_tf32_tensorop_s1688gemm_128x128_nn"
BATCH_NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>"
RTX3090 = A100 | {"name": "NVIDIA GeForce RTX 3090", "capability": 8.6, "sm_count": 82, "memory_bytes": 24 << 30}
MI300 = A100 | {"name": "AMD Instinct MI300X", "capability": 9.4, "sm_count": 304, "memory_bytes": 192 << 30}
P100 = V100 | {"name": "Tesla P100-SXM2-16GB", "capability": 6.0, "sm_count": 56}
UNKNOWN: Row = {"device": 0, "name": "Something New", "capability": 13.0}

BIG = op("aten::mm", [4096, 4096], [4096, 4096], dtype="float")
WIDE = op("aten::mm", [64, 100_000], [100_000, 64], dtype="float")
RELU = op("aten::clamp_min", [4096, 4096], dtype="float")
OPS = [BIG, WIDE, RELU]


def test_fp32_products_on_an_a100_run_up_to_7_times_as_fast_as_tf32():
    found = tf32(queued((SGEMM, 800, {"on": 0}), (ADD, 180, {"on": 2}), ops=OPS))
    assert found["tf32_off_share"] == pytest.approx(0.8)
    assert found["tf32_off_ms"] == pytest.approx(0.8)
    assert found["tf32_off_ops"] == "aten::mm (0.8 ms)"
    assert found["tf32_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 7))  # 8 times the peak x 0.875
    assert found["tf32_least_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 2.8))  # x 0.35


def test_no_product_gets_faster_than_memory_delivers_its_matrices():
    moved_us = (2 * 64 * 100_000 + 64 * 64) * 4 / 2039e3  # 25.1
    found = tf32(queued((SGEMM, 50, {"on": 1}), ops=OPS))
    assert found["tf32_gain_ms"] == pytest.approx((50 - moved_us) / 1e3, rel=1e-3)
    assert found["tf32_least_gain_ms"] == pytest.approx((50 - moved_us / 0.8) / 1e3, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "name"),
    [(A100, TF32), (A100, GEMM), (A100, ADD), (RTX3090, SGEMM), (V100, VOLTA), (MI300, SGEMM)],
)
def test_where_tf32_is_taken_or_no_faster_there_is_nothing_to_allow(device: Row, name: str):
    found = tf32(queued((name, 100, {"on": 0}), ops=OPS, device=device))
    assert found["tf32_off_share"] == found["tf32_gain_ms"] == 0


def test_fp32_products_on_a_v100_want_16_bits_and_what_surrounds_them_moves_half():
    ran = [(VOLTA, 800, {"on": 0}), (ADD, 100, {"on": 2}), (BATCH_NORM, 60, {"on": 2}), (SOFTMAX, 20, {"on": 2})]
    found = mixed_precision(queued(*ran, ops=OPS, device=V100))
    ratio = 125 / 15.7
    assert found["thirty_two_bit_share"] == pytest.approx(0.8)
    assert found["thirty_two_bit_ms"] == pytest.approx(0.8)
    assert found["sixteen_bit_gain_ms"] == pytest.approx(0.8 * (1 - 1 / (0.75 * ratio)) + 0.16 / 2, rel=1e-4)
    assert found["sixteen_bit_least_gain_ms"] == pytest.approx(0.8 * (1 - 1 / (0.35 * ratio)) + 0.16 / 4, rel=1e-4)


def test_tf32_products_become_at_most_twice_as_fast():
    found = mixed_precision(queued((TF32, 980, {"on": 0}), ops=OPS))
    assert found["thirty_two_bit_share"] == pytest.approx(0.98)
    assert found["sixteen_bit_gain_ms"] == pytest.approx(0.98 / 2)
    assert found["sixteen_bit_least_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 1.4))


def test_no_kernel_is_claimed_by_both():
    ran = [(SGEMM, 500, {"on": 0}), (TF32, 300, {"on": 0}), (GEMM, 180, {"on": 0})]
    made = queued(*ran, ops=OPS)
    assert tf32(made)["tf32_off_share"] == pytest.approx(0.5)
    assert mixed_precision(made)["thirty_two_bit_share"] == pytest.approx(0.3)


def test_a_geforce_board_gains_by_16_bits_what_tf32_does_not_give():
    found = mixed_precision(queued((SGEMM, 980, {"on": 0}), ops=OPS, device=RTX3090))
    assert found["thirty_two_bit_share"] == pytest.approx(0.98)
    assert found["sixteen_bit_least_gain_ms"] == 0  # 0.35 of a ratio of 2


def test_matrix_cores_of_amd_count_for_16_bits():
    name = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"
    found = mixed_precision(queued((name, 980, {"on": 0}), ops=OPS, device=MI300))
    assert found["sixteen_bit_gain_ms"] == pytest.approx(0.98 * (1 - 1 / (0.75 * 1307.4 / 163.4)), rel=1e-3)


def test_without_knowing_the_gpu_or_16_bits_nothing_is_said():
    made = queued((SGEMM, 100, {"on": 0}), ops=OPS, device=UNKNOWN)
    assert all(isinstance(value, Missing) for value in (*tf32(made).values(), *mixed_precision(made).values()))
    made = queued((SGEMM, 100, {"on": 0}), ops=OPS, device=P100)
    assert set(mixed_precision(made).values()) == {Missing("no_sixteen_bit_tensor_cores")}


@pytest.mark.parametrize(("metric", "name"), [("tf32_off_share", SGEMM), ("thirty_two_bit_share", TF32)])
def test_places_are_the_kernels_themselves(metric: str, name: str):
    places = METRICS[metric].where
    assert places
    rows = places(queued((SGEMM, 50, {"on": 0}), (TF32, 30, {"on": 0}), (GEMM, 10, {}), ops=OPS))
    assert rows["name"].to_list() == [name]


def test_a_gpu_that_has_a_name_is_not_called_unknown():
    (why,) = {str(value) for value in tf32(queued((SGEMM, 100, {"on": 0}), ops=OPS, device=UNKNOWN)).values()}
    assert "the peaks of Something New are not in the table of GPUs" in why
    (why,) = {str(value) for value in mixed_precision(queued((SGEMM, 100, {}), device={"device": 0})).values()}
    assert "it cannot be told which GPU this is" in why
