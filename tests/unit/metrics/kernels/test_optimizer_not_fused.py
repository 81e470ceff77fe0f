from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import A100, Row, kernel, metrics_of, on_host, profile, step, view

NUMBERS = (
    *("optimizer_share", "optimizer_ms", "optimizer_kernel_ms", "optimizer_updates_per_step"),
    *("optimizer_passes", "optimizer_least_gain_ms", "optimizer_gain_ms"),
)

FUSED = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>"
STEP = on_host("annotation", 1.15, 90, name="Optimizer.step#AdamW.step")  # from the third launch on
MILLION = 1_000_000
OPS = [op(f"aten::{name}_", [20 * MILLION], dtype="float") for name in ("mul", "lerp", "addcdiv")]


def looped(device: Row = A100, ops: list[Row] = OPS) -> DeviceView:
    """A product, a kernel that is not the optimizer's, then four updates of 160 us each."""
    updates = [(ADD, 160, {"on": i}) for i in (0, 1, 2, 0)]
    return queued((GEMM, 200, {}), (ADD, 140, {}), *updates, ops=ops, ranges=[STEP], device=device)


def test_a_fused_optimizer_moves_each_value_once():
    values = metrics_of(looped())
    assert values["optimizer_kernel_ms"] == pytest.approx(0.64)
    assert values["optimizer_share"] == pytest.approx(0.64 + 0.01885)  # the first kernel waits from the range's start
    assert values["optimizer_updates_per_step"] == 4
    assert values["optimizer_ops"] == "aten::mul_ (0.32 ms), aten::addcdiv_ (0.16 ms), aten::lerp_ (0.16 ms)"
    # mul_ covers 40 million elements, the others 20: 20 million parameters, the median.
    assert values["optimizer_gain_ms"] == pytest.approx(0.64 - 20 * MILLION * 20 / 2039e9 * 1e3, rel=1e-3)
    assert values["optimizer_least_gain_ms"] == pytest.approx(0.64 - 20 * MILLION * 28 / (0.6 * 2039e9) * 1e3, rel=1e-3)


def test_without_ops_kernels_of_one_name_are_a_pass_and_16_bit_values_half_the_bytes():
    """Twice 5 million bfloat16 values in each of three passes of 160 us: 20 to 28 bytes of fp32 are 10 to 14."""
    ran = [
        (f"vectorized_elementwise_kernel<4, at::native::{name}<c10::BFloat16>>", 80, {"grid": 9766, "block": 128})
        for name in 2 * ("CUDAFunctor_add", "sqrt_kernel_cuda", "addcdiv_cuda_kernel")
    ]
    own = on_host("annotation", 1.05, 90, name="optimizer_step")
    values = metrics_of(queued((GEMM, 200, {}), *ran, ranges=[own]))
    parameters = 2 * 9766 * 512  # a block of such a kernel takes 512
    assert values["optimizer_kernel_ms"] == pytest.approx(0.48)
    assert values["optimizer_gain_ms"] == pytest.approx(0.48 - parameters * 10 / 2039e9 * 1e3, rel=1e-3)
    assert values["optimizer_least_gain_ms"] == pytest.approx(0.48 - parameters * 14 / (0.6 * 2039e9) * 1e3, rel=1e-3)


@pytest.mark.parametrize(
    "step",
    [looped(device={"device": 0, "name": "Something New"}), looped(ops=[op(f"aten::{n}_") for n in "abc"])],
    ids=["bandwidth unknown", "shapes unknown"],
)
def test_without_bytes_or_bandwidth_65_to_20_percent_of_the_time_are_left(step: DeviceView):
    values = metrics_of(step)
    assert values["optimizer_gain_ms"] == pytest.approx(0.64 * 0.8)
    assert values["optimizer_least_gain_ms"] == pytest.approx(0.64 * 0.35)


def test_what_only_begins_and_ends_is_gone_in_one_kernel_for_all():
    updates = [(ADD, us, {"on": i}) for i, us in enumerate((4, 4, 160))]
    step = queued((GEMM, 200, {}), (ADD, 140, {}), *updates, ops=[op(f"aten::{n}_") for n in "abc"], ranges=[STEP])
    assert metrics_of(step)["optimizer_gain_ms"] == pytest.approx(0.168 - 0.2 * 0.16)


