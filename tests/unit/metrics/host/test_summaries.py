"""Summaries and the silence of their thread before them."""

import pytest

from advisor.model.profile import Profile
from tests.tables import metrics_of, on_host, profile, step, view

RUN = on_host("annotation", 0, 50, name="FunctionRun")
WRITES = [
    on_host("op", 90, 95, name="EagerLocalExecute: WriteScalarSummary"),
    on_host("op", 96, 99, name="loss:FlushSummaryWriter"),
]
OTHER = on_host("op", 0, 98, name="other", thread=7)


def tensorflow(*host: dict[str, object]) -> Profile:
    return profile([], host, [step(1, 0, 100, device=None)], workers=[{"worker": 0, "framework": "tensorflow"}])


def test_a_callback_begins_where_its_thread_fell_silent():
    assert metrics_of(view(tensorflow(RUN, *WRITES, OTHER)))["summary_share"] == pytest.approx(0.49)  # from 50 to 99


def test_ops_that_write_no_summary_are_no_callback():
    read = WRITES[0] | {"name": "EagerLocalExecute: ReadVariableOp"}
    assert metrics_of(view(tensorflow(RUN, read)))["summary_share"] == 0
