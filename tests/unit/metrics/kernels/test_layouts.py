from __future__ import annotations

import pytest

from advisor.metrics.kernels.layouts import (
    LAYOUT_GAIN_MS,
    LAYOUT_LEAST_GAIN_MS,
    LAYOUT_TRANSPOSE_MS,
    LAYOUT_TRANSPOSE_OPS,
    LAYOUT_TRANSPOSE_SHARE,
    LAYOUT_TRANSPOSES_PER_STEP,
    layouts,
)
from tests.device_bound import ADD, TO_NHWC, op, queued

CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>"


def test_conversions_around_convolutions_can_all_but_go():
    ran = [(ADD, 240, {}), (TO_NHWC, 100, {"on": 0}), (CONV, 500, {"on": 0}), (TO_NCHW, 140, {"on": 0})]
    values = layouts(queued(*ran, ops=[op("aten::cudnn_convolution", [8, 64, 56, 56], [64, 64, 3, 3])]))
    assert values[LAYOUT_TRANSPOSE_SHARE] == pytest.approx(0.24)
    assert values[LAYOUT_TRANSPOSE_MS] == pytest.approx(0.24)
    assert values[LAYOUT_TRANSPOSES_PER_STEP] == 2
    assert values[LAYOUT_TRANSPOSE_OPS] == "aten::cudnn_convolution (0.24 ms)"
    assert values[LAYOUT_GAIN_MS] == pytest.approx(0.24)
    assert values[LAYOUT_LEAST_GAIN_MS] == pytest.approx(0.18)


def test_a_model_in_channels_last_has_none():
    assert set(layouts(queued((CONV, 500, {}), (ADD, 240, {}))).values()) == {0, ""}
