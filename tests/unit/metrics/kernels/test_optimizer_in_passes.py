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


def over_lists(functor: str) -> str:
    return f"void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::{functor}>(T1, T2, T3...)"


LERP = over_lists("TernaryOpScalarFunctor<float, (int)2, (int)2, (int)0>, at::native::LerpFunctor<float>, float")
DIVIDE = over_lists("PointwiseOpScalarListFunctor<float, (int)3, (int)3, (int)0>, std::divides<float>")
ROOT = over_lists("UnaryOpFunctor<float, (int)2, (int)1, (int)1>, at::native::Sqrt<float>")


def without_ops(*kernels: tuple[str, int], product_us: float = 20):
    """Kernels of so many blocks and 100 us, called from 50 us on in the program's own range, behind a product."""
    ran = [kernel(20, 120, product_us, name="ampere_sgemm_128x64_nn")]
    ran += [
        kernel(120 + 100 * n, 220 + 100 * n, 60 + n, name=name, grid=grid) for n, (name, grid) in enumerate(kernels)
    ]
    own = on_host("annotation", 50, 90, name="optimizer_step", thread=2)
    return view(profile(ran, [own], [step(1, 0, 120 + 100 * len(kernels), host=(0, 100))], processes=PROCESS))


ADAM = ((SCALE, 320), (LERP, 320), (SCALE, 320), (ROOT, 320), (DIVIDE, 300), (DIVIDE, 20))  # two launches for one pass


def test_where_no_op_was_recorded_kernels_over_lists_in_a_range_of_the_program_s_own_are_adam_s():
    values = metrics_of(without_ops(*ADAM))
    assert values["foreach_accesses"] == 2 + 3 + 2 + 2 + 4
    assert values["fused_accesses"] == 7
    assert values["foreach_update_ms"] == pytest.approx(0.6)
    assert values["foreach_gain_ms"] == pytest.approx(0.6 * 6 / 13, rel=1e-4)


def test_without_what_only_adam_does_the_optimizer_is_unknown():
    assert metrics_of(without_ops((SCALE, 320), (ROOT, 320), (DIVIDE, 320)))["foreach_update_share"] == 0


def test_a_range_that_holds_products_is_more_than_an_optimizer_s():
    assert metrics_of(without_ops(*ADAM, product_us=55))["foreach_update_share"] == 0
