"""Laws of the straggler what-if, on jobs that start all that can start."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.intervals import Intervals
from advisor.whatif.job_replay import START, JobReplay, operations, replay
from tests.effort import examples
from tests.straggler_study import explained, in_queues

some = examples(0.25)

US: Final = 1000


@st.composite
def loops(draw) -> pl.DataFrame:
    """Operations of a job without gaps: in each step every rank computes, then all meet, and so on."""
    ranks, steps, rounds = (draw(st.integers(1, most)) for most in (4, 3, 4))
    length = st.integers(1, 50).map(lambda us: us * US)
    rows = []
    for step in range(steps):
        at = np.zeros(ranks, np.int64)
        for number in range(rounds):
            compute = np.array([draw(length) for _ in range(ranks)])
            end = int((at + compute).max()) + draw(length)
            for rank in range(ranks):
                start = int(at[rank] + compute[rank])
                rows.append((rank, step, f"compute {number}", "compute", int(at[rank]), int(compute[rank]), None))
                rows.append((rank, step, "all_reduce", "collective", start, end - start, number))
            at[:] = end
    names = ["rank", "step", "type", "kind", "start_ns", "dur_ns", "instance"]
    table = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return table.with_columns(op=pl.int_range(pl.len(), dtype=pl.Int64), run="step", queue=pl.lit("main"), group=0)


def again(ops: pl.DataFrame) -> JobReplay:
    made = replay(*in_queues(ops, pl.DataFrame(schema={"op": pl.Int64, "after": pl.Int64})))
    assert made is not None
    return made


def figures(made: JobReplay) -> list[float]:
    shares = [share or 0 for column in ("rank", "type") for _, share in sorted(explained(made, column).items())]
    return [made.step_ms, made.ideal.step_ms, *shares]


@some
@given(loops())
def test_the_unchanged_replay_is_the_recording(ops):
    made = again(ops)
    assert made.runs_ms == pytest.approx(made.recorded_ms)


@pytest.mark.soak
@some
@given(loops())
def test_the_ideal_steps_are_alike(ops):
    assert np.ptp(again(ops).ideal.runs_ms) == pytest.approx(0)


@pytest.mark.soak
@some
@given(loops())
def test_steps_in_one_run_take_as_long_as_each_by_itself(ops):
    later = pl.col("start_ns") + 1000 * pl.col("step") * US
    one_by_one, as_one = again(ops), again(ops.with_columns(later, run=0))
    assert (len(as_one.runs_ms), as_one.steps) == (1, one_by_one.steps)
    assert as_one.step_ms == pytest.approx(one_by_one.step_ms)


@some
@given(loops())
def test_a_replay_of_the_ideal_has_nothing_to_explain(ops):
    made = again(ops)
    ideal = made.ops.with_columns(dur_ns=pl.Series(made.typical)).filter(pl.col("type") != START)
    # the members of an instance take as long as their transfer: nobody waits any more
    steady = again(ideal.with_columns(start_ns=pl.col("dur_ns").cum_sum().shift(fill_value=0).over("step", "rank")))
    assert steady.slowdown == pytest.approx(1)
    assert steady.ideal.step_ms == pytest.approx(made.ideal.step_ms)
    assert set(explained(steady, "rank").values()) == {None}


@some
@given(loops())
def test_no_rank_is_quicker_than_its_own_work(ops):
    made = again(ops)
    work = ops.with_columns(own=pl.col("dur_ns").min().over("step", "instance", "type", "rank"))
    own = work.filter(pl.col("kind") == "compute").group_by("step", "rank").agg(pl.col("own").sum() / 1e6)
    least = own.group_by("step").agg(pl.col("own").max()).sort("step")["own"]
    assert (made.runs_ms >= least.to_numpy() - 1e-9).all()


@pytest.mark.soak
@some
@given(loops(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(ops, random):
    order = list(range(len(ops)))
    random.shuffle(order)
    assert figures(again(ops[order])) == pytest.approx(figures(again(ops)), abs=1e-5)


@st.composite
def profiled(draw):
    """A profiled data-parallel job: buckets reduced beside the backward pass, the optimizer after the last one."""
    ranks, steps, buckets = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    transfer = draw(st.integers(50, 3000)) * US
    slow, factor = draw(st.integers(0, ranks - 1)), draw(st.sampled_from([1.0, 1.5]))
    pace = np.where(np.arange(ranks) == slow, factor, 1.0)
    forward, backward, update = (np.rint(pace * us * US).astype(np.int64) for us in (4000, 1000, 500))
    kernels, windows, collectives = [], [], []
    at = np.zeros(ranks, np.int64)

    def run(length, gap):
        start = at + gap
        kernels.extend((rank, int(start[rank]), int((start + length)[rank])) for rank in range(ranks))
        return start + length

    for step in range(steps):
        begin, free = at.copy(), np.zeros(ranks, np.int64)
        at = run(forward, 70 * US)
        for number in range(buckets):
            at = run(backward, 2 * US)
            start = np.maximum(at + 3 * US, free + 2 * US)
            free[:] = start.max() + transfer
            collectives.extend(
                (rank, step, int(start[rank]), int(free[rank]), number, "all_reduce", 7) for rank in range(ranks)
            )
        at = run(update, np.maximum(at, free) - at + 5 * US)
        windows.extend((rank, step, int(begin[rank]), int(at[rank])) for rank in range(ranks))
        at = at + 4 * US
    busy = {
        rank: Intervals.of(
            [start for r, start, _ in kernels if r == rank],
            [end for r, _, end in kernels if r == rank],
        )
        for rank in range(ranks)
    }
    names = ["rank", "step", "start_ns", "end_ns", "instance", "type", "stream"]
    return (
        busy,
        pl.DataFrame(windows, schema=names[:4], orient="row"),
        pl.DataFrame(collectives, schema=names, orient="row"),
        slow if factor > 1 else None,
    )


@some
@given(profiled())
def test_a_profiled_job_is_replayed_as_recorded_and_its_slow_rank_is_named(job):
    busy, steps, collectives, slow = job
    made = replay(*operations(busy, steps, collectives))
    assert made is not None
    assert made.runs_ms == pytest.approx(made.recorded_ms, rel=1e-6)
    if slow is None:
        assert made.slowdown == pytest.approx(1, abs=1e-3)
    else:
        assert made.slowdown > 1
        assert next(iter(explained(made, "rank").items())) == (slow, pytest.approx(1, abs=0.05))
        assert next(iter(explained(made, "type"))) == "segment"


@some
@given(profiled())
def test_time_is_not_lost_among_segments(job):
    busy, steps, collectives, _ = job
    ops, *_ = operations(busy, steps, collectives)
    own = ops.filter(pl.col("type") == "segment").group_by("rank").agg(pl.col("dur_ns").sum())
    lasted = steps.group_by("rank").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    for rank, own_ns, lasted_ns in own.join(lasted, on="rank").rows():
        assert busy[rank].total <= own_ns <= lasted_ns
    assert (ops["dur_ns"] >= 0).all()
