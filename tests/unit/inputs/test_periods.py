from __future__ import annotations

import pytest

from advisor.inputs.periods import with_requests
from tests.tables import US, Row, kernel, on_host, profile, step

MARKS = [on_host("step", 100 * i, 100 * i + 40, name=f"ProfilerStep#{i}", thread=2) for i in range(4)]
STEPS = [step(i, 100 * i, 100 * i + 100, mark_ns=40 * US) for i in range(4)]
DEVICE = [kernel(100 * i + 10, 100 * i + 40, 100 * i + 5) for i in range(4)]


def waits_us(*host: Row) -> float:
    """How long a request for input takes its place between the marks, in us."""
    made = profile(DEVICE, [*MARKS, *host], STEPS)
    rows = with_requests(made.host_ops, made.device_ops, made.steps)
    return sum(rows.filter(rows["kind"] == "input")["dur_ns"]) / US


def test_silence_between_the_marks_stands_for_a_request():
    assert waits_us() == 4 * 60


@pytest.mark.parametrize(
    ("name", "expected"), [("scores", 4 * 10), ("load batch", 4 * 60), ("train.py(9): next_batch", 4 * 60)]
)
def test_a_range_of_the_program_s_own_says_what_else_the_time_is_for(name: str, expected: float):
    assert waits_us(*(on_host("annotation", 100 * i + 50, 100 * i + 100, name=name, thread=2) for i in range(4))) == (
        expected
    )


def test_a_range_around_the_loop_says_nothing():
    assert waits_us(on_host("annotation", 45, 400, name="train", thread=2)) == 4 * 60
