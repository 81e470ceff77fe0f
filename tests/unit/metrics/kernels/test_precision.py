from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.metrics import METRICS
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, SGEMM, op, queued
from tests.tables import A100, V100, Row, kernel, metrics_of, of_pytorch, profile, step, view

OF_TF32 = ("tf32_off_share", "tf32_off_ms", "tf32_off_ops", "tf32_off_switches", "tf32_least_gain_ms", "tf32_gain_ms")
OF_SIXTEEN_BITS = (
    *("thirty_two_bit_share", "thirty_two_bit_ms", "thirty_two_bit_ops"),
    *("sixteen_bit_least_gain_ms", "sixteen_bit_gain_ms"),
)
VOLTA = "volta_sgemm_128x64_nn"
TF32 = "ampere_sgemm_tf32_tensorop_s1688gemm_128x128_nn"
BATCH_NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>"
FIXED_NORM = "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>"
RTX3090 = A100 | {"name": "NVIDIA GeForce RTX 3090", "capability": 8.6, "sm_count": 82, "memory_bytes": 24 << 30}
MI300 = A100 | {"name": "AMD Instinct MI300X", "capability": 9.4, "sm_count": 304, "memory_bytes": 192 << 30}
P100 = V100 | {"name": "Tesla P100-SXM2-16GB", "capability": 6.0, "sm_count": 56}
UNKNOWN: Row = {"device": 0, "name": "Something New", "capability": 13.0}

BIG = op("aten::mm", [4096, 4096], [4096, 4096], dtype="float")
WIDE = op("aten::mm", [64, 100_000], [100_000, 64], dtype="float")
RELU = op("aten::clamp_min", [4096, 4096], dtype="float")
IMAGES = op("aten::cudnn_convolution", [64, 64, 56, 56], [64, 64, 3, 3], dtype="float")
VOLUMES = op("aten::cudnn_convolution", [4, 64, 32, 56, 56], [64, 64, 3, 3, 3], dtype="float")
BARE = op("aten::mm", dtype="float")  # without shapes: ratios alone tell
MIDDLE = op("aten::mm", [2048, 2048], [2048, 2048], dtype="float")
OPS = [BARE, WIDE, RELU, IMAGES, VOLUMES, BIG, MIDDLE]
TF32_CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_tensor16x8x8_kernel"
FP32_CONV = "ampere_scudnn_128x64_relu_xregs_large_nn_v1"
FP32_CONV_3D = "void implicit_convolve3d_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>"


