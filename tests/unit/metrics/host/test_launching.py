from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tables import kernel, metrics_of, on_host, pageable, profile, step, view

# us        0 1  5      25             101 105    125
# host        |                         |      110        calls of 1 us, 4 us before their kernels start
# kernels        =======                   ========
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]

STEPS = [step(1, 0, 125, host=(0, 110))]


def test_a_compiled_and_a_captured_step_launch_faster():
    # captured: the calls take 0.1 us each, the work before them 0.1 and 9.9 us: the second kernel is ready at 10.1 + 4
    # but follows the first at once: 4.1 to 24.1 to 44.1 instead of 125
    values = metrics_of(view(profile(DEVICE, steps=STEPS)))
    assert values["launch_gain_ms"] == pytest.approx(0.125 - 0.0441)
    assert 0 < values["launch_least_gain_ms"] < values["launch_gain_ms"]


def test_launching_gives_back_no_more_than_the_launch_gaps_and_the_pauses_between_queued_kernels():
    """The host makes two other calls in a gap of 1.48 ms: no price of launching, though a replay shortens it."""
    calls = [on_host("runtime", at, at + 100, name="cudaMemGetInfo", thread=2) for at in (400, 900)]
    device = [kernel(5, 25, 2), kernel(1505, 1520, 1502), kernel(1523, 1530, 1504)]
    values = metrics_of(view(profile(device, calls, steps=[step(1, 0, 1530, host=(0, 1510))])))
    assert values["launch_gain_ms"] == pytest.approx(0.005 + 0.003)
    # replayed, the step of 1,530 us takes 176.1 captured; without 3 us for each call 1,515, and 474.8 compiled
    part = 0.008 / (1.53 - 0.1761)
    assert values["launch_least_gain_ms"] == pytest.approx(part * (1.515031 - 0.474809))


def test_without_calls_in_the_steps_the_gaps_bound_what_capturing_gives():
    values = metrics_of(view(profile(DEVICE, steps=[step(1, 30, 130, host=(120, 130))])))
    assert values["launch_least_gain_ms"] == 0
    assert values["launch_gain_ms"] == pytest.approx(0.075 + 0.005)


@pytest.mark.parametrize(
    ("apart", "gain_us"),
    [
        # captured: calls of 0.1 us at 1 and 3; the second kernel follows the first at once: 10 to 15, and not 25 to 30
        (19, 15),
        # the work between the calls remains: the second is made at 100.1 instead of 101
        (99, 0.9),
    ],
)
def test_a_program_of_its_own_works_between_its_launches(apart: int, gain_us: float):
    second = 2 + apart
    device = [kernel(5, 10, 2), kernel(second + 4, second + 9, second + 1)]
    made = view(profile(device, steps=[step(1, 0, second + 9, host=(0, second + 1))]))
    own = replace(made, process={**made.process, "framework": "cuda"}, _computed={})
    assert metrics_of(own)["launch_gain_ms"] == pytest.approx(gain_us / 1e3)
    assert metrics_of(own)["launch_gain_ms"] < metrics_of(made)["launch_gain_ms"]


def test_a_call_that_copies_pageable_memory_is_no_launch():
    """It takes 18 of the 51 us, and only the launch at 20 gets shorter and hastens the next: by 0.9."""
    device = [pageable(2, 18, launch=0), kernel(24, 30, 21), kernel(54, 60, 51)]
    call = on_host("runtime", 1, 19, name="cudaMemcpyAsync", thread=2)
    made = view(profile(device, [call], steps=[step(1, 0, 60, host=(0, 51))]))
    own = replace(made, process={**made.process, "framework": "cuda"}, _computed={})
    assert metrics_of(own)["launch_gain_ms"] == pytest.approx(0.0009)
