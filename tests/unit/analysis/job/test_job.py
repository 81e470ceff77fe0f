"""The ranks of a job together, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.job.topology import pipelines
from advisor.model.clause import Missing
from tests.ranks import call, job, rank, spent
from tests.tables import metrics_of

HOUR = 3_600_000_000  # us


def instances(made):
    return made.calls.sort("rank", "start_ns")["instance"].to_list()


# ------------------------------------------------------------------------------------ which calls are one


def test_calls_of_a_group_are_matched_by_their_number_where_all_bear_one():
    first = rank(0, [call(0, 10, sequence=7), call(20, 30, sequence=8)])
    late = rank(1, [call(20, 30, sequence=8)])  # the recording began after number 7
    a, b, c = instances(job(first, late))
    assert a != b
    assert b == c


def test_else_by_their_order_within_the_step():
    first = rank(0, [call(0, 10), call(20, 30), call(50, 60, step=2)])
    other = rank(1, [call(5, 10), call(25, 30), call(55, 60, step=2)])
    found = instances(job(first, other))
    assert found[:3] == found[3:]
    assert len(set(found)) == 3


def test_the_last_of_a_step_are_one_where_a_recording_lacks_the_first():
    """Rank 1 began to record within the first collective, so that the second of rank 0 is its first."""
    first = rank(0, [call(0, 10), call(20, 130), call(140, 260)])
    late = rank(1, [call(100, 130), call(210, 260)])
    made = job(first, late)
    assert instances(made)[1:3] == instances(made)[3:]
    assert made.calls.filter(pl.col("rank") == 0)["wait_ns"].to_list() == [None, 80_000, 70_000]


def test_numbers_that_repeat_are_no_numbers():
    """NCCL's sequence counts per communicator: without its name two of them may share it."""
    first = rank(0, [call(0, 10, sequence=1), call(20, 30, sequence=1)])
    other = rank(1, [call(0, 10, sequence=1), call(20, 30, sequence=1)])
    found = instances(job(first, other))
    assert found[:2] == found[2:]
    assert found[0] != found[1]


def test_a_step_missing_on_one_rank_shifts_nothing():
    first = rank(0, [call(0, 10, step=1), call(20, 30, step=2)])
    other = rank(1, [call(22, 30, step=2)])
    assert job(first, other).calls.filter("trusted")["step"].to_list() == [2, 2]


def test_calls_outside_of_steps_and_without_number_are_matched_with_none():
    made = job(rank(0, [call(0, 10, step=None)]), rank(1, [call(0, 10, step=None)]))
    assert instances(made) == [None, None]
    assert not made.calls["trusted"].any()


def test_groups_and_ops_are_kept_apart():
    first = rank(0, [call(0, 10, group="data"), call(20, 30, group="model")])
    other = rank(1, [call(0, 10, group="model"), call(20, 30, group="data", op="broadcast")])
    assert len(set(instances(job(first, other)))) == 3


def test_a_send_is_matched_with_the_receive_at_its_other_end_by_their_order():
    """Each rank numbers its own sends and receives; those of other pairs lie in between."""
    first = rank(0, [call(0, 100, op="send", peer=1, sequence=1), call(200, 300, op="send", peer=1, sequence=2)])
    second = rank(
        1,
        [
            call(60, 100, op="recv", peer=0, sequence=1),
            call(120, 150, op="send", peer=2, sequence=2),
            call(260, 300, op="recv", peer=0, sequence=3),
        ],
    )
    third = rank(2, [call(110, 150, op="recv", peer=1, sequence=1)])
    made = job(first, second, third)
    a, b, c, d, e, f = instances(made)
    assert (a, b, d) == (c, e, f)
    assert len({a, b, d}) == 3
    assert made.matched_share == 1
    assert made.offsets_ns.tolist() == [0, 0, 0]


def test_a_send_to_nobody_known_is_matched_with_none():
    made = job(rank(0, [call(0, 100, op="send", sequence=1)]), rank(1, [call(0, 100, op="recv", sequence=1)]))
    assert instances(made) == [None, None]


# ------------------------------------------------------------------------------------ which are believed


def test_members_that_leave_together_tell_who_was_last_and_how_long_the_others_waited():
    made = job(rank(0, [call(0, 100)]), rank(1, [call(60, 101)]), rank(2, [call(30, 102)]))
    told = made.calls.sort("rank")
    assert told["trusted"].to_list() == [True] * 3
    assert told["last"].to_list() == [1] * 3
    assert (told["wait_ns"] / 1e3).to_list() == [60, 0, 30]
    assert (told["transfer_ns"] / 1e3).to_list() == [40, 41, 42]


