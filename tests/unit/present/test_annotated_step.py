"""The longest step as a picture: what runs, the gaps with cause, length and action."""

from __future__ import annotations

import pytest

from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.model.report import Events, Idle, Piece, Timeline
from advisor.present.actions import becomes, sequence
from advisor.present.charts import annotated_step
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, THIRTY_TWO_BIT, changed, part
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


def test_of_two_actions_that_shorten_a_part_its_label_has_the_one_that_saves_more_of_it():
    """The first saves 40 ms of copies and 3 of input, the second 35 of input."""
    first = changed(THIRTY_TWO_BIT, saving=changed(won(43, 43, "memcpy", ""), parts={"memcpy": 40.0, "input": 3.0}))
    second = changed(INPUT_BOUND, saving=changed(won(20, 35, "input", ""), parts={"input": 35.0}))
    parts = (part("compute", 0.2), changed(part("input", 0.8), findings=(first.key, second.key)))
    account = changed(ACCOUNTING, parts=parts)
    data = drawn(line(((0, 10, "compute"),), ((10, 90, "input"),)), accounting=account, findings=(first, second))
    assert [gap["label"] for gap in data["gaps"]] == ["input 90 ms, action 2"]


def test_a_label_has_no_action_that_saves_less_than_half_of_its_part():
    """Of 142 ms of input the action saves 45, and another, that is not on the screen, the rest."""
    parts = (part("compute", 0.2), changed(part("input", 0.8), findings=(INPUT_BOUND.key, "other"), saved_ms=142.0))
    timeline, account = line(((0, 10, "compute"),), ((10, 90, "input"),)), changed(ACCOUNTING, parts=parts)

    def labels(high_ms: float) -> list[str]:
        finding = changed(INPUT_BOUND, saving=won(20, high_ms, "input", ""))
        return [gap["label"] for gap in drawn(timeline, accounting=account, findings=(finding,))["gaps"]]

    assert (labels(45), labels(90)) == (["input 90 ms"], ["input 90 ms, action 1"])


def test_a_label_counts_the_gaps_that_are_not_listed_too():
    data = drawn(line(((0, 10, "compute"),), ((10, 1, "input"),), parts_ns={"input": 60 * MS}))
    assert [gap["label"] for gap in data["gaps"]] == ["input 60 ms, action 1"]


def after(strip, low_ms, high_ms, of="input", **fields):
    """The picture with the label of the action, which has the numbers of its line and of the steps after actions."""
    saving = changed(won(low_ms, high_ms, of, ""), **fields)
    run = changed(RESNET, timeline=line(strip, ()), findings=(changed(INPUT_BOUND, saving=saving),))
    if "label" in (data := annotated_step(run)):
        change = data["label"].removeprefix("after action 1: ")
        assert becomes(run.actions[0], run).startswith(change)
        assert sequence(run)[1]["step"] == f"after 1: {change}"
    return data


STRIP = ((0, 40, "input"), (40, 40, "compute"), (80, 20, "input"))


def test_below_is_the_step_after_action_1_without_the_middle_of_what_it_saves():
    data = after(STRIP, 30, 59)
    assert [(bar["part"], bar["end"]) for bar in data["after"]] == [
        ("input", pytest.approx(0.4 * (1 - 0.25 / 0.6), abs=1e-3)),  # the middle is 44.5 of 178 ms, a quarter
        ("compute", pytest.approx(0.4 * (1 - 0.25 / 0.6) + 0.4, abs=1e-3)),
        ("input", pytest.approx(0.75, abs=1e-3)),
    ]
    assert data["label"] == "after action 1: 178 \u2192 119\u2013148 ms a step"
    assert data["says"].endswith("the middle of what it saves, 25 %, is taken out of input.")


def test_where_an_action_may_save_nothing_the_step_is_drawn_at_best():
    data = after(STRIP, 0, 89, low_share=0.0, high_share=0.5)
    assert (data["after"][-1]["end"], data["label"]) == (
        pytest.approx(0.5),
        "after action 1: 178 \u2192 89 ms a step at best",
    )
    assert "the most that it saves, 50 %" in data["says"]


def test_what_a_step_does_not_have_is_not_taken_out_of_it():
    assert "after" not in after(((0, 10, "input"), (10, 90, "compute")), 30, 59)
    assert "after" not in after(STRIP, 30, 59, "skew")
    assert "after" not in after(STRIP, 30, 59, after="input")


def test_without_work_of_a_device_there_is_no_picture():
    assert drawn(None) is None
    assert drawn(line(((0, 100, "input"),), ())) is None
