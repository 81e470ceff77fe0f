"""What kernels and collectives are taken to wait for, on timelines small enough to read; times in microseconds."""

from __future__ import annotations

import polars as pl
import pytest

from advisor.model.intervals import Intervals
from advisor.whatif.job_replay import operations, replay, replayed
from tests import ranks as of_job
from tests.straggler_study import explained

US = 1000

COLLECTIVES = {
    "rank": pl.Int64,
    "step": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "instance": pl.String,
    "type": pl.String,
    "stream": pl.Int64,
}


def job(ranks):
    """Per rank: kernels (start, end), the step's begin and end, collectives (start, end, stream)."""
    busy = {
        rank: Intervals.of([start * US for start, _ in kernels], [end * US for _, end in kernels])
        for rank, (kernels, _, _) in enumerate(ranks)
    }
    steps = [(rank, 1, begin * US, end * US) for rank, (_, (begin, end), _) in enumerate(ranks)]
    ran = [
        (rank, 1, start * US, end * US, f"c{number}", "all_reduce", stream)
        for rank, (_, _, collectives) in enumerate(ranks)
        for number, (start, end, stream) in enumerate(collectives)
    ]
    return operations(
        busy,
        pl.DataFrame(steps, schema=["rank", "step", "start_ns", "end_ns"], orient="row"),
        pl.DataFrame(ran, schema=COLLECTIVES, orient="row"),
    )


def shown(ops, rank=0):
    """Type, start and length of what takes time on a rank, by start."""
    rows = ops.filter(pl.col("rank") == rank, pl.col("dur_ns") > 0).sort("start_ns", maintain_order=True)
    return [(kind, start / US, dur / US) for kind, start, dur in rows.select("type", "start_ns", "dur_ns").iter_rows()]


def waits(ops, after, before):
    """What collectives wait for and what waits for them: where it starts, by which."""
    started, ended = ops[after], ops[before]
    end = ended["start_ns"] + ended["dur_ns"]
    rows = zip(started["type"], started["start_ns"] / US, ended["type"], end / US, strict=True)
    met = {"all_reduce", "arrival"}
    across = [row for row in rows if (row[0] in met) != (row[2] in met)]
    return sorted(across, key=lambda row: row[1])


WAITED = ([(10, 40), (45, 60), (80, 100)], (0, 100), [(60, 78, 7)])


def test_a_collective_that_the_kernels_wait_for():
    ops, *edges = job([WAITED])
    assert shown(ops) == [
        ("segment", 0, 60),
        ("all_reduce", 60, 18),
        ("segment", 78, 22),
    ]
    assert waits(ops, *edges) == [("arrival", 60, "segment", 60), ("segment", 78, "all_reduce", 78)]


def test_a_collective_that_kernels_go_on_beside():
    ops, *edges = job([([(0, 100)], (0, 100), [(60, 78, 7)])])
    assert shown(ops) == [("segment", 0, 60), ("segment", 60, 40), ("all_reduce", 60, 18)]
    assert waits(ops, *edges) == [("arrival", 60, "segment", 60)]


def test_idle_time_that_outlasts_the_collective_is_the_hosts():
    ops, *edges = job([([(0, 50), (90, 100)], (0, 100), [(50, 60, 7)])])
    assert shown(ops) == [("segment", 0, 50), ("segment", 50, 50), ("all_reduce", 50, 10)]
    assert waits(ops, *edges) == [("arrival", 50, "segment", 50)]


def test_what_a_collective_took_to_start_is_the_hosts():
    ops, *_ = job([([(0, 50), (91, 100)], (0, 100), [(55, 90, 7)])])
    assert shown(ops)[:3] == [("segment", 0, 50), ("arrival", 50, 5), ("all_reduce", 55, 35)]


def test_a_queued_collective_waits_for_no_kernel():
    ops, *edges = job([([(0, 90)], (0, 120), [(30, 60, 7), (62, 119, 7)])])
    assert [row for row in waits(ops, *edges) if row[0] == "arrival" and row[2] == "segment"] == [
        ("arrival", 30, "segment", 30)
    ]
    assert ("arrival", 60, 2) in shown(ops)


def test_the_majority_says_what_is_waited_for():
    other = ([(0, 60), (95, 100)], (0, 100), [(60, 78, 7)])
    ops, *edges = job([WAITED, WAITED, other])
    assert len(waits(ops, *edges)) == 6  # each collective waits, and is waited for
    ops, *edges = job([WAITED, other, other])
    assert len(waits(ops, *edges)) == 3


def test_other_steps_are_left_out_and_a_step_may_lack_collectives():
    ops, *edges = job([([(0, 60)], (0, 100), [])])
    assert shown(ops) == [("segment", 0, 100)]
    assert waits(ops, *edges) == []


def test_the_late_rank_is_named():
    def rank(compute):
        done = 10 + compute
        return ([(10, done), (142, 150)], (0, 150), [(done, 140, 7)])

    ops, *edges = job([rank(100), rank(100), rank(120), rank(100)])
    made = replay(ops, *edges)
    assert made is not None
    assert made.error == pytest.approx(0)
    assert made.step_ms == pytest.approx(0.150)
    assert made.ideal.step_ms == pytest.approx(0.135)  # 105 of compute each
    assert made.slowdown == pytest.approx(150 / 135)
    assert next(iter(explained(made, "rank").items())) == pytest.approx((2, 1.0))


def test_of_more_calls_than_memory_is_worth_the_first_steps_are_replayed(monkeypatch):
    of_steps = range(4)  # of 1 ms: each rank computes for 400 or 600 us, then all sum up until 800 us
    ranks = [
        of_job.rank(
            worker,
            [of_job.call(1000 * n + took, 1000 * n + 800, step=n, sequence=n) for n in of_steps],
            [of_job.spent(n, 1000 * n, 1000 * n + 1000) for n in of_steps],
            [(1000 * n, 1000 * n + took) for n in of_steps],
        )
        for worker, took in enumerate((400, 600))
    ]
    whole = replayed(of_job.job(*ranks))
    assert (whole.steps, whole.ops["step"].n_unique()) == (4, 4)
    for most, steps in ((8, 4), (5, 2), (1, 1)):  # two calls in each step
        monkeypatch.setattr("advisor.analysis.job.job._MOST_CALLS", most)
        some = replayed(of_job.job(*ranks))
        assert (some.steps, some.step_ms) == (steps, pytest.approx(whole.step_ms))
