from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.collectives import gain_ms, traffic
from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.rank import rank_of
from advisor.metrics import METRICS
from advisor.metrics.communication.bandwidth import collective_table
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.effort import examples
from tests.tables import A100, Row, kernel, metrics_of, on_device, on_host, profile, step, values_of

BYTES = 24_000_000
# A ring of two A100: 8.4 us + 2 hops of 3.4 us + bytes / 240 GB/s
QUICK_US = BYTES / 240e3
EXPECTED_US = 8.4 + 2 * 3.4 + QUICK_US


def collective(start: float, end: float, rank: int, **facts: Any) -> tuple[Row, Row]:
    """A device op and what is known of the collective."""
    launched = facts.pop("launched", None)
    known = {"group": "0", "group_size": 2, "op": "all_reduce", "dtype": "Float", "bytes": BYTES, "ranks": "[0, 1]"}
    return on_device("collective", start, end, launched, worker=rank), known | facts | {"worker": rank}


def job(
    calls: list[tuple[Row, Row]],
    kernels: list[Row],
    host: list[Row] = (),
    world_size: int = 2,
    steps: int = 1,
) -> Job:
    """The job of ranks that each take 1000 us for a step."""
    ranks = {op["worker"] for op, _ in calls}
    made: Profile = profile(
        [*(op for op, _ in calls), *kernels],
        host,
        [step(n + 1, 1000 * n, 1000 * (n + 1), worker=rank) for rank in ranks for n in range(steps)],
        devices=[A100 | {"worker": rank, "device": device} for rank in ranks for device in range(8)],
        collectives=[{"device_op": i} | facts for i, (_, facts) in enumerate(calls)],
    )
    made = replace(made, workers=made.workers.with_columns(world_size=pl.lit(world_size, pl.Int32)))
    return job_of([rank_of(view) for view in select_steps(made, "all").views])


# us        0   100   200   300   400   500   600         1000
# rank 0    kernel===============================           |
#                 all_reduce, waits 200
# rank 1                      ==================            |
#                             kernel
CALLS = [collective(100, 600, 0), collective(300, 600, 1)]
KERNELS = [kernel(0, 100, worker=0), kernel(300, 400, worker=1)]
PAIR = job(CALLS, KERNELS)


def test_the_transfer_is_that_of_the_member_that_comes_last():
    rows = traffic(PAIR).sort("rank")
    assert rows["transfer_ns"].to_list() == [300_000, 300_000]
    assert rows["exact"].all()
    assert rows["exposed_ns"].to_list() == [300_000, 200_000]  # the second one's kernel hides 100 us


def test_bandwidth_against_what_the_link_allows():
    found = metrics_of(PAIR)
    assert found["bus_bandwidth_gbs"] == pytest.approx(BYTES / 300e3)
    assert found["expected_bus_bandwidth_gbs"] == pytest.approx(BYTES / (EXPECTED_US * 1e3))
    assert found["link_reached_share"] == pytest.approx(EXPECTED_US / 300)
    assert found["measured_transfer_ms"] == pytest.approx(0.3)
    assert found["expected_transfer_ms"] == pytest.approx(EXPECTED_US / 1e3)


def test_the_rank_that_takes_longest_decides_what_is_saved():
    # By itself rank 0 takes 800 us and rank 1 1000; without their exposed transfers 500 and 800.
    found = metrics_of(PAIR)
    assert found["exposed_transfer_ms"] == pytest.approx(0.2)
    assert found["slow_transfer_gain_ms"] == pytest.approx(0.3 - EXPECTED_US / 1e3, abs=1e-6)
    assert found["slow_transfer_least_gain_ms"] == pytest.approx(0.3 - EXPECTED_US / 0.75e3, abs=1e-6)
    assert found["hideable_gain_ms"] == 0  # rank 1 hides as much as its backward pass takes


def test_pauses_between_kernels_are_exposed_but_nothing_waits_for_the_transfer_in_them():
    beside = [kernel(100, 300), kernel(303, 400)]
    rows = traffic(job([collective(100, 400, rank) for rank in (0, 1)], [op | {"worker": 0} for op in beside]))
    mine = rows.filter(pl.col("rank") == 0)
    assert (mine["exposed_ns"].item(), mine["awaited_ns"].item()) == (3_000, 0)