def test_fp32_products_on_an_a100_run_up_to_7_times_as_fast_as_tf32():
    values = metrics_of(queued((SGEMM, 800, {"on": 0}), (ADD, 180, {"on": 2}), ops=OPS))
    assert values["tf32_off_share"] == pytest.approx(0.8)
    assert values["tf32_off_ms"] == pytest.approx(0.8)
    assert values["tf32_off_ops"] == "aten::mm (0.8 ms)"
    assert values["tf32_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 7))  # 8 times the peak: 1.75 x 8^(2/3)
    assert values["tf32_least_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 8**0.45), rel=1e-5)


def test_where_flops_are_known_they_take_a_part_of_the_peak():
    """17.2 GFLOP take 0.98 ms on ordinary cores; 0.3 to 0.55 of 312 TFLOP/s, 0.35 to 0.875 of 156 in TF32."""
    flops = 2 * 2048**3
    in_tf32 = metrics_of(queued((SGEMM, 980, {"on": 6}), ops=OPS))
    assert in_tf32["tf32_least_gain_ms"] == pytest.approx(0.98 - flops / (0.35 * 156e9), rel=1e-3)
    assert in_tf32["tf32_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 7), rel=1e-3)  # no more than the ratio of the peaks
    narrow = metrics_of(queued((TF32, 300, {"on": 6}), ops=OPS))
    assert narrow["sixteen_bit_least_gain_ms"] == pytest.approx(0.3 - flops / (0.3 * 312e9), rel=1e-3)
    assert narrow["sixteen_bit_gain_ms"] == pytest.approx(0.3 * (1 - 1 / 2.2), rel=1e-3)
    assert metrics_of(queued((TF32, 150, {"on": 6}), ops=OPS))["sixteen_bit_least_gain_ms"] == 0  # is as fast already


def test_products_without_tensor_cores_are_counted_for_sixteen_bits_too():
    """16 times the peak: 16^0.45 to 1.75 x 16^(2/3) as fast; the report names it beside TF32."""
    values = metrics_of(queued((SGEMM, 800, {"on": 0}), ops=OPS))
    assert values["sixteen_bit_gain_ms"] == 0
    assert values["all_sixteen_bit_least_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 16**0.45), rel=1e-4)
    assert values["all_sixteen_bit_gain_ms"] == pytest.approx(0.8 * (1 - 1 / (1.75 * 16 ** (2 / 3))), rel=1e-4)


@pytest.mark.parametrize(("framework", "least_ms"), [("pytorch", 0), ("cuda", 40 * 0.02 * (1 - 1 / 1.4))])
def test_the_host_of_pytorch_also_launches_casts_of_what_is_multiplied(framework, least_ms):
    """Products of 20 us, one launched every 10: with 1.2 casts each the host takes 22 us for 14.3 at most."""
    ran = [kernel(20 * i + 3, 20 * i + 23, 10 * i + 1, name=TF32, op=0) for i in range(40)]
    made = view(profile(ran, OPS[:1], [step(1, 0, 803, host=(0, 400))], devices=[A100]))
    of = replace(made, process={**made.process, "framework": framework}, _computed={})
    assert metrics_of(of)["sixteen_bit_least_gain_ms"] == pytest.approx(least_ms, abs=0.01)


def test_convolutions_take_their_flops_too():
    """64 images of 64 x 56 x 56 and 64 filters of 64 x 3 x 3: 14.8 GFLOP, at 30 % of 312 TFLOP/s in 16 bits."""
    options = '["", "", "[1, 1]", "[1, 1]", "[1, 1]"]'
    convolution = op("aten::cudnn_convolution", [64, 64, 56, 56], [64, 64, 3, 3], dtype="float") | {"details": options}
    values = metrics_of(queued((TF32_CONV, 300, {"on": 0}), ops=[convolution]))
    narrow_ms = 2 * 64**2 * 56**2 * 576 / (0.3 * 312e9)
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.3 - narrow_ms, rel=1e-4)


def test_attention_of_three_tf32_products_becomes_4_to_8_times_as_fast():
    values = metrics_of(queued(("fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)", 980, {})))
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 4.2))
    assert values["sixteen_bit_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 7.8))


def test_no_product_gets_faster_than_memory_delivers_its_matrices():
    moved_us = (2 * 64 * 100_000 + 64 * 64) * 4 / 2039e3  # 25.1
    values = metrics_of(queued((SGEMM, 50, {"on": 1}), ops=OPS))
    assert values["tf32_gain_ms"] == pytest.approx((50 - moved_us) / 1e3, rel=1e-3)
    assert values["tf32_least_gain_ms"] == pytest.approx((50 - moved_us / 0.8) / 1e3, rel=1e-3)


@pytest.mark.parametrize(
    ("device", "name"),
    [(A100, TF32), (A100, GEMM), (A100, ADD), (RTX3090, SGEMM), (V100, VOLTA), (MI300, SGEMM)],
)
def test_where_tf32_is_taken_or_no_faster_there_is_nothing_to_allow(device: Row, name: str):
    values = metrics_of(queued((name, 100, {"on": 0}), ops=OPS, device=device))
    assert values["tf32_off_share"] == values["tf32_gain_ms"] == 0


def test_fp32_products_on_a_v100_want_16_bits_and_what_surrounds_them_pays_for_casts():
    ran = [(VOLTA, 800, {"on": 0}), (ADD, 100, {"on": 2}), (BATCH_NORM, 60, {"on": 2}), (SOFTMAX, 20, {"on": 2})]
    values = metrics_of(queued(*ran, ops=OPS, device=V100))
    ratio, others = 125 / 15.7, 0.18
    assert values["thirty_two_bit_share"] == pytest.approx(0.8)
    assert values["thirty_two_bit_ms"] == pytest.approx(0.8)
    cast = others / 0.95 - others
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.8 * (1 - 1 / ratio**0.45) - cast, rel=1e-4)
    gained = others - others / 1.05
    assert values["sixteen_bit_gain_ms"] == pytest.approx(0.8 * (1 - 1 / (1.75 * ratio ** (2 / 3))) + gained, rel=1e-4)


def test_in_inference_the_whole_model_changes_and_long_passes_over_values_have_half_the_bytes():
    passes = [(ADD, 100, {"on": 2}), (FIXED_NORM, 60, {"on": 2}), (SOFTMAX, 9, {"on": 2})]
    values = metrics_of(of_pytorch(queued((VOLTA, 800, {"on": 0}), *passes, ops=OPS, device=V100)))
    assert values["halved_pass_ms"] == pytest.approx(0.16)
    product, short = 0.8 * (1 - 1 / (125 / 15.7) ** 0.45), 0.009 * (1 - 1 / 0.95)
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(product + 0.16 * (1 - 1 / 1.4) + short, rel=1e-4)
    ran = (VOLTA, 800, {"on": 0}), (GEMM, 100, {}), *passes
    partly = metrics_of(of_pytorch(queued(*ran, ops=OPS, device=V100)))
    assert partly["halved_pass_ms"] == 0  # it runs in mixed precision, and casts


def test_tf32_products_become_at_most_about_twice_as_fast():
    values = metrics_of(queued((TF32, 980, {"on": 0}), ops=OPS))
    assert values["thirty_two_bit_share"] == pytest.approx(0.98)
    assert values["sixteen_bit_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 2.2))
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 1.4))


