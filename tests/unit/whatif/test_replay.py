"""The replay on timelines small enough to work out by hand; times in microseconds."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.model.intervals import Intervals
from advisor.whatif import dependencies
from advisor.whatif.change import Edit
from advisor.whatif.dependencies import replay
from tests.device_bound import ADD, GEMM, queued
from tests.tables import kernel, on_host, profile, step
from tests.tables import view as tables_view
from tests.timelines import BACK_TO_BACK, HOST_BOUND, SYNC, US, view

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def with_ops(model, ops, factor):
    """With the duration of these device ops multiplied by the factor; one of none leaves its pause."""
    duration = np.where(np.isin(model.op, ops), np.rint(model.dur * factor).astype(np.int64), model.dur)
    return replace(model, dur=duration)


def test_unchanged_it_takes_as_long_as_recorded():
    model = replay(view(*BACK_TO_BACK, step=(0, 110)))
    assert model.step_ms == pytest.approx(0.110)
    assert model.recorded_ms == pytest.approx(0.110)


@pytest.mark.parametrize(("until", "known"), [(61, 1), (62, 0)])
def test_where_most_work_was_called_before_the_steps_there_is_no_replay(until: int, known: int):
    """Of 120 us from 1 on, the first kernel takes 60 or 61: no call that is replayed can change it."""
    calls, ops = BACK_TO_BACK[0], [(0, 7, "kernel", 1, until - 1), (1, 7, "kernel", until, 121 - until)]
    models = filter(None, [replay(view(calls, ops, step=(1, 120), host=(1, 120)))])
    assert len([*models]) == known


def test_a_kernel_on_the_critical_path_is_saved_whole():
    model = replay(view(*BACK_TO_BACK, step=(0, 110), host=(0, 12)))
    assert model.saved_ms(with_ops(model, [1], 0.0)) == pytest.approx(0.050)


def test_a_host_bound_step_does_not_notice_faster_kernels():
    model = replay(view(*HOST_BOUND, step=(0, 400)))
    assert model.step_ms == pytest.approx(0.400)
    assert model.saved_ms(with_ops(model, [0, 1], 0.5)) == 0.0


def test_slow_calls_of_threads_that_launch_nothing_here_hold_no_launch_up():
    others = [("allocator", "cudaMalloc", 10, 200), ("allocator", "cudaMalloc", 20, 200)]  # one for each other device
    calls, ops = HOST_BOUND
    model = replay(view([*calls, *others], ops, step=(0, 400), threads=[1, 1, 2, 3]))
    assert model.step_ms == pytest.approx(0.400)


def test_host_work_that_goes_away_brings_the_next_launch_forward():
    # without [5, 305) the second call is made at 5: device 10-60, 61.2-111.2; the host's tail of 90 ends at 100
    model = replay(view(*HOST_BOUND, step=(0, 400)))
    changed = model.without_host(Intervals.of([5 * US], [305 * US]))
    assert model.saved_ms(changed) == pytest.approx(0.400 - 0.1112)


def test_half_of_it_kept_saves_half():
    model = replay(view(*HOST_BOUND, step=(0, 400)))
    assert model.saved_ms(model.without_host(Intervals.of([5 * US], [305 * US]), rest=0.5)) == pytest.approx(0.150)


def test_a_wait_holds_the_host_until_the_device_is_done():
    assert replay(view(*SYNC, step=(0, 122))).step_ms == pytest.approx(0.122)


def test_a_copy_that_ends_after_its_call_by_the_clock_of_the_device_was_waited_for():
    calls = [("runtime", "cudaMemcpyAsync", 0, 2000), ("runtime", "cudaLaunchKernel", 2500, 5)]
    model = replay(view(calls, [(0, 7, "memcpy", 5, 1999), (1, 7, "kernel", 2510, 90)], step=(0, 2600)))
    assert model.step_ms == pytest.approx(2.6, abs=0.01)
    assert model.saved_ms(model.without_host(Intervals.of([2100 * US], [2400 * US]))) == pytest.approx(0.3, abs=0.01)


def test_a_slow_copy_that_returned_long_before_it_was_made_waited_for_nothing():
    # its call takes 100 us behind kernels that end meanwhile; the copy itself is queued until 3000
    calls = [("runtime", "cudaLaunchKernel", 0, 5), ("runtime", "cudaLaunchKernel", 5, 5)]
    calls += [("runtime", "cudaMemcpyAsync", 10, 100), ("runtime", "cudaLaunchKernel", 120, 5)]
    ops = [(0, 7, "kernel", 10, 50), (1, 7, "kernel", 61, 2939), (2, 7, "memcpy", 3001, 9), (3, 7, "kernel", 3011, 89)]
    model = replay(view(calls, ops, step=(0, 3100)))
    assert model.step_ms == pytest.approx(3.1, abs=0.01)
    assert not model.waits.any()


def test_without_the_wait_the_second_kernel_follows_the_first():
    # the call itself still takes the 2 us it took after the device was done: launch at 7, kernel 61.2-111.2
    model = replay(view(*SYNC, step=(0, 122)))
    assert model.saved_ms(Edit(waits=True).on(model)) == pytest.approx(0.0108)


def test_faster_kernels_end_the_wait_earlier():
    model = replay(view(*SYNC, step=(0, 122)))
    assert model.saved_ms(with_ops(model, [0], 0.5)) == pytest.approx(0.025)


# host     launches at 0 and 5, sync [10 .. 62], own work, launch at 600
# stream 8 [10 ............................. 510]
# stream 7 [12 .. 60]                              [605 .. 655]
ONE_OF_TWO = (
    [
        ("runtime", "cudaLaunchKernel", 0, 5),
        ("runtime", "cudaLaunchKernel", 5, 5),
        ("sync", "cudaStreamSynchronize", 10, 52),
        ("runtime", "cudaLaunchKernel", 600, 5),
    ],
    [(0, 8, "kernel", 10, 500), (1, 7, "kernel", 12, 48), (3, 7, "kernel", 605, 50)],
)


def test_a_wait_that_ended_while_another_stream_worked_waits_for_its_own():
    model = replay(view(*ONE_OF_TWO, step=(0, 655)))
    assert model.step_ms == pytest.approx(0.655, abs=0.002)
    assert model.saved_ms(with_ops(model, [1], 0.5)) == pytest.approx(0.024)
    assert model.saved_ms(with_ops(model, [0], 0.5)) == 0.0


def test_among_more_streams_than_a_program_has_a_wait_is_for_all(monkeypatch: pytest.MonkeyPatch):
    """Each wait beside each stream would fill the memory."""
    monkeypatch.setattr(dependencies, "_MOST_PAIRS", 0)
    assert replay(view(*ONE_OF_TWO, step=(0, 655))).unawaited == {}


def test_a_stream_or_thread_of_its_own_for_each_kernel_changes_no_step():
    of_one = [("runtime", "cudaLaunchKernel", 0, 5), ("sync", "cudaStreamSynchronize", 6, 65)]
    calls = [(kind, name, 100 * n + at, dur) for n in range(40) for kind, name, at, dur in of_one]
    ops = [(2 * n, 7, "kernel", 100 * n + 20, 50) for n in range(40)]
    own = [(call, stream, *rest) for stream, (call, _, *rest) in enumerate(ops)]
    models = [replay(view(calls, of, step=(0, 4_000))) for of in (ops, own)]
    models.append(replay(view(calls, own, step=(0, 4_000), threads=[n // 2 for n in range(80)])))
    assert [model.step_ms for model in models] == [models[0].step_ms] * 3
    faster = [model.saved_ms(with_ops(model, range(40), 0.5)) for model in models]
    assert faster == [pytest.approx(1.0, abs=0.01)] * 3


def test_a_wait_that_ended_just_before_another_stream_did_waits_for_both():
    calls, ((of, stream, kind, start, _), *rest) = ONE_OF_TWO
    model = replay(view(calls, [(of, stream, kind, start, 60), *rest], step=(0, 655)))  # ends at 70, the wait at 62
    assert model.saved_ms(with_ops(model, [1], 0.5)) < 0.010


def test_streams_run_side_by_side():
    calls = [("runtime", "cudaLaunchKernel", 0, 5), ("runtime", "cudaLaunchKernel", 5, 5)]
    model = replay(view(calls, [(0, 7, "kernel", 10, 50), (1, 8, "kernel", 15, 100)], step=(0, 115)))
    assert model.step_ms == pytest.approx(0.115)
    assert model.saved_ms(with_ops(model, [0], 0.0)) == 0.0


def test_launches_that_cost_a_tenth():
    model = replay(view(*HOST_BOUND, step=(0, 400)))
    # work between the calls of 300 us is at most 1 ms: 30 us; second call at 0.5 + 30 = 30.5
    changed = model.with_launches(0.1)
    assert model.saved_ms(changed) > 0.250


# host     copy(5) at 0, launch(5) at 5
# stream 8 [10 ........ 60]
# stream 7                 [63 .. 113]   waits for the copy
COPIED = (
    [("runtime", "cudaMemcpyAsync", 0, 5), ("runtime", "cudaLaunchKernel", 5, 5)],
    [(0, 8, "memcpy", 10, 50), (1, 7, "kernel", 63, 50)],
)


def test_an_op_waits_for_the_other_stream_that_it_was_seen_to_wait_for():
    model = replay(view(*COPIED, step=(0, 113), host=(0, 12)))
    assert model.step_ms == pytest.approx(0.113)
    assert model.saved_ms(with_ops(model, [0], 0.5)) == pytest.approx(0.025)


# host     launches at 0, 5 and 10
# stream 7 [10 .......... 210] [211 .. 231]
# stream 8                     [213 .. 313]   launched behind both kernels of stream 7, waits for the first
FORKED = (
    [("runtime", "cudaLaunchKernel", at, 5) for at in (0, 5, 10)],
    [(0, 7, "kernel", 10, 200), (1, 7, "kernel", 211, 20), (2, 8, "kernel", 213, 100)],
)


def test_an_op_waits_for_a_long_one_of_another_stream_behind_which_more_was_launched():
    model = replay(view(*FORKED, step=(0, 313), host=(0, 16)))
    assert model.saved_ms(with_ops(model, [0], 0.5)) == pytest.approx(0.100)
    calls, _ = FORKED
    brief = [
        (0, 7, "kernel", 10, 110),
        (1, 7, "kernel", 121, 89),
        (2, 7, "kernel", 211, 20),
        (3, 8, "kernel", 213, 100),
    ]
    by_chance = replay(view([*calls, ("runtime", "cudaLaunchKernel", 15, 5)], brief, step=(0, 313), host=(0, 21)))
    assert by_chance.saved_ms(with_ops(by_chance, [0], 0.5)) == 0.0


def test_an_op_that_starts_long_after_another_stream_ended_did_not_wait_for_it():
    calls, (copy, (launch, stream, kind, _, dur)) = COPIED
    model = replay(view(calls, [copy, (launch, stream, kind, 71, dur)], step=(0, 121), host=(0, 12)))
    assert model.saved_ms(with_ops(model, [0], 0.0)) == 0.0


@pytest.mark.parametrize(("late", "saved_ms"), [(15, 1.0), (25, 0.0)])
def test_behind_a_wait_of_2_ms_an_op_may_start_20_us_after_what_it_waited_for(late: int, saved_ms: float):
    calls, (copy, (launch, stream, kind, _, dur)) = COPIED
    ops = [(*copy[:4], 2000), (launch, stream, kind, 2010 + late, dur)]
    model = replay(view(calls, ops, step=(0, 2060 + late), host=(0, 12)))
    assert model.saved_ms(with_ops(model, [0], 0.5)) == pytest.approx(saved_ms)


def test_calls_that_are_not_made_take_no_time_and_wait_for_nothing():
    # without the synchronisation the launch is at 5, and the second kernel follows the first: 61.2-111.2
    model = replay(view(*SYNC, step=(0, 122)))
    assert model.saved_ms(Edit(calls=np.array([1])).on(model)) == pytest.approx(0.0108)


def test_a_pause_is_as_long_as_queued_ops_were_seen_to_take():
    # without [15, 300) the last call is made at 15, its kernel follows the third one: 169-219 instead of 310-360
    calls = [("runtime", "cudaLaunchKernel", at, 5) for at in (0, 5, 10, 300)]
    starts = (10, 63, 116, 310)
    model = replay(view(calls, [(i, 7, "kernel", at, 50) for i, at in enumerate(starts)], step=(0, 360), host=(0, 305)))
    assert model.step_ms == pytest.approx(0.360)
    assert model.saved_ms(model.without_host(Intervals.of([15 * US], [300 * US]))) == pytest.approx(0.360 - 0.219)


# host     launches at 0 and 5, cudaMalloc 20 .. 80, launch at 90
# device   [10 ..... 60][60 ................. 210][210 . 220]
def test_taking_memory_waits_for_nothing_although_a_kernel_ends_meanwhile():
    calls = [*BACK_TO_BACK[0], ("allocator", "cudaMalloc", 20, 60), ("runtime", "cudaLaunchKernel", 90, 5)]
    ops = [(0, 7, "kernel", 10, 50), (1, 7, "kernel", 60, 150), (3, 7, "kernel", 210, 10)]
    model = replay(view(calls, ops, step=(0, 220), host=(0, 100)))
    assert model.waits.tolist() == [False, False, False, False]
    assert model.step_ms == pytest.approx(0.220)


def test_giving_memory_back_waits_for_all_that_was_launched():
    calls = [*BACK_TO_BACK[0], ("allocator", "cudaFree", 20, 95)]  # the device is done at 110, 5 us before its return
    model = replay(view(calls, BACK_TO_BACK[1], step=(0, 115)))
    assert model.waits.tolist() == [False, False, True]
    assert model.own.tolist()[2] == 5 * US


def test_nothing_linked_is_nothing_replayed():
    unlinked = view(BACK_TO_BACK[0], [(None, 7, "kernel", 10, 50)], step=(0, 110))
    assert replay(unlinked) is None


# host     launch(5) at 0, 5 and 10
# stream 7 [10 .. 30]          [100 .. 120][120 .. 170]   what the second waits for from 30 on was not recorded
def test_an_op_that_is_gone_saves_its_time_and_not_what_it_waited_for():
    calls = [("runtime", "cudaLaunchKernel", at, 5) for at in (0, 5, 10)]
    ops = [(0, 7, "kernel", 10, 20), (1, 7, "kernel", 100, 20), (2, 7, "kernel", 120, 50)]
    model = replay(view(calls, ops, step=(0, 170), host=(0, 15)))
    assert model.saved_ms(model.with_durations(np.array([1]), np.array([0]))) == pytest.approx(0.020)


def test_durations_are_changed_by_id_in_any_order():
    steps = replay(queued((ADD, 100, {}), (GEMM, 200, {}), (ADD, 300, {})))
    changed = steps.with_durations(np.array([2, 0, 99]), np.array([10_000, 20_000, 7]))
    assert dict(zip(changed.op.tolist(), changed.dur.tolist(), strict=True)) == {0: 20_000, 1: 200_000, 2: 10_000}
    assert steps.with_durations(np.array([], np.int64), np.array([], np.int64)).dur.tolist() == steps.dur.tolist()


def test_what_the_host_launches_ahead_for_steps_that_are_not_used_is_not_replayed():
    ran = [kernel(100 * i + 20, 100 * i + 120, 10 * i + 2) for i in range(6)]
    marks = [step(i, 0 if i == 0 else 100 * i + 20, 100 * i + 120, host=(10 * i, 10 * i + 5)) for i in range(6)]
    steps = select_steps(profile(ran, steps=marks), "0:3").views[0]
    assert replay(steps).error == pytest.approx(0, abs=0.01)


# thread 1 launches (8 us) every 10 us, each kernel of 5 us to stream 7; thread 2 (12 us) every 40 us, to stream 8
def beside(kernel_us=5, threads=(1, 2), copy_us=30):
    calls = [("runtime", "cudaLaunchKernel", 10 * i, 8) for i in range(60)]
    calls += [("runtime", "cudaMemcpyAsync", 40 * i + 3, 12) for i in range(15)]
    ops = [(i, 7, "kernel", 10 * i + 6, kernel_us) for i in range(60)]
    ops += [(60 + i, 8, "memcpy", 40 * i + 9, copy_us) for i in range(15)]
    of_call = [threads[0]] * 60 + [threads[1]] * 15
    return view(calls, ops, step=(0, 601), host=(0, 600), threads=of_call)


def test_a_second_thread_makes_its_calls_beside_the_first():
    model = replay(beside())
    assert np.unique(model.queue, return_counts=True)[1].tolist() == [60, 15]
    assert model.error == pytest.approx(0, abs=0.001)
    one_after_the_other = replace(model, queue=np.zeros_like(model.queue))
    assert one_after_the_other.error > 0.2  # each of the 15 calls of 12 us then delays the launches


@pytest.mark.parametrize("threads", [(1, None), (None, 2)])
def test_calls_of_an_unknown_thread_are_a_threads_too(threads: tuple[int | None, int | None]):
    assert replay(beside(threads=threads)).queue.tolist() == replay(beside()).queue.tolist()


def test_the_first_thread_is_not_faster_without_what_the_second_does():
    model = replay(beside())
    assert model.saved_ms(Edit(calls=np.arange(60, 75)).on(model)) == 0
    # thread 1 still works 60 * 2 us between its calls of 0 us, the last copy ends at 599 of 601
    assert model.saved_ms(Edit(calls=np.arange(60)).on(model)) == pytest.approx(0.002)


# thread 1   launches(5) at 0, 5     ...            launch(5) at 4000
# thread 2             copy(5) at 3 (beside 0 .. 5)   copy(5) at 4002, 1 ms and more after its first one: it waits
def test_a_thread_that_makes_no_call_for_long_follows_the_first():
    calls = [("runtime", "cudaLaunchKernel", at, 5) for at in (0, 5, 4000)]
    calls += [("runtime", "cudaMemcpyAsync", at, 5) for at in (3, 4002)]
    ops = [(i, 7, "kernel", at + 10, 5) for i, at in enumerate((0, 5, 4000))]
    ops += [(3, 8, "memcpy", 13, 5), (4, 8, "memcpy", 4012, 88)]
    model = replay(view(calls, ops, step=(0, 4100), host=(0, 4005), threads=[1, 1, 1, 2, 2]))
    assert model.step_ms == pytest.approx(4.1)
    sooner = model.without_host(Intervals.of([10 * US], [4000 * US]))
    assert model.saved_ms(sooner) == pytest.approx(3.99)


def test_threads_that_take_turns_are_one_queue():
    calls = [("runtime", "cudaLaunchKernel", 10 * i, 8) for i in range(40)]
    ops = [(i, 7, "kernel", 10 * i + 6, 5) for i in range(40)]
    model = replay(view(calls, ops, step=(0, 410), host=(0, 400), threads=[1] * 20 + [2] * 20))
    assert not model.queue.any()


def test_a_thread_that_launches_while_another_waits_for_the_device_takes_no_turn():
    # thread 1 launches 50 us and waits for them until 60; thread 2 launches twice meanwhile; and so on, every 70 us
    calls, ops, threads = [], [], []
    for at in range(0, 700, 70):
        calls += [
            ("runtime", "cudaLaunchKernel", at, 5),
            ("sync", "cudaDeviceSynchronize", at + 6, 55),
            ("runtime", "cudaLaunchKernel", at + 10, 5),
            ("runtime", "cudaLaunchKernel", at + 30, 5),
        ]
        first = len(calls) - 4
        ops += [(first, 7, "kernel", at + 10, 50), *((first + n, 8, "kernel", at + 20 * n - 20, 2) for n in (2, 3))]
        threads += [1, 1, 2, 2]
    model = replay(view(calls, ops, step=(0, 700), host=(0, 700), threads=threads))
    assert model.queue.tolist() == [0, 0, 1, 1] * 10
    assert model.error == pytest.approx(0, abs=0.001)


def test_a_thread_waits_for_the_streams_that_it_launches_to():
    # the second thread's copies run until 2000; the synchronisation of the first returns with its kernel at 60
    calls = [
        ("runtime", "cudaLaunchKernel", 0, 5),
        ("sync", "cudaStreamSynchronize", 5, 57),
        ("runtime", "cudaLaunchKernel", 62, 5),
        ("runtime", "cudaMemcpyAsync", 2, 5),
    ]
    ops = [(0, 7, "kernel", 10, 50), (2, 7, "kernel", 72, 50), (3, 8, "memcpy", 12, 1988)]
    model = replay(view(calls, ops, step=(0, 2000), host=(0, 70), threads=[1, 1, 1, 2]))
    assert model.own.tolist()[2] == 2 * US
    assert model.step_ms == pytest.approx(2.0)


# host     loader 0 .. 90, launch 100, sync .. 150  and so on, every 200 us, 4 steps: workers of a loader set the pace
def paced(late=(0, 200, 400, 600)):
    requests = [on_host("input", at, at + 90, name=WORKERS, thread=2) for at in late]
    launched = [kernel(at + 106, at + 190, at + 100) for at in range(0, 800, 200)]
    waits = [on_host("sync", at + 101, at + 192, thread=2) for at in range(0, 800, 200)]
    return tables_view(profile(launched, [*requests, *waits], [step(i, 200 * i, 200 * i + 200) for i in range(4)]))


@pytest.fixture
def short_hand_over(monkeypatch):
    monkeypatch.setattr("advisor.analysis.device.iterators.HAND_OVER_NS", 20 * US)


@pytest.mark.usefixtures("short_hand_over")
def test_what_is_faster_than_the_loader_gains_nothing():
    model = replay(paced())
    assert model.waits_for_arrivals[1].tolist() == [90 * US, 290 * US, 490 * US, 690 * US]
    assert model.error == pytest.approx(0, abs=0.001)
    assert model.saved_ms(with_ops(model, model.op, 0.1)) == 0
    assert model.fed().saved_ms(with_ops(model.fed(), model.op, 0.5)) == pytest.approx(0.042, abs=0.001)


@pytest.mark.usefixtures("short_hand_over")
def test_a_loader_that_is_faster_lets_the_rest_set_the_pace():
    model = replay(paced())
    waiting = Intervals.of(*model.waits_for_arrivals)
    assert model.saved_ms(model.without_host(waiting)) == pytest.approx(0.090)
    # each batch 45 us sooner than the one before it: the steps take 155 us, whatever the kernels take
    half = model.without_host(waiting, rest=0.5)
    assert model.saved_ms(half) == pytest.approx(0.045)
    assert model.saved_ms(with_ops(half, model.op, 0.1)) == pytest.approx(0.045)


# host     launch, sync for a kernel of 10 to 19 ms, then silence; the next launch comes every 40 ms, or 20 ms later
def every_40_ms(*, waits: bool):
    took = [10 + 7 * i % 10 for i in range(12)]
    at = [40 * i if waits else sum(took[:i]) + 20 * i for i in range(13)]
    device = [kernel(1000 * a, 1000 * (a + t) - 20, 1000 * a - 10) for a, t in zip(at, took, strict=False)]
    host = [on_host("sync", 1000 * a, 1000 * (a + t), thread=2) for a, t in zip(at, took, strict=False)]
    steps = [step(i, 1000 * at[i] - 100, 1000 * at[i + 1] - 100) for i in range(12)]
    return tables_view(profile(device, host, steps))


def test_a_host_that_goes_on_when_it_would_have_anyway_waits_for_something():
    model = replay(every_40_ms(waits=True))
    assert (model.awaits, len(model.late)) == ("host_busy", 12)
    assert model.error == pytest.approx(0, abs=0.001)
    assert model.saved_ms(with_ops(model, model.op, 0.5)) == 0


def test_a_host_that_works_for_as_long_as_ever_waits_for_nothing():
    model = replay(every_40_ms(waits=False))
    assert model.awaits == ""
    assert model.saved_ms(with_ops(model, model.op, 0.5)) == pytest.approx(7, abs=0.5)  # of 14 ms on average


def test_half_a_wait_that_is_replayed_twice_is_taken_once():
    model = replay(view(*HOST_BOUND, step=(0, 400)))
    tail = Intervals.of([310 * US], [400 * US])
    assert model.saved_ms(model.without_host(tail, rest=0.5).without_host(tail)) == pytest.approx(0.035)  # kernel's end


@pytest.mark.usefixtures("short_hand_over")
def test_a_batch_that_is_late_once_is_no_pace():
    assert not len(replay(paced(late=(200,))).late)
