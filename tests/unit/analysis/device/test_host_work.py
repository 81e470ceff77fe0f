from __future__ import annotations

import pytest

from advisor.analysis.device.host_work import (
    between_ops,
    busiest,
    handed_over,
    in_words,
    launch_gaps,
    optimizer_work,
    places,
    python_work,
    stalls,
    telling,
    training_ops,
    unknown_waits,
)
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from tests.tables import US, kernel, on_host, profile, step, view

# us        0    20           100   120                 1300  1320
# kernels   =====             =====                     =====        the calls return as they start, after 1 us
DEVICE = [kernel(0, 20, 0), kernel(100, 120, 100), kernel(1300, 1320, 1300)]
STEPS = [step(1, 0, 1320)]


def us(union: Union) -> list[tuple[float, float]]:
    return [(start / US, end / US) for start, end in zip(union.starts.tolist(), union.ends.tolist(), strict=True)]


def union(*spans: tuple[float, float]) -> Union:
    return Union.of([round(start * US) for start, _ in spans], [round(end * US) for _, end in spans])


def test_waiting_up_to_a_millisecond_is_the_launches_and_longer_is_a_stall():
    trace = view(profile(DEVICE, steps=STEPS))
    assert us(launch_gaps(trace)) == [(20, 100)]
    assert us(stalls(trace)) == [(120, 1300)]


def test_what_other_causes_account_for_is_no_waiting_for_launches():
    trace = view(profile(DEVICE, [on_host("input", 30, 50), on_host("gc", 200, 300)], STEPS))
    assert us(launch_gaps(trace)) == [(20, 30), (50, 100)]
    assert us(stalls(trace)) == [(120, 200), (300, 1300)]


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


def test_the_busiest_ranges_are_told_by_their_own_time():
    host = [
        on_host("annotation", 20, 99, name="train", thread=2),
        on_host("python", 30, 60, name="f", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    ranges = busiest(trace, union((20, 110)))
    assert ranges.rows() == [("train", 49 * US), ("f", 30 * US), (None, 10 * US), ("cudaLaunchKernel", 1 * US)]
    assert in_words(trace, ranges) == "train (49 µs), f (30 µs), time in which nothing was recorded (10 µs)"


def test_the_thread_of_a_range_that_stands_for_a_step_hands_nothing_over():
    """A call of a jitted function is taken for the mark; the next batch is prepared on its thread."""
    call = on_host("annotation", 0, 20, name="PjitFunction(step)", step=1)
    batch, compute = on_host("python", 30, 90, name="batch", step=1), on_host("op", 10, 50, thread=2, step=1)
    trace = view(profile([], [call, batch, compute], [step(1, 0, 100, device=None, mark_ns=20 * US)]))
    assert us(handed_over(trace)) == [(10, 50)]


def test_a_function_that_runs_the_loop_has_no_time_of_what_it_calls_in_a_marked_step():
    host = [
        on_host("python", 0, 110, name="train", thread=2),
        on_host("step", 0, 105, name="ProfilerStep#1", thread=2, parent=0),
        on_host("python", 30, 60, name="f", thread=2, parent=1),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    assert busiest(trace, union((20, 100))).rows()[:2] == [("train", 50 * US), ("f", 30 * US)]


def test_a_range_around_several_steps_is_no_work():
    host = [
        on_host("annotation", 0, 220, name="epoch 3", thread=2),
        on_host("annotation", 20, 90, name="validate", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, [step(1, 0, 110), step(2, 110, 220)]))
    for ran in (busiest, telling):
        rows = ran(trace, union((20, 100))).rows()
        assert rows == [("validate", 70 * US), (None, 9 * US), ("cudaLaunchKernel", 1 * US)]


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


def test_the_script_as_a_whole_names_nothing():
    host = [
        on_host("python", 20, 99, name="train.py(1): <module>", thread=2),
        on_host("python", 30, 60, name="f", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    names = {row[0] for ran in (busiest, telling) for row in ran(trace, union((20, 110))).rows()}
    assert names == {"f", None, "cudaLaunchKernel"}


def test_a_built_in_function_is_called_by_its_name_whatever_object_it_is_of():
    names = [f"<built-in method acquire of _thread.lock object at 0x7f{i}>" for i in range(2)]
    host = [on_host("python", at, at + 30, name=name, thread=2) for at, name in zip((20, 50), names, strict=True)]
    trace = view(profile(DEVICE, host, STEPS))
    assert busiest(trace, union((20, 80))).rows()[0] == ("acquire (built-in)", 60 * US)


def test_no_time_has_no_words():
    trace = view(profile(DEVICE, steps=STEPS))
    assert in_words(trace, busiest(trace, EMPTY)) == ""


def test_what_the_device_waited_for_cannot_be_told_without_launches():
    trace = view(profile([kernel(0, 20), kernel(50, 60)], steps=[step(1, 0, 60)]))
    assert unknown_waits(trace) == Missing("no_cuda_calls")


def test_nor_where_much_idle_time_is_unknown():
    kernels = [kernel(0, 20, 0), kernel(26, 100)]  # 6 of 100 us before a kernel whose launch is not known
    assert unknown_waits(view(profile(kernels, steps=[step(1, 0, 100)]))) == Missing("idle_cause_unknown", share=0.06)
    kernels = [kernel(0, 20, 0), kernel(24, 100)]
    assert unknown_waits(view(profile(kernels, steps=[step(1, 0, 100)]))) is None


@pytest.mark.parametrize(("begin", "is_known"), [(60, True), (10, False)])
def test_idle_edges_of_a_recording_leave_longer_gaps_known(begin: float, is_known: bool):  # noqa: FBT001 - a case
    """Idle from 120 to 200, for the host, and from the recording's begin to the first op at 100, which is unknown."""
    made = profile([kernel(100, 120, 90), kernel(200, 220, 190)], [on_host("op", begin, begin + 5)])
    assert (unknown_waits(view(made)) is None) == is_known


def test_without_a_device_nothing_waited():
    assert unknown_waits(view(profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)]))) is None


def test_places_are_those_of_used_steps_the_longest_first():
    host = [on_host("op", 5, 6, name="a"), on_host("op", 110, 130, name="b"), on_host("op", 210, 290, name="late")]
    trace = view(profile(DEVICE, host, [step(7, 0, 100), step(8, 100, 200)]))
    ranges = places(trace, trace.host.filter(trace.host["kind"] == "op"))
    assert ranges.select("step", "name", "op").rows() == [(8, "b", 1), (7, "a", 0)]


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
