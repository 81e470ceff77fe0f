"""What changes save, on steps whose savings can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import polars as pl
import pytest

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.view import DeviceView
from advisor.model.intervals import EMPTY, Intervals
from advisor.whatif.change import (
    NOTHING,
    Change,
    between,
    cheaper_launches,
    faster,
    loss,
    merged,
    overlapped,
    recorded,
    saved,
    together,
    without,
    without_waits,
    without_work,
)
from advisor.whatif.dependencies import replay
from tests import timelines
from tests.device_bound import ADD, GEMM, queued
from tests.tables import kernel, on_host, profile, step, view
from tests.timelines import BACK_TO_BACK, HOST_BOUND, SYNC, US

HALF, QUARTER = pl.col("dur_ns") * 0.5, pl.col("dur_ns") * 0.25
GAP = Intervals.of([5 * US], [305 * US])  # the host's work between the two launches of HOST_BOUND


def host_bound() -> DeviceView:
    """HOST_BOUND: the replay takes 400 us, and without the work in GAP 111.2: kernels at 10-60 and 61.2-111.2."""
    return timelines.view(*HOST_BOUND, step=(0, 400))


def unlinked() -> DeviceView:
    """Two kernels of 40 us in a step of 100 us whose calls were not recorded: no replay."""
    return view(profile([kernel(0, 40), kernel(40, 80)], steps=[step(1, 0, 100)]))


def untrusted(steps: DeviceView) -> DeviceView:
    """The same calls and ops in steps that take twice as long as their replay."""
    longer = steps.steps.with_columns(pl.col("dur_ns") * 2)
    return replace(steps, steps=longer, _computed={}, _unions={})


def about(least: float, most: float) -> tuple[object, object]:
    return pytest.approx(least), pytest.approx(most)


# ------------------------------------------------------------------------------------------------------- faster kernels


def test_a_device_bound_step_gives_back_what_its_kernels_lose():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}), (GEMM, 200, {}))
    products = kernels(steps).filter(pl.col("family") == "gemm")
    assert saved(steps, faster(products, HALF, QUARTER)) == about(0.3, 0.45)


def test_a_kernel_that_is_gone_takes_its_pause_along():
    ran = [kernel(20 + 102 * i, 120 + 102 * i, 2 + i) for i in range(4)]  # 100 us each, 2 us apart
    steps = view(profile(ran, steps=[step(1, 0, 426, host=(0, 6))]))
    assert saved(steps, overlapped(kernels(steps)[1:2])) == about(0.102, 0.102)


def test_nothing_saves_more_than_its_kernels_take_in_all_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.whatif.dependencies._MOST_CALLS", 1)  # the replay holds the first step
    ran = [kernel(20, 420, 2), kernel(420, 460, 8)]
    steps = view(profile(ran, steps=[step(1, 0, 420, host=(0, 6)), step(2, 420, 460, host=(6, 12))]))
    assert saved(steps, faster(kernels(steps), HALF, HALF)) == about(0.110, 0.110)  # not 0.200


def test_what_is_hidden_but_for_a_part_saves_the_rest_at_least():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}))
    assert saved(steps, overlapped(kernels(steps)[1:2], (0.25, 0.0))) == about(0.150, 0.200)


def test_nothing_is_gained_where_nothing_changes():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}))
    assert saved(steps, faster(kernels(steps).clear(), HALF, QUARTER)) == (0, 0)
    assert saved(steps, faster(kernels(steps), pl.col("dur_ns"), pl.col("dur_ns"))) == (0, 0)
    assert saved(steps) == saved(steps, NOTHING) == saved(steps, without(host=EMPTY)) == (0, 0)


# us       0         100       200       300       400    Each kernel is launched after the one before it is over.
# launch   |         |         |         |
# kernel    ========  ========  ========  ========         80 of 100
def test_a_host_that_sets_the_pace_gives_nothing_back_for_certain():
    ran = [kernel(t + 10, t + 90, t + 4) for t in range(0, 400, 100)]
    with_op, bare = (
        saved(steps := view(profile(ran, ops, [step(1, 0, 400)])), faster(kernels(steps), *[pl.lit(70_000)] * 2))
        for ops in ([on_host("op", 0, 1, name="aten::add")], [])
    )
    assert with_op.least_ms == pytest.approx(0.01, abs=0.011)  # the last kernel at most
    # What recording ops costs is unknown: with the host at 50 us the device sets the pace, 10 us of each kernel.
    assert 0.03 <= with_op.most_ms <= 0.04
    assert bare == (0, 0)  # calls alone cost 3 us of 100


def test_without_launches_only_the_upper_end_is_told():
    steps = unlinked()
    assert saved(steps, faster(kernels(steps), HALF, QUARTER)) == about(0, 0.06)


def test_without_a_device_ops_lose_what_they_lose():
    ops = [on_host("op", 0, 40, name="aten::mul"), on_host("op", 40, 60, name="aten::add")]
    steps = view(profile([], ops, [step(1, 0, 100, device=None)], devices=()))
    rows = steps.host.filter(pl.col("kind") == "op")
    assert saved(steps, faster(rows, HALF, QUARTER)) == about(0.030, 0.045)


def test_what_is_about_less_than_two_thousandths_of_the_step_is_not_replayed():
    steps = queued((GEMM, 999, {}), (ADD, 1, {}))
    assert saved(steps, faster(kernels(steps)[1:2], HALF, QUARTER)) == about(0, 0.00075)


def nested(cost: float, work: float = 0) -> DeviceView:
    """100 kernels of 15 us, a call every 20 us, each in an op within an op whose bounds lie `cost` us from its own.

    Every third outer op has `work` us of its own beside that.
    """
    ops, ran = [], []
    for i in range(100):
        at, beside = 20 * i, cost + work * (i % 3 == 0)
        ops.append(on_host("op", at, at + 16, name="aten::linear"))
        ops.append(on_host("op", at + beside / 2, at + 16 - beside / 2, name="aten::addmm", parent=2 * i))
        ran.append(kernel(at + 20, at + 35, at + 14))
    return view(profile(ran, ops, [step(1, 0, 2016)]))


def test_what_recording_costs_the_host_holds_up_no_faster_kernel():
    """300 ops and calls cost 4 us each, 1.2 of 2.0 ms: the host launches all in the rest; the device sets the pace."""
    low, high = saved(steps := nested(4), faster(steps.used_ops, HALF, HALF))
    assert low == pytest.approx(100 * 0.0075, rel=0.1)
    assert high == pytest.approx(low, rel=0.01)


@pytest.mark.parametrize("work", [0, 10])  # of a third of the outer ops, which recording does not cost
def test_a_host_that_recording_costs_little_holds_up_faster_kernels(work: float):
    """100 ns each are 30 us: at least nothing. But half of the host's 2.0 ms may be the profiler's: kernels take 1.62.

    Faster ones, with 1.2 us before each, wait for this host: 1.0 ms, and its last 22 us, which launch nothing.
    """
    low, high = saved(steps := nested(0.1, work), faster(steps.used_ops, HALF, HALF))
    assert low == 0
    assert high == pytest.approx(1.62 - 0.997 - 0.022, rel=0.03)


def test_recording_calls_alone_costs_the_host_at_most_3_us_each():
    """100 calls, 20 us apart: the host takes 1.7 of 2.0 ms without it, and faster kernels wait for it."""
    steps = view(profile([kernel(20 * i, 20 * i + 15, 20 * i - 6) for i in range(1, 101)], steps=[step(1, 0, 2016)]))
    assert saved(steps, faster(kernels(steps), HALF, HALF)).most_ms < 0.02


# -------------------------------------------------------------------------------------------------- host work and calls


def test_host_work_that_is_gone_brings_the_next_launch_forward():
    assert saved(host_bound(), without(host=GAP, bound_ns=GAP.total)) == about(0.4 - 0.1112, 0.4 - 0.1112)


def test_half_of_it_left_saves_half_at_least():
    assert saved(host_bound(), without(host=GAP, rest=(0.5, 0.0), bound_ns=GAP.total)) == about(0.150, 0.4 - 0.1112)
    assert saved(host_bound(), without(host=GAP, bound_ns=GAP.total, rest=(0.5, 0.0))) == about(0.150, 0.4 - 0.1112)


def test_without_a_replay_the_bound_stands_in():
    assert saved(unlinked(), without(host=GAP, bound_ns=20_000)) == about(0, 0.020)
    assert saved(unlinked(), without(host=GAP, bound_ns=(5_000, 20_000))) == about(0.005, 0.020)
    assert recorded(unlinked()) is None
    assert replay(unlinked()) is None


def test_a_replay_that_is_off_by_more_than_a_twentieth_is_not_trusted():
    steps = timelines.view(*BACK_TO_BACK, step=(0, 110))
    late = untrusted(steps)
    assert recorded(steps)
    assert recorded(late) is None
    assert replay(late).error == pytest.approx(-0.5)
    assert saved(late, without(host=GAP, bound_ns=20_000)) == about(0, 0.020)


def test_without_a_replay_kernels_save_at_least_what_they_lose_while_the_host_waits_for_them():
    steps = untrusted(timelines.view(*SYNC, step=(0, 122)))
    # the host waits during the first kernel of 50 us, not during the second
    assert saved(steps, faster(steps.used_ops, HALF, HALF)) == about(0.025, 0.050)


def test_without_its_wait_the_second_kernel_follows_the_first():
    # the call takes 2 us of its own: launch at 7, kernel at 61.2-111.2 instead of 72-122
    steps = timelines.view(*SYNC, step=(0, 122))
    assert saved(steps, without_waits(0.0)) == about(0.0108, 0.0108)
    assert saved(steps, without(calls=pl.Series([1, None, 1]))) == about(0.0108, 0.0108)


def test_calls_return_at_least_and_what_they_do_is_hidden_at_most():
    steps = timelines.view(*SYNC, step=(0, 122))
    wait, first = pl.Series([1]), steps.ops[:1]
    hidden = between(without(calls=wait, bound_ns=9_000), without(calls=wait, ops=first, bound_ns=9_000))
    # without the first kernel the second is launched at 5 and runs at 15-65 at once
    assert saved(steps, hidden) == about(0.0108, 0.122 - 0.065)
    assert saved(steps, hidden.at_most(20_000)) == about(0.0108, 0.020)


def test_work_takes_its_calls_and_kernels_along():
    # without the second launch the first kernel ends at 60; the host's tail of 90 us begins at 5
    steps = timelines.view(*HOST_BOUND, step=(0, 400))
    assert saved(steps, without_work(steps, Intervals.of([5 * US], [310 * US]))) == about(0.4 - 0.095, 0.4 - 0.095)


def test_work_without_a_replay_is_the_time_of_its_kernels():
    steps = untrusted(timelines.view(*BACK_TO_BACK, step=(0, 110)))
    assert saved(steps, without_work(steps, Intervals.of([4 * US], [8 * US]))) == about(0.050, 0.050)


def test_the_first_of_small_copies_takes_the_others_over():
    calls = [("runtime", "cudaMemcpyAsync", at, 5) for at in (0, 5, 10)]
    ops = [(i, 7, "memcpy", 10 + 30 * i, 30) for i in range(3)]
    steps = timelines.view(calls, ops, step=(0, 100), host=(0, 15))
    rows = steps.used_ops
    assert saved(steps, merged(steps, rows, "window", "kind")) == about(0.060, 0.060)
    assert saved(steps, merged(steps, rows[:1], "window")) == (0, 0)


def test_cheaper_launches_save_what_the_host_takes():
    # A tenth of the calls and of the 300 us between them is left: the host is done after 31 us and its tail of 90.
    # Without a profiler it takes 304, 3 less for each call, and the tail; three tenths of that leave 91.2.
    assert saved(host_bound(), cheaper_launches((0.3, 0.1), 300_000)) == about(0.394 - 0.1812, 0.4 - 0.121)


def test_a_limit_cuts_the_most_alone_or_both_in_proportion():
    change = without(host=GAP, rest=(0.5, 0.0), bound_ns=GAP.total)  # 0.150 to 0.2888
    assert saved(host_bound(), change.at_most(144_400)) == about(0.1444, 0.1444)
    assert saved(host_bound(), change.at_most(144_400, in_proportion=True)) == about(0.075, 0.1444)


def test_of_a_change_a_part_may_be_sure_and_more_beyond_the_replay():
    change = without(host=GAP, bound_ns=GAP.total).surely(0.5).beyond(10_000)
    assert saved(host_bound(), change) == about(0.1444, 0.2988)
    assert saved(unlinked(), without(bound_ns=(20_000, 20_000)).surely(0.5).beyond(10_000)) == about(0.010, 0.030)


def test_a_loss_is_saved_as_it_was_recorded_replay_or_not():
    assert saved(host_bound(), loss(5_000, 20_000)) == saved(unlinked(), loss(5_000, 20_000)) == about(0.005, 0.020)


# ------------------------------------------------------------------------------------------------------ several changes


def test_two_changes_are_replayed_at_once():
    # the work gone, the second kernel follows the first; both at half: 10-35 and 36.2-61.2, the host's tail ends at 100
    steps = host_bound()
    work, half = without(host=GAP), faster(kernels(steps), HALF, HALF)
    assert saved(steps, half).least_ms == 0
    assert saved(steps, work, half).least_ms == pytest.approx(0.4 - 0.1)


def test_what_both_leave_out_counts_once():
    steps = host_bound()
    early, late = (without(host=Intervals.of([at * US], [(at + 200) * US])) for at in (5, 105))
    assert saved(steps, early, late) == saved(steps, without(host=GAP))


def test_the_shorter_of_two_durations_and_the_smaller_rest_count():
    steps = queued((GEMM, 400, {}), (ADD, 200, {}))
    half, quarter = (faster(kernels(steps), part, part) for part in (HALF, QUARTER))
    assert saved(steps, half, quarter) == about(*saved(steps, quarter))
    work = [without(host=GAP, rest=(rest, rest)) for rest in (0.5, 0.0)]
    assert saved(host_bound(), *work) == saved(host_bound(), work[1])


def test_bounds_add_up_to_the_step_at_most():
    assert saved(unlinked(), loss(10_000, 30_000), without(host=GAP, bound_ns=40_000)) == about(0.010, 0.070)
    assert saved(unlinked(), loss(0, 80_000), loss(0, 90_000)) == about(0, 0.100)


def test_parts_that_are_sure_weigh_by_their_bounds():
    sure = without(bound_ns=(30_000, 30_000)).surely(0.5), without(bound_ns=(10_000, 10_000))
    assert saved(unlinked(), *sure) == about(0.025, 0.040)


def test_the_order_does_not_matter():
    steps = host_bound()
    changes = (without(host=GAP, rest=(0.5, 0.0)), faster(kernels(steps), HALF, QUARTER), loss(1_000, 2_000))
    outcomes = {saved(steps, *some) for some in permutations(changes)}
    assert len(outcomes) == 1


def test_together_is_what_saved_makes_of_several():
    steps = host_bound()
    first, second = without(host=GAP), without_waits(0.0)
    assert saved(steps, together(first, second)) == saved(steps, first, second)
    assert isinstance(together(), Change)
