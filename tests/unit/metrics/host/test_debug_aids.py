from __future__ import annotations

import pytest

from advisor.metrics.host import debug_aids
from advisor.metrics.host.debug_aids import blocking_launches, devices, profiling
from tests.tables import Row, kernel, measured, on_host, profile, step, view

STEPS = [step(1, 0, 200)]
# Kernels of 20 us whose launches of 30 us return 5 us after the kernels' end.
BLOCKING = [kernel(5, 25), kernel(55, 75), kernel(105, 125)]
CALLS = [on_host("runtime", op, op + 30, name="cudaLaunchKernel", thread=2) for op in (0, 50, 100)]


def launched(kernels: list[Row], calls: list[Row]) -> list[Row]:
    return [op | {"launch": i} for i, op in enumerate(kernels[: len(calls)])] + kernels[len(calls) :]


def test_a_launch_that_returns_after_its_kernel_s_end_blocks():
    values = blocking_launches(view(profile(launched(BLOCKING, CALLS), CALLS, STEPS)))
    assert values[debug_aids.BLOCKING_LAUNCH_SHARE] == 1
    assert values[debug_aids.LAUNCHED_KERNELS_PER_STEP] == 3


def test_a_launch_that_returns_before_does_not():
    short = [CALLS[0] | {"dur_ns": 24_999}, CALLS[1] | {"dur_ns": 25_000}, CALLS[2]]
    values = blocking_launches(view(profile(launched(BLOCKING, short), short, STEPS)))
    assert values[debug_aids.BLOCKING_LAUNCH_SHARE] == pytest.approx(2 / 3)


def test_graph_launches_and_kernels_without_launch_are_not_judged():
    calls = [CALLS[0], CALLS[1] | {"name": "cudaGraphLaunch"}]
    values = blocking_launches(view(profile(launched(BLOCKING, calls), calls, STEPS)))
    assert values[debug_aids.LAUNCHED_KERNELS_PER_STEP] == 1


def test_launches_that_do_not_block_let_the_host_run_ahead():
    # the calls at 0, 20 and 40 (20 us of host work between them), the kernels 1.2 us apart: 5-25, 26.2-46.2, 47.4-67.4
    trace = profile(launched(BLOCKING, CALLS), CALLS, [step(1, 0, 130)])
    assert blocking_launches(view(trace))[debug_aids.BLOCKING_GAIN_MS] == pytest.approx(0.130 - 0.0674)


def test_without_kernels_nothing_blocks():
    values = blocking_launches(view(profile([], [on_host("op", 0, 9)], [step(1, 0, 10, device=None)])))
    metrics = (debug_aids.BLOCKING_LAUNCH_SHARE, debug_aids.LAUNCHED_KERNELS_PER_STEP, debug_aids.BLOCKING_GAIN_MS)
    assert [values[metric] for metric in metrics] == [0, 0, 0]


def test_cupti_s_own_work_counts_while_the_device_idles():
    host = [on_host("overhead", 10, 60, name="Activity Buffer Request")]
    trace = profile([kernel(0, 20, 0), kernel(100, 200, 90)], host, STEPS)
    assert profiling(view(trace))[debug_aids.PROFILER_SHARE] == pytest.approx(40 / 200)
    (place,) = measured(trace).places("profiler_share", 0).to_dicts()
    assert place["name"] == "Activity Buffer Request"


def test_tracing_costs_a_microsecond_per_op_and_a_fifth_per_python_call():
    host = [on_host("op", 0, 1)] * 10 + [on_host("runtime", 0, 1)] * 5 + [on_host("python", 0, 1)] * 20
    values = profiling(view(profile([], host, [step(1, 0, 200, device=None)])))
    assert values[debug_aids.TRACING_SHARE] == pytest.approx((15 + 4) / 200)
    assert values[debug_aids.PYTHON_FRAMES_PER_STEP] == 20


def test_a_busy_device_hides_what_tracing_costs():
    host = [on_host("op", 0, 1)] * 50
    trace = profile([kernel(0, 190, 0)], host, STEPS)
    assert profiling(view(trace))[debug_aids.TRACING_SHARE] == pytest.approx(10 / 200)


def test_devices_and_data_parallel_passes_are_counted():
    host = [on_host("annotation", 10, 90, name="DataParallel.forward"), on_host("annotation", 5, 9, name="forward")]
    device = [kernel(0, 10, 0), kernel(0, 10, 0, device=1)]
    trace = profile(device, host, [step(1, 0, 100), step(2, 100, 200)])
    assert devices(view(profile(device, host, [step(1, 0, 100)]))) == {
        debug_aids.DEVICES_USED: 2,
        debug_aids.DATA_PARALLEL_CALLS_PER_STEP: 1,
    }
    assert devices(view(trace))[debug_aids.DATA_PARALLEL_CALLS_PER_STEP] == 0.5


def test_a_worker_without_a_device_uses_none():
    assert devices(view(profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)])))[debug_aids.DEVICES_USED] == 0


def test_without_a_step_nothing_is_known():
    trace = view(profile(launched(BLOCKING, CALLS), CALLS, [step(1, 0, 125, incomplete="cut")]))
    assert blocking_launches(trace) == profiling(trace) == devices(trace) == {}
