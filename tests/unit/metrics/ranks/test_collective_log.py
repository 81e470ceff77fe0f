"""Whom a hang waits for, and who arrives last, by logs of collectives whose numbers are worked out by hand."""

from time import process_time

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.job import job_of
from advisor.analysis.job.rank import rank_of
from advisor.inputs.collective_logs import profile_of
from advisor.metrics.ranks.collective_log import communicators, hang
from advisor.model.clause import Missing

WORLD = {"group": "0", "group_name": "default_pg", "ranks": "0,1,2,3", "group_size": 4, "op": "all_reduce"}


def job(*calls):
    """The job of the ranks that made these calls, each as (rank, changed columns)."""
    numbers = sorted({rank for rank, _ in calls})
    ranks = []
    for rank in numbers:
        rows = [{"worker": rank, "sequence": 1, **WORLD, "completed": True} | more for of, more in calls if of == rank]
        process = {"worker": rank, "rank": rank, "world_size": 4, "name": f"rank {rank}", "file": f"{rank}"}
        ranks += map(rank_of, select_steps(profile_of([process], rows, "flight_recorder")).views)
    return job_of(ranks)


def all_of(ranks=range(4), **columns):
    return [(rank, columns) for rank in ranks]


def test_the_rank_that_has_not_called_what_the_others_are_in():
    stuck = hang(job(*all_of(line="train.py:3"), *all_of([0, 1, 3], sequence=2, completed=False, line="train.py:9")))
    assert (stuck.op, stuck.sequence, stuck.group_name, stuck.line) == ("all_reduce", 2, "default_pg", "train.py:9")
    assert (stuck.waiting, stuck.absent, stuck.elsewhere, stuck.unlogged) == ([0, 1, 3], [2], [], [])
    assert stuck.last_calls == [{"name": "rank 2", "what": "has left all_reduce 1 of default_pg, train.py:3"}]


def test_a_rank_that_calls_another_collective_in_its_place():
    calls = [*all_of([0, 1, 3], completed=False), (2, {"op": "broadcast", "completed": False})]
    stuck = hang(job(*calls))
    assert (stuck.waiting, stuck.missing, stuck.elsewhere) == ([0, 1, 3], [2], [2])
    assert stuck.last_calls == [{"name": "rank 2", "what": "is in broadcast 1 of default_pg"}]


def test_a_rank_without_a_log_is_missing_where_most_wait_and_not_where_one_log_is_all_there_is():
    assert hang(job(*all_of([0, 1, 3], completed=False))).unlogged == [2]
    assert hang(job(*all_of([0], completed=False))) == Missing("ranks_not_logged")


def test_of_hangs_that_wait_for_each_other_the_first_cause_counts():
    pair = {"group": "1", "group_name": "tp", "ranks": "2,3", "group_size": 2}
    calls = [*all_of(), *all_of([0, 1], sequence=2, completed=False), (2, pair), (3, pair)]
    calls += [(2, pair | {"sequence": 2, "completed": False})]  # rank 2 waits for rank 3, the others for both
    stuck = hang(job(*calls))
    assert (stuck.group_name, stuck.missing, stuck.waiting) == ("default_pg", [2, 3], [0, 1, 2])
    calls += [(3, {"sequence": 2, "completed": False})]  # rank 3 waits for rank 2, which waits for it: a cycle
    assert hang(job(*calls)).waiting == [0, 1, 2, 3]


def test_many_groups_take_no_millisecond_each():
    groups = [{"group": str(number), "sequence": 3, "ranks": "0,1", "completed": False} for number in range(10_000)]
    one = job(*((0, group) for group in groups), *((0, group | {"op": "send", "peer": 1}) for group in groups), (1, {}))
    began = process_time()
    assert len(hang(one).missing) == 1
    assert process_time() - began < 5  # it takes less than 1 s; a frame for each group took 35


PIPE = {"group": "2", "group_name": "pipe", "completed": False}


def message(op, rank, peer, sequence=1, **more):
    return (rank, PIPE | {"op": op, "peer": peer, "sequence": sequence} | more)


