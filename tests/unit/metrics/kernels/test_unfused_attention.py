from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, REDUCE, SGEMM, SOFTMAX, op, queued
from tests.tables import A100, V100, Row, metrics_of

FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>"
TF32, TF32_2 = (f"ampere_sgemm_tf32_tensorop_s1688gemm_128x128_n{side}" for side in "nt")
SGEMM_2 = SGEMM.replace("_nn", "_nt")
HEADS, LONG, DEEP = 64, 2048, 64


def written_out(
    dtype: str = "c10::BFloat16", device: Row = A100, deep: int = DEEP, ms: Mapping[str, float] = {}, *more: Row
) -> DeviceView:
    """bmm 400 us, scaling 100, softmax 200, bmm 280: 980 of a step of 1000; `ms` has other times by kernel."""
    ops = [
        op("aten::bmm", [HEADS, LONG, deep], [HEADS, deep, LONG], dtype=dtype),
        op("aten::mul", [HEADS, LONG, LONG], dtype=dtype),
        op("aten::_softmax", [HEADS, LONG, LONG], dtype=dtype),
        op("aten::bmm", [HEADS, LONG, LONG], [HEADS, LONG, deep], dtype=dtype),
    ]
    usual = [(GEMM, 400), (ADD, 100), (SOFTMAX, 200), (GEMM, 280)]
    times = [(name, 1_000 * of) for name, of in ms.items()] or usual
    return queued(*((name, us, {"on": at}) for at, (name, us) in enumerate(times)), ops=[*ops, *more], device=device)


FLOPS = 2 * 2 * HEADS * LONG * LONG * DEEP  # two products


def test_a_fused_kernel_does_the_products_and_nothing_else():
    values = metrics_of(written_out())
    at_peak_ms = FLOPS / 312e12 * 1e3  # 0.22
    assert values["unfused_attention_share"] == pytest.approx(0.98)
    assert values["unfused_attention_ms"] == pytest.approx(0.98)
    assert values["unfused_attention_ops"] == "aten::bmm (0.68 ms), aten::_softmax (0.2 ms), aten::mul (0.1 ms)"
    assert values["attention_gain_ms"] == pytest.approx(0.98 - at_peak_ms / 0.75, abs=1e-3)
    assert values["attention_least_gain_ms"] == pytest.approx(0.98 - at_peak_ms / 0.25, abs=1e-3)


def test_short_heads_may_take_as_long_as_heads_of_64():
    values = metrics_of(written_out(deep=4))
    at_peak_ms = FLOPS / 16 / 312e12 * 1e3  # 0.014
    assert values["attention_gain_ms"] == pytest.approx(0.98 - at_peak_ms / 0.75, abs=1e-3)
    assert values["attention_least_gain_ms"] == pytest.approx(0.98 - 16 * at_peak_ms / 0.25, abs=1e-3)


def by_hand(*names: str) -> object:
    """ms of attention in: bmm 400 us, these ops of 2 x 30 us each, bmm 280."""
    ops = [op("aten::bmm"), *(op(name) for name in names), op("aten::bmm")]
    kernels = {"aten::max": REDUCE, "aten::sum": REDUCE}
    between = [(kernels.get(name, ADD), 30, {"on": i}) for i, name in enumerate(names, 1) for _ in range(2)]
    ran = [(GEMM, 400, {"on": 0}), *between, (GEMM, 280, {"on": len(ops) - 1})]
    return metrics_of(queued(*ran, ops=ops))["unfused_attention_ms"]


def test_an_exponential_that_is_summed_up_at_once_is_a_softmax():
    softmax = ("aten::max", "aten::sub", "aten::exp", "aten::sum", "aten::div")
    assert by_hand(*softmax) == pytest.approx(0.68 + 5 * 0.06)
    assert by_hand(*softmax[2:]) == pytest.approx(0.68 + 3 * 0.06)
    assert by_hand("aten::exp", "aten::div") == 0  # no sum
    assert by_hand("aten::exp", "aten::max", "aten::sum") == 0  # of other values
    assert by_hand("aten::max", *softmax) == 0  # another reduction in between


def test_fp32_is_emulated_with_three_products_of_tf32():
    at_peak_ms = FLOPS / (156e12 / 3) * 1e3
    assert metrics_of(written_out("float"))["attention_gain_ms"] == pytest.approx(max(0, 0.98 - at_peak_ms / 0.75))


