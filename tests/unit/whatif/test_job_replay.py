"""The straggler what-if on jobs small enough to work out by hand, and on a published one; times in microseconds."""

from __future__ import annotations

import json

import polars as pl
import pytest

from advisor.whatif.job_replay import JobReplay, replay
from tests.straggler_study import TRACES, explained, in_queues, operations

US = 1000

PUBLISHED = TRACES / "result-SE.json"
needs_study = pytest.mark.skipif(not PUBLISHED.exists(), reason=f"{PUBLISHED} is not here")


def op(rank, name, start, dur, **columns):
    return {
        "rank": rank,
        "step": 1,
        "queue": "main",
        "type": name,
        "kind": "collective" if "instance" in columns else "compute",
        "start_ns": start * US,
        "dur_ns": dur * US,
        "instance": None,
    } | columns


def table(*rows):
    schema = {"instance": pl.String}
    rows = [{"run": row["step"], "group": row["type"]} | row for row in rows]
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None).with_row_index("op").cast({"op": int})


def waits(*edges):
    return pl.DataFrame(edges, schema={"op": pl.Int64, "after": pl.Int64}, orient="row")


def made(*rows, edges=()) -> JobReplay:
    job = replay(*in_queues(table(*rows), waits(*edges)))
    assert job is not None
    return job


TWO_STEPS = [
    op(0, "forward", 0, 10),
    op(0, "all_reduce", 10, 25, instance="a"),
    op(1, "forward", 0, 30),
    op(1, "all_reduce", 30, 5, instance="a"),
    op(0, "forward", 100, 20, step=2),
    op(0, "all_reduce", 120, 5, step=2, instance="a"),
    op(1, "forward", 100, 20, step=2),
    op(1, "all_reduce", 120, 5, step=2, instance="a"),
]


def test_a_rank_that_is_late_once():
    job = made(*TWO_STEPS)
    assert job.recorded_ms == pytest.approx([0.035, 0.025])
    assert job.runs_ms == pytest.approx([0.035, 0.025])
    assert job.ideal.runs_ms == pytest.approx([0.025, 0.025])
    assert (job.step_ms, job.ideal.step_ms) == pytest.approx((0.030, 0.025))
    assert job.error == pytest.approx(0)
    assert job.slowdown == pytest.approx(1.2)
    assert explained(job, "rank") == pytest.approx({1: 1.0, 0: 0.0})
    assert next(iter(explained(job, "rank"))) == 1
    assert explained(job, "type") == pytest.approx({"forward": 1.0, "all_reduce": 0.0, "start": 0.0})


# us       0        10     15   20        30  35       45     50  55
# rank 0   forward  | sum  |tail| forward  | sum, waits 15    |tail|
# rank 1   forward  | sum  | tail of 20     | forward  | sum  |tail|
LATE_OUT = [
    *(op(rank, "forward", 0, 10) for rank in (0, 1)),
    *(op(rank, "all_reduce", 10, 5, instance="a") for rank in (0, 1)),
    op(0, "tail", 15, 5),
    op(1, "tail", 15, 20),
    op(0, "forward", 20, 10, step=2),
    op(1, "forward", 35, 10, step=2),
    op(0, "all_reduce", 30, 20, step=2, instance="a"),
    op(1, "all_reduce", 45, 5, step=2, instance="a"),
    *(op(rank, "tail", 50, 5, step=2) for rank in (0, 1)),
]


def test_lateness_that_a_rank_brings_along_counts_in_the_step_that_made_it_late():
    job = made(*(row | {"run": 0} for row in LATE_OUT))
    tail = (5 + 20 + 5 + 5) / 4
    assert (job.steps, job.recorded_ms) == (2, pytest.approx([0.055]))
    assert job.step_ms == pytest.approx(0.0275)
    assert job.ideal.step_ms == pytest.approx(0.015 + tail / 1000)
    assert explained(job, "type")["start"] == pytest.approx(0)
    apart = made(*LATE_OUT)  # step 2 takes 35 us from the first rank's begin, of which rank 1 is late for 15
    assert apart.recorded_ms == pytest.approx([0.035, 0.035])
    assert explained(apart, "type")["start"] > 0.2


def test_a_transfer_that_is_slow_once_counts_without_the_waiting_for_it():
    rows = [
        op(rank, "all_reduce", 10 * rank, took - 10 * rank, step=step, instance="a")
        for step, took in ((1, 15), (2, 15), (3, 45))
        for rank in (0, 1)
    ]
    job = made(*rows)  # transfers of 5, 5 and 35 after rank 1 came, which began 10 later
    assert job.runs_ms == pytest.approx([0.015, 0.015, 0.045])
    assert job.ideal.runs_ms == pytest.approx([0.005] * 3)  # both begin together
    assert explained(job, "type") == pytest.approx({"start": 0.5, "all_reduce": 0.5})


