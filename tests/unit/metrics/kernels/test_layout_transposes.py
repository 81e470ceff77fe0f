from __future__ import annotations

import pytest

from tests.device_bound import ADD, TO_NHWC, op, queued
from tests.tables import metrics_of

CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>"


def test_conversions_around_convolutions_can_all_but_go():
    ran = [(ADD, 240, {}), (TO_NHWC, 100, {"on": 0}), (CONV, 500, {"on": 0}), (TO_NCHW, 140, {"on": 0})]
    values = metrics_of(queued(*ran, ops=[op("aten::cudnn_convolution", [8, 64, 56, 56], [64, 64, 3, 3])]))
    assert values["layout_transpose_share"] == pytest.approx(0.24)
    assert values["layout_transpose_ms"] == pytest.approx(0.24)
    assert values["layout_transposes_per_step"] == 2
    assert values["layout_transpose_ops"] == "aten::cudnn_convolution (0.24 ms)"
    assert values["layout_gain_ms"] == pytest.approx(0.24)
    assert values["layout_least_gain_ms"] == pytest.approx(0.18)


def test_a_model_in_channels_last_has_none():
    values = metrics_of(queued((CONV, 500, {}), (ADD, 240, {})))
    assert values["layout_transpose_share"] == values["layout_dimensions"] == values["layout_gain_ms"] == 0
    assert values["layout_transpose_ops"] == ""
