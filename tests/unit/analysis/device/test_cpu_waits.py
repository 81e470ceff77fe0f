from __future__ import annotations

import math

import pytest

from advisor.analysis.device.cpu_waits import cpu_waits, delay_share
from advisor.metrics.steps.breakdown import accounting
from tests.tables import Row, metrics_of, on_host, profile, step, view

LONG_US = 5_000
MANY = 2_000


def views(waits: int, ops: int = MANY, long_us: float = LONG_US) -> list[Row]:
    """Views of 2 us one after the other, the first ones of which wait for a CPU."""
    ends, rows = 0.0, []
    for number in range(ops):
        start, ends = ends, ends + (long_us if number < waits else 2)
        rows.append(on_host("op", start, ends, name="aten::view"))
    return rows


def job(rows: list[Row], **noted: float) -> object:
    (end,) = [(row["start_ns"] + row["dur_ns"]) / 1e3 for row in rows[-1:]]
    workers = [{"worker": 0, "framework": "pytorch", **noted}]
    return view(profile([], rows, [step(1, 0, end, device=None)], workers=workers))


def test_views_that_take_milliseconds_tell_how_long_their_thread_had_no_cpu():
    sample = cpu_waits(job(views(waits=6)))
    least_ms, run_ms = 5 * (6 - 2 * math.sqrt(6)), (MANY - 6) * 0.002
    assert sample == (6, 5_000_000, pytest.approx(least_ms / (least_ms + run_ms)))


def test_the_longest_wait_does_not_lengthen_the_others():
    rows = [on_host("op", -1e6, -1e5, name="aten::view"), *views(waits=5)]
    sample = cpu_waits(view(profile([], rows, [step(1, -1e6, 3e4, device=None)])))
    assert sample is not None
    assert sample == (6, 900_000_000, cpu_waits(job(views(waits=6, ops=MANY + 1))).least_share)


@pytest.mark.parametrize(
    "rows",
    [
        views(waits=4),  # by chance
        views(waits=300),  # they work: a scheduler lets a thread run for longer than 11 us
        views(waits=6, long_us=90),  # a large graph, a cold cache
        [on_host("op", 10.0 * n, 10.0 * n + 9, name="aten::view") for n in range(MANY)],  # an older machine
        [on_host("op", 10.0 * n, 10.0 * n + 9, name="aten::mul") for n in range(9)],
    ],
)
def test_what_has_another_reason_is_no_wait_for_a_cpu(rows):
    assert cpu_waits(job(rows)) is None
    assert delay_share(job(rows)) == 0


def test_what_the_recorder_noted_goes_before_what_ops_tell():
    noted = job(views(waits=6), run_delay_ms=3.3988)
    assert cpu_waits(noted) is None
    assert delay_share(noted) == pytest.approx(0.1)


def test_waits_of_steps_that_are_left_out_do_not_count():
    """The used steps take 5 ms, of which 4 are left without waits: what the recorder noted was in the others."""
    rows = views(waits=0, ops=2_500)
    assert delay_share(job(rows, run_delay_ms=4.8, profiled_ms=4.0)) == pytest.approx(0.2)
    assert delay_share(job(rows, run_delay_ms=0.5, profiled_ms=4.0)) == pytest.approx(0.1)
    assert delay_share(job(rows, run_delay_ms=0.5, profiled_ms=6.0)) == 0


def test_the_accounting_names_the_least_of_the_waits():
    sampled = job(views(waits=6))
    shares = dict(accounting(sampled).select("part", "share").rows())
    least = cpu_waits(sampled).least_share
    assert shares == {"operators": pytest.approx(1 - least, abs=1e-6), "no_cpu": pytest.approx(least, abs=1e-6)}
    assert metrics_of(sampled)["host_ops_share"] == pytest.approx(1 - least)
