"""How the time of a session is given to its trials, and what is done about a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.trials import Claim, Trial, Use
from advisor.trials import measurement
from advisor.trials import session as sessions
from advisor.trials.ideas import Idea, largest_untried
from advisor.trials.measurement import Base, Bench, Evidence, block_steps, trial_of
from advisor.trials.processes import Ended, Program
from advisor.trials.session import Options, Session
from advisor.trials.timings import Block, Ready

FUSED = Use(patch="optimizer", arguments={"implementation": "fused"}, numerics="rounding")
WORKERS = Use(patch="dataloader", arguments={"num_workers": 2}, numerics="changes")
NOW = 1000.0


def base(step_ms: float) -> Base:
    return Base(
        step_ms,
        Ready(seconds=5.0, digest=None, device="cpu", ranks=1),
        None,
        block_s=step_ms * (block_steps(step_ms) + 1) / 1e3,
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """One with 100 s left."""
    monkeypatch.setattr(measurement.time, "monotonic", lambda: NOW)
    return Bench(Program(["python"], Path()), 0.05, NOW + 100, lambda *_: None)


@pytest.mark.parametrize(
    ("trials", "least_s", "seconds"),
    [(1, 0, 100), (2, 0, 50), (5, 0, 50), (5, 70, 70), (5, 200, 100)],
)
def test_a_trial_has_half_of_the_time_that_is_left_and_what_it_needs(bench: Bench, trials, least_s, seconds):
    bench.allot(trials, least_s)
    assert bench.until == NOW + seconds


@pytest.mark.parametrize(("step_ms", "steps"), [(None, 9), (5.0, 9), (222.0, 9), (500.0, 4), (900.0, 2), (60e3, 2)])
def test_blocks_of_long_steps_are_short(step_ms: float | None, steps: int):
    assert block_steps(step_ms) == steps


def test_what_a_trial_needs_is_its_first_look():
    """Blocks: 6 pairs of 1 + 9 steps. Processes: 4 pairs of a start and 23 blocks, which have two seconds of steps."""
    assert base(10.0).seconds_for(Idea("x", (FUSED,))) == pytest.approx(5 + 2 * 6 * 10 * 0.01)
    assert base(10.0).seconds_for(Idea("x", (WORKERS,))) == pytest.approx(2 * 4 * (5 + 23 * 10 * 0.01))


def test_a_session_that_is_ended_names_what_it_did_not_come_to(monkeypatch: pytest.MonkeyPatch):
    of = session()
    of.chosen = [Idea("x", (FUSED,))]

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_try", end)
    trials = of.run()
    assert [(trial.name, trial.result) for trial in trials.trials] == [("x", "not_tried")]


def session(*trials: Trial) -> Session:
    return Session(["python"], Options(), trials=[*trials])


def test_what_the_time_does_not_suffice_for_is_not_begun(bench: Bench):
    bench.end = NOW + 40
    trial = session().attempt(bench, Idea("x", (FUSED,)), base(1000.0), 2)  # 5 s and 12 blocks of 1 + 2 steps
    assert trial.result == "not_tried"
    assert trial.reasons[0].words == "it needs 41 s at least, and 40 s were left; give more time with `--budget`"


def test_the_same_change_is_tried_once(bench: Bench):
    earlier = Trial(name="input-bound", uses=(WORKERS,), result="faster")
    trial = session(earlier).attempt(bench, Idea("single-process-data-loader", (WORKERS,)), base(10.0), 1)
    assert trial.result == "not_tried"
    assert trial.reasons[0].words == "it makes the same change as input-bound, which was tried"


def test_the_largest_finding_is_told_of_where_it_cannot_be_tried():
    ideas = [Idea("none", ()), Idea("some", (), claimed=Claim(low_share=0.1, high_share=0.3))]
    untried = [Idea("more", (), claimed=Claim(low_share=0.2, high_share=0.3)), Idea("less", ())]
    assert largest_untried(ideas, untried) == untried[0].claimed
    assert largest_untried(ideas, untried[1:]) is None
    assert largest_untried([], []) is None


@pytest.mark.parametrize(
    ("turns", "is_over_time", "words"),
    [
        ([Block(False, 9.0), Block(True, 9.0)], True, "only 1 of 3 pairs were timed"),
        ([], False, "the program ends before it has been timed with and without the patch"),
    ],
)
def test_a_trial_without_an_interval_says_what_is_missing(turns: list[Block], words: str, *, is_over_time: bool):
    ready = {"event": "ready", "process": "a", "seconds": 1, "digest": None, "device": "cpu", "hits": {"optimizer": 1}}
    ended = Ended(0, (ready,), "", 1.0)
    evidence = Evidence("blocks", turns, None, False, ended, ended, is_over_time=is_over_time)
    trial = trial_of(Idea("x", (FUSED,)), evidence, [], 1.0)
    assert trial.result == "unclear"
    assert trial.reasons[0].words.startswith(words)


STAT = [
    "cpu  999 0 0 0",
    "cpu0 10 5 5 70 10 0 0 0 0 0",
    "cpu1 50 0 30 20 0 0 0 0 0 0",
    "cpu2 1 1 1 1 1 1 1 1 0 0",
    "intr 5",
]


def test_the_cores_that_count_are_those_that_the_program_may_use():
    assert sessions.cpu_time(STAT, [0, 1]) == (200, 100)
    assert sessions.cpu_time(STAT, [7]) == (0, 0)


@pytest.mark.parametrize(("used", "share"), [(30, 0.3), (0, 0.0)])
def test_how_busy_the_cores_are(monkeypatch: pytest.MonkeyPatch, used: int, share: float):
    looks = iter([["cpu0 0 0 0 0 0 0 0 0"], [f"cpu0 {used} 0 0 {100 - used} 0 0 0 0"]])
    monkeypatch.setattr(sessions, "_lines", lambda: next(looks))
    monkeypatch.setattr(sessions.os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(sessions.time, "sleep", lambda _: None)
    assert sessions.busy_share() == pytest.approx(share)


@pytest.mark.parametrize(("share", "calmed"), [(None, False), (0.2, False), (0.21, True)])
def test_threads_sleep_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, share: float | None, *, calmed: bool):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert sessions.calming(share) == ({"OMP_WAIT_POLICY": "passive"} if calmed else {})
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert sessions.calming(share) == {}


def test_that_threads_sleep_is_noted_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(sessions, "busy_share", lambda: 0.9)
    known = session()
    program = known.calm(known.calm(Program(["python"], Path(), variables={"WANDB_MODE": "offline"})))
    assert program.variables == {"WANDB_MODE": "offline", "OMP_WAIT_POLICY": "passive"}
    assert [note.code for note in known.notes] == ["cores_busy"]
