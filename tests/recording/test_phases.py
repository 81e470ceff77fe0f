"""The order of a recording's phases, and what its block says, with a profiler that writes down its calls."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.recording.inside import clock
from advisor.recording.inside.job import software
from advisor.recording.inside.phases import Phases
from advisor.recording.inside.profilers import OURS, Profiler, watch
from advisor.recording.inside.stacks import Stacks
from advisor.recording.inside.threads import Work


class Mark:
    def __init__(self, calls: list[str], step: int) -> None:
        self.calls, self.step = calls, step

    def __enter__(self) -> None:
        self.calls.append(f"begin {self.step}")

    def __exit__(self, *_: object) -> None:
        self.calls.append(f"end {self.step}")


class Scribe(Profiler):
    def job(self) -> dict[str, Any]:
        return {"cpus": 4}

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.block: dict[str, Any] | None = None

    def prepare(self) -> None:
        self.calls.append("prepare")

    def start(self) -> None:
        self.calls.append("start")

    def range_of(self, step: int) -> Mark:
        return Mark(self.calls, step)

    def halt(self) -> None:
        self.calls.append("stop")

    def export(self, block: dict[str, Any]) -> str:
        self.calls.append("export")
        self.block = block
        return "there"


def medians(block: dict[str, Any]) -> dict[str, Any]:
    return {name: block["unprofiled"][name] for name in ("before_ms", "after_ms", "run_delay_ms")}


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock, in ms, the time that the thread has waited for a CPU, and the part of it that is due to others.

    Two threads run all the time.
    """
    now = [0, 0, 1]
    monkeypatch.setattr(clock, "now_ns", lambda: now[0] * 1_000_000)
    monkeypatch.setattr(clock.RunDelay, "__call__", lambda _: now[1] * 1_000_000)
    monkeypatch.setattr(clock, "others_part", lambda *_: now[2])
    monkeypatch.setattr(clock, "work", lambda: Work(2 * now[0] * 1_000_000, 0))
    return now


def advance(phases: Phases, time: list[int], steps: int, *, ms: int, wait: int = 0) -> None:
    for _ in range(steps):
        time[0] += ms
        time[1] += wait
        phases.step()


def test_waits_while_the_profiler_stops_count_in_no_step(time: list[int], monkeypatch: pytest.MonkeyPatch):
    """To stop takes seconds on a busy machine: what the threads waited for then would seem the job's own fault."""
    profiler = Scribe()
    monkeypatch.setattr(clock, "work", lambda: profiler.calls.append("work"))
    advance(Phases(profiler, 3, "optimizer"), time, 9, ms=12)
    start, stop = profiler.calls.index("start"), profiler.calls.index("stop")
    assert profiler.calls[start:stop].count("work") == 2
    assert "work" not in profiler.calls[stop:]


def test_what_the_sampler_takes_to_start_is_of_no_step(time: list[int], monkeypatch: pytest.MonkeyPatch):
    """It looks through the names of all modules: 230 ms where many are imported."""
    profiler, stacks = Scribe(), Stacks(samples=False)

    def resume() -> None:
        time[0] += 230

    monkeypatch.setattr(stacks, "resume", resume)
    advance(Phases(profiler, 3, "optimizer", stacks=stacks), time, 14, ms=10)
    assert profiler.block is not None
    assert [profiler.block["unprofiled"][f"{lap}_steps_ms"] for lap in ("before", "after")] == [[10.0] * 3] * 2


@pytest.mark.parametrize(
    ("settles_ms", "steps_ms"),
    [(60, [30.0] * 3), (9, [10.0, 10.0, 19.0]), (20, [10.0, 10.0, 30.0]), (21, [17.0] * 3)],
)
def test_steps_that_return_before_their_work_is_done_take_their_part_of_it(
    time: list[int], monkeypatch: pytest.MonkeyPatch, settles_ms: int, steps_ms: list[float]
):
    """Three steps hand their work over in 10 ms each, and then all wait for it: for longer than two of them."""
    profiler = Scribe()

    def settle(_: object) -> None:
        time[0] += settles_ms if phases.lap and phases.lap.steps == 2 else 0

    phases = Phases(profiler, 3, "call")
    monkeypatch.setattr(profiler, "settle", settle)
    advance(phases, time, 14, ms=10)
    assert profiler.block is not None
    assert profiler.block["unprofiled"]["before_steps_ms"] == steps_ms


@pytest.mark.parametrize(
    ("reads_ms", "long_ms"), [((82, 82, 82), 0.0), ((172, 172, 172), 0.0), ((82, 82, 127), 45.0), ((82, 82, 80), 0.0)]
)
def test_a_sampled_step_that_waits_for_the_work_of_earlier_ones_is_no_long_one(
    reads_ms: tuple[int, ...], long_ms: float, time: list[int], monkeypatch: pytest.MonkeyPatch
):
    """A device takes 10 ms for each step, which returns in 1 ms; the loss is read in every ninth sampled step.

    Other programs may take as much of the device all the time. What the host itself does longer is long.
    """
    profiler, stacks = Scribe(), Stacks(samples=False)
    monkeypatch.setattr(Stacks, "is_over", property(lambda self: self.steps == 3 + 3 + 27))

    def settle(_: object) -> None:
        time[0] += 27 if phases.lap and phases.lap.steps == 2 else 0

    phases = Phases(profiler, 3, "call", stacks=stacks)
    monkeypatch.setattr(profiler, "settle", settle)
    advance(phases, time, 14, ms=1)
    for read_ms in reads_ms:
        assert profiler.block is None
        advance(phases, time, 8, ms=1)
        advance(phases, time, 1, ms=read_ms)
    assert profiler.block
    assert profiler.block["unprofiled"]["before_steps_ms"] == [10.0] * 3
    assert profiler.block["unprofiled"]["long_ms"] == pytest.approx(long_ms / 33)


