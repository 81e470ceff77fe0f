from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from advisor.text import ms
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import Row, metrics_of

ODD = "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1"
EVEN = "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align8"
TF32_EVEN = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4"
TF32_ODD = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align2"
SIMT = "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"

GOOD = op("aten::addmm", [64], [141, 512], [512, 64])
VOCABULARY = op("aten::addmm", [30522], [141, 512], [512, 30522])
BACKWARD = op("aten::mm", [512, 141], [141, 512])
SCORES = op("aten::bmm", [96, 197, 64], [96, 64, 197])
SHORT_TF32 = op("aten::addmm", [100], [64, 500], [500, 100], dtype="float")
ODD_TF32 = op("aten::addmm", [102], [64, 500], [500, 102], dtype="float")


@pytest.mark.parametrize(
    ("kernel", "launching", "counts"),
    [
        (GEMM, VOCABULARY, True),
        (GEMM, SCORES, True),
        (GEMM, GOOD, False),  # 141 rows: the number of rows sets no row's start
        (GEMM, BACKWARD, False),  # transposed operands: shapes alone do not tell
        (ODD, GOOD, True),
        (ODD, BACKWARD, True),
        (EVEN, GOOD, False),
        (TF32_EVEN, SHORT_TF32, False),
        (TF32_EVEN, ODD_TF32, True),
        (TF32_ODD, SHORT_TF32, True),
        (SIMT, VOCABULARY, False),  # no Tensor Cores to be out of step with
        (ADD, VOCABULARY, False),
    ],
)
def test_rows_that_start_between_16_bytes_are_misaligned(kernel: str, launching: Row, *, counts: bool):
    values = metrics_of(queued((kernel, 80, {"on": 0}), ops=[launching]))
    assert values["misaligned_product_share"] == pytest.approx(0.8 if counts else 0)


def test_padding_gives_back_10_to_40_percent_and_the_sides_are_named():
    values = metrics_of(queued((GEMM, 200, {"on": 0}), (GEMM, 280, {"on": 1}), ops=[VOCABULARY, GOOD]))
    assert values["misaligned_product_ms"] == pytest.approx(0.2)
    assert values["misaligned_product_ops"] == f"aten::addmm 141 x 512 x 30522 ({ms(0.2)})"
    assert values["misaligned_least_gain_ms"] == pytest.approx(0.02)
    assert values["misaligned_gain_ms"] == pytest.approx(0.08)


def test_with_neither_shapes_nor_alignments_it_cannot_be_told():
    why = Missing("alignment_unknown")
    untold = metrics_of(queued((GEMM, 80, {})))
    assert untold["misaligned_product_share"] == untold["misaligned_gain_ms"] == why
    assert metrics_of(queued((EVEN, 80, {})))["misaligned_product_share"] == 0
    assert metrics_of(queued((ADD, 80, {})))["misaligned_product_share"] == 0
