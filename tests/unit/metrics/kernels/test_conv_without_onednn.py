from __future__ import annotations

import json

import pytest

from advisor.analysis.device.view import DeviceView
from tests.tables import metrics_of, on_host, profile, step, view


def on_cpu(name: str, shape: list[int], dtype: str = "float") -> DeviceView:
    """A step of 1 ms of which this op computes 600 us."""
    op = on_host("op", 100, 700, name=name, shapes=json.dumps([shape]), dtypes=json.dumps([dtype]), step=1)
    worker = {"worker": 0, "framework": "pytorch"}
    return view(profile((), [op], [step(1, 0, 1000, device=None)], devices=(), workers=[worker]))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "share"),
    [
        ("aten::_slow_conv2d_forward", [8, 64, 28, 28], "float", 0.6),
        ("aten::slow_conv3d_forward", [1, 8, 32, 32, 32], "c10::BFloat16", 0.6),
        ("aten::mkldnn_convolution", [8, 64, 28, 28], "float", 0),
        ("aten::_slow_conv2d_forward", [8, 64, 28, 28], "double", 0),  # oneDNN has no 64 bits
        ("aten::_slow_conv2d_forward", [1, 3, 32, 32], "float", 0),  # small: PyTorch's own choice
    ],
)
def test_convolutions_outside_onednn(name: str, shape: list[int], dtype: str, share: float):
    assert metrics_of(on_cpu(name, shape, dtype))["native_convolution_share"] == pytest.approx(share)