def test_a_recording_times_profiles_settles_times_again_and_exports(time: list[int]):
    profiler = Scribe()
    phases = Phases(profiler, 3, "optimizer")
    advance(phases, time, 4, ms=12, wait=2)
    advance(phases, time, 2, ms=500)
    advance(phases, time, 3, ms=30, wait=5)
    advance(phases, time, 2, ms=700)
    assert "export" not in profiler.calls
    advance(phases, time, 3, ms=13)
    marks = ["begin 6", "end 6", "begin 7", "end 7", "begin 8", "end 8"]
    assert profiler.calls == ["prepare", "start", *marks, "stop", "export"]
    assert (phases.is_over, phases.path) == (True, "there")
    assert profiler.block == {
        "format": 1,
        "unprofiled": {
            "before_ms": 10.0,
            "after_ms": 13.0,
            "before_steps_ms": [10.0] * 3,
            "after_steps_ms": [13.0] * 3,
            "run_delay_ms": 1.0,
            "long_ms": 0.0,
            "long_part": 0.0,
        },
        "profiled": {"step_ms": 25.0, "run_delay_ms": 5.0, "own_delay_ms": 0.0, "cpu_ms": 60.0},
        "pace": {"step": 14, "size": 0, "steps_ms": []},
        "stacks": None,
        "marker": "optimizer",
        "job": {"cpus": 4},
        "software": software(),
        "ended": "complete",
    }


def test_a_step_is_never_shorter_than_nothing(time: list[int]):
    """What the system notes of a wait may come late: it would then be longer than the step that it is taken out of."""
    profiler = Scribe()
    advance(Phases(profiler, 3, None), time, 14, ms=1, wait=2)
    assert profiler.block
    assert profiler.block["unprofiled"]["before_steps_ms"] == [1e-6] * 3


def test_waits_that_the_job_causes_itself_are_time_of_its_steps(time: list[int]):
    profiler, time[2] = Scribe(), 0
    advance(Phases(profiler, 3, None), time, 14, ms=12, wait=2)
    assert profiler.block
    assert medians(profiler.block) == {"before_ms": 12.0, "after_ms": 12.0, "run_delay_ms": 0.0}
    assert profiler.block["profiled"] == {"step_ms": 12.0, "run_delay_ms": 0.0, "own_delay_ms": 2.0, "cpu_ms": 24.0}


def test_a_program_that_ends_while_it_is_recorded_leaves_what_there_is(time: list[int]):
    profiler = Scribe()
    phases = Phases(profiler, 3, "optimizer")
    advance(phases, time, 7, ms=10)
    phases.finish()
    assert profiler.calls[-3:] == ["begin 7", "stop", "export"]  # the step that was cut off has no end
    assert profiler.block
    assert profiler.block["ended"] == "early"
    assert profiler.block["unprofiled"]["after_ms"] is None


def test_a_program_that_ends_before_the_recording_leaves_nothing(time: list[int]):
    profiler = Scribe()
    phases = Phases(profiler, 3, "optimizer")
    advance(phases, time, 3, ms=10)
    phases.finish()
    assert (profiler.calls, phases.path) == ([], None)


def test_a_recording_that_is_abandoned_is_stopped_and_not_written(time: list[int]):
    profiler = Scribe()
    phases = Phases(profiler, 3, "optimizer")
    advance(phases, time, 8, ms=10)
    phases.abandon()
    phases.finish()
    assert profiler.calls[-1] == "stop"


def test_where_waits_are_not_told_the_clock_counts(time: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock.RunDelay, "__call__", lambda _: None)
    profiler = Scribe()
    phases = Phases(profiler, 3, None)
    advance(phases, time, 14, ms=10)
    assert profiler.block
    assert medians(profiler.block) == {"before_ms": 10.0, "after_ms": 10.0, "run_delay_ms": None}


def test_a_program_that_makes_a_profiler_is_noticed_and_served():
    class Owner:
        def __init__(self, value: int) -> None:
            self.value = value

    noticed: list[bool] = []
    watch(Owner, "__init__", lambda: noticed.append(True))
    with OURS:
        assert Owner(1).value == 1
    assert noticed == []
    assert Owner(value=2).value == 2
    assert noticed == [True]


def test_recorded_steps_have_the_numbers_that_the_program_counts(time: list[int]):
    """Of four skipped steps the fourth starts the phases: the steps 4 to 6 are timed, 7 and 8 warm up."""
    profiler = Scribe()
    advance(Phases(profiler, 3, "optimizer", skipped=3), time, 14, ms=10)
    assert [call for call in profiler.calls if call.startswith("begin")] == ["begin 9", "begin 10", "begin 11"]


def test_how_long_recording_takes_is_told_once(time: list[int]):
    phases = Phases(Scribe(), 3, None)
    rests = []
    for _ in range(14):
        advance(phases, time, 1, ms=10)
        rests.append(phases.rest())
    assert [rest["step_ms"] for rest in rests if rest] == [10.0]


def test_a_long_run_of_steps_has_the_medians_of_twenty_pieces():
    steps = [1.0] * 50 + [3.0] * 55
    assert clock.thinned(steps) == [1.0] * 10 + [3.0] * 10
    assert clock.thinned(steps[:39]) == []


def test_steps_far_beyond_the_median_of_their_lap_are_uneven():
    """Medians 10 and 20; of the first lap the third step takes 20 ms beyond it, of the second the fourth 40 ms."""
    laps = [[10.0, 10.5, 30.0, 9.5, 10.0], [], [20.0, 21.0, 19.0, 60.0, 20.0]]
    assert clock.long_steps(laps) == ({2, 8}, 60.0)