@pytest.mark.parametrize(("products", "slower"), [((SGEMM, SGEMM_2), 1.5), ((TF32, TF32_2), 3)])
def test_where_passes_over_the_scores_take_most_of_the_time_the_products_are_left(products, slower):
    """1.7 of 9.8 ms multiply, with more than a quarter of 52 TFLOP/s, and three products of TF32 for each."""
    times = {products[0]: 0.7, ADD: 3, SOFTMAX: 5.1, products[1]: 1.0}
    values = metrics_of(written_out("float", A100, DEEP, times))
    assert values["attention_least_gain_ms"] == pytest.approx(9.8 - slower * 1.7, abs=1e-3)
    backward = op("autograd::engine::evaluate_function: BmmBackward0")
    training = metrics_of(written_out("float", A100, DEEP, times, backward))
    assert training["attention_least_gain_ms"] == pytest.approx(9.8 - 1.25 * slower * 1.7, abs=1e-3)
    assert metrics_of(written_out("float", V100, DEEP, times))["attention_least_gain_ms"] == 0  # without TF32


def test_without_the_peak_13_to_50_percent_of_the_time_are_left():
    values = metrics_of(written_out(device=V100))  # no bf16 there
    assert values["attention_gain_ms"] == pytest.approx(0.98 * 0.87, abs=1e-3)
    assert values["attention_least_gain_ms"] == pytest.approx(0.98 * 0.5, abs=1e-3)


def test_fused_attention_is_none_of_it():
    assert metrics_of(queued((FLASH, 80, {})))["unfused_attention_share"] == 0


EXP = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::exp_kernel_cuda(at::TensorIteratorBase &)>"
MUL = "void at::native::elementwise_kernel<(int)128, (int)2, at::native::BinaryFunctor<float, MulFunctor<float>>>"
MAX = "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MaxOps<float>>>"
SUM = "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::sum_functor<float>>>"
SCORES = {"grid": 65536}  # blocks of 512 values
HALVES = {"grid": 131072}  # blocks of 256 values: as many


def nameless(*names: str) -> object:
    """ms of attention in kernels of 100 us each that no op has launched."""
    sizes = {EXP: SCORES, MUL: HALVES}
    return metrics_of(queued(*((name, 100, sizes.get(name, {"grid": 128})) for name in names)))["unfused_attention_ms"]


def test_without_ops_the_names_of_kernels_tell_an_attention_in_each_layer():
    layer = (GEMM, MUL, SOFTMAX, GEMM)
    assert nameless(*layer, ADD, *layer) == pytest.approx(0.8)
    assert nameless(*(GEMM, SOFTMAX, GEMM) * 2) == Missing("launching_ops_not_recorded")  # a classifier, twice
    by_hand = (GEMM, MUL, MAX, ADD, EXP, SUM, MUL, GEMM)
    assert nameless(*by_hand, *by_hand) == pytest.approx(1.6)
    assert nameless(*by_hand) == 0  # a classifier with its loss may look like one
    loss = (GEMM, MUL, MAX, ADD, EXP, SUM, ADD, SUM, GEMM)  # the mean of the losses follows
    assert nameless(*loss, *loss) == 0


def test_the_gradient_of_a_softmax_by_hand_sums_as_many_values():
    forward, two = (GEMM, MUL, EXP, SUM, MUL, GEMM), (GEMM, GEMM)
    gradient = (*two, MUL, SUM, MUL, SUM, MUL, *two)
    norm = (*two, ADD, SUM, ADD, SUM, MUL, *two)  # of another size
    assert nameless(*forward * 2, *gradient, *norm, *gradient) == pytest.approx(1.2 + 2 * 0.9)
    assert nameless(*forward * 2, *gradient * 3) == pytest.approx(1.2)  # one of three is of another op


def test_without_ops_products_and_a_softmax_leave_it_open():
    open_ = metrics_of(queued((GEMM, 10, {}), (SOFTMAX, 10, {}), (GEMM, 10, {})))
    why = Missing("launching_ops_not_recorded")
    assert open_["unfused_attention_share"] == open_["unfused_attention_ops"] == open_["attention_gain_ms"] == why
    assert metrics_of(queued((GEMM, 10, {}), (ADD, 10, {})))["unfused_attention_share"] == 0