def test_a_hidden_call_holds_up_those_behind_it():
    calls = [collective(start, start + 300, rank) for start in (100, 400) for rank in (0, 1)]
    hidden = job(calls, [kernel(100, 400, worker=rank) for rank in (0, 1)])
    found = metrics_of(hidden)
    assert found["slow_transfer_least_gain_ms"] == pytest.approx(0.3 - EXPECTED_US / 0.75e3, abs=1e-6)
    assert found["slow_transfer_gain_ms"] == pytest.approx(min(0.3, 2 * (0.3 - EXPECTED_US / 1e3)))


def test_exchanges_are_told_from_reductions():
    calls = [collective(100, 400, rank) for rank in (0, 1)]
    calls += [collective(500, 600, rank, op="all_to_all") for rank in (0, 1)]
    assert metrics_of(job(calls, []))["exposed_exchange_part"] == pytest.approx(100 / 400)


def test_without_a_backward_pass_nothing_could_be_hidden():
    calls = [collective(500, 800, rank) for rank in (0, 1)]
    kernels = [kernel(0, 500, worker=rank) for rank in (0, 1)]
    assert metrics_of(job(calls, kernels))["hideable_gain_ms"] == pytest.approx(0.3)
    inference = [on_host("op", 0, 10, name="aten::mm", worker=rank) for rank in (0, 1)]
    assert metrics_of(job(calls, kernels, inference))["hideable_gain_ms"] == 0
    training = [on_host("op", 0, 10, name="autograd::engine::evaluate_function: X", worker=rank) for rank in (0, 1)]
    assert metrics_of(job(calls, kernels, training))["hideable_gain_ms"] == pytest.approx(0.3)


def test_one_rank_of_two_has_an_upper_bound_of_the_transfer():
    calls = [collective(100, 600, 0), collective(1100, 1400, 0)]
    alone = job(calls, [kernel(0, 100, worker=0)], steps=2)
    rows = traffic(alone)
    assert rows["transfer_ns"].to_list() == [300_000, 300_000]
    assert not rows["exact"].any()
    found = metrics_of(alone)
    assert found["bus_bandwidth_gbs"] == pytest.approx(BYTES / 300e3)
    assert isinstance(found["link_reached_share"], Missing)
    assert found["link_reached_share"].values.items() >= {"here": 1, "world": 2}.items()
    assert found["transfer_told_share"] == 0
    assert metrics_of(alone)["hideable_least_gain_ms"] == 0


def test_a_bound_that_is_fast_enough_is_told():
    fast, slower = (job([collective(100, 100 + EXPECTED_US / share, 0)], []) for share in (0.8, 0.79))
    assert metrics_of(fast)["link_reached_share"] == pytest.approx(0.8, rel=1e-4)
    assert isinstance(metrics_of(slower)["link_reached_share"], Missing)


@pytest.mark.parametrize(
    ("members", "lasts", "told"),
    [
        (4, (100, 105, 110), True),
        (5, (100, 105, 110), False),  # less than half of them
        (4, (100, 105), False),  # too few to show that times follow sizes
        (4, (100, 150, 110), False),  # a rank that is missing may be late for the second
        (2, (100, 150), True),  # all are here
    ],
)
def test_half_of_the_members_tell_of_the_transfer_where_times_follow_sizes(
    members: int, lasts: tuple[int, ...], *, told: bool
):
    facts = {"group_size": members, "ranks": f"{list(range(members))}"}
    calls = [
        collective(200 * i + 10 * rank, 200 * i + 10 + us, rank, sequence=i, **facts)
        for i, us in enumerate(lasts)
        for rank in (0, 1)
    ]
    rows = traffic(job(calls, [], world_size=members))
    assert rows["exact"].to_list() == [members == 2] * rows.height
    assert rows["told"].to_list() == [told] * rows.height


def test_without_sizes_calls_are_alike_by_their_place():
    calls = [
        collective(start, start + long, 0, bytes=None) for start, long in ((0, 50), (500, 300), (1000, 70), (1500, 200))
    ]
    assert traffic(job(calls, [], steps=2))["transfer_ns"].to_list() == [50_000, 200_000, 50_000, 200_000]
    varying = [(op, facts | {"op": "all_to_all"}) for op, facts in calls]
    assert traffic(job(varying, [], steps=2))["transfer_ns"].to_list() == [50_000, 300_000, 70_000, 200_000]
    assert metrics_of(job(calls, [], steps=2))["bus_bandwidth_gbs"] == Missing("no_collective_sizes")