def test_a_chain_of_stages_waits_for_the_one_that_sends_nothing():
    calls = [message("send", 0, 1, completed=True), message("recv", 1, 0, completed=True)]
    calls += [message("recv", 1, 0, sequence=2, line="stage.py:7"), message("recv", 2, 1), message("recv", 3, 2)]
    stuck = hang(job(*calls))
    assert (stuck.op, stuck.sequence, stuck.group_name, stuck.line) == ("recv", 2, "pipe", "stage.py:7")
    assert (stuck.waiting, stuck.missing) == ([1, 2, 3], [0])
    assert stuck.last_calls == [{"name": "rank 0", "what": "has left send 1 of pipe"}]


def test_messages_are_matched_in_order_whatever_each_rank_counts():
    sent, received = [message("send", 0, 1, sequence=n) for n in (7, 8)], message("recv", 1, 0, sequence=3)
    stuck = hang(job(*sent, received, *all_of()))
    assert (stuck.op, stuck.sequence, stuck.waiting, stuck.missing) == ("send", 8, [0], [1])
    assert hang(job(*sent[:1], received, *all_of())) == Missing("no_rank_missing")


def test_of_a_message_to_a_rank_without_a_log_half_of_the_logs_must_be_here():
    assert hang(job(message("recv", 0, 3))) == Missing("ranks_not_logged")
    assert hang(job(message("recv", 0, 3), *all_of([1]))).unlogged == [3]


def test_the_last_call_of_a_missing_rank_whose_progress_is_not_logged_is_only_called():
    stuck = hang(job((2, {"completed": None}), *all_of([0, 1, 3], sequence=2, completed=False)))
    assert stuck.last_calls == [{"name": "rank 2", "what": "called all_reduce 1 of default_pg"}]


def test_ranks_that_wait_for_nobody_and_sizes_that_nothing_tells_are_no_division_by_zero():
    (row,) = communicators(job(*all_of(dur_ns=300))).to_dicts()
    assert (row["wait_share"], row["last_share"], row["bus_gbs"]) == (0, 0, None)
    sizes = [{"sequence": 1}, {"sequence": 2, "bytes": 800}]
    (row,) = communicators(job(*[call for of in sizes for call in all_of(dur_ns=300, **of)])).to_dicts()
    assert row["bus_gbs"] == 800 * 1.5 / 300


def test_a_job_that_goes_on_hangs_nowhere():
    started = all_of(sequence=2, completed=False)  # the devices are at it; rank 1's host is ahead
    assert hang(job(*all_of(), *started, (1, {"sequence": 3, "completed": False}))) == Missing("no_rank_missing")
    assert hang(job(*all_of(completed=None))) == Missing("progress_not_logged")


def test_no_bandwidth_is_told_that_no_link_of_any_gpu_reaches():
    calls = [all_of(sequence=n, bytes=nbytes, dur_ns=300) for n, nbytes in ((1, 800), (2, 1 << 30))]
    (row,) = communicators(job(*calls[0], *calls[1])).to_dicts()
    assert row["bus_gbs"] is None


def test_the_shortest_member_came_last_and_the_rest_is_waiting():
    took = [
        (rank, {"sequence": n, "bytes": 1 << 17, "dur_ns": ns}) for n in (1, 2) for rank, ns in ((0, 900), (1, 300))
    ]
    (row,) = communicators(job(*took)).to_dicts()
    assert row == {
        "group": "default_pg",
        "op": "all_reduce",
        "group_size": 4,
        "calls": 2,
        "bytes": 1 << 17,
        "bus_gbs": pytest.approx((1 << 17) * 2 * 3 / 4 / 300),
        "wait_share": pytest.approx(600 / 1200),
        "last": 1,
        "last_share": 1.0,
    }


def test_what_members_leave_one_by_one_and_what_one_rank_logged_shows_no_waiting():
    assert not communicators(job(*all_of(op="broadcast", dur_ns=5), (0, {"sequence": 2, "dur_ns": 5}))).height
