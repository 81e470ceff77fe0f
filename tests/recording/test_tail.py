"""Steps after the recording, on a clock of the test's own."""

from __future__ import annotations

import pytest

from advisor.present.recorded_files import sentences
from advisor.recording.inside.clock import RunDelay, Tail, time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time and what the thread waited for a CPU, in ms."""
    now = [0, 0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0] * 10**6)
    monkeypatch.setattr(RunDelay, "__call__", lambda _: now[1] * 10**6)
    return now


def test_long_steps_are_those_of_five_times_the_typical_without_waits(clock: list[int]):
    after = Tail(10.0, number=44)
    for length, wait in ((10, 0), (50, 0), (51, 0), (100, 60), (90, 20)):
        clock[0] += length
        clock[1] += wait
        after.step()
    assert after.facts() == {
        "steps": 5,
        "long": 2,
        "first": 47,
        "all_ms": 10.0 + 50 + 51 + 40 + 70,
        "long_ms": 51.0 + 70,
        "step_ms": 10.0,
    }


def test_long_steps_after_the_recording_are_named_with_how_to_record_them():
    block = {"unprofiled": {}, "profiled": {}}
    events = [
        {"event": "result", "process": "a", "path": "log/a.pt.trace.json.gz", "steps": 44, "block": block},
        {"event": "tail", "process": "a", "steps": 1200, "long": 3, "first": 100, "all_ms": 15e3, "long_ms": 3e3},
    ]
    _, line = sentences(["python"], events, "log")
    assert line.startswith(
        "not in the recording: 3 of the 1,200 steps after it took over five times as long (3 s of 15 s)"
    )
    assert "maybe" not in line
    assert "`--skip 82` records the first of them" in line  # 10 + 2 more steps, then the sixth of ten recorded ones
    events[1] |= {"long": 600}
    assert "maybe because steps grow;" in sentences(["python"], events, "log")[1]
    events[1] |= {"long": 0}
    assert len(sentences(["python"], events, "log")) == 1