def test_products_of_whole_matrices_are_no_updates_that_fuse():
    step = queued(
        (GEMM, 200, {}), (ADD, 140, {}), (GEMM, 300, {"on": 0}), (ADD, 160, {"on": 1}), ops=OPS, ranges=[STEP]
    )
    values = metrics_of(step)
    assert (values["optimizer_updates_per_step"], values["optimizer_kernel_ms"]) == (1, pytest.approx(0.16))


def test_a_fused_optimizer_has_no_kernels_of_single_tensors():
    step = queued((GEMM, 200, {}), (GEMM, 200, {}), (FUSED, 300, {}), ranges=[STEP])
    assert {metrics_of(step)[name] for name in NUMBERS} == {0}
    assert metrics_of(step)["optimizer_ops"] == ""


# us        0 1  5      25             101 105    125
# host        |                         |      110        calls of 1 us, 4 us before their kernels start
# kernels        =======                   ========
# update                20                105
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]
STEPS = [step(1, 0, 125, host=(0, 110))]
UPDATE = [
    on_host("annotation", 20, 105, name="Optimizer.step#SGD.step", thread=2),
    on_host("op", 30, 40, name="aten::add_", thread=2, parent=0),
    on_host("op", 32, 38, name="aten::mul", thread=2, parent=1),
]
CPU_STEP = step(1, 0, 100, device=None)
CPU = [on_host("step", 0, 100), on_host("op", 10, 40), on_host("op", 50, 58)]


def test_kernels_and_what_they_wait_for_the_host_are_one_loss():
    values = metrics_of(view(profile(DEVICE, UPDATE, STEPS)))
    assert values["optimizer_share"] == pytest.approx((20 + 80) / 125)
    assert values["optimizer_ms"] == pytest.approx(0.1)
    assert values["optimizer_kernel_ms"] == pytest.approx(0.02)
    assert values["optimizer_updates_per_step"] == 1


def test_one_replay_shortens_both():
    # half of the host's time: 18 + 40.5 us before a call of half a us, at 60.5: 13 us of kernel from 64.5 on
    # a tenth, without the call: at 2 + 18 + 8.1, 4 us of kernel from 32.1 on
    values = metrics_of(view(profile(DEVICE, UPDATE, STEPS)))
    assert values["optimizer_least_gain_ms"] == pytest.approx(0.125 - 0.0775)
    assert values["optimizer_gain_ms"] == pytest.approx(0.125 - 0.0361)


def test_on_a_cpu_the_optimizer_s_time_is_the_bound_but_for_a_tenth():
    update = [on_host("annotation", 60, 90, name="Optimizer.step#SGD.step"), on_host("op", 62, 70, parent=3)]
    values = metrics_of(view(profile([], [*CPU, *update], [CPU_STEP])))
    assert values["optimizer_share"] == pytest.approx(0.30)
    assert values["optimizer_gain_ms"] == pytest.approx(0.027)  # the fused update takes a tenth at least
    # half of 30 us less 1 for the op's record
    assert values["optimizer_least_gain_ms"] == pytest.approx(0.0145)


def test_on_a_cpu_each_kind_of_op_is_a_pass_over_the_parameters():
    names = ("aten::lerp_", "aten::sqrt", "aten::lerp_")
    ops = [on_host("op", 62 + 5 * i, 65 + 5 * i, name=name, parent=3) for i, name in enumerate(names)]
    update = on_host("annotation", 60, 90, name="Optimizer.step#Adam.step")
    assert metrics_of(view(profile([], [*CPU, update, *ops], [CPU_STEP])))["optimizer_passes"] == 2


