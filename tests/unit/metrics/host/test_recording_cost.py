from __future__ import annotations

import pytest

from advisor.metrics.host import recording_cost
from advisor.metrics.host.recording_cost import profiling
from tests.tables import kernel, measured, on_host, profile, step, view

STEPS = [step(1, 0, 200)]


def test_cupti_s_own_work_counts_while_the_device_idles():
    host = [on_host("overhead", 10, 60, name="Activity Buffer Request")]
    trace = profile([kernel(0, 20, 0), kernel(100, 200, 90)], host, STEPS)
    assert profiling(view(trace))[recording_cost.PROFILER_SHARE] == pytest.approx(40 / 200)
    (place,) = measured(trace).places("profiler_share", 0).to_dicts()
    assert place["name"] == "Activity Buffer Request"


def test_tracing_costs_a_microsecond_per_op_and_a_fifth_per_python_call():
    host = [on_host("op", 0, 1)] * 10 + [on_host("runtime", 0, 1)] * 5 + [on_host("python", 0, 1)] * 20
    values = profiling(view(profile([], host, [step(1, 0, 200, device=None)])))
    assert values[recording_cost.TRACING_SHARE] == pytest.approx((15 + 4) / 200)
    assert values[recording_cost.PYTHON_FRAMES_PER_STEP] == 20


def test_a_busy_device_hides_what_tracing_costs():
    host = [on_host("op", 0, 1)] * 50
    trace = profile([kernel(0, 190, 0)], host, STEPS)
    assert profiling(view(trace))[recording_cost.TRACING_SHARE] == pytest.approx(10 / 200)


def test_without_a_step_nothing_is_known():
    assert profiling(view(profile([kernel(5, 25)], steps=[step(1, 0, 125, incomplete="cut")]))) == {}
