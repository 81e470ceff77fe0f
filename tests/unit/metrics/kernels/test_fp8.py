from __future__ import annotations

import pytest

from tests.device_bound import ADD, GEMM, queued
from tests.tables import metrics_of

PRODUCTS = ["nvjet_qqtst_128x64_128x4_1x2_h_bz_TNT", "void deep_gemm::fp8_gemm_kernel<7168, 4096, 128>"]
CASTS = [
    "void transformer_engine::cast_fp8_1D_kernel<__nv_bfloat16, __nv_fp8_e4m3>",
    "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, true>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>",
]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("cast", CASTS)
def test_casts_to_eight_bits_count_beside_products_in_eight_bits(product: str, cast: str):
    values = metrics_of(queued((product, 500, {}), (cast, 100, {}), (ADD, 380, {})))
    assert values["fp8_product_share"] == pytest.approx(0.5)
    assert values["fp8_cast_share"] == pytest.approx(0.1)
    assert values["fp8_cast_ms"] == pytest.approx(0.1)


def test_without_products_in_eight_bits_a_cast_serves_something_else():
    assert metrics_of(queued((CASTS[0], 500, {}), (GEMM, 480, {})))["fp8_cast_share"] == 0
