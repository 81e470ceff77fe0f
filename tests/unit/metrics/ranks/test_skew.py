"""Ranks that differ, by hand: what is lost, to whom, and whether it lasts."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.job.rank import Rank
from advisor.model.clause import Missing
from tests.ranks import call, job, rank, spent
from tests.tables import US, metrics_of


def racing(own, *, input_us=None, kernels=None, transfer=100, busy=None):
    """Ranks that compute for `own[rank][step]` ms and then meet in a collective that takes 100 us from the last on.

    With `busy`, they compute for no more than so many ms of that: their host pauses in the rest.
    """
    longest = [max(step) for step in zip(*own, strict=True)]
    starts = [sum(longest[:i]) * 1000 + i * transfer for i in range(len(longest))]
    ranks = []
    for number, spans in enumerate(own):
        calls, steps, work = [], [], []
        for i, (begin, ms) in enumerate(zip(starts, spans, strict=True)):
            end = begin + longest[i] * 1000 + transfer
            wait = (input_us or {}).get(number, 0)
            calls.append(call(begin + ms * 1000, end, step=i))
            count = (kernels or {}).get(number, 10)
            works = min(busy or ms, ms) * 1000 - wait
            steps.append(spent(i, begin, end, work_ns=round(works * US), input_ns=round(wait * US), kernels=count))
            work.append((begin + wait, begin + wait + works))
        ranks.append(rank(number, calls, steps, work))
    return job(*ranks)


def unevenness(uneven):
    return metrics_of(uneven)


def test_one_rank_that_is_always_late_is_persistent_skew():
    values = unevenness(racing([[10, 10, 10, 10], [13, 13, 13, 13], [10, 11, 10, 11]]))
    assert values["persistent_skew_ms"] == pytest.approx(13 - 10.5)  # means 10, 13, 10.5: the typical one is 10.5
    assert values["moving_skew_ms"] == pytest.approx(0)
    assert (values["late_rank_alone"], values["late_rank_steps"], values["common_steps"]) == (1, 4, 4)
    assert values["late_rank_ms"] == pytest.approx(2.5)  # 3, 2, 3 and 2 ms beyond the typical rank of the step
    assert values["late_rank_least_ms"] == pytest.approx(2.5)
    assert values["late_rank_uneven_ms"] == pytest.approx(13 - 33.5 / 3)
    assert values["late_rank_causes"] == "kernels (2.5 ms)"


def test_ranks_that_are_late_together_are_one_group_with_what_they_alone_have():
    slow = racing([[10] * 4] * 4 + [[13, 13, 13, 13.2], [13.1, 13, 13, 13]])
    values = unevenness(slow)
    assert (values["late_ranks"], values["late_rank_steps"]) == ("ranks 4\N{EN DASH}5", 4)
    assert isinstance(values["late_rank_alone"], Missing)
    assert values["late_rank_least_ms"] == pytest.approx(13.05 - 10)  # to the ranks that are not late
    hosts = [replace(each, facts={"host": f"node{each.worker // 4}"}) for each in slow.ranks]
    assert unevenness(job(*hosts))["late_ranks_dimension"] == "host"
    assert unevenness(job(*hosts))["late_ranks"] == "ranks 4\N{EN DASH}5 (host node1)"
    of_group = {name: pl.lit(text, pl.Categorical) for name, text in (("ranks", "[4, 5]"), ("group", "tp 2"))}
    calls = [each.calls.with_columns(**of_group) for each in slow.ranks[4:]]
    grouped = [replace(each, calls=pl.concat([each.calls, of])) for each, of in zip(slow.ranks[4:], calls, strict=True)]
    assert unevenness(job(*slow.ranks[:4], *grouped))["late_ranks"] == "ranks 4\N{EN DASH}5 (group tp 2)"


def test_one_late_rank_is_named_alone_and_of_three_alike_nobody_is_a_group():
    assert unevenness(racing([[10] * 4, [13] * 4, [10] * 4]))["late_ranks"] == "rank 1"
    assert unevenness(racing([[13] * 4, [13] * 4, [10] * 4]))["late_ranks"] == "rank 0"  # two of three are typical


def test_of_two_ranks_the_one_that_does_less_is_typical_and_equal_work_saves_half():
    made = racing([[10, 10, 10, 10], [30, 30, 30, 30]])
    values = unevenness(made)
    assert values["late_rank_ms"] == values["persistent_skew_ms"] == pytest.approx(20)
    assert values["late_rank_uneven_ms"] == pytest.approx(10)
    excess = [metrics_of(made, position)["own_step_excess_ms"] for position in (0, 1)]
    assert excess == [pytest.approx(0), pytest.approx(20)]


def test_another_rank_each_time_is_moving_skew():
    values = unevenness(racing([[14, 10, 10], [10, 14, 10], [10, 10, 14]]))
    mean = 34 / 3
    assert values["persistent_skew_ms"] == pytest.approx(0)
    assert values["moving_skew_ms"] == pytest.approx(14 - mean)
    assert values["moving_compute_ms"] == pytest.approx(14 - mean)
    assert values["moving_input_ms"] == pytest.approx(0)
    assert values["late_rank_ms"] == 0
    assert values["moving_causes"] == "kernels (4 ms)"
    assert values["balance_gain_ms"] == pytest.approx(14 - mean)  # evened out, every rank takes the mean
    assert values["moving_host_ms"] == pytest.approx(0)


@pytest.mark.parametrize("own", [[[14, 10, 14], [10, 14, 10]], [[14, 10, 14, 14, 10], [10, 14, 10, 10, 14]]])
def test_of_two_ranks_that_are_late_in_turn_neither_is_late_for_good(own):
    values = unevenness(racing(own))
    assert values["late_rank_steps"] > len(own[0]) / 2  # an odd number of steps: one of them is the latest more often
    assert values["late_rank_ms"] == values["late_rank_share"] == 0


def test_of_two_ranks_one_that_is_late_in_nearly_every_step_is_late_for_good():
    values = unevenness(racing([[14, 13, 15, 14, 10, 14], [10, 10, 10, 10, 11, 10]]))
    assert values["late_rank_ms"] == pytest.approx(4)


def test_evening_out_leaves_what_one_rank_has_for_good():
    values = unevenness(racing([[20, 20, 20, 20], [10, 24, 10, 10], [10, 10, 10, 24]]))
    assert values["balance_gain_ms"] == pytest.approx(22 - 20)  # rank 0 has most, whichever step is left out


def test_a_rank_that_is_latest_by_chance_does_not_set_the_level():
    values = unevenness(racing([[14, 10, 10, 10], [10, 14, 10, 14], [10, 10, 14, 10]]))
    assert values["moving_skew_ms"] == pytest.approx(14 - 12)  # rank 1 was latest twice
    assert values["balance_gain_ms"] == pytest.approx(14 - 136 / 12)


def test_pauses_of_the_host_that_move_are_told_from_uneven_batches():
    own, busy = [[14, 10, 10, 10], [10, 10, 15, 10], [10, 10, 10, 10]], 10
    values = unevenness(racing(own, busy=busy))
    assert values["moving_compute_ms"] == pytest.approx(0)
    assert values["moving_host_ms"] == pytest.approx(values["moving_skew_ms"]) == pytest.approx(49 / 4 - 45 / 4)
    assert values["pauses_least_gain_ms"] == pytest.approx(9 / 4)  # without: 10 ms and the transfer
    assert values["pauses_gain_ms"] == pytest.approx(9 / 4 + 0.1)


def test_of_two_ranks_that_pause_in_turn_each_pauses_in_half_of_its_steps():
    values = unevenness(racing([[14, 10, 14, 10], [10, 15, 10, 15]], busy=10))
    assert values["pauses_least_gain_ms"] == pytest.approx(4.5)  # every step would take 10 ms and the transfer
    assert values["pauses_gain_ms"] == pytest.approx(4.6)


def test_the_two_parts_make_up_the_whole():
    values = unevenness(racing([[14, 10, 10, 12], [10, 15, 10, 12], [10, 10, 17, 19]]))
    assert values["skew_ms"] == pytest.approx(values["persistent_skew_ms"] + values["moving_skew_ms"])
    assert values["skew_ms"] == pytest.approx((14 + 15 + 17 + 19) / 4 - 47 / 4)  # means 11.5, 11.75 and 14


# ms        0         10      14.1                24.1    28.2    one step, in which each rank waits for the other once
# rank 0    |=========|~~~~~~~|===========================||
# rank 1    |================||===================|~~~~~~~|
def test_lateness_that_moves_inside_of_one_step_is_told():
    steps = [spent(0, 0, 28_200, work_ns=24_000 * US)]
    first = rank(
        0, [call(10_000, 14_100, step=0), call(28_100, 28_200, step=0)], steps, [(0, 10_000), (14_100, 28_100)]
    )
    other = rank(
        1, [call(14_000, 14_100, step=0), call(24_100, 28_200, step=0)], steps, [(0, 14_000), (14_100, 24_100)]
    )
    values = unevenness(job(first, other))
    assert values["inner_skew_ms"] == values["skew_ms"] == pytest.approx(4)
    assert values["inner_compute_ms"] == pytest.approx(4)  # at the second collective, rank 0 computes 4 ms longer
    paused = rank(
        0, [call(10_000, 14_100, step=0), call(28_100, 28_200, step=0)], steps, [(0, 10_000), (14_100, 24_100)]
    )
    assert unevenness(job(paused, other))["inner_compute_ms"] == pytest.approx(0)  # its host was late
    assert values["skew_share"] == pytest.approx(4 / 28.2)
    assert unevenness(racing([[10], [14]]))["inner_skew_ms"] == pytest.approx(0)  # rank 1 never waits


def test_of_two_ranks_the_faster_is_typical():
    assert unevenness(racing([[10] * 3, [16] * 3]))["persistent_skew_ms"] == pytest.approx(6)


def test_waiting_for_input_is_named():
    values = unevenness(racing([[10] * 3, [10] * 3, [15] * 3], input_us={2: 5000}))
    assert values["late_rank_causes"] == "waiting for input (5 ms)"
    assert values["persistent_input_ms"] == pytest.approx(5)
    assert values["persistent_compute_ms"] == pytest.approx(0)


def test_more_kernels_are_named():
    values = unevenness(racing([[10] * 3, [10] * 3, [15] * 3], kernels={2: 14}))
    assert values["late_rank_causes"] == "kernels (5 ms)"
    assert values["late_rank_more_kernels"] == 4


def test_of_ranks_without_a_device_more_time_in_ops_is_named():
    ranks = racing([[10] * 3, [10] * 3, [15] * 3], kernels=dict.fromkeys(range(3), 0))
    on_hosts = [replace(r, steps=r.steps.rename({"work_ns": "ops_ns", "ops_ns": "work_ns"})) for r in ranks.ranks]
    values = unevenness(job(*on_hosts))
    assert values["late_rank_causes"] == "ops (5 ms)"
    assert values["late_rank_host_ms"] == pytest.approx(0)


@pytest.mark.parametrize("steps", [1, 2])
def test_too_few_steps_tell_the_loss_but_not_whose_it_is(steps):
    values = unevenness(racing([[10] * steps, [14] * steps]))
    assert values["skew_ms"] == pytest.approx(4)
    for metric in ("late_ranks", "late_rank_share", "persistent_skew_ms", "moving_skew_share"):
        assert values[metric] == Missing("few_common_steps", steps=steps, needed=3)


def test_who_waits_and_for_whom():
    values = metrics_of(racing([[10, 10], [13, 13], [10, 11]]))
    assert (values["waiting_most"], values["awaited_most"]) == (0, 1)
    assert values["waiting_most_share"] == pytest.approx(3 / 13.1)
    assert values["waiting_share"] == pytest.approx((3 + 0 + 2.5) / 3 / 13.1)


def test_a_rank_of_several_devices_is_known_by_its_number_and_its_device():
    one_each = metrics_of(racing([[10, 10], [13, 13]]))
    assert one_each["awaited_most_device"] == Missing("one_device_per_rank")
    ranks = racing([[10, 10], [13, 13]]).ranks
    values = metrics_of(job(*(replace(rank, worker=4, device=device) for device, rank in enumerate(ranks))))
    assert [values[metric] for metric in ("awaited_most", "awaited_most_device")] == [4, 1]
    assert [values[metric] for metric in ("waiting_most", "waiting_most_device")] == [4, 0]


def test_a_rank_is_named_only_if_half_of_the_waiting_is_for_it():
    nobody = Missing("no_rank_awaited_most")
    half = [[14, 10], [10, 14], [10, 10]]  # two ranks wait 4 ms for rank 0, then two for rank 1
    values = metrics_of(racing(half))
    assert values["awaited_most"] == 0
    thirds = metrics_of(racing([[14, 10, 10], [10, 14, 10], [10, 10, 14]]))
    assert thirds["awaited_most"] == nobody
    even = metrics_of(racing([[10, 10], [10, 10]]))
    assert even["awaited_most"] == nobody


# ---------------------------------------------------------------------------------------- slow kernels


def timed(number, kernels, own):
    """A rank with these medians in us by kernel, each run once in three steps of `own` us."""
    rows = [
        {"name": name, "grid": 1, "block": 1, "number": 3, "median_ns": us * US, "total_ns": 3 * us * US}
        for name, us in kernels.items()
    ]
    steps = [spent(i, 2000 * i, 2000 * i + 2000, work_ns=own * US) for i in range(3)]
    calls = [call(2000 * i + own, 2000 * i + 2000, step=i) for i in range(3)]
    return rank(number, calls, steps, [(2000 * i, 2000 * i + own) for i in range(3)], kernels=rows)


def test_the_ratio_is_the_median_by_time_against_the_others_lower_median():
    usual = {"gemm": 500, "copy": 100, "tiny": 5}
    slow = {"gemm": 600, "copy": 200, "tiny": 5}
    ranks = job(timed(0, usual, 700), timed(1, slow, 900), timed(2, usual, 710), timed(3, usual, 700))
    values = metrics_of(ranks)
    assert values["slow_kernels_rank"] == 1
    assert values["slow_kernels_ratio"] == pytest.approx(1.2)  # of 805 us 600 are in gemm
    assert values["slow_kernels_share"] == 1
    # A sixth of 900 us of kernels would be 150; the next latest rank takes 190 less, so that it is no bound.
    assert values["slow_kernels_gain_ms"] == pytest.approx(0.150)


def test_the_next_latest_rank_bounds_the_gain():
    ranks = job(timed(0, {"gemm": 500}, 700), timed(1, {"gemm": 1000}, 900), timed(2, {"gemm": 500}, 850))
    values = metrics_of(ranks)
    assert values["slow_kernels_ratio"] == pytest.approx(2)
    assert values["slow_kernels_gain_ms"] == pytest.approx(0.05)


def test_several_slow_ranks_are_repaired_together():
    usual, slow = {"gemm": 500}, {"gemm": 600}
    ranks = job(*(timed(i, usual, 700) for i in (0, 1)), *(timed(i, slow, 840) for i in (2, 3)))
    values = metrics_of(ranks)
    assert values["slow_kernels_ranks"] == "ranks 2\N{EN DASH}3"
    assert isinstance(values["slow_kernels_rank"], Missing)
    assert values["slow_kernels_gain_ms"] == pytest.approx(0.140)  # 840 us of kernels at 1.2 times take 700 without


def test_ranks_without_common_kernels_cannot_be_compared():
    different = job(timed(0, {"a": 500}, 700), timed(1, {"b": 900}, 900))
    assert isinstance(metrics_of(different)["slow_kernels_ratio"], Missing)


def test_a_rank_that_computes_next_to_nothing_is_idle():
    ranks = job(timed(0, {}, 700), timed(1, {}, 69), timed(2, {}, 700))
    values = metrics_of(ranks)
    assert (values["idle_ranks"], values["idle_devices"], values["idle_names"]) == (1, 1, "rank 1")
    assert metrics_of(job(timed(0, {}, 700), timed(1, {}, 70), timed(2, {}, 700)))["idle_ranks"] == 0
    assert isinstance(metrics_of(job(timed(0, {}, 9), timed(1, {}, 0), timed(2, {}, 9)))["idle_ranks"], Missing)


def test_a_rank_with_shorter_steps_is_as_busy():
    """Unmarked, one rank's turns are of 2 ms and the other's of 10 us: 35 % of each is work."""
    short = [spent(i, 10 * i, 10 * i + 10, work_ns=3.5 * US) for i in range(3)]
    brief = rank(1, [call(10 * i + 5, 10 * i + 10, step=i) for i in range(3)], short)
    assert metrics_of(job(timed(0, {}, 700), brief))["idle_ranks"] == 0


@pytest.mark.parametrize(("world", "unused"), [(2, 6), (None, 6), (8, 0)])
def test_devices_that_are_seen_and_not_used_count_where_every_rank_is_here(world, unused):
    ranks = [
        rank(i, [call(0, 10)], [spent(1, 0, 10, work_ns=5 * US)], device=i, visible=8, facts={"world_size": world})
        for i in range(2)
    ]
    assert metrics_of(job(*ranks))["idle_devices"] == unused


def test_a_device_that_only_receives_copies_is_used():
    def seen(device: int) -> Rank:
        return replace(
            rank(device, [call(0, 10)], [spent(1, 0, 10, work_ns=5 * US)], device=device, visible=8), used=(1, 4, 6)
        )

    assert metrics_of(job(seen(4), seen(6)))["idle_devices"] == 5


# ---------------------------------------------------------------------------------------- one process, many devices


def fed(device, firsts, work=20, called=None, kernels=()):
    """A device of worker 0 whose first kernel of step i starts `firsts[i]` us into its 100 us, called just before."""
    begun = [100 * i + first for i, first in enumerate(firsts)]
    asked = [100 * i + first for i, first in enumerate(called or firsts)]
    steps = [
        spent(i, 100 * i, 100 * i + 100, first_ns=start * US, called_ns=(by - 5) * US, work_ns=work * US)
        for i, (start, by) in enumerate(zip(begun, asked, strict=True))
    ]
    calls = [call(100 * i + first + work, 100 * i + 100, step=i) for i, first in enumerate(firsts)]
    work_ = [(start, start + work) for start in begun]
    return rank(0, calls, steps, work_, device=device, kernels=[ran(name, n) for name, n in kernels])


def ran(name, number):
    return {"name": name, "grid": 1, "block": 1, "number": number, "median_ns": 1.0, "total_ns": 1.0}


def test_devices_that_start_one_after_the_other_in_every_step_are_staggered():
    values = metrics_of(job(fed(0, [0, 1, 2]), fed(1, [30, 30, 30]), fed(2, [60, 61, 62])))
    assert values["launch_stagger_ms"] == pytest.approx(0.060)
    assert values["launch_order_share"] == 1
    assert values["launch_order"] == "GPU 0, GPU 1, GPU 2"
    assert values["stagger_gain_ms"] == pytest.approx(0.080)  # of 100 us each device computes for 20
    # The last device computes until 80, 81 and 82 us: the collectives take 19 us on average.
    assert values["stagger_least_gain_ms"] == pytest.approx(0.061)


def test_devices_that_start_in_another_order_each_time_are_not_in_order():
    values = metrics_of(job(fed(0, [0, 30, 60]), fed(1, [30, 60, 0]), fed(2, [60, 0, 30])))
    assert values["launch_order_share"] < 0.6


def test_a_device_whose_first_kernel_is_queued_early_waits_for_another_device_not_for_the_host():
    values = metrics_of(job(fed(0, [0] * 3), fed(1, [30] * 3, called=[2] * 3)))
    assert values["launch_stagger_ms"] == pytest.approx(0.002)


def test_a_device_that_is_called_early_and_starts_with_the_others_is_not_staggered():
    values = metrics_of(job(fed(0, [30] * 3, called=[0] * 3), fed(1, [31] * 3, called=[30] * 3)))
    assert values["launch_stagger_ms"] == pytest.approx(0.001)


def test_devices_are_alike_as_far_as_they_run_the_same_kernels_as_often():
    two = (fed(0, [0] * 3, kernels=[("a", 30), ("b", 6)]), fed(1, [30] * 3, kernels=[("a", 24), ("c", 3)]))
    assert metrics_of(job(*two))["launch_alike_share"] == pytest.approx(8 / (10 + 2 + 1))
    assert metrics_of(job(two[0], fed(1, [9] * 3, kernels=[("a", 30), ("b", 6)])))["launch_alike_share"] == 1


def test_a_process_per_device_is_not_staggered():
    assert metrics_of(job(timed(0, {}, 5), timed(1, {}, 5)))["launch_stagger_ms"] == 0


def test_work_on_another_ranks_device_is_a_guests():
    steps = [spent(1, 0, 100, work_ns=40 * US)]
    home = rank(0, [call(50, 100)], steps, device=0)
    guest = rank(1, [], [spent(1, 0, 100, work_ns=3 * US)], device=0)
    own = rank(1, [call(50, 100)], steps, device=1)
    values = metrics_of(job(home, guest, own))
    assert (values["guest_workers"], values["guest_names"]) == (1, "rank 1 (on GPU 0)")
    assert values["guest_ms"] == pytest.approx(0.003)
    assert metrics_of(job(home, own))["guest_workers"] == 0


# ---------------------------------------------------------------------------------------- what if


def test_the_slow_down_is_what_the_late_rank_costs():
    ranks = racing([[10.0] * 4, [10.0] * 4, [10.0] * 4, [14.0] * 4])
    values = metrics_of(ranks)
    # Kernels at the mean of the ranks take 11 ms: 14.1 against 11.1.
    assert values["straggler_slowdown"] == pytest.approx(14.1 / 11.1, rel=1e-3)
    assert values["straggler_rank_explains"] == pytest.approx(1, abs=0.01)


def test_without_the_other_ranks_nothing_is_told():
    alone = rank(0, [call(0, 10)], [spent(1, 0, 10)], facts={"world_size": 8})
    of_ranks = ("skew_ms", "moving_skew_ms", "late_rank_ms", "waiting_share", "awaited_most", "slow_kernels_ratio")
    values = metrics_of(job(alone))
    assert all(isinstance(values[name], Missing) for name in (*of_ranks, "straggler_slowdown", "idle_ranks"))
    assert values["pipeline_wait_share"] == 0  # it sends nothing
