from __future__ import annotations

import pytest

from tests.tables import Row, kernel, measured, metrics_of, on_host, profile, step, view

STEPS = [step(1, 0, 200)]


def test_cupti_s_own_work_counts_while_the_device_idles():
    host = [on_host("overhead", 10, 60, name="Activity Buffer Request")]
    trace = profile([kernel(0, 20, 0), kernel(100, 200, 90)], host, STEPS)
    assert metrics_of(view(trace))["profiler_share"] == pytest.approx(40 / 200)
    (place,) = measured(trace).places("profiler_share", 0).to_dicts()
    assert place["name"] == "Activity Buffer Request"


@pytest.mark.parametrize("name", ["Runtime Triggered Module Loading", "Lazy Function Loading"])
def test_the_loading_of_code_is_the_drivers_work(name: str):
    """CUPTI records it as overhead; a job pays it without the profiler too."""
    host = [on_host("overhead", 10, 60, name=name), on_host("overhead", 70, 80, name="Activity Buffer Request")]
    trace = profile([kernel(100, 200, 90)], host, STEPS)
    assert metrics_of(view(trace))["profiler_share"] == pytest.approx(10 / 200)


def test_tracing_costs_a_microsecond_per_op_and_a_fifth_per_python_call():
    host = [on_host("op", 0, 1)] * 10 + [on_host("runtime", 0, 1)] * 5 + [on_host("python", 0, 1)] * 20
    values = metrics_of(view(profile([], host, [step(1, 0, 200, device=None)])))
    assert values["tracing_share"] == pytest.approx((15 + 4) / 200)
    assert values["python_frames_per_step"] == 20


@pytest.mark.parametrize(("producer", "cost_us"), [("Nsight Systems 2024.2.3", 2), ("Kineto", 1)])
def test_under_nsight_systems_what_lies_between_two_ops_bounds_is_what_tracing_costs(producer: str, cost_us: float):
    """100 pairs of 10 and 8 us: 200 ops and one call."""
    host: list[Row] = []
    for start in range(0, 2_000, 20):
        host += [on_host("op", start, start + 10), on_host("op", start + 1, start + 9, parent=len(host))]
    workers = [{"worker": 0, "producer": producer}]
    trace = profile([kernel(2_000, 2_010, 1_990)], host, [step(1, 0, 4_000)], workers=workers)
    assert metrics_of(view(trace))["tracing_share"] == pytest.approx(201 * cost_us / 4_000)


def test_a_busy_device_hides_what_tracing_costs():
    host = [on_host("op", 0, 1)] * 50
    trace = profile([kernel(0, 190, 0)], host, STEPS)
    assert metrics_of(view(trace))["tracing_share"] == pytest.approx(10 / 200)


@pytest.mark.parametrize(("around_ms", "says_ms"), [(188.0, 188.0), (230.0, 200.0), (150.0, 150.0)])
def test_the_step_without_the_profiler_is_the_timed_one_but_no_longer_than_the_recorded_one(
    around_ms: float, says_ms: float
):
    """Recorded steps take 200 ms, 166 of them without waits for other programs, which the timed ones had too."""
    of = view(profile([], [on_host("op", 0, 150_000)], [step(1, 0, 200_000, device=None)]))
    of.process.update(before_ms=around_ms, after_ms=around_ms, profiled_ms=166.0, run_delay_ms=34.0)  # type: ignore[attr-defined]
    assert metrics_of(of)["unprofiled_step_ms"] == pytest.approx(says_ms)