def test_small_reductions_against_whole_buckets():
    # 20 of 1 MB, 30 us each and back to back, with nothing beside them: 20 MB take 15.2 + 83.3 us at once.
    calls = [collective(30 * i, 30 * i + 30, rank, bytes=1_000_000, sequence=i) for i in range(20) for rank in (0, 1)]
    found = metrics_of(job(calls, []))
    assert found["small_reductions_per_step"] == 20
    assert found["small_reduction_share"] == 1
    assert found["merge_gain_ms"] == pytest.approx(0.6 - (15.2 + 20_000_000 / 240e3) / 1e3, rel=1e-3)
    assert metrics_of(PAIR)["merge_gain_ms"] == 0


def test_buffers_are_told_from_other_broadcasts_by_what_launched_them():
    forward = [on_host("annotation", 0, 50, name="DistributedDataParallel.forward", worker=rank) for rank in (0, 1)]
    calls = [
        collective(start, start + 100, rank, op="broadcast", launched=launched, bytes=1000)
        for start, launched in ((100, 30), (400, 390))
        for rank in (0, 1)
    ]
    found = metrics_of(job(calls, [], forward))
    assert found["buffer_broadcasts_per_step"] == 1
    assert found["buffer_broadcast_ms"] == pytest.approx(0.1)
    unknown = [(op | {"call": None}, facts) for op, facts in calls]
    assert isinstance(metrics_of(job(unknown, [], forward))["buffer_broadcast_ms"], Missing)


def test_groups_that_span_nodes():
    # Hosts show eight GPUs each: ranks 0 and 8 lie on different ones.
    calls = [collective(100, 400, rank, ranks="[0, 8]") for rank in (0, 1)]
    found = metrics_of(job(calls, []))
    assert found["cross_node_share"] == 1
    assert found["cross_node_ms"] == pytest.approx(0.3)
    assert found["cross_node_halved_ms"] == pytest.approx(0.15)
    assert metrics_of(PAIR)["cross_node_share"] == 0
    half = [(op, facts | {"dtype": "BFloat16"}) for op, facts in calls]
    assert metrics_of(job(half, []))["cross_node_halved_ms"] == 0


def on_one_host(made: Job) -> Job:
    return job_of([replace(each, facts={"host": "a"}) for each in made.ranks])


def test_the_slowest_of_several_pairs():
    def calls(first: int, second: int, us: float) -> list[tuple[Row, Row]]:
        return [
            collective(
                300 * i, 300 * i + us, rank, ranks=f"[{first}, {second}]", group=f"{first}{second}", op="send_recv"
            )
            for i in range(3)
            for rank in (first, second)
        ]

    made = job([*calls(0, 1, 100), *calls(2, 3, 200), *calls(4, 5, 100)], [], world_size=6)
    assert metrics_of(made)["slow_place"] == Missing("no_groups_alike")  # two of the pairs may be of one node each
    found = metrics_of(on_one_host(made))
    assert found["slow_place"] == "between ranks 2\N{EN DASH}3"
    assert found["slow_place_ratio"] == pytest.approx(2)


def sent(sender: int, receiver: int, us: float, late: float = 0) -> list[tuple[Row, Row]]:
    """Three messages of one rank to another, which asks for them `late` microseconds after they are sent."""
    told = {"ranks": "[0, 1, 2, 3]", "group_size": 4}
    made = []
    for i in range(3):
        begin, end = 300 * i, 300 * i + late + us
        made.append(collective(begin, end, sender, op="send", peer=receiver, **told))
        made.append(collective(begin + late, end, receiver, op="recv", peer=sender, **told))
    return made


def test_the_slowest_of_several_ways_from_one_rank_to_the_next():
    made = job([*sent(0, 1, 100), *sent(1, 2, 200), *sent(2, 3, 100, late=50)], [], world_size=4)
    rows = traffic(made)
    assert rows["exact"].all()  # of a group of four, two take part
    found = metrics_of(on_one_host(made))
    assert found["slow_place"] == "between ranks 1\N{EN DASH}2"
    assert found["slow_place_ratio"] == pytest.approx(2)


def test_messages_whose_other_end_was_not_recorded_tell_no_link():
    ones = [(op, facts) for op, facts in [*sent(0, 1, 100), *sent(2, 3, 200)] if facts["op"] == "send"]
    assert isinstance(metrics_of(job(ones, [], world_size=4))["slow_place"], Missing)


