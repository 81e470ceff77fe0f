"""Steps after the recording, on a clock of the test's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.present.recorded_files import sentences
from advisor.recording.inside import hook
from advisor.recording.inside.clock import Lap, RunDelay, Tail, time
from advisor.recording.inside.notes import Notes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time and what the thread waited for a CPU, in ms."""
    now = [0, 0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0] * 10**6)
    monkeypatch.setattr(RunDelay, "__call__", lambda _: now[1] * 10**6)
    return now


def test_a_program_that_stops_its_clocks_stops_none_of_the_recorder(monkeypatch: pytest.MonkeyPatch):
    for name in ("perf_counter_ns", "perf_counter", "monotonic", "thread_time_ns"):
        monkeypatch.setattr(f"time.{name}", lambda: 0)
    lap, after = Lap(), Tail(1e-6, number=1)
    lap.add()
    after.step()
    assert min(lap.close().steps_ms) > 1e-6  # the least that a step can have
    assert after.all_ms > 0


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


def test_a_step_that_waits_for_the_work_of_earlier_ones_is_no_long_one(clock: list[int]):
    """A program reads the loss in the 50th step, while its device takes 10 ms for each or 20; in the 52nd it saves."""
    for work_ms in (10, 20):
        after = Tail(10.0, number=44, work_ms=10.0)
        for length in (*[1] * 49, 50 * work_ms - 49, 1, 119, 10):
            clock[0] += length
            after.step()
        facts = after.facts()
        assert (facts["long"], facts["first"], facts["long_ms"]) == (2, 44 + 52, 120.0)


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


@pytest.mark.usefixtures("clock")
def test_ranks_that_stop_all_end_two_steps_after_the_last_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """This one's ends with its 40th step and the other's with its 44th, so both end with their 46th."""
    left: list[int] = []
    monkeypatch.setattr(hook, "_end", lambda _, ranks: left.append(ranks))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    rank = hook.Hook({"skip": 1, "stop": True}, Notes(str(tmp_path)))
    rank.notes.add("result", steps=40)
    rank.tail = Tail(10.0, number=40)

    def step() -> bool:
        assert rank.tail
        rank.tail.step()
        rank.leave()
        return bool(left)

    assert not any(step() for _ in range(4))
    (tmp_path / "other-7.jsonl").write_text(json.dumps({"event": "result", "pid": 7, "steps": 44}))
    assert [step(), step()] == [False, True]
    assert left == [2]


def test_a_rank_whose_others_record_nothing_ends_alone_after_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[int]
):
    left: list[int] = []
    monkeypatch.setattr(hook, "_end", lambda _, ranks: left.append(ranks))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    rank = hook.Hook({"skip": 1, "stop": True}, Notes(str(tmp_path)))
    rank.tail = Tail(10.0, number=40)
    for now_ms, has_left in ((29_999, False), (30_000, True)):
        clock[0] = now_ms
        rank.leave()
        assert bool(left) is has_left
