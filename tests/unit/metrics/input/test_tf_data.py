from __future__ import annotations

import pytest

from advisor.metrics.input.iterators import _at_once
from advisor.model.profile import Profile
from tests.tables import kernel, metrics_of, on_host, profile, step, view


def calls(*spans: tuple[int, int, int]) -> Profile:
    """Calls of (thread, start, end) in us."""
    host = [on_host("op", start, end, name="decode/fn:EagerPyFunc", thread=thread) for thread, start, end in spans]
    return profile([], host, [step(1, 0, 100, device=None)])


def test_calls_that_overlap_and_calls_that_take_turns():
    at_once = [(2, 0, 40), (3, 10, 50), (4, 30, 50)]  # 100 us of all threads within 50
    assert _at_once(view(calls(*at_once)), ":EagerPyFunc$") == pytest.approx(2.0)
    assert _at_once(view(calls((2, 0, 40), (3, 40, 50))), ":EagerPyFunc$") == 1.0
    assert _at_once(view(calls()), ":EagerPyFunc$") == 0.0


def test_launching_while_tf_data_works():
    host = [
        on_host("annotation", 0, 40, name="ExecutorState::Process", step=1),
        on_host("pipeline", 20, 90, name="Iterator::Map", thread=2),
    ]
    values = metrics_of(view(profile([kernel(30, 60)], host, [step(1, 0, 100)])))
    assert values["input_during_launch_share"] == pytest.approx(0.1)  # 20 to 30
    assert values["input_during_launch_part"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("op", "decodes"), [("DecodeJpeg", 0.6), ("DecodeCSV", 0.0)])
def test_the_op_that_runs_while_the_step_waits(op: str, decodes: float):
    pipeline = "Iterator::Root::Prefetch::ParallelMapV2"
    host = [
        on_host("input", 0, 50, name="IteratorGetNext"),
        on_host("pipeline", 0, 50, name=pipeline, thread=4, details='{"parallelism":2}'),
        *(on_host("op", start, end, name=f"a/b:{op}", thread=2) for start, end in ((0, 20), (60, 100))),  # 60: no wait
        on_host("op", 10, 30, name=f"c:{op}", thread=3),
        on_host("op", 30, 45, name="d:Resize", thread=3),
        on_host("op", 50, 100, name="train/e:MatMul"),
    ]
    values = metrics_of(view(profile([], host, [step(1, 0, 100, device=None)])))
    assert values["tf_data_op"] == op
    assert values["tf_data_op_share"] == pytest.approx(0.6)  # 0 to 30 of 50
    assert values["tf_data_decode_share"] == pytest.approx(decodes)


def test_no_op_runs_while_the_step_waits():
    host = [
        on_host("input", 0, 50, name="IteratorGetNext"),
        on_host("pipeline", 0, 50, name="Iterator::Root::Prefetch::ParallelMapV2", thread=4),
    ]
    values = metrics_of(view(profile([], host, [step(1, 0, 100, device=None)])))
    assert (values["tf_data_op"], values["tf_data_op_share"]) == ("", 0.0)
