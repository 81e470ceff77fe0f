from __future__ import annotations

import json

import polars as pl
import pytest

from advisor.analysis.device.roofs import memory_ns
from advisor.metrics.kernels.roofs import roof_table
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, SGEMM, op, queued
from tests.tables import A100, Row, metrics_of

T4: Row = A100 | {"name": "Tesla T4", "memory_bytes": 15 << 30, "sm_count": 40, "capability": 7.5}
UNLISTED: Row = A100 | {"name": "NVIDIA H20", "memory_bytes": 96 << 30, "sm_count": 78, "capability": 9.0}
NAIVE = "naive_matmul_kernel(float const*, float const*, float*, int)"
SPARSE = "void cusparse::csrmm_alg2_kernel<128, 64, float>"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"

LARGE = op("aten::mm", [4096, 4096], [4096, 4096])  # 137.4 GFLOP: 440.5 us at the A100's 312 TFLOP/s
SMALL = op("aten::mm", [256, 256], [256, 256])
ADDED = op("aten::add", [4096, 4096], [4096, 4096])
LARGE_US = 2 * 4096**3 / 312e6


def test_the_share_of_the_peak_is_of_the_whole_step():
    values = metrics_of(queued((GEMM, 880, {"on": 0}), (ADD, 100, {"on": 1}), ops=[LARGE, ADDED]))
    assert values["flops_of_peak_share"] == pytest.approx(LARGE_US / 1000)


def test_a_tenth_of_the_products_may_be_unknown_and_no_more():
    known = metrics_of(queued((GEMM, 900, {"on": 0}), (GEMM, 99, {}), ops=[LARGE]))
    assert known["flops_of_peak_share"] is not None
    unknown = metrics_of(queued((GEMM, 900, {"on": 0}), (GEMM, 101, {}), ops=[LARGE]))
    assert unknown["flops_of_peak_share"] == Missing("flops_unknown", share=900 / 1001)


def test_a_causal_attention_counts_by_half_where_it_may_be_one():
    attention = op("aten::_scaled_dot_product_flash_attention", *[[4, 16, 2048, 128]] * 3)
    full_us = 4 * 4 * 16 * 2048**2 * 128 / 312e6
    shares = {}
    for causal in ("True", "False", None):
        options = None if causal is None else json.dumps(["", "", "", "0.", causal])
        view = queued((FLASH, 980, {"on": 0}), ops=[attention | {"details": options}])
        shares[causal] = metrics_of(view)["flops_of_peak_share"]
    assert shares["False"] == pytest.approx(full_us / 1000)
    assert shares["True"] == pytest.approx(full_us / 1000 / 2, rel=1e-3) == shares[None]


def test_a_naive_product_is_far_below_the_roof():
    product = op("mylib::matmul", [1000, 1000], [1000, 1000], dtype="float")
    values = metrics_of(queued((NAIVE, 6_900, {"on": 0}), (ADD, 80, {}), ops=[product], device=T4))
    at_roof_ms = 2e9 / 8.1e9
    assert values["far_below_roof_ms"] == pytest.approx(6.9)
    assert values["far_below_roof_reached"] == pytest.approx(at_roof_ms / 6.9, rel=1e-4)
    assert values["far_below_least_gain_ms"] == pytest.approx(6.9 - at_roof_ms / 0.1, rel=1e-4)
    assert values["far_below_gain_ms"] == pytest.approx(6.9 - at_roof_ms / 0.8, rel=1e-4)
    assert str(values["far_below_roof_ops"]).startswith("mylib::matmul [1000, 1000] (6.9 ms, 3.6 % of the roof)")


@pytest.mark.parametrize(
    ("kernel", "us", "launching"),
    [
        (GEMM, 4_000, LARGE),  # 11 % of the roof
        (GEMM, 900, SMALL),  # small: as long as its start and its end
        (SPARSE, 9_000, LARGE),  # zeros are not multiplied: what it computes is not known
        (SGEMM, 400, op("aten::mm", [4096, 4096], [4096, 4096], dtype="float")),  # faster than fp32 can be
        (GEMM, 9_000, op("aten::mm", [1, 65_536], [65_536, 16_384])),  # bound by memory
        (NAIVE, 9_000, op("mylib::solve", [4096, 4096], [4096, 4096])),  # what it computes is its own
    ],
)
def test_what_raises_no_alarm(kernel: str, us: float, launching: Row):
    values = metrics_of(queued((kernel, us, {"on": 0}), ops=[launching]))
    assert values["far_below_roof_ms"] == 0
    assert values["far_below_roof_ops"] is None


def test_without_peaks_nothing_is_measured_against_them():
    values = metrics_of(queued((GEMM, 980, {"on": 0}), ops=[LARGE], device=UNLISTED))
    assert values["far_below_roof_ms"] == Missing("peaks_unknown", name="NVIDIA H20")


def test_the_table_has_each_op_and_shape_once():
    ops = [LARGE, LARGE, ADDED]
    rows = roof_table(queued((GEMM, 600, {"on": 0}), (GEMM, 900, {"on": 1}), (ADD, 60, {"on": 2}), ops=ops))
    assert rows.select("op", "work", "dtype", "calls", "bound").rows() == [
        ("aten::mm", "product", "bf16", 2, "compute"),
        ("aten::add", "moving", "bf16", 1, "memory"),
    ]
    assert rows["gflops"].to_list() == pytest.approx([2 * 4096**3 / 1e9, 0])
    assert rows["megabytes"].to_list() == pytest.approx([3 * 4096**2 * 2 / 1e6] * 2)
    assert rows["reached"].to_list() == pytest.approx([2 * LARGE_US / 1500, 3 * 4096**2 * 2 / 2039 / 60e3], rel=1e-3)


def test_moving_bytes_takes_as_long_as_the_bandwidth_says():
    rows = pl.DataFrame({"moved": [2_039_000, None]})
    assert rows.select(memory_ns(pl.col("moved"), 2_039.0, 0.5)).to_series().to_list() == [pytest.approx(2_000), 0]
    assert rows.select(memory_ns(pl.col("moved"), None, 0.5)).to_series().to_list() == [0]