@pytest.mark.parametrize(("worker", "share"), [(0, None), (1, 0)])
def test_a_device_whose_partners_are_in_another_process_is_not_of_another_job_than_its_neighbour(
    worker: int, share: float | None
):
    neighbour = replace(rank(1, ()), worker=worker)
    assert job(rank(0, [call(0, 100), call(500, 600)]), neighbour).matched_share == share


def test_ends_that_do_not_coincide_are_no_match():
    made = job(rank(0, [call(0, 100), call(500, 600)]), rank(1, [call(10, 300), call(700, 1200)]))
    assert not made.calls["trusted"].any()
    assert made.matched_share == 0
    assert made.missing == Missing("collectives_unmatched", share=1.0)


@pytest.mark.parametrize("unmatched", [100, 101])
def test_four_fifths_of_the_time_in_collectives_must_match(unmatched: int):
    alike = [call(start, start + 100) for start in range(0, 800, 200)]
    apart = [call(start, start + unmatched, op="all_gather") for start in (900, 1500)]
    made = job(*(rank(n, [*alike, apart[n]]) for n in range(2)))
    share = 800 / (800 + 2 * unmatched)
    assert made.matched_share == pytest.approx(share)
    assert (made.missing == Missing("collectives_unmatched", share=1 - share)) == (unmatched == 101)


def test_a_shortest_member_that_does_not_span_the_transfer_is_no_match():
    """The last to arrive leaves when all do: 400 us before the end it must not have been there for 250 only."""
    a = rank(0, [call(0, 1000)])
    b = rank(1, [call(600, 1000)])
    c = rank(2, [call(100, 350)])
    assert not job(a, b, c).calls["trusted"].any()


def test_one_wrong_match_in_ten_does_not_damn_its_kind_and_two_do():
    def calls(wrong):
        return [call(1000 * i, 1000 * i + 500 + (300 if i < wrong else 0)) for i in range(10)]

    right = rank(0, calls(0))
    assert job(right, rank(1, calls(1))).calls["trusted"].sum() == 18
    assert job(right, rank(1, calls(2))).calls["trusted"].sum() == 0


@pytest.mark.parametrize(
    ("times", "every", "late", "believed"),
    [
        (10, 110, 30, True),  # ends 30 us apart, 110 us between two: 0.3 of it are 33 us
        (10, 90, 30, False),
        (10, 30_000, 49, True),  # at most half of the shortest, which takes 100 us
        (10, 30_000, 51, False),
        (2, 450, 30, True),  # two that come so near by chance: (2 x 30 / 450)^2 = 0.018
        (2, 410, 30, False),
        (1, 30_000, 30, False),  # of one alone the time between two is not known
    ],
)
def test_ends_may_lie_apart_where_so_many_do_not_meet_by_chance(times: int, every: float, late: float, believed: bool):  # noqa: FBT001 - a case
    apart = (times + 1) // 2  # the others together, else all of `late` is the clock's
    first = [call(every * i, every * i + 100) for i in range(times)]
    other = [call(every * i + late, every * i + 100 + late) for i in range(apart)]
    made = job(rank(0, first), rank(1, [*other, *first[apart:]]))
    assert made.calls["trusted"].any() is believed


@pytest.mark.parametrize(("late", "matched"), [(49, 20), (51, 18)])
def test_a_match_of_a_kind_that_is_believed_may_be_off_by_a_twentieth_of_its_longest(late: float, matched: int):
    """Nine of ten coincide; in the tenth rank 0 waits for 1 ms less what `late` leaves."""
    calls = [call(2_000 * i, 2_000 * i + 8) for i in range(9)]
    long, short = call(20_000, 21_000), call(20_980 + late, 21_000 + late)
    made = job(rank(0, [*calls, long]), rank(1, [*calls, short]))
    assert made.calls["trusted"].sum() == matched


