from __future__ import annotations

import pytest

from tests.tables import kernel, metrics_of, on_host, profile, step, view

PROCESS = [{"worker": 0, "framework": "pytorch"}]
ADD = (
    "void multi_tensor_apply_kernel<TensorListMetadata<2>, "
    "BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>>()"
)
SCALE = "void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, (int)1, (int)1, (int)0>>()"


def trace(*updates, optimizer="SGD"):
    """Updates of 100 us each, one after another in a step that they set the pace of: (op, kernel)."""
    host = [on_host("annotation", 0, 100, name=f"Optimizer.step#{optimizer}.step")]
    device = []
    for n, (op, name) in enumerate(updates):
        host += [
            on_host("op", 10 * n + 1, 10 * n + 9, name=op, parent=0),
            on_host("runtime", 10 * n + 2, 10 * n + 4, name="cudaLaunchKernel", parent=2 * n + 1),
        ]
        device.append(kernel(100 * n + 10, 100 * n + 110, launch=2 * n + 2, op=2 * n + 1, name=name, call=None))
    return view(profile(device, host, [step(1, 0, 100 * len(updates) + 10, host=(0, 100))], processes=PROCESS))


MOMENTUM = (("aten::_foreach_mul_", SCALE), ("aten::_foreach_add_", ADD), ("aten::_foreach_add_", ADD))


def test_sgd_with_momentum_moves_eight_values_and_fused_five():
    values = metrics_of(trace(*MOMENTUM))
    assert values["foreach_accesses"] == 8  # 2 for the scale, 3 for each addition
    assert values["fused_accesses"] == 5
    assert values["foreach_update_ms"] == pytest.approx(0.3)
    assert values["foreach_gain_ms"] == pytest.approx(0.3 * 3 / 8)
    assert values["foreach_least_gain_ms"] == 0  # at half of the rate five values take as long as ten


def test_two_groups_of_parameters_move_each_value_as_often():
    assert metrics_of(trace(*MOMENTUM, *MOMENTUM))["foreach_accesses"] == 8


def test_sgd_without_momentum_gains_nothing():
    values = metrics_of(trace(("aten::_foreach_add_", ADD)))
    assert (values["foreach_accesses"], values["fused_accesses"]) == (3, 3)
    assert values["foreach_gain_ms"] == 0


def test_an_optimizer_without_a_fused_form_and_clipping_do_not_count():
    assert metrics_of(trace(*MOMENTUM, optimizer="RMSprop"))["foreach_update_share"] == 0
    assert metrics_of(trace(("aten::add_", ADD)))["foreach_update_share"] == 0
