from __future__ import annotations

import pytest

from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

STEPS = [step(1, 0, 200)]
# Kernels of 20 us whose launches of 30 us return 5 us after the kernels' end.
BLOCKING = [kernel(5, 25), kernel(55, 75), kernel(105, 125)]
CALLS = [on_host("runtime", op, op + 30, name="cudaLaunchKernel", thread=2) for op in (0, 50, 100)]


def launched(kernels: list[Row], calls: list[Row]) -> list[Row]:
    return [op | {"launch": i} for i, op in enumerate(kernels[: len(calls)])] + kernels[len(calls) :]


def test_a_launch_that_returns_after_its_kernel_s_end_blocks():
    values = metrics_of(view(profile(launched(BLOCKING, CALLS), CALLS, STEPS)))
    assert values["blocking_launch_share"] == 1
    assert values["launched_kernels_per_step"] == 3


def test_a_launch_that_returns_before_does_not():
    short = [CALLS[0] | {"dur_ns": 24_999}, CALLS[1] | {"dur_ns": 25_000}, CALLS[2]]
    values = metrics_of(view(profile(launched(BLOCKING, short), short, STEPS)))
    assert values["blocking_launch_share"] == pytest.approx(2 / 3)


def test_graph_launches_and_kernels_without_launch_are_not_judged():
    calls = [CALLS[0], CALLS[1] | {"name": "cudaGraphLaunch"}]
    values = metrics_of(view(profile(launched(BLOCKING, calls), calls, STEPS)))
    assert values["launched_kernels_per_step"] == 1


def test_launches_that_do_not_block_let_the_host_run_ahead():
    # the calls at 0, 20 and 40 (20 us of host work between them), the kernels 1.2 us apart: 5-25, 26.2-46.2, 47.4-67.4
    trace = profile(launched(BLOCKING, CALLS), CALLS, [step(1, 0, 130)])
    assert metrics_of(view(trace))["blocking_gain_ms"] == pytest.approx(0.130 - 0.0674)


def test_without_kernels_nothing_blocks():
    values = metrics_of(view(profile([], [on_host("op", 0, 9)], [step(1, 0, 10, device=None)])))
    metrics = ("blocking_launch_share", "launched_kernels_per_step", "blocking_gain_ms")
    assert [values[metric] for metric in metrics] == [0, 0, 0]
