"""Steps of three kernels each, 10 ms long: the host calls at 0, 3 and 6 ms, and kernels run for 2 ms."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest

from advisor.engine import check
from tests.tables import kernel, on_host, profile, step, worker_row

MS = 1_000  # in us


def losses(stops: dict[tuple[int, int], int], steps: int = 4, names: str = "abc") -> dict[str, object]:
    """The metrics of steps in which the host stops for so many ms before the launch at (step, place)."""
    ops, marks, at = [], [], 0
    for number in range(steps):
        begin = at
        for place in range(3):
            at += (1 + stops.get((number, place), 0)) * MS
            name = names[place] if number else "abc"[place]
            ops.append(kernel(at, at + 2 * MS, at, name=name))
            at += 2 * MS
        at += MS
        marks.append(step(number, begin, at))
    return of_row(worker_row(profile(ops, steps=marks)))


def of_row(values: dict[str, object]) -> dict[str, object]:
    return {name: values[f"core_lost_{name}"] for name in ("ms", "places", "steps", "top_part")}


def test_a_host_that_never_stops_loses_nothing():
    assert losses({}) == {"ms": 0, "places": 0, "steps": 0, "top_part": 0}


def test_time_that_one_step_takes_beyond_the_others_at_the_same_launch_is_lost():
    assert losses({(0, 1): 8, (2, 2): 4, (3, 1): 4}, steps=5) == {
        "ms": pytest.approx(16 / 5, abs=0.01),
        "places": 2,
        "steps": 3,
        "top_part": pytest.approx(0.75, abs=0.001),
    }


def test_what_each_step_waits_for_is_of_the_work():
    assert losses({(number, 1): 8 for number in range(4)})["ms"] == 0


def test_steps_that_launch_other_work_are_not_compared():
    assert losses({(1, 1): 8}, names="abd")["ms"] is None
    assert losses({(1, 1): 8}, steps=3)["ms"] is None


def on_cpu(took: dict[tuple[int, int], int], shapes: str | None = "[[5, 3]]", **facts: object) -> dict[str, object]:
    """The metrics of four steps on a CPU of three ops, of 5 ms but for those at (step, place), 1 ms apart."""
    ops, marks, at = [], [], 0
    for number in range(4):
        begin = at
        for place in range(3):
            end = at + took.get((number, place), 5) * MS
            ops.append(on_host("op", at, end, name="abc"[place], shapes=shapes))
            ops.append(on_host("op", at, end - MS, name="inner", shapes=shapes))
            at = end + MS
        marks.append(step(number, begin, at, device=None))
    return of_row(worker_row(profile([], ops, marks, workers=[{"worker": 0, "framework": "pytorch", **facts}])))


STALLS = {(1, 0): 25, (2, 2): 15, (3, 1): 10}


def test_on_a_cpu_ops_stall_that_take_over_twice_their_usual_time():
    """An op ends 6 ms after the one before it, the first of all after 5: 20 and 10 ms more count, 5 ms more do not."""
    assert on_cpu(STALLS) == {"ms": 30 / 4, "places": 2, "steps": 2, "top_part": pytest.approx(2 / 3)}
    assert on_cpu({(number, 0): 25 for number in range(4)})["ms"] == 0


def test_ops_of_unknown_shapes_may_have_more_to_do():
    assert on_cpu(STALLS, shapes=None)["ms"] is None


def test_waits_for_a_core_that_were_noted_are_judged_by_other_rules():
    assert on_cpu(STALLS, run_delay_ms=0.1)["ms"] == 0


@pytest.mark.soak
def test_a_hundred_thousand_steps_take_no_longer_each_than_a_few(tmp_path: Path):
    pid = {"pid": 1, "tid": 1}
    events = [
        event
        for number in range(100_000)
        for event in (
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{number}",
                **pid,
                "ts": 1000 * number,
                "dur": 1000,
            },
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **pid, "ts": 1000 * number + 20, "dur": 10}
            | {"args": {"correlation": number + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1000 * number + 40, "dur": 700}
            | {"args": {"correlation": number + 1, "device": 0, "stream": 7}},
        )
    ]
    (trace := tmp_path / "a.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    began = process_time()
    assert check([str(trace)]).runs[0].source.steps.count == 100_000
    assert process_time() - began < 20  # it takes 8 s; quadratic time took 29