@pytest.mark.parametrize(("late", "believed"), [(60, True), (70, False)])
def test_ends_may_lie_apart_by_a_hundredth_of_the_longest_wait(late: float, believed: bool):  # noqa: FBT001 - a case
    """Rank 0 waits 6.5 ms, of which 1 % are 65 us, for a rank whose part takes 8 us, as in an exchange of counts."""
    waits = [call(7_000 * i, 7_000 * i + 6_500) for i in range(5)]
    comes = [call(7_000 * i + 6_492 + late, 7_000 * i + 6_500 + late) for i in range(5)]
    steady = [call(7_000 * i + 6_492, 7_000 * i + 6_500) for i in range(5)]  # else all of `late` is the clock's
    made = job(rank(0, waits), rank(1, [*comes[:2], *steady[2:]]))
    assert made.calls["trusted"].any() is believed


@pytest.mark.parametrize(
    ("on_host", "late", "believed"), [(True, 45_000, True), (True, 55_000, False), (False, 45_000, False)]
)
def test_threads_of_a_host_leave_a_collective_less_exactly_than_devices(on_host: bool, late: float, believed: bool):  # noqa: FBT001 - a case
    """Rank 0 waits 200 ms; the ends lie apart by the time that a thread waited for a CPU: up to a quarter of that."""
    waits = [call(300_000 * i, 300_000 * i + 200_000, on_host=on_host) for i in range(5)]
    shifts = [0, late, -late, 0, late]
    comes = [
        call(300_000 * i + 150_000 + min(0, shift), 300_000 * i + 200_000 + shift, on_host=on_host)
        for i, shift in enumerate(shifts)
    ]
    made = job(rank(0, waits), rank(1, comes))
    assert made.calls["trusted"].any() is believed


def test_a_rank_alone_waits_for_nobody_that_is_known():
    made = job(rank(0, [call(0, 10)], facts={"world_size": 8}))
    assert made.missing == Missing("ranks_missing", world=8)


# ------------------------------------------------------------------------------------ one clock


@pytest.mark.parametrize("ahead", [-HOUR, -1500, 2_000_000, 5 * HOUR])
def test_clocks_are_set_by_the_ends_of_the_collectives(ahead):
    still = [call(100 * i, 100 * i + 80) for i in range(5)]
    moved = [call(100 * i + 30, 100 * i + 80) for i in range(5)]
    made = job(rank(0, still), rank(1, moved, ahead=ahead))
    assert made.offsets_ns.tolist() == [0, ahead * 1000]
    assert set(made.calls["last"]) == {1}


def test_files_of_one_host_need_no_shift():
    made = job(rank(0, [call(0, 80)]), rank(1, [call(10, 84)]))
    assert made.offsets_ns.tolist() == [0, 0]


def test_clocks_go_from_group_to_group():
    """Ranks 0 and 2 never meet; rank 1 meets both."""
    a = rank(0, [call(0, 80, group="a")])
    b = rank(1, [call(0, 80, group="a"), call(100, 180, group="b")], ahead=3_000_000)
    c = rank(2, [call(100, 180, group="b")], ahead=-2_000_000)
    assert job(a, b, c).offsets_ns.tolist() == [0, 3 * 10**9, -2 * 10**9]


def test_ranks_that_never_meet_keep_their_clocks():
    made = job(rank(0, [call(0, 80, group="a")]), rank(1, [call(0, 80, group="b")], ahead=9_000_000))
    assert made.offsets_ns.tolist() == [0, 0]


# ------------------------------------------------------------------------------------ pace


def two(**columns):
    """Rank 0 computes 0-300 and is in a collective 200-1000; rank 1 computes 0-700 and arrives there at 800."""
    first = rank(0, [call(200, 1000)], [spent(1, 0, 1000, work_ns=300_000)], [(0, 300)], **columns)
    second = rank(1, [call(800, 1000)], [spent(1, 0, 1000, work_ns=700_000)], [(0, 700)], ahead=columns.get("ahead", 0))
    return job(first, second)


@pytest.mark.parametrize("ahead", [0, 4_000_000])
def test_only_waiting_that_no_kernel_covers_is_waiting(ahead):
    made = two(ahead=ahead)
    pace = made.pace.sort("rank").select("dur_ns", "wait_ns", "transfer_ns", "own_ns", "work_ns") / 1000
    assert pace.rows() == [(1000, 500, 200, 500, 300), (1000, 0, 200, 1000, 700)]
    assert made.waits.rows() == [(0, 1, 500_000)]


