"""Executions of JAX's programs on the CPU: they stand for steps where the calls return long before they run."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from advisor.model.profile import Profile
from tests.strategies_xplane import HOST, Event, event, line, plane, read, space

US = 1_000
CALL = 10
XLA = 12


def job(  # noqa: PLR0913 - each is a way in which a loop can be written
    calls: Sequence[float],
    runs: Sequence[float],
    *,
    length: float = 100,
    marks: Sequence[float] = (),
    mark: float = CALL,
    program: str = "jit_update",
) -> Profile:
    """Calls of 10 us of a jitted function, marks of steps, and runs of the program on a thread of XLA; in us."""
    called = [event("PjitFunction(update)", at, CALL) for at in calls]
    marked = [event("train", at, mark, step_num=i) for i, at in enumerate(marks)]
    ran = [_op(at, length, i, program) for i, at in enumerate(runs)]
    return read(space(plane(HOST, line(*marked, *called), line(*ran, name="tf_XLAPjRtCpuClient", id=XLA))))


def _op(at: float, length: float, run: int, program: str = "jit_update") -> Event:
    return event("fusion", at, length, hlo_op="fusion", hlo_module=program, run_id=run + 1)


def steps(profile: Profile) -> list[tuple[int, int]]:
    return [(start // US, dur // US) for start, dur in profile.steps.select("start_ns", "dur_ns").rows()]


LATE = [100.0 * i + 5 for i in range(6)]


def test_calls_that_return_before_the_program_runs_are_no_steps():
    profile = job([20.0 * i for i in range(6)], LATE)
    assert steps(profile) == [(at, 100) for at in (5, 105, 205, 305, 405, 505)]
    assert "from one execution of jit_update on XLA's threads to the next" in profile.salvaged[0].words


def test_marks_around_such_calls_are_none_either():
    begins = [20.0 * i for i in range(6)]
    profile = job(begins, LATE, marks=begins)
    assert steps(profile) == [(at, 100) for at in (5, 105, 205, 305, 405, 505)]
    assert profile.steps["step"].to_list() == list(range(6))


def test_marks_that_wait_for_the_program_are_the_steps():
    begins = [150.0 * i for i in range(6)]
    profile = job(begins, [at + 20 for at in begins], marks=begins, mark=130)
    assert steps(profile)[:5] == [(150 * i, 150) for i in range(5)]
    assert not profile.salvaged


def test_what_runs_a_step_later_is_in_time():
    """A loader sets the pace; the program of a step runs while the next batch is loaded."""
    begins = [150.0 * i for i in range(6)]
    profile = job([at + 130 for at in begins], [at + 145 for at in begins], marks=begins, mark=145)
    assert steps(profile)[:5] == [(150 * i, 150) for i in range(5)]


def test_what_runs_after_the_marks_for_other_calls_makes_no_step_late():
    begins = [150.0 * i for i in range(6)]
    later = [150.0 * i for i in range(6, 60)]
    profile = job([*begins, *later], [at + 20 for at in (*begins, *later)], marks=begins, mark=130)
    assert len(steps(profile)) == 6


def test_a_step_of_two_calls_is_two_executions():
    profile = job([15.0 * i for i in range(12)], [100.0 * i + 5 for i in range(12)], marks=[30.0 * i for i in range(6)])
    assert steps(profile)[:5] == [(200 * i + 5, 200) for i in range(5)]


@pytest.mark.parametrize(
    ("calls", "runs"),
    [
        pytest.param([20.0 * i for i in range(6)], [150.0 * (i // 2) + 5 + i % 2 for i in range(6)], id="side by side"),
        pytest.param([*(20.0 * i for i in range(6)), 45], [100.0 * i + 5 for i in range(7)], id="uneven number"),
    ],
)
def test_late_steps_without_executions_for_them_are_refused(calls: Sequence[float], runs: Sequence[float]):
    profile = job(calls, runs, marks=[20.0 * i for i in range(6)])
    assert not profile.steps.height
    assert "the 6 steps are not used" in profile.salvaged[0].words


def test_without_marks_and_even_calls_the_program_that_does_the_work_makes_the_steps():
    calls = [0.0, 20, 400, 420, 1200]
    runs = [20.0, 150, 420, 530, 1220]
    assert [start for start, _ in steps(job(calls, runs))] == runs
    assert not job(calls, runs[:3]).steps.height


def test_an_execution_whose_call_is_not_known_belongs_to_the_step_in_which_it_begins():
    begins = [150.0 * i for i in range(6)]
    profile = job(begins, [at + 20 for at in begins], marks=begins, mark=130)
    ran = profile.host_ops.filter(pl.col("kind") == "op").sort("start_ns")
    assert ran["step"].to_list() == list(range(6))


def test_an_execution_that_another_thread_calls_belongs_to_no_step():
    begins = [150.0 * i for i in range(6)]
    marked = [event("train", at, 130, step_num=i) for i, at in enumerate(begins)]
    called = [event("PjitFunction(update)", at, CALL) for at in begins]
    ran = [_op(at + 20, 100, i) for i, at in enumerate(begins)]
    loads = [
        made
        for i, at in enumerate(begins)
        for made in (event("PjitFunction(augment)", at, 60), _op(at + 5, 50, 10 + i, "jit_augment"))
    ]
    asked = event("ThreadpoolListener::Record", 5, 0, _pt=15, _p=3)
    region = event("ThreadpoolListener::StartRegion", 19, 0, _ct=15, _c=3)
    main = line(*marked, *called, asked)
    pool = line(region, *ran, event("ThreadpoolListener::StopRegion", 125, 0), name="tf_XLAEigen", id=XLA)
    profile = read(space(plane(HOST, main, pool, line(*loads, name="loader", id=13))))
    ops = profile.host_ops.filter(pl.col("kind") == "op").sort("thread", "start_ns")
    assert ops["step"].to_list() == [*range(6), *[None] * 6]


@pytest.mark.parametrize(("name", "number"), [("serve", 5), ("InstantiatedCapturedFunction::RunWithBorrowedArgs", 0)])
def test_a_function_of_a_tf_data_pipeline_is_no_step(name: str, number: int):
    ranges = [event(name, 100 * i, 90) for i in range(5)]
    ops = [event(f"mul_{k}:Mul", 100 * i + 20 * k + 5, 15) for i in range(5) for k in range(4)]
    assert read(space(plane(HOST, line(*ranges, *ops)))).steps.height == number
