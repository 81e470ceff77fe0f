"""The longest step as a picture: what runs, the gaps with cause, length and action."""

from __future__ import annotations

import pytest

from advisor.model.report import Events, Idle, Timeline, Track
from advisor.present.charts import annotated_step
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, changed, part
from tests.render_samples import saving as won

MS = 1_000_000
TRACKS = (Track(kind="stream", number=7), Track(kind="thread", number=1))


def line(kinds, starts, idle, tracks=TRACKS):
    """A step of 100 ms: events of 10 ms on the stream, and one on the thread."""
    size = len(starts)
    texts = tuple(dict.fromkeys((*kinds, "op")))
    events = Events(
        track=(*(0,) * size, 1),
        name=(0,) * (size + 1),
        kind=(*(texts.index(kind) for kind in kinds), texts.index("op")),
        depth=(0,) * (size + 1),
        start_ns=(*(start * MS for start in starts), 0),
        dur_ns=(*(10 * MS,) * size, 99 * MS),
    )
    return Timeline(
        worker=0,
        device=0,
        step=9,
        start_ns=0,
        dur_ns=100 * MS,
        recorded=size + 1,
        tracks=tracks,
        texts=texts,
        events=events,
        idle=tuple(Idle(start_ns=int(start * MS), dur_ns=int(dur * MS), cause=cause) for start, dur, cause in idle),
        shows={},
    )


def drawn(timeline, **fields):
    return annotated_step(changed(RESNET, timeline=timeline, **fields))


def test_what_runs_back_to_back_is_one_bar_and_kinds_stay_apart():
    data = drawn(line(("kernel", "kernel", "memcpy"), (0, 10, 20), ()))
    bars = [(round(bar["start"], 3), round(bar["end"], 3), bar["part"]) for bar in data["bars"]]
    assert bars == [(0, 0.2, "compute"), (0.2, 0.3, "memcpy")]


def test_a_gap_has_its_cause_its_length_and_the_action_that_shortens_it():
    parts = (part("compute", 0.5), changed(part("input", 0.5), findings=("input-bound",)))
    account = changed(ACCOUNTING, parts=parts)
    finding = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    idle = ((10, 30, "input"), (40.5, 9.5, "input"), (60, 1, "sync"), (70, 3, "sync"))
    data = drawn(line(("kernel",), (0,), idle), accounting=account, findings=(finding,))
    assert [gap["label"] for gap in data["gaps"]] == ["input 40 ms, action 1", "synchronising 4 ms"]
    assert (data["gaps"][0]["start"], data["gaps"][0]["end"]) == pytest.approx((0.1, 0.4))  # the longest of the two


def test_without_work_of_a_device_there_is_no_picture():
    assert drawn(None) is None
    assert drawn(line(("kernel",), (0,), (), tracks=TRACKS[1:] * 2)) is None