def test_overlapping_waits_count_once():
    calls = [call(200, 1000), call(400, 1000, stream=21, op="broadcast")]
    late = [call(900, 1000), call(900, 1000, stream=21, op="broadcast")]
    made = job(rank(0, calls, [spent(1, 0, 1000)]), rank(1, late, [spent(1, 0, 1000)]))
    assert made.pace.sort("rank")["wait_ns"].to_list() == [700_000, 0]


def test_common_steps_are_those_that_all_use():
    """Those that all recorded and one left out as uneven are not of the bar: nothing is said of them."""
    a = rank(0, [call(0, 10)], [spent(1, 0, 10), spent(2, 10, 20), spent(3, 20, 30, used=False)])
    b = rank(1, [call(0, 10)], [spent(2, 10, 20), spent(3, 20, 30)])
    assert job(a, b).steps == [2]
    assert job(a, b).whole_steps == [2, 3]
    c = rank(2, [call(0, 10)], [spent(3, 20, 30)])
    assert (job(a, b, c).steps, job(a, b, c).whole_steps) == ([], [3])
    assert job(a, b, c).missing == Missing("no_common_step")


def test_a_device_that_a_process_uses_beside_its_own_is_a_guests():
    """Rank 1 runs something on device 0, where it meets nobody."""
    a = rank(0, [call(0, 10)], [spent(1, 0, 10)])
    guest = rank(1, [], [spent(1, 0, 12)], device=0)
    b = rank(1, [call(0, 10)], [spent(1, 0, 10)], device=1)
    made = job(a, guest, b)
    assert made.guests == [1]
    assert made.members == [0, 2]
    assert made.pace["rank"].to_list() == [0, 2]
    assert made.names == ["process 0, GPU 0", "process 1, GPU 0", "process 1, GPU 1"]


@pytest.mark.parametrize(
    ("told", "found"), [([None, None], 2), ([8, 8], 8), ([8, None], 8), ([1, 1], 2)]
)  # the last: not told of each other
def test_the_size_of_the_job_is_what_the_ranks_were_told_at_least_what_is_there(told, found):
    assert job(*(rank(i, facts={"world_size": size}) for i, size in enumerate(told))).world_size == found


def passing(ranks: int, *ways: int):
    """Ranks of one group that each send to the neighbour so many places on, and receive what comes from there."""
    made = []
    for r in range(ranks):
        peers = [(op, (r + sign * way) % ranks) for way in ways for op, sign in (("send", 1), ("recv", -1))]
        calls = [call(10 * n, 10 * n + 5, op=op, peer=peer, group="cp") for n, (op, peer) in enumerate(peers)]
        made.append(rank(r, calls, [spent(1, 0, 100)]))
    return job(*made)


@pytest.mark.parametrize(("made", "staged"), [((4, 1), False), ((3, 1), False), ((4, 1, -1), True), ((2, 1), True)])
def test_messages_that_go_around_a_ring_are_between_no_stages(made: tuple[int, ...], staged: bool):  # noqa: FBT001
    assert passing(*made).calls["staged"].unique().to_list() == [staged]
    assert bool(pipelines(passing(*made))) is staged


def test_matched_share_is_by_time():
    a = rank(0, [call(0, 300), call(400, 500, op="broadcast")])
    b = rank(1, [call(0, 300), call(900, 1000, op="broadcast")])
    assert job(a, b).matched_share == pytest.approx(0.75)


def test_a_rank_that_recorded_none_of_the_others_steps_is_left_out():
    # ranks 0, 1 and 2 recorded steps 1 and 2, rank 3 was cut off before a step was over, rank 4 recorded step 50
    whole = [spent(1, 0, 10), spent(2, 10, 20)]
    alike = [rank(i, [], whole) for i in range(3)]
    made = job(*alike, rank(3), rank(4, [], [spent(50, 0, 10)]))
    assert made.apart == [3, 4]
    assert made.members == [0, 1, 2]
    assert made.steps == [1, 2]


def test_a_rank_that_is_left_out_is_matched_with_none():
    whole = [spent(1, 0, 10), spent(2, 10, 20)]
    met = [call(2, 4, sequence=7)]
    made = job(rank(0, met, whole), rank(1, met, whole), rank(2, met, [spent(9, 0, 10)]))
    assert made.apart == [2]
    assert made.calls.filter(pl.col("rank") == 2)["met"].to_list() == [1]
    assert made.matched_share == 1.0


def test_two_ranks_without_a_common_step_are_both_kept_and_nothing_is_said():
    made = job(rank(0, [], [spent(1, 0, 10)]), rank(1, [], [spent(2, 0, 10)]))
    assert made.apart == []
    assert made.missing == Missing("no_shared_collective")


