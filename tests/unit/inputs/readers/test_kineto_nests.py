"""Ranges of a thread nest: an op that reaches over the end of the one around it has a wrong length."""

from __future__ import annotations

import gzip
import json
import random
from itertools import product
from pathlib import Path

import pytest

from advisor.engine import check
from advisor.errors import NoRuns, ReadError
from advisor.model.clause import Note
from advisor.model.profile import Profile
from advisor.model.report import Run
from tests.effort import every
from tests.strategies_kineto import Event, call, event, op, profile, step

FIXTURES = Path(__file__).parents[4] / "fixtures"
JOBS = ("torch-cpu-none", "torch-cpu-loader-sleep", "torch-cpu-item-each-step")


def lengths(made: Profile, name: str) -> list[int]:
    """Of the ops of that name, in microseconds."""
    return [ns // 1_000 for ns in made.host_ops.filter(name=name)["dur_ns"]]


def test_an_op_that_outlasts_the_one_around_it_is_left_out_and_told():
    made = profile(op(0, 100, "outer"), op(50, 53, "inner"), op(200, 50, "inner"))
    assert lengths(made, "inner") == [50]
    assert Note("unsound_ops", rows=1, ops=3) in made.salvaged


def test_of_two_that_cross_the_one_is_wrong_that_is_long_for_its_name():
    made = profile(op(0, 10, "a"), op(20, 900, "a"), op(40, 10, "a"), op(100, 1_000, "b"), op(1_200, 10, "a"))
    assert lengths(made, "a") == [10, 10, 10]
    assert lengths(made, "b") == [1_000]


def test_a_mark_of_a_step_may_begin_and_end_in_an_op():
    made = profile(op(0, 100, "outer"), step(1, 50, 1_000), op(1_000, 100, "outer"))
    assert lengths(made, "outer") == [100, 100]
    assert lengths(made, "ProfilerStep#1") == [1_000]
    assert not made.salvaged


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(op(50, 52, "inner"), id="by the 2 us of rounded times"),
        pytest.param(op(0, 100, "inner"), id="as long as the one around it"),
        pytest.param(op(50, 500, "inner", tid=12), id="on another thread"),
        pytest.param(event("python_function", "inner", 50, 500), id="a frame of Python"),
        pytest.param(call(50, 500, 1, "inner"), id="a call of the driver"),
    ],
)
def test_it_may_end_later(inner: Event):
    made = profile(op(0, 100, "outer"), inner)
    assert len(lengths(made, "inner")) == 1
    assert not made.salvaged


def test_three_are_left_out_and_four_are_refused():
    def crossing(count: int) -> list[Event]:
        return [of for at in range(0, 1_000 * count, 1_000) for of in (op(at, 100, "outer"), op(at + 50, 90, "inner"))]

    assert profile(*crossing(3)).host_ops.height == 3
    with pytest.raises(ReadError, match="4 of 8 ops end after one that they begin in"):
        profile(*crossing(4))


@pytest.mark.parametrize(("count", "job"), every(12, product([1, 5], JOBS)))
def test_wrong_lengths_give_no_finding_of_high_trust_that_is_not_there_without_them(
    job: str, count: int, tmp_path: Path
):
    (path,) = (FIXTURES / job).glob("*.json.gz")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    ops = [of for of in trace["traceEvents"] if of.get("cat") == "cpu_op"]
    for of in random.Random(1).sample(ops, count):  # noqa: S311 - the same ones each time
        of["dur"] = 500_000 if count > 1 else 1_000 * of["dur"]
    (tmp_path / path.stem).write_text(json.dumps(trace))
    try:
        (wrong,) = check([str(tmp_path)]).runs
    except NoRuns:
        return
    (plain,) = check([str(path)]).runs
    assert wrong.trust != "high" or times(wrong) <= times(plain)


def times(run: Run) -> set[str]:
    """The findings that save time."""
    return {finding.rule for finding in run.findings if finding.saving}
