from __future__ import annotations

import pytest

from advisor.analysis.device.host_work import between_ops, handed_over, optimizer_work, python_work, training_ops
from tests.tables import US, kernel, on_host, profile, step, us, view

# us        0    20           100   120                 1300  1320
# kernels   =====             =====                     =====        the calls return as they start, after 1 us
DEVICE = [kernel(0, 20, 0), kernel(100, 120, 100), kernel(1300, 1320, 1300)]
STEPS = [step(1, 0, 1320)]


def test_python_works_between_50_us_and_a_millisecond_on_end():
    assert us(python_work(view(profile(DEVICE, steps=STEPS)))) == [(0, 99)]  # then 1,199 us, then 20


def test_a_framework_op_of_the_launching_thread_interrupts_python():
    op = on_host("op", 10, 60, thread=2)
    assert us(python_work(view(profile(DEVICE, [op], STEPS)))) == []
    assert us(python_work(view(profile(DEVICE, [op | {"thread": 9}], STEPS)))) == [(0, 99)]


def test_the_input_of_any_thread_is_not_python_s_work():
    assert us(python_work(view(profile(DEVICE, [on_host("input", 40, 60, thread=9)], STEPS)))) == []


def test_uneven_steps_have_python_s_work_too():
    steps = [*(step(i, 100 * i, 100 * i + 100) for i in range(4)), step(4, 400, 700)]
    trace = view(profile([kernel(100 * i, 100 * i + 100, 100 * i) for i in range(5)], steps=steps), "steady")
    assert trace.outliers["step"].to_list() == [4]
    assert us(python_work(trace))[-1] == (400, 700)


def test_the_threads_that_launch_or_bear_the_steps_are_training():
    host = [on_host("op", 1, 2, name="main"), on_host("op", 1, 2, name="logger", thread=3), on_host("step", 0, 9)]
    assert set(training_ops(view(profile(DEVICE, host, STEPS)))["name"]) == {"main", "step", "cudaLaunchKernel"}


def test_where_nothing_tells_the_threads_all_are_training():
    host = [on_host("op", 1, 2), on_host("op", 1, 2, thread=3)]
    assert training_ops(view(profile([], host, [step(1, 0, 9, device=None)]))).height == 2


def test_between_ops_knows_the_collectives_of_other_threads():
    host = [on_host("step", 0, 100), on_host("op", 0, 20), on_host("collective", 30, 80, thread=4)]
    trace = view(profile([], host, [step(1, 0, 100, device=None)]))
    assert us(between_ops(trace, trace.steps)) == [(20, 30), (80, 100)]


def test_the_thread_of_a_range_that_stands_for_a_step_hands_nothing_over():
    """A call of a jitted function is taken for the mark; the next batch is prepared on its thread."""
    call = on_host("annotation", 0, 20, name="PjitFunction(step)", step=1)
    batch, compute = on_host("python", 30, 90, name="batch", step=1), on_host("op", 10, 50, thread=2, step=1)
    trace = view(profile([], [call, batch, compute], [step(1, 0, 100, device=None, mark_ns=20 * US)]))
    assert us(handed_over(trace)) == [(10, 50)]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("$array.py:631 _value", True),
        ("$api.py:2952 block_until_ready", True),
        ("torch/cuda/__init__.py(954): synchronize", True),
        ("Wait for completion", True),
        ("PjRtStreamExecutorBuffer::Await", True),
        ("$dataset.py:7 new_value", False),
        ("$train.py:9 wait_for_it", False),
    ],
)
def test_waiting_for_a_result_is_no_work_of_python(name: str, *, waits: bool):
    host = [on_host("step", 0, 100), on_host("op", 0, 20), on_host("python", 30, 80, name=name)]
    trace = view(profile([], host, [step(1, 0, 100, device=None)]))
    assert us(between_ops(trace, trace.steps)) == ([(20, 30), (80, 100)] if waits else [(20, 100)])


def test_what_a_closure_computes_inside_the_optimizer_s_step_is_not_the_optimizer_s():
    # us  0    100     400    600    900     the closure: forward to 400, backward to 600; then the update
    update = on_host("annotation", 0, 900, name="Optimizer.step#AdamW.step")
    forward, backward = on_host("op", 100, 400, name="aten::linear"), on_host("op", 400, 600, name="AddmmBackward0")
    with_closure = view(profile([kernel(0, 1)], [update, forward, backward], [step(1, 0, 1000)]))
    assert optimizer_work(with_closure).total == 300_000
    plain = view(profile([kernel(0, 1)], [update, forward], [step(1, 0, 1000)]))
    assert optimizer_work(plain).total == 900_000


def test_a_hook_that_only_speaks_of_a_backward_pass_is_none():
    update = on_host("annotation", 0, 900, name="Optimizer.step#AdamW.step")
    hook = on_host("op", 100, 400, name="RegisterPostBackwardFunction, seq = 4")
    assert optimizer_work(view(profile([kernel(0, 1)], [update, hook], [step(1, 0, 1000)]))).total == 900_000


# us          0    100      300  310 320    600    610   700    800
# the hook         quantile                 the optimizer's ops  a hook behind them
@pytest.mark.parametrize(
    ("ops", "spans"),
    [
        ((("aten::quantile", 100, 300), ("aten::_fused_adamw_", 320, 600)), [(300, 800)]),
        ((("aten::mul_", 100, 300), ("aten::sort", 305, 310), ("aten::_foreach_add_", 320, 600)), [(310, 800)]),
        ((("aten::add_", 100, 300), ("aten::sqrt", 305, 310), ("aten::addcdiv_", 320, 600)), [(0, 800)]),
        ((("aten::add_", 100, 300), ("aten::quantile", 610, 700)), [(0, 610)]),
        # norms are logged, and gradients clipped: updates of single tensors follow
        ((("aten::norm", 100, 110), ("aten::_foreach_mul_", 300, 310), ("aten::add_", 330, 600)), [(110, 800)]),
        ((("aten::fill_", 100, 300), ("MmBackward0", 305, 310), ("aten::add_", 320, 600)), [(310, 800)]),
    ],
)
def test_what_hooks_compute_before_and_behind_the_updates_is_not_the_optimizer_s(
    ops: tuple[tuple[str, int, int], ...], spans: list[tuple[int, int]]
):
    update = on_host("annotation", 0, 800, name="Optimizer.step#AdamW.step")
    host = [update, *(on_host("op", start, end, name=name) for name, start, end in ops)]
    assert us(optimizer_work(view(profile([kernel(0, 1)], host, [step(1, 0, 1000)])))) == spans