def test_ranks_of_two_jobs_that_only_meet_among_themselves_are_not_matched():
    """Four ranks claim one group of four; the ends of the second pair's calls coincide with none of the first's."""
    told = {"group": "0", "group_size": 4, "ranks": "[0, 1, 2, 3]"}
    ones = [rank(i, [call(0, 100, sequence=1, **told)], facts={"world_size": 4}) for i in (0, 1)]
    others = [rank(i, [call(0, 300, sequence=8, **told)], facts={"world_size": 4}) for i in (2, 3)]
    made = job(*ones, *others)
    assert made.strangers == [[0, 1], [2, 3]]
    assert (made.mixed, made.matched_share) == (True, 0)
    assert made.missing == Missing("groups_never_meet", share=1.0)


MINUTE = 60e6


def sitting(*ahead, meet=False):
    """Ranks whose files' clocks are as far ahead; they sum up together, or only their names say that they do."""
    apart = [0 if meet else 200 * i for i in range(len(ahead))]
    calls = [[call(2, 4, group_size=len(ahead)), call(50 + a, 52 + a, group_size=len(ahead))] for a in apart]
    ranks_ = zip(calls, ahead, strict=True)
    return job(*(rank(i, mine, [spent(1, 0, 100 + i)], ahead=a) for i, (mine, a) in enumerate(ranks_)))


def test_ranks_that_were_recorded_at_other_times_are_told_apart():
    made = sitting(0, 120 * MINUTE, 5, 120 * MINUTE)
    assert made.sittings == [[0, 2], [1, 3]]
    assert metrics_of(made)["ranks_sittings"] == "ranks 0, 2; 2 h later ranks 1, 3"


@pytest.mark.parametrize("ahead", [(0, 0), (0, 5e6), (0, MINUTE)])
def test_clocks_of_hosts_differ_by_less_than_a_minute(ahead):
    assert sitting(*ahead).sittings == []
    assert metrics_of(sitting(*ahead))["ranks_sittings"] == ""


@pytest.mark.parametrize(("third", "copies"), [(0, "ranks 0, 2"), (1, "")])
def test_steps_that_are_equal_to_the_nanosecond_are_of_one_file(third, copies):
    made = job(*(rank(i, [], [spent(1, 0, 100)], ahead=ahead) for i, ahead in enumerate((0, 5, third))))
    assert metrics_of(made)["ranks_copied"] == copies


def of_kernels(worker, *, kernels=8, longer=1.0, apart_ns=0):
    """A rank that runs some kernels twice each, the first of them longer by so much; its clock is its own."""
    times = [round(longer * 1_000_000 * (n + 1)) + (apart_ns if n == 0 else 0) for n in range(kernels)]
    rows = [{"name": f"kernel {n}", "number": 2, "median_ns": ns / 2, "total_ns": ns} for n, ns in enumerate(times)]
    return rank(worker, [], [spent(1, 0, 100)], ahead=worker * 7, kernels=rows)


@pytest.mark.parametrize(
    ("other", "copies"),
    [
        ({}, [0, 1]),
        ({"longer": 1.0005}, [0, 1]),
        ({"apart_ns": 4}, [0, 1]),  # 2 ns for each of two runs, and all of its time a little
        ({"apart_ns": 5}, []),
        ({"kernels": 7}, []),
    ],
)
def test_ranks_whose_kernels_take_equally_long_are_of_one_file_whatever_its_clock(other, copies):
    assert job(of_kernels(0), of_kernels(1, **other)).copies == copies
    assert job(*(of_kernels(worker, kernels=7) for worker in (0, 1))).copies == []


def test_ranks_that_meet_were_recorded_at_one_time_whatever_their_clocks_say():
    assert sitting(0, 120 * MINUTE, meet=True).sittings == []


def test_groups_that_are_apart_by_design_are_matched():
    """Two replicas of two ranks: no collective joins them, and none has to."""
    made = job(
        *(rank(i, [call(0, 100, sequence=1, group="a", group_size=2, ranks="[0, 1]")]) for i in (0, 1)),
        *(rank(i, [call(0, 100, sequence=1, group="b", group_size=2, ranks="[2, 3]")]) for i in (2, 3)),
    )
    assert (made.mixed, made.matched_share) == (False, 1)