def test_on_a_cpu_adam_shows_in_its_own_op_where_no_range_tells_of_it():
    """Behind the backward pass, from 60 us on: a histogram up to 65 is apart, the updates of two tensors end at 85."""
    node = on_host("op", 50, 60, name="autograd::engine::evaluate_function: MmBackward0")
    names = ("aten::histc", "aten::mul_", "aten::addcdiv_", "aten::mul_", "aten::addcdiv_")
    ops = [on_host("op", 62 + 5 * i, 65 + 5 * i, name=name) for i, name in enumerate(names)]
    values = metrics_of(view(profile([], [node, *ops], [CPU_STEP], workers=[{"worker": 0, "framework": "pytorch"}])))
    assert values["optimizer_share"] == pytest.approx((85 - 65) / 100)
    assert values["optimizer_updates_per_step"] == 4
    without = [row | {"name": "aten::mul_"} if row["name"] == "aten::addcdiv_" else row for row in ops]
    bare = metrics_of(view(profile([], [node, *without], [CPU_STEP], workers=[{"worker": 0, "framework": "pytorch"}])))
    assert bare["optimizer_share"] == Missing("no_optimizer_range")


def test_what_the_host_waits_for_ahead_of_the_first_update_is_not_the_optimizer_s():
    """The backward pass ends at 10 us, gradients of other ranks arrive by 62, the updates end at 70."""
    node = on_host("op", 0, 10, name="autograd::engine::evaluate_function: MmBackward0")
    ops = [on_host("op", 62, 65, name="aten::mul_"), on_host("op", 67, 70, name="aten::addcdiv_")]
    values = metrics_of(view(profile([], [node, *ops], [CPU_STEP], workers=[{"worker": 0, "framework": "pytorch"}])))
    assert values["optimizer_share"] == pytest.approx((70 - 62) / 100)


def test_an_op_on_all_tensors_is_no_update_of_one():
    ops = [on_host("op", 62 + 5 * i, 65 + 5 * i, name=f"aten::_foreach_{i}_", parent=3) for i in range(4)]
    update = on_host("annotation", 60, 90, name="Optimizer.step#RMSprop.step")
    values = metrics_of(view(profile([], [*CPU, update, *ops], [CPU_STEP])))
    assert (values["optimizer_updates_per_step"], values["optimizer_passes"]) == (0, 0)


def test_without_an_optimizer_nothing_is_lost_to_it():
    assert {metrics_of(view(profile(DEVICE, steps=STEPS)))[name] for name in NUMBERS} == {0}


def test_of_training_whose_optimizer_nothing_shows_nothing_is_said():
    backward = on_host("op", 0, 1, thread=2, name="autograd::engine::evaluate_function: MmBackward0")
    trace = profile(DEVICE, [backward], STEPS, workers=[{"worker": 0, "framework": "pytorch"}])
    assert {metrics_of(view(trace))[name] for name in NUMBERS} == {Missing("no_optimizer_range")}
    apart = [row | {"call": None} for row in (kernel(0, 20), kernel(60, 80))]
    values = metrics_of(view(profile(apart, steps=[step(1, 0, 80)])))
    assert all(isinstance(values[name], Missing) for name in NUMBERS)


def test_kernels_that_nothing_joins_with_calls_are_the_optimizer_s_by_their_names():
    """The chain of an Adam, between products; its range is there, but not which kernels were launched in it."""
    update = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel>"
    kernels = [kernel(20 * i, 20 * i + 20, name=name) for i, name in enumerate((GEMM, ADD, ADD, update, GEMM))]
    sized = [row | {"grid": 64, "block": 128} for row in kernels]
    values = metrics_of(view(profile(sized, [STEP], [step(1, 0, 100)])))
    assert values["optimizer_updates_per_step"] == 3


@pytest.mark.parametrize(("kind", "updates"), [("SparseAdam", 0), ("Adam", 3)])
def test_an_optimizer_of_single_rows_has_no_loop_over_tensors(kind: str, updates: int):
    ran = on_host("annotation", 60, 90, name=f"Optimizer.step#{kind}.step")
    ops = [on_host("op", 61 + 8 * i, 68 + 8 * i, name=f"aten::op{i}") for i in range(3)]
    values = metrics_of(view(profile([], [*CPU, ran, *ops], [CPU_STEP])))
    assert (values["optimizer_updates_per_step"], values["optimizer_passes"]) == (updates, updates)
