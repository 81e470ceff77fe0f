"""Pipelines by hand: stages and micro-batches told from the messages, the waiting split by the schedule's formula."""

from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from tests.ranks import call, job, rank, spent
from tests.tables import metrics_of


def chain(*, stages=3, messages=2, peers=True, last_ms=0.0, recorded=None):
    """Stages that hand each message on once they computed for 1 ms, a step of 8 ms: each message ends for both at once.

    Rank r computes message i from r + i to r + i + 1 ms, and asks for it right after the one before; the last stage
    takes `last_ms` longer for its first one.
    """
    ranks = []
    for r in range(stages):
        calls, work = [], []
        for i in range(messages):
            begin = (r + i) * 1000.0
            if r:
                since = begin - 1000.0 * r if i == 0 else begin
                calls.append(call(since, begin + 10, op="recv", peer=r - 1 if peers else None))
            work.append((begin + 10, begin + 990))
            if r < stages - 1:
                calls.append(call(begin + 1000, begin + 1010, op="send", peer=r + 1 if peers else None))
        ranks.append(rank(r, calls, [spent(1, 0, 8000 + 1000 * last_ms)], work, facts={"world_size": stages}))
    return job(*ranks[: recorded or stages])


def test_stages_and_micro_batches_are_told_from_the_messages():
    values = metrics_of(chain())
    assert (values["pipeline_stages"], values["micro_batches"]) == (3, 2)


def test_waiting_is_the_schedule_s_as_far_as_its_formula_goes():
    values = metrics_of(chain())
    # Rank 1 waits 1 ms for its first message, rank 2 waits 2; the mean of three ranks is 1 of the step's 8 ms.
    assert values["pipeline_wait_ms"] == pytest.approx(1, abs=0.02)
    assert values["schedule_bubble_ms"] == values["pipeline_wait_ms"]  # the formula allows 7 x 2 / 2 = 7 ms
    short = metrics_of(chain(messages=40))
    allowed = (8 - short["pipeline_wait_ms"]) * 2 / 40
    assert short["schedule_bubble_ms"] == pytest.approx(allowed)


def test_messages_without_a_peer_tell_no_stages():
    values = metrics_of(chain(peers=False))
    assert isinstance(values["pipeline_stages"], Missing)


def test_one_stage_alone_does_not_tell_what_it_waits():
    values = metrics_of(chain(recorded=1))
    assert isinstance(values["pipeline_wait_ms"], Missing)
    assert isinstance(metrics_of(chain(recorded=1))["pipeline_wait_share"], Missing)


def test_ranks_that_send_nothing_are_no_pipeline_and_wait_for_none():
    alone = job(rank(0, [call(0, 10)], [spent(1, 0, 100)], facts={"world_size": 8}))
    assert metrics_of(alone)["pipeline_wait_ms"] == Missing("no_point_to_point")
    assert metrics_of(alone)["pipeline_wait_share"] == 0
    assert isinstance(metrics_of(alone)["waiting_share"], Missing)
