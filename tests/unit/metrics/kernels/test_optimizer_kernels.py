from __future__ import annotations

import pytest

from advisor.analysis.device.steps import DeviceView
from advisor.metrics.kernels.optimizer_kernels import (
    OPTIMIZER_GAIN_MS,
    OPTIMIZER_KERNELS_PER_STEP,
    OPTIMIZER_LEAST_GAIN_MS,
    OPTIMIZER_MS,
    OPTIMIZER_OPS,
    OPTIMIZER_SHARE,
    UPDATE_SHARE,
    optimizers,
    updates,
)
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import A100, Row, on_host

FUSED = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>"
STEP = on_host("annotation", 1.15, 90, name="Optimizer.step#AdamW.step")  # from the third launch on
MILLION = 1_000_000
OPS = [op(f"aten::{name}_", [20 * MILLION], dtype="float") for name in ("mul", "lerp", "addcdiv")]


def looped(device: Row = A100, ops: list[Row] = OPS) -> DeviceView:
    """A product, a kernel that is not the optimizer's, then four updates of 160 us each."""
    updates = [(ADD, 160, {"on": i}) for i in (0, 1, 2, 0)]
    return queued((GEMM, 200, {}), (ADD, 140, {}), *updates, ops=ops, ranges=[STEP], device=device)


def test_a_fused_optimizer_moves_each_value_once():
    values = optimizers(looped())
    assert values[OPTIMIZER_SHARE] == pytest.approx(0.64)
    assert values[OPTIMIZER_MS] == pytest.approx(0.64)
    assert values[OPTIMIZER_KERNELS_PER_STEP] == 4
    assert values[OPTIMIZER_OPS] == "aten::mul_ (0.32 ms), aten::addcdiv_ (0.16 ms), aten::lerp_ (0.16 ms)"
    # mul_ covers 40 million elements, the others 20: 20 million parameters, the median.
    assert values[OPTIMIZER_GAIN_MS] == pytest.approx(0.64 - 20 * MILLION * 20 / 2039e9 * 1e3, rel=1e-3)
    assert values[OPTIMIZER_LEAST_GAIN_MS] == pytest.approx(0.64 - 20 * MILLION * 28 / (0.6 * 2039e9) * 1e3, rel=1e-3)


@pytest.mark.parametrize(
    "step",
    [looped(device={"device": 0, "name": "Something New"}), looped(ops=[op(f"aten::{n}_") for n in "abc"])],
    ids=["bandwidth unknown", "shapes unknown"],
)
def test_without_bytes_or_bandwidth_65_to_20_percent_of_the_time_are_left(step: DeviceView):
    values = optimizers(step)
    assert values[OPTIMIZER_GAIN_MS] == pytest.approx(0.64 * 0.8)
    assert values[OPTIMIZER_LEAST_GAIN_MS] == pytest.approx(0.64 * 0.35)


def test_a_fused_optimizer_has_no_kernels_of_single_tensors():
    step = queued((GEMM, 200, {}), (GEMM, 200, {}), (FUSED, 300, {}), ranges=[STEP])
    assert set(optimizers(step).values()) == {0, ""}


def test_updates_count_in_whatever_form_they_run():
    multi = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
    assert updates(queued((multi, 300, {}), (GEMM, 680, {})))[UPDATE_SHARE] == pytest.approx(0.3)
    assert updates(queued((GEMM, 980, {})))[UPDATE_SHARE] == 0