def test_a_row_per_kind_of_message():
    (row,) = collective_table(PAIR).to_dicts()
    assert row == {
        "op": "all_reduce", "group_size": 2, "bytes": BYTES, "dtype": "Float", "calls": 2, "transfer_us": 300.0,
        "exact": True, "algorithm_gbs": pytest.approx(80.0), "bus_gbs": pytest.approx(80.0),
        "expected_us": pytest.approx(EXPECTED_US), "basis": "model", "quick_us": pytest.approx(QUICK_US),
        "exposed_ms": pytest.approx(0.25),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("op", "gbs", "is_possible"),
    [
        ("all_reduce", 299, True),  # A100: 300 GB/s one way
        ("all_reduce", 310, False),
        ("all_gather", 590, True),  # each of two gets half
        ("all_gather", 610, False),
    ],
)
def test_no_bandwidth_is_told_that_no_link_of_the_gpu_reaches(op: str, gbs: float, *, is_possible: bool):
    sized = {"op": op, "bytes": round(gbs * 300_000)}
    made = job([collective(100, 600, 0, **sized), collective(300, 600, 1, **sized)], [])
    (row,) = collective_table(made).to_dicts()
    assert (row["bus_gbs"] is not None) == (row["algorithm_gbs"] is not None) == is_possible
    for metric in ("bus_bandwidth_gbs", "link_reached_share", "expected_bus_bandwidth_gbs", "slower_fabric"):
        value = metrics_of(made)[metric]
        assert (getattr(value, "code", "") == "faster_than_links") != is_possible


def test_no_collectives_cost_nothing():
    none = job([collective(5000, 5100, rank) for rank in (0, 1)], [])  # outside of the step
    assert metrics_of(none)["exposed_transfer_ms"] == 0
    assert metrics_of(none)["merge_gain_ms"] == 0
    assert metrics_of(none)["cross_node_ms"] == 0
    assert collective_table(none).height == 0
    assert metrics_of(none)["bus_bandwidth_gbs"] == Missing("no_collective_on_device")


def test_ranks_without_a_common_step_are_not_said_to_run_no_collectives():
    ranks = [job([collective(100, 600, r)], [kernel(0, 100, worker=r)]).ranks[0] for r in (0, 1)]
    other = replace(ranks[1], steps=ranks[1].steps.with_columns(pl.col("step") + 5))
    apart = job_of([ranks[0], other])
    assert metrics_of(apart)["bus_bandwidth_gbs"] == Missing("no_common_step")
    assert metrics_of(apart)["slow_place"] == Missing("no_common_step")


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(1, 300)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100), st.integers(0, 1)), max_size=4),
)
def test_what_is_saved_is_at_most_what_is_seen(calls: list[tuple[int, int, int]], kernels: list[tuple[int, int, int]]):
    made = [
        collective(1000 * i + late, 1000 * i + 400 + long, rank, sequence=i)
        for i, (first, second, long) in enumerate(calls)
        for rank, late in enumerate((first, second))
    ]
    found = job(made, [kernel(at, at + us, worker=rank) for at, us, rank in kernels], steps=len(calls))
    rows = traffic(found)
    assert (rows["exposed_ns"] >= 0).all()
    assert (rows["exposed_ns"] <= rows["transfer_ns"]).all()
    assert (rows["transfer_ns"] <= rows["dur_ns"]).all()
    exposed, slow = metrics_of(found)["exposed_transfer_ms"], metrics_of(found)["slow_transfer_gain_ms"]
    longest = found.pace.group_by("step").agg(pl.max("own_ns"))["own_ns"].mean()
    assert 0 <= slow <= exposed + 1e-9
    assert exposed <= longest / 1e6
    assert gain_ms(found, rows.with_columns(saved_ns=pl.lit(0))) == 0


@examples(1)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from([None, -1, 0, 1, 2, 2**31 - 1]))))
def test_sizes_of_any_kind_break_nothing(facts: list[tuple[int, int | None]]):
    calls = [
        collective(10 * i, 10 * i + 9, rank, bytes=size, group_size=members, sequence=i)
        for i, (size, members) in enumerate(facts)
        for rank in (0, 1)
    ]
    made = job([*calls, *CALLS], [])
    names = [metric.name for metric in METRICS.values() if (metric.topic, metric.subject) == ("communication", "job")]
    values = values_of(names, made).values()
    assert all(value is None or isinstance(value, str | Missing) or value >= 0 for value in values)
    assert collective_table(made).height
