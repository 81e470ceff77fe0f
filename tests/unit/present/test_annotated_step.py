"""The longest step as a picture: what runs, the gaps with cause, length and action."""

from __future__ import annotations

import pytest

from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.model.report import Events, Idle, Piece, Timeline
from advisor.present.charts import annotated_step
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, changed, part
from tests.render_samples import saving as won

MS = 1_000_000


def line(strip, idle, **fields):
    """A step of 100 ms; all in ms."""
    return Timeline(
        worker=0,
        device=0,
        step=9,
        start_ns=0,
        dur_ns=100 * MS,
        recorded=0,
        tracks=(),
        texts=(),
        events=Events(track=(), name=(), kind=(), depth=(), start_ns=(), dur_ns=()),
        idle=tuple(Idle(start_ns=int(start * MS), dur_ns=int(dur * MS), cause=cause) for start, dur, cause in idle),
        strip=tuple(Piece(start_ns=start * MS, dur_ns=dur * MS, part=part) for start, dur, part in strip),
        shows={},
        **fields,
    )


def drawn(timeline, **fields):
    return annotated_step(changed(RESNET, timeline=timeline, **fields))


def test_the_strip_is_drawn_as_shares_of_the_step():
    data = drawn(line(((0, 20, "compute"), (20, 80, "memcpy")), ()))
    assert data["bars"] == [{"start": 0, "end": 0.2, "part": "compute"}, {"start": 0.2, "end": 1, "part": "memcpy"}]


def test_a_gap_has_its_cause_its_length_and_the_action_that_shortens_it():
    parts = (part("compute", 0.5), changed(part("input", 0.5), findings=("input-bound",)))
    account = changed(ACCOUNTING, parts=parts)
    finding = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    idle = ((10, 30, "input"), (40.5, 9.5, "input"), (60, 1, "sync"), (70, 3, "sync"), (80, 1, "copy"))
    data = drawn(line(((0, 10, "compute"),), idle), accounting=account, findings=(finding,))
    assert [gap["label"] for gap in data["gaps"]] == ["input 40 ms, action 1", "synchronising 4 ms"]
    assert (data["gaps"][0]["start"], data["gaps"][0]["end"]) == pytest.approx((0.1, 0.4))  # the longest of the two


def test_a_label_has_the_number_that_an_action_has_behind_that_of_another_recording():
    salvaged = (Reason.of(Note("fragment", kernels=2.0, host=9.0)),)
    timeline = line(((0, 10, "compute"),), ((10, 30, "input"),))
    data = drawn(timeline, source=changed(RESNET.source, salvaged=salvaged))
    assert [gap["label"] for gap in data["gaps"]] == ["input 30 ms, action 2"]


def test_a_label_counts_the_gaps_that_are_not_listed_too():
    data = drawn(line(((0, 10, "compute"),), ((10, 1, "input"),), parts_ns={"input": 60 * MS}))
    assert [gap["label"] for gap in data["gaps"]] == ["input 60 ms, action 1"]


def test_without_work_of_a_device_there_is_no_picture():
    assert drawn(None) is None
    assert drawn(line(((0, 100, "input"),), ())) is None