def test_no_kernel_is_claimed_by_both():
    ran = [(SGEMM, 500, {"on": 0}), (TF32_CONV, 300, {"on": 3}), (GEMM, 180, {"on": 0})]
    step = queued(*ran, ops=OPS)
    assert metrics_of(step)["tf32_off_share"] == pytest.approx(0.5)
    assert metrics_of(step)["thirty_two_bit_share"] == pytest.approx(0.3)


def test_a_family_of_which_kernels_run_in_tf32_has_its_switch_on():
    values = metrics_of(queued((SGEMM, 500, {"on": 0}), (TF32, 10, {"on": 0}), ops=OPS))
    assert (values["tf32_off_share"], values["tf32_off_switches"]) == (0, None)


@pytest.mark.parametrize(
    ("ran", "switches"),
    [
        ([(SGEMM, 500, {"on": 0}), (TF32_CONV, 100, {"on": 3})], "matmul"),
        ([(TF32, 500, {"on": 0}), (FP32_CONV, 100, {"on": 3})], "cudnn"),
        ([(SGEMM, 500, {"on": 0}), (FP32_CONV, 100, {"on": 3})], "both"),
    ],
)
def test_products_and_convolutions_have_switches_of_their_own(ran: list[Any], switches: str):
    assert metrics_of(queued(*ran, ops=OPS))["tf32_off_switches"] == switches


@pytest.mark.parametrize(("name", "on"), [("FP32_CONV", 4), ("FP32_CONV_3D", 3), ("FP32_CONV", None)])
def test_convolutions_of_volumes_or_of_unknown_shape_may_have_no_tf32(name: str, on: int | None):
    assert metrics_of(queued((globals()[name], 500, {"on": on}), ops=OPS))["tf32_off_share"] == 0


def test_a_geforce_board_gains_by_16_bits_what_tf32_does_not_give():
    values = metrics_of(queued((SGEMM, 980, {"on": 0}), ops=OPS, device=RTX3090))
    assert values["thirty_two_bit_share"] == pytest.approx(0.98)
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 2**0.45), rel=5e-3)


def test_flops_reach_twice_the_part_of_a_peak_that_a_geforce_board_halves():
    """71 TFLOP/s in 16 bits: 17.2 GFLOP take 0.40 ms at 60 %, 0.27 at 90; 2.8 times as fast is the most."""
    values = metrics_of(queued((SGEMM, 980, {"on": 6}), ops=OPS, device=RTX3090))
    assert values["sixteen_bit_least_gain_ms"] == pytest.approx(0.98 - 2 * 2048**3 / (0.6 * 71e9), rel=2e-3)
    assert values["sixteen_bit_gain_ms"] == pytest.approx(0.98 * (1 - 1 / (1.75 * 2 ** (2 / 3))), rel=2e-2)


def test_matrix_cores_of_amd_count_for_16_bits():
    name = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"
    values = metrics_of(queued((name, 980, {"on": 0}), ops=OPS, device=MI300))
    assert values["sixteen_bit_gain_ms"] == pytest.approx(
        0.98 * (1 - 1 / (1.75 * (1307.4 / 163.4) ** (2 / 3))), rel=1e-3
    )


def test_without_knowing_the_gpu_or_16_bits_nothing_is_said():
    step = queued((SGEMM, 100, {"on": 0}), ops=OPS, device=UNKNOWN)
    assert all(isinstance(metrics_of(step)[name], Missing) for name in (*OF_TF32, *OF_SIXTEEN_BITS))
    step = queued((SGEMM, 100, {"on": 0}), ops=OPS, device=P100)
    assert {metrics_of(step)[name] for name in OF_SIXTEEN_BITS} == {Missing("no_sixteen_bit_tensor_cores")}


@pytest.mark.parametrize(("metric", "name"), [("tf32_off_share", SGEMM), ("thirty_two_bit_share", TF32_CONV)])
def test_places_are_the_kernels_themselves(metric: str, name: str):
    where = METRICS[metric].where
    assert where
    rows = where(queued((SGEMM, 50, {"on": 0}), (TF32_CONV, 30, {"on": 3}), (GEMM, 10, {}), ops=OPS))
    assert rows["name"].to_list() == [name]


def test_a_gpu_that_has_a_name_is_not_called_unknown():
    recent, nameless = (queued((SGEMM, 100, {"on": 0}), ops=OPS, device=device) for device in (UNKNOWN, {"device": 0}))
    names = (*OF_TF32, *OF_SIXTEEN_BITS)
    assert {metrics_of(recent)[name] for name in names} == {Missing("peaks_unknown", name="Something New")}
    assert {metrics_of(nameless)[name] for name in names} == {Missing("gpu_unknown")}


@pytest.mark.parametrize("kernel", [FP32_CONV_3D, "sm80_xmma_fprop_implicit_gemm_indexed_kernel"])
def test_convolutions_in_three_dimensions_may_gain_nothing_or_run_two_and_a_half_times_as_fast(kernel: str):
    values = metrics_of(queued((kernel, 800, {"on": 4}), ops=OPS))
    assert values["sixteen_bit_least_gain_ms"] == 0
    assert values["sixteen_bit_gain_ms"] == pytest.approx(0.8 * (1 - 1 / 2.5))
