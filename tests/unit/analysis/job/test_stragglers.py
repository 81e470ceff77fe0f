"""The straggler what-if on jobs small enough to work out by hand, and on a published one; times in microseconds."""

from __future__ import annotations

import json

import polars as pl
import pytest

from advisor.analysis.job.stragglers import Replay, replay
from tests.straggler_study import TRACES, operations

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
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None).with_row_index("op").cast({"op": int})


def made(*rows, edges=None, **options) -> Replay:
    waits = None if edges is None else pl.DataFrame(edges, schema=["op", "after"], orient="row")
    job = replay(table(*rows), waits, **options)
    assert job is not None
    return job


def told(frame: pl.DataFrame, value: str) -> dict[object, object]:
    return dict(frame.select(frame.columns[0], value).iter_rows())


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
    assert job.steps.columns == ["step", "recorded_ms", "step_ms", "ideal_ms"]
    assert job.steps.row(0) == pytest.approx((1, 0.035, 0.035, 0.025))
    assert job.steps.row(1) == pytest.approx((2, 0.025, 0.025, 0.025))
    assert (job.step_ms, job.ideal_ms) == pytest.approx((0.030, 0.025))
    assert job.error == pytest.approx(0)
    assert job.slowdown == pytest.approx(1.2)
    assert told(job.by_rank, "slowdown") == pytest.approx({1: 1.2, 0: 1.0})
    assert told(job.by_rank, "explained_share") == pytest.approx({1: 1.0, 0: 0.0})
    assert job.by_rank["rank"][0] == 1
    assert told(job.by_type, "explained_share") == pytest.approx({"forward": 1.0, "all_reduce": 0.0, "start": 0.0})


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
    carried = pl.DataFrame({"step": [2, 2], "rank": [0, 1], "carried_ns": [0, 15 * US]})
    job = made(*LATE_OUT, carried=carried)
    tail = (5 + 20 + 5 + 5) / 4
    assert job.steps["recorded_ms"].to_list() == pytest.approx([0.035, 0.020])  # from 35 to 55
    assert job.steps["step_ms"].to_list() == pytest.approx([0.035, 0.020])
    assert job.steps["ideal_ms"].to_list() == pytest.approx([0.015 + tail / 1000] * 2)
    assert told(job.by_type, "explained_share")["start"] == pytest.approx(0)
    untold = made(*LATE_OUT)  # rank 0 takes 35 us for step 2 too, of which it waits 15
    assert untold.steps["recorded_ms"].to_list() == pytest.approx([0.035, 0.035])


def test_lateness_that_not_all_ranks_tell_is_not_taken_off():
    carried = pl.DataFrame({"step": [2], "rank": [1], "carried_ns": [15 * US]})
    assert made(*LATE_OUT, carried=carried).steps["step_ms"].to_list() == pytest.approx([0.035, 0.035])


def test_a_transfer_that_is_slow_once_counts_without_the_waiting_for_it():
    rows = [
        op(rank, "all_reduce", 10 * rank, took - 10 * rank, step=step, instance="a")
        for step, took in ((1, 15), (2, 15), (3, 45))
        for rank in (0, 1)
    ]
    job = made(*rows)  # transfers of 5, 5 and 35 after rank 1 came, which began 10 later
    assert job.steps["step_ms"].to_list() == pytest.approx([0.015, 0.015, 0.045])
    assert job.steps["ideal_ms"].to_list() == pytest.approx([0.005] * 3)  # both begin together
    assert told(job.by_type, "explained_share") == pytest.approx({"start": 0.5, "all_reduce": 0.5})


def test_a_stage_waits_for_what_it_receives():
    rows = [
        op(0, "forward", 0, 10, stage=0),
        op(0, "send", 10, 4, stage=0, queue="p2p", instance="a", kind="p2p"),
        op(1, "receive", 0, 14, stage=1, queue="p2p", instance="a", kind="p2p"),
        op(1, "forward", 14, 20, stage=1),
    ]
    job = made(*rows, edges=[(1, 0), (3, 2)])
    assert job.step_ms == pytest.approx(0.034)
    assert job.ideal_ms == pytest.approx(0.034)  # two stages of 15 instead of 10 and 20
    assert job.by("stage")["explained_share"].to_list() == [None, None]
    assert told(job.by("stage"), "slowdown") == pytest.approx({0: 29 / 34, 1: 39 / 34})


def test_one_that_begins_late():
    rows = [
        op(0, "forward", 0, 10),
        op(0, "all_reduce", 10, 10, instance="a"),
        op(1, "forward", 6, 10),
        op(1, "all_reduce", 16, 4, instance="a"),
    ]
    job = made(*rows)
    assert (job.step_ms, job.ideal_ms) == pytest.approx((0.020, 0.014))
    assert told(job.by_type, "explained_share")["start"] == pytest.approx(1)
    assert job.error == pytest.approx(0)


def test_groups_are_typical_by_themselves_and_kept_types_stay():
    rows = [
        op(0, "compute", 0, 10, group="first"),
        op(0, "compute", 10, 50, group="second"),
        op(1, "compute", 0, 20, group="first"),
        op(1, "compute", 20, 50, group="second"),
    ]
    assert made(*rows).ideal_ms == pytest.approx(0.065)
    assert made(*rows, constant=["compute"]).ideal_ms == pytest.approx(0.070)


def test_recorded_waiting_that_no_dependency_tells_shows_as_error():
    job = made(op(0, "forward", 0, 10), op(0, "backward", 30, 10))
    assert job.step_ms == pytest.approx(0.020)
    assert job.error == pytest.approx(-0.5)


def test_what_cannot_be_replayed_is_none():
    ring = table(op(0, "a", 0, 1, queue="x"), op(0, "b", 0, 1, queue="y"))
    assert replay(ring, pl.DataFrame({"op": [0, 1], "after": [1, 0]})) is None
    crossed = [op(r, "a", i, 1, instance=name) for r, names in enumerate(("ab", "ba")) for i, name in enumerate(names)]
    assert replay(table(*crossed)) is None
    assert replay(ring.clear()) is None
    assert replay(table(op(0, "a", 0, 0))) is None


@pytest.fixture(scope="module")
def study() -> Replay:
    job = replay(*operations(TRACES / "trace-SE.parquet"))
    assert job is not None
    return job


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = json.loads(PUBLISHED.read_text())
    return figures


@needs_study
def test_the_published_step_times(study, published):
    for column, key in (
        ("recorded_ms", "step_t_base"),
        ("step_ms", "step_t_nodelay"),
        ("ideal_ms", "step_t_noblk"),
    ):
        ours = study.steps.select("step", column)
        assert {str(step): ms / 1e3 for step, ms in ours.iter_rows()} == pytest.approx(published[key], rel=1e-3)
    assert study.slowdown == pytest.approx(published["blocking_slowdown"], rel=1e-3)
    assert 1 / (1 + study.error) == pytest.approx(published["launch_slowdown"], rel=1e-3)


@needs_study
@pytest.mark.parametrize(("column", "key"), [("dp_rank", "dp_rank"), ("stage", "stage"), ("told_as", "optype")])
def test_the_published_slow_downs(study, published, column, key):
    ours = {str(value): slowdown for value, slowdown, _ in study.by(column).iter_rows()}
    assert ours == pytest.approx(published[f"blocking_decompose_by_{key}"], rel=1e-3)


@needs_study
def test_the_published_explained_share_of_the_last_stage(study):
    assert told(study.by("stage"), "explained_share")[1] == pytest.approx(0.6877, abs=1e-3)  # ms-SE.json