def test_a_stage_waits_for_what_it_receives():
    rows = [
        op(0, "forward", 0, 10, stage=0),
        op(0, "send", 10, 4, stage=0, queue="p2p", instance="a", kind="p2p"),
        op(1, "receive", 0, 14, stage=1, queue="p2p", instance="a", kind="p2p"),
        op(1, "forward", 14, 20, stage=1),
    ]
    job = made(*rows, edges=[(1, 0), (3, 2)])
    assert job.step_ms == pytest.approx(0.034)
    assert job.ideal.step_ms == pytest.approx(0.034)  # two stages of 15 instead of 10 and 20
    assert explained(job, "stage") == {0: None, 1: None}


def test_one_that_begins_late():
    rows = [
        op(0, "forward", 0, 10),
        op(0, "all_reduce", 10, 10, instance="a"),
        op(1, "forward", 6, 10),
        op(1, "all_reduce", 16, 4, instance="a"),
    ]
    job = made(*rows)
    assert (job.step_ms, job.ideal.step_ms) == pytest.approx((0.020, 0.014))
    assert explained(job, "type")["start"] == pytest.approx(1)
    assert job.error == pytest.approx(0)


def test_groups_are_typical_by_themselves():
    rows = [
        op(0, "compute", 0, 10, group="first"),
        op(0, "compute", 10, 50, group="second"),
        op(1, "compute", 0, 20, group="first"),
        op(1, "compute", 20, 50, group="second"),
    ]
    assert made(*rows).ideal.step_ms == pytest.approx(0.065)


def test_a_rank_like_the_others_is_like_the_typical_one_of_them_not_like_a_slow_one():
    rows = [op(rank, "compute", 0, dur) for rank, dur in enumerate((10, 12, 14, 100))]
    assert made(*rows).like_others(0).own.tolist()[-4:] == [14 * US, 12 * US, 14 * US, 100 * US]
    assert made(*rows).like_others(3).own.tolist()[-4:] == [10 * US, 12 * US, 14 * US, 12 * US]
    assert made(*rows[1:3], rows[3]).like_others(1).own.tolist()[-3:] == [
        14 * US,
        14 * US,
        100 * US,
    ]  # the lower of two


def test_recorded_waiting_that_no_dependency_tells_shows_as_error():
    job = made(op(0, "forward", 0, 10), op(0, "backward", 30, 10))
    assert job.step_ms == pytest.approx(0.020)
    assert job.error == pytest.approx(-0.5)


def test_what_cannot_be_replayed_is_none():
    ring = table(op(0, "a", 0, 1, queue="x"), op(0, "b", 0, 1, queue="y"))
    assert replay(*in_queues(ring, waits((0, 1), (1, 0)))) is None
    crossed = [op(r, "a", i, 1, instance=name) for r, names in enumerate(("ab", "ba")) for i, name in enumerate(names)]
    assert replay(*in_queues(table(*crossed), waits())) is None
    assert replay(*in_queues(ring.clear(), waits())) is None
    assert replay(*in_queues(table(op(0, "a", 0, 0)), waits())) is None


@pytest.fixture(scope="module")
def study() -> JobReplay:
    job = replay(*in_queues(*operations(TRACES / "trace-SE.parquet")))
    assert job is not None
    return job


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = json.loads(PUBLISHED.read_text())
    return figures


@needs_study
def test_the_published_step_times(study, published):
    steps = sorted(study.ops["step"].unique())
    for ours, key in (
        (study.recorded_ms, "step_t_base"),
        (study.runs_ms, "step_t_nodelay"),
        (study.ideal.runs_ms, "step_t_noblk"),
    ):
        assert {str(step): ms / 1e3 for step, ms in zip(steps, ours, strict=True)} == pytest.approx(
            published[key], rel=1e-3
        )
    assert study.slowdown == pytest.approx(published["blocking_slowdown"], rel=1e-3)
    assert 1 / (1 + study.error) == pytest.approx(published["launch_slowdown"], rel=1e-3)


@needs_study
@pytest.mark.parametrize(("column", "key"), [("dp_rank", "dp_rank"), ("stage", "stage"), ("told_as", "optype")])
def test_the_published_slow_downs(study, published, column, key):
    for value, slowdown in published[f"blocking_decompose_by_{key}"].items():
        others = study.with_typical(~study.of(column, value if column == "told_as" else int(value)))
        assert others.step_ms / study.ideal.step_ms == pytest.approx(slowdown, rel=1e-3), value


@needs_study
def test_the_published_explained_share_of_the_last_stage(study):
    assert explained(study, "stage")[1] == pytest.approx(0.6877, abs=1e-3)  # ms-SE.json
