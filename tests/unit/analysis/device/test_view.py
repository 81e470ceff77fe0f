from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import Selection, by_start, outermost, positions, spent_ns
from advisor.errors import UsageError
from advisor.inputs.links import steps as windows
from advisor.model.clause import Missing, Note
from advisor.model.profile import Profile
from tests.effort import every
from tests.tables import A100, V100, Row, kernel, on_device, on_host, profile, span, step, union, view


def of_lengths(*lengths: float, **more: Sequence[Row]) -> Profile:
    """Steps 0, 1, 2, ... of these lengths in us, one after the other."""
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return profile(
        steps=[step(i, end - dur, end) for i, (dur, end) in enumerate(zip(lengths, ends, strict=True))], **more
    )


def used(made: Profile, choice: str = "steady") -> list[int]:
    return view(made, choice).steps["step"].to_list()


def why(made: Profile, number: int, choice: str = "steady") -> str | None:
    return select_steps(made, choice).steps.filter(pl.col("step") == number)["left_out"].item()


def of_us(made: Profile, number: int) -> float:
    """The time that the reason speaks of."""
    return select_steps(made).steps.filter(pl.col("step") == number)["left_out_ns"].item() / 1000


# ------------------------------------------------------------------------------------ the steps rule


def marks(*spans: tuple[float, float], name: str = "ProfilerStep#{}") -> list[Row]:
    return [on_host("step", start, end, name=name.format(i + 1)) for i, (start, end) in enumerate(spans)]


def test_a_step_lasts_until_its_last_kernel_ends_and_the_next_begins_there():
    # us      0    10   20   30   40   50   60
    # host    |-- 1 ---||-- 2 ---||-- 3 ---|
    # calls      a  b        c        d
    # kernels      aaaaaaa                         from 8 to 18
    #                     bbbbbbb                  to 25: step 1 takes 20 on the host, 17 on the device
    #                            cc                to 28: step 2 is 25 to 40, its host's end
    #                                     ddddddd  to 62: step 3 is 40 to 62
    host = marks((0, 20), (20, 40), (40, 60))
    device = [kernel(8, 18, 5), kernel(18, 25, 8), kernel(26, 28, 24), kernel(50, 62, 44)]
    rows, ops = windows_of(host, device)
    assert rows.select("step", "start_ns", "dur_ns", "host_start_ns", "host_dur_ns", "incomplete").rows() == [
        (1, 5_000, 20_000, 0, 20_000, None),
        (2, 25_000, 15_000, 20_000, 20_000, None),
        (3, 40_000, 22_000, 40_000, 20_000, None),
    ]
    assert ops["step"].to_list() == [1, 1, 2, 3]


def test_an_op_belongs_to_the_step_in_which_its_call_begins():
    device = [kernel(5, 6, 4), kernel(22, 30, 20.5), kernel(45, 46, 44), kernel(31, 32, 30), kernel(50, 51)]
    rows, ops = windows_of(marks((0, 20), (20, 40)), device)
    assert ops["step"].to_list() == [1, 1, None, 2, None]
    assert rows.select("start_ns", "dur_ns").rows() == [(5_000, 25_000), (30_000, 10_000)]


def test_a_copy_does_not_lengthen_its_step():
    rows, _ = windows_of(marks((0, 20)), [on_device("memcpy", 10, 50, 5), kernel(0, 21, 1)])
    assert rows["dur_ns"].to_list() == [21_000]


def test_a_collective_lengthens_its_step_as_any_kernel_does():
    rows, _ = windows_of(marks((0, 20)), [kernel(0, 21, 1), on_device("collective", 21, 30, 7)])
    assert rows["dur_ns"].to_list() == [30_000]


def test_time_between_the_marks_belongs_to_the_step_before():
    # Marks of 10 us every 40 us: three periods of 40, and a last one whose end was not recorded.
    rows, ops = windows_of(
        marks(*((40 * i, 40 * i + 10) for i in range(4))),
        [kernel(40 * i + at, 40 * i + at + 3, 40 * i + at - 1) for i in range(4) for at in (5, 30)],
    )
    assert rows.select("start_ns", "dur_ns", "host_dur_ns", "mark_ns").rows() == [
        *((40_000 * i, 40_000, 40_000, 10_000) for i in range(3)),
        (120_000, 10_000, 10_000, 10_000),
    ]
    assert [why is None for why in rows["incomplete"]] == [True, True, True, False]
    assert ops["step"].to_list() == [1, 1, 2, 2, 3, 3, 4, None]


def test_wider_marks_change_no_period():
    device = [kernel(40 * i + 15, 40 * i + 39, 40 * i + 11) for i in range(5)]
    narrow, wide = (windows_of(marks(*((40 * i, 40 * i + n) for i in range(5))), device)[0] for n in (10, 40))
    columns = ("start_ns", "dur_ns", "host_start_ns", "host_dur_ns")
    assert narrow.select(columns).rows()[:4] == wide.select(columns).rows()[:4]
    assert wide["incomplete"].null_count() == 5  # marks that touch tell where the last one ends


def test_work_that_was_queued_before_the_first_step_counts_in_none():
    # The host's steps take 16 us and the device's 20; until 50 it works off what was launched before, one call unknown.
    backlog = [kernel(0, 30), kernel(30, 50, -5)]
    own = [kernel(50 + 20 * i, 70 + 20 * i, 16 * i + 8) for i in range(3)]
    rows, ops = windows_of(marks(*((16 * i, 16 * i + 16) for i in range(3))), backlog + own)
    assert rows.select("start_ns", "dur_ns").rows() == [(50_000, 20_000), (70_000, 20_000), (90_000, 20_000)]
    assert ops["step"].to_list() == [None, None, 1, 2, 3]


def test_the_first_step_is_as_long_as_the_longer_of_its_periods():
    # Launched 10 us after the mark; 20 us on the device. The host takes 12 a step, then 25: it gets ahead, or does not.
    def first(host_us: float) -> tuple[int, int]:
        own = [kernel(max(10 + 20 * i, host_us * i + 10), 0, host_us * i + 9) for i in range(3)]
        ran = [op | span(op["start_ns"] / 1000, op["start_ns"] / 1000 + 20) for op in own]
        rows, _ = windows_of(marks(*((host_us * i, host_us * i + host_us) for i in range(3))), ran)
        return rows["start_ns"][0], rows["dur_ns"][0]

    assert first(12) == (10_000, 20_000)
    assert first(25) == (5_000, 25_000)  # the device is 5 behind at the end, as in every step


def evaluated(gap_us: float, *more: Row, usual_us: float = 10) -> tuple[list[int], list[int]]:
    """Lengths and pauses in us of six steps marked for 30 us, one gap of `gap_us`, the others of `usual_us`."""
    gaps = [usual_us, usual_us, gap_us, usual_us, usual_us, usual_us]
    begins = [sum(30 + gap for gap in gaps[:i]) for i in range(6)]
    own = [kernel(at + 5, at + 25, at + 2) for at in begins]
    rows, _ = windows_of([*marks(*((at, at + 30) for at in begins)), *more], own)
    return [ns // 1000 for ns in rows["dur_ns"]][:5], [ns // 1000 for ns in rows["pause_ns"]][:5]


def test_a_pause_between_steps_belongs_to_none():
    assert evaluated(310) == ([40] * 5, [0, 0, 300, 0, 0])
    assert evaluated(11) == ([40, 40, 41, 40, 40], [0] * 5)  # no more than steps vary


def test_a_late_batch_between_the_marks_is_no_pause():
    assert evaluated(310, on_host("input", 112, 412)) == ([40, 40, 340, 40, 40], [0] * 5)


def test_several_silent_gaps_are_no_pauses_and_work_of_no_step_is_one():
    gaps = [10, 210, 10, 210, 10, 10, 10]
    begins = [sum(30 + gap for gap in gaps[:i]) for i in range(7)]
    own = [kernel(at + 5, at + 25, at + 2) for at in begins]
    silent, _ = windows_of(marks(*((at, at + 30) for at in begins)), own)
    assert silent["pause_ns"].sum() == 0
    evaluation = [kernel(75 + 5 * i, 79 + 5 * i, 74 + 5 * i) for i in range(20)]
    busy, _ = windows_of(marks(*((at, at + 30) for at in begins)), own + evaluation)
    assert [ns // 1000 for ns in busy["pause_ns"]][:6] == [0, 200, 0, 0, 0, 0]


def test_steps_at_the_end_with_less_work_say_so():
    host = [*(on_host("step", 20 * i, 20 * i + 20, name=f"ProfilerStep#{i + 1}") for i in range(4))]
    per_step = [5, 5, 3, 0]  # 3 is less than 80 % of 5
    device = [
        kernel(20 * i + 2 * j + 3, 20 * i + 2 * j + 4, 20 * i + 2 * j + 2) for i in range(4) for j in range(per_step[i])
    ]
    rows, _ = windows_of(host, device)
    assert rows["incomplete"].to_list() == [
        None,
        None,
        "less_work",
        "no_device_work",
    ]


@pytest.mark.parametrize(
    ("unlinked", "linked", "reason"),
    [
        pytest.param(2, 3, "began_before", id="less of its own work than the next step has"),
        pytest.param(2, 5, None, id="all of its work behind that of an earlier step"),
        pytest.param(0, 3, None, id="less work and all launches"),
    ],
)
def test_a_first_step_whose_launches_are_absent_is_not_whole(unlinked: int, linked: int, reason: str | None):
    host = [*(on_host("step", 40 * i, 40 * i + 40, name=f"ProfilerStep#{i + 1}") for i in range(3))]
    first = [kernel(2 + 2 * j, 3 + 2 * j) for j in range(unlinked)] + [
        kernel(10 + 2 * j, 11 + 2 * j, 9 + 2 * j) for j in range(linked)
    ]
    later = [kernel(40 * i + 2 * j + 3, 40 * i + 2 * j + 4, 40 * i + 2 * j + 2) for i in (1, 2) for j in range(5)]
    rows, _ = windows_of(host, first + later)
    assert rows["incomplete"].to_list() == [reason, None, None]


def test_each_device_of_a_worker_has_windows_of_its_own():
    device = [kernel(5, 25, 3), kernel(26, 30, 25), kernel(5, 10, 4, device=1), kernel(30, 55, 28, device=1)]
    rows, _ = windows_of(marks((0, 20), (20, 40)), device)
    assert rows.select("device", "start_ns", "dur_ns").rows() == [
        (0, 5_000, 20_000),
        (0, 25_000, 15_000),
        (1, 0, 20_000),
        (1, 20_000, 35_000),
    ]


def windows_of(host: Sequence[Row], device: Sequence[Row]) -> tuple[pl.DataFrame, pl.DataFrame]:
    made = profile(device, host)
    return windows(made.host_ops, made.device_ops, cut_off=False)


# ------------------------------------------------------------------------------------- steady steps


def test_steps_over_the_fence_are_left_out():
    # The median is 100, the deviations 20 10 10 0 10 44.477 44.479, their median 10: the fence is at 144.478.
    made = of_lengths(80, 90, 90, 100, 110, 144.477, 144.479)
    assert used(made) == [0, 1, 2, 3, 4, 5]
    assert used(made, "all") == [0, 1, 2, 3, 4, 5, 6]


def test_an_outlier_says_what_the_median_is():
    made = of_lengths(80_000, 90_000, 90_000, 100_000, 110_000, 120_000, 190_500)
    # held against the median of those that are left, 95, not of all seven, 100
    assert (why(made, 6), of_us(made, 6)) == ("outlier", 95_000)
    assert why(made, 0) is None
    assert why(made, 6, "all") is None


def test_in_very_even_runs_an_outlier_takes_at_least_a_tenth_more():
    even = (10_000, 10_000, 10_001, 10_001)
    assert used(of_lengths(*even, 10_999)) == [0, 1, 2, 3, 4]
    assert used(of_lengths(*even, 11_002)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("after", "used_steps"),
    [
        (10, [0, 1, 2, 3, 4, 5, 6]),  # 190 and 10 are two steps of 100: the mark between them came late
        (30, [0, 1, 2, 3, 4, 5, 6]),  # 220 in all
        (31, [0, 1, 2, 4, 5, 6]),  # more than a tenth above two usual ones
        (100, [0, 1, 2, 4, 5, 6]),
    ],
)
def test_a_long_step_and_one_that_is_as_much_shorter_are_even(after: int, used_steps: list[int]):
    assert used(of_lengths(100, 101, 100, 190, after, 100, 101)) == used_steps


@pytest.mark.parametrize(
    ("busy_from", "used_steps"),
    [
        (475, [0, 1, 2, 3, 4, 5]),  # of 180 us the device waits 75: for the batch, its copy and its first kernel
        (450, [0, 1, 2, 3, 5]),  # 50: without the wait the step still takes 130
    ],
)
def test_a_late_batch_is_waited_for_until_a_kernel_has_it(busy_from: int, used_steps: list[int]):
    ends = [0, 100, 200, 300, 400, 580, 680]
    steps = [step(i, start, end) for i, (start, end) in enumerate(pairwise(ends))]
    device = [kernel(0, 400), on_device("memcpy", 450, 470), kernel(busy_from, 680, stream=8)]
    assert used(profile(device, [on_host("input", 400, 450)], steps=steps)) == used_steps


def test_a_prefill_is_no_long_decode_step():
    names = ["step[DECODE bs=8]", "step[EXTEND bs=2 toks=900]", *["step[DECODE bs=8]"] * 4]
    ends = [100, 1000, 1100, 1200, 1300, 1700]
    steps = [
        step(i, start, end, name=name)
        for i, (start, end, name) in enumerate(zip([0, *ends], ends, names, strict=False))
    ]
    assert used(profile(steps=steps)) == [0, 1, 2, 3, 4]  # the last one takes 400


def first_then_even(host: float, first: float, **columns: object):
    """A first step of `first` us whose host range takes `host`; five of 100, the host ahead of the device."""
    steps = [step(0, 0, first, host=(0, host), **columns)]
    steps += [
        step(i, first + 100 * i - 100, first + 100 * i, host=(90 * i, 90 * i + 90), **columns) for i in range(1, 6)
    ]
    return profile(steps=steps)


def test_a_first_step_in_which_the_host_gets_ahead_is_left_out_and_no_outlier():
    assert why(first_then_even(95, 150), 0) == "queue_filling"
    assert why(first_then_even(95, 109), 0) is None  # less than a tenth longer: as even as steps are
    assert why(first_then_even(125, 150), 0) == "queue_filling"  # its lead of 25 is half of what the step takes longer
    assert why(first_then_even(126, 150), 0) == "outlier"  # the host itself took longer
    assert why(first_then_even(95, 150, device=None), 0) == "outlier"  # no device to fill


def first_uses(*launches: Row, step_us: float = 700, busy: Sequence[Row] = ()):
    """A first step of `step_us` us and four of 200: the excess of the first is 500 where nothing else is said."""
    ends = [step_us + 200 * i for i in range(5)]
    steps = [step(0, 0, step_us), *(step(i + 1, ends[i], ends[i + 1]) for i in range(4))]
    made = profile([*busy, *launches], steps=steps)
    return why(made, 0), of_us(made, 0)


def launched(name: str, call_start: float, call_end: float, **columns: object) -> Row:
    call = {"kind": "runtime", "name": "cudaLaunchKernel"} | span(call_start, call_end)
    return kernel(call_end, call_end + 10, call_end, name=name) | {"call": call} | columns


def test_a_first_step_that_first_uses_of_kernels_made_long_is_start_up_and_no_outlier():
    # Two first launches of 200 and 50 us, the device idle: 250 us, half of the excess of 500.
    told = first_uses(launched("a", 0, 200), launched("b", 210, 260))
    assert told == ("first_uses", 250)
    assert first_uses(launched("a", 0, 200), launched("b", 210, 259))[0] == "outlier"  # 249 of 500


def test_a_second_launch_of_a_kernel_or_one_while_the_device_is_busy_is_no_first_use():
    assert first_uses(launched("a", 0, 200), launched("a", 210, 260))[0] == "outlier"
    busy = [kernel(150, 250, 1, name="c")]  # covers 50 us of a's launch and 40 us of b's; its own takes 1
    assert first_uses(launched("a", 0, 200), launched("b", 210, 260), busy=busy)[0] == "outlier"


def test_loading_a_library_is_a_first_use_and_only_the_first_step_can_be_start_up():
    lengths, calls = (800, 200, 200, 200, 200), [on_host("runtime", 0, 400, name="cuLibraryLoadData")]
    made = of_lengths(*lengths, host_ops=calls)
    assert (why(made, 0), of_us(made, 0)) == ("first_uses", 400)
    later = [on_host("runtime", 800, 1_200, name="cuLibraryLoadData")]
    made = of_lengths(200, 200, 200, 200, 800, host_ops=later)
    assert why(made, 4) == "outlier"


def test_the_first_step_of_a_process_is_start_up_whatever_made_it_long():
    made = of_lengths(800, 200, 200, 200, 200)
    fresh = replace(made, workers=made.workers.with_columns(work_start_ns=pl.lit(0, pl.Int64)))
    assert (why(made, 0), why(fresh, 0), of_us(fresh, 0)) == ("outlier", "first_pass", 200)


def test_a_stretch_of_long_steps_is_how_the_program_is():
    """A solver whose matrix shrinks: the first steps are no exceptions, and a single one among them is."""
    assert used(of_lengths(*[500] * 8, *[100] * 40)) == list(range(48))
    assert used(of_lengths(*[500] * 4, 900, *[500] * 4, *[100] * 40)) == [*range(4), *range(5, 49)]


def cooling(*lengths: float, kernels_us: Sequence[float] = (50, 50, 46)) -> Profile:
    """Steps of these lengths in us, in each of which the device works so long from the start on."""
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    ran = [kernel(at, at + us, at) for at, us in zip(begins, kernels_us, strict=False)]
    return of_lengths(*lengths, device_ops=ran)


def test_where_each_step_is_shorter_for_equal_work_of_the_device_only_the_last_is_usual():
    made = cooling(500, 400, 320)  # a quarter longer than the next, each
    assert used(made) == [2]
    assert (why(made, 0), why(made, 1)) == ("warming", "warming")
    assert used(cooling(500, 400, 321)) == [0, 1, 2]
    assert used(cooling(500, 400, 320, kernels_us=(50, 50, 45))) == [0, 1, 2]  # the work may shrink
    assert used(of_lengths(500, 400, 320)) == [0, 1, 2]  # nothing shows what they do


def cold(first_us: float, *more: Row, name: str = "mul", lead_us: float = 0) -> str:
    """Why the first of five steps without a device is left out, whose one op takes `first_us`; the others' takes 50."""
    lengths = (200, 100, 100, 100, 100)
    begins = [sum(lengths[:i]) for i in range(5)]
    ops = [on_host("op", at, at + 50, name="mul") for at in begins[1:]]
    ops.append(on_host("op", lead_us, lead_us + first_us, name=name))
    steps = [step(i, at, at + lengths[i], device=None) for i, at in enumerate(begins)]
    return why(profile(steps=steps, host_ops=[*ops, *more]), 0) or ""


def test_without_a_device_a_first_step_whose_usual_ops_take_longer_is_start_up():
    assert cold(100) == "cold_ops"  # 50 of an excess of 100
    assert cold(99) == "outlier"
    assert cold(100, name="save") == "outlier"  # no other step runs it
    assert cold(100, on_host("op", 120, 130, name="mul")) == "outlier"  # twice, the others once
    assert cold(100, on_host("gc", 40, 42)) == "outlier"  # what has a cause of its own is none of it
    assert cold(100, on_host("op", 40, 42, name="save")) == "outlier"


def test_without_a_device_what_the_recorder_takes_before_the_first_op_is_start_up():
    assert cold(50, lead_us=50) == "cold_ops"
    assert cold(50, lead_us=49) == "outlier"
    assert cold(50, on_host("input", 10, 12), lead_us=50) == "outlier"  # a wait for data is none of it


def test_two_steps_are_enough_behind_one_that_starts_up():
    made = of_lengths(800, 200, 200)
    fresh = replace(made, workers=made.workers.with_columns(work_start_ns=pl.lit(0, pl.Int64)))
    assert (used(made), used(fresh)) == ([0, 1, 2], [1, 2])


def test_a_short_step_is_no_outlier():
    assert used(of_lengths(1, 100, 100, 101, 102)) == [0, 1, 2, 3, 4]


def test_steps_with_compilation_are_left_out_and_do_not_move_the_fence():
    # Of 100 100 101 160 the median is 100.5 and the fence at 102.7; with the first five steps it would be at 575.
    compiling = [on_host("compile", 0, 900), on_host("compile", 1_000, 1_360)]
    made = of_lengths(300, 220, 250, 280, 310, 100, 100, 101, 160, host_ops=compiling)
    assert used(made) == [5, 6, 7]
    assert [why(made, i) for i in range(5)] == ["compiled"] * 5
    assert why(made, 8) == "outlier"


def test_compilation_by_another_worker_or_between_the_host_s_ranges_is_nothing_to_a_step():
    steps = [step(i, 100 * i, 100 * i + 100, host=(100 * i, 100 * i + 50)) for i in range(4)]
    elsewhere = [on_host("compile", 10, 20, worker=1), on_host("compile", 160, 190)]
    (first, _) = select_steps(profile(steps=steps, host_ops=elsewhere)).views
    assert first.steps["step"].to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("lengths", "compiled", "expected"),
    [
        ((100, 100, 100, 500), False, [0, 1, 2]),
        ((100, 100, 100, 500), True, [0, 1, 2, 3]),  # two would be left
        ((100, 500), False, [0, 1]),
        ((100,), True, [0]),
    ],
)
def test_where_fewer_than_three_remain_all_complete_steps_are_used(
    lengths: tuple[float, ...], expected: list[int], *, compiled: bool
):
    made = of_lengths(*lengths, host_ops=[on_host("compile", 5, 6)] if compiled else [])
    assert used(made) == expected


@pytest.mark.parametrize("choice", ["steady", "all", "0:9"])
def test_incomplete_steps_are_never_used(choice: str):
    steps = [step(i, 100 * i, 100 * i + 100, incomplete="cut" if i == 2 else None) for i in range(3)]
    made = profile(steps=steps)
    assert used(made, choice) == [0, 1]
    assert why(made, 2, choice) == "cut"


def test_each_device_has_its_own_outliers():
    lengths = {0: [100, 100, 100, 100, 300], 1: [100, 100, 100, 100, 100]}
    steps = [step(i, 300 * i, 300 * i + n, device=d) for d, of in lengths.items() for i, n in enumerate(of)]
    assert [one.steps.height for one in select_steps(profile(steps=steps)).views] == [4, 5]


# -------------------------------------------------------------------------------------- chosen steps


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("1:3", [1, 2]), (":2", [0, 1]), ("3:", [3]), (":", [0, 1, 2, 3]), ("2:999999999999", [2, 3])],
)
def test_a_range_of_steps_excludes_its_end(choice: str, expected: list[int]):
    made = of_lengths(100, 100, 100, 900)
    assert used(made, choice) == expected
    left_out = set(range(4)) - set(expected)
    assert all(why(made, number, choice) == "outside" for number in left_out)


@pytest.mark.parametrize("choice", ["7:9", "2:2", "3:1"])
def test_a_range_without_a_step_names_those_there_are(choice: str):
    with pytest.raises(UsageError, match=f"--steps {choice}: .* the profile holds steps 0 to 3"):
        select_steps(of_lengths(100, 100, 100, 100), choice)


def test_a_range_of_incomplete_steps_alone_is_refused():
    made = profile(steps=[step(1, 0, 100), step(2, 100, 200, incomplete="cut")])
    with pytest.raises(UsageError, match="no complete step"):
        select_steps(made, "2:3")


@pytest.mark.parametrize("choice", every(3, ["", "5", "-1:2", "a:b", "1:2:3", "Steady"]))
def test_another_choice_is_refused(choice: str):
    with pytest.raises(UsageError, match="not steady, all or A:B"):
        select_steps(of_lengths(100, 100), choice)


# ------------------------------------------------------------------------- recordings without steps


def test_without_steps_one_window_spans_each_device_s_part_of_the_recording():
    # us      0    10   20   30   40   50
    # host         |------------|
    # device 0        ====                    the host's 10 is first, its 36 last
    # device 1              ===========       to 45
    made = profile([kernel(14, 18), kernel(24, 45, device=1)], [on_host("op", 10, 36)])
    selection = select_steps(made)
    assert not any(one.has_marks for one in selection.views)
    assert [(one.device, one.starts.tolist(), one.ends.tolist()) for one in selection.views] == [
        (0, [10_000], [36_000]),
        (1, [10_000], [45_000]),
    ]
    assert [one.device for one in selection.critical] == [1]


def test_without_steps_a_thread_with_nothing_but_ranges_makes_the_window_no_longer():
    ranges = [on_host("annotation", start, start + 40, thread=9, name="watch") for start in (0, 50)]
    window = view(profile([kernel(14, 18)], [on_host("op", 10, 36), *ranges])).steps
    assert window.select("start_ns", "dur_ns").row(0) == (10_000, 26_000)
    assert view(profile([kernel(14, 18)], ranges)).total_ns == 90_000  # else there is nothing


def test_without_steps_the_profiler_s_own_work_begins_no_window():
    window = view(profile([kernel(14, 18)], [on_host("op", 10, 36), on_host("overhead", 0, 5)])).steps
    assert window.select("start_ns", "dur_ns").row(0) == (10_000, 26_000)


def test_the_profilers_work_is_the_window_where_there_is_nothing_else():
    assert view(profile([], [on_host("overhead", 3, 8)])).total_ns == 5_000
    assert view(profile([kernel(14, 18)], [on_host("overhead", 3, 8)])).total_ns == 4_000


def test_without_steps_and_device_what_follows_the_last_op_is_outside():
    made = profile((), [on_host("op", 10, 36), on_host("python", 40, 90)], devices=())
    assert view(made).steps.select("start_ns", "dur_ns", "host_dur_ns").rows() == [(10_000, 26_000, 26_000)]


@pytest.mark.parametrize(("launched", "begins"), [(999, 2000), (1000, 0), (1990, 0), (None, 0)])
def test_what_comes_before_a_first_op_that_unrecorded_work_held_up_counts_in_no_step(
    launched: float | None, begins: float
):
    # us: the first op begins at 2000, and more than 1 ms after its call returned where that was before 1000
    ran = [kernel(2000, 2500, launched), kernel(2500, 3000, 1200)]
    window = view(profile(ran, [on_host("op", 0, 3100)])).steps
    assert window.select("start_ns", "dur_ns", "host_start_ns", "host_dur_ns").row(0) == tuple(
        us * 1000 for us in (begins, 3100 - begins, 0, 3100)
    )


@pytest.mark.parametrize(("busy", "begins"), [(15, 2000), (500, 0)])
def test_another_stream_that_does_next_to_nothing_does_not_hide_unrecorded_work(busy: float, begins: float):
    # us: the first op of stream 9 stands behind something from 100 to 2000, when stream 7 was at work for 15 or 500
    ran = [kernel(50, 50 + busy, 40), kernel(2000, 2500, 100, stream=9), kernel(2500, 3000, 120, stream=9)]
    assert view(profile(ran, [on_host("op", 0, 3100)])).starts.tolist() == [begins * 1000]


@pytest.mark.parametrize(
    ("waits", "others", "begins"), [((100, 1900), (), 2000), ((100, 1900), ("input",), 0), ((1200, 1900), (), 0)]
)
def test_what_comes_before_the_first_op_of_a_server_that_nobody_asked_counts_in_no_step(
    waits: tuple[float, float], others: tuple[str, ...], begins: float
):
    calls = [on_host("python", 0, 3100), on_host("python", *waits, name="$<unknown> acquire")]
    helper = on_host("python", 0, 1999, name="$<unknown> acquire", thread=2)
    host = [*calls, helper, *(on_host(kind, *waits) for kind in others)]
    assert view(profile([kernel(2000, 2500)], host)).starts.tolist() == [begins * 1000]


def test_a_job_whose_kernels_were_not_recorded_is_no_job_without_a_device():
    host = [on_host("op", 0, 36), on_host("runtime", 5, 6, name="cuLaunchKernel")]
    (one,) = select_steps(profile(host_ops=host)).views
    assert (one.device, one.total_ns, one.ops.height) == (0, 36_000, 0)
    (one,) = select_steps(profile(host_ops=host, devices=[V100 | {"device": 3}])).views
    assert (one.device, one.facts["name"]) == (3, V100["name"])


def test_a_worker_without_a_device_has_one_lane_without_one():
    selection = select_steps(profile(host_ops=[on_host("op", 10, 36)]))
    assert [(one.device, one.total_ns) for one in selection.views] == [(None, 26_000)]
    assert not selection.views[0].ops.height


def test_a_worker_that_marks_no_steps_is_not_lost_beside_one_that_does():
    made = profile([kernel(0, 9), kernel(0, 9, worker=1)], steps=[step(1, 0, 20)])
    assert [one.worker for one in select_steps(made).views] == [0, 1]


def test_device_work_alone_is_a_recording_too():
    assert view(profile([kernel(14, 18), kernel(24, 45)])).total_ns == 31_000


# --------------------------------------------------------------------------------------------- views


def test_a_lane_sees_its_own_device_and_its_own_worker():
    device = [kernel(0, 1, worker=w, device=d) for w in (0, 1) for d in (0, 1)]
    host = [on_host("op", 0, 1, worker=w, name=f"op{w}") for w in (0, 1)]
    steps = [step(1, 0, 10, worker=w, device=d) for w in (1, 0) for d in (1, 0)]
    selection = select_steps(profile(device, host, steps, devices=[V100, A100 | {"worker": 1, "device": 1}]))
    assert [(one.worker, one.device) for one in selection.views] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [one.ops.height for one in selection.views] == [1] * 4
    assert [one.host["name"].to_list() for one in selection.views] == [["op0"], ["op0"], ["op1"], ["op1"]]
    assert [one.gpu.model if one.gpu else None for one in selection.views] == ["V100", None, None, "A100"]


def test_an_op_belongs_to_the_window_it_starts_in():
    # us        0    10   20   30   40   50
    # windows        |--------||--------|     and none from 35 on
    # ops          aa b          cc   d e
    steps = [step(1, 10, 20), step(2, 20, 35)]
    device = [kernel(9, 12), kernel(10, 11), kernel(19, 24), kernel(20, 21), kernel(34, 99), kernel(35, 36)]
    ran = view(profile(device, steps=steps)).used_ops
    assert ran.select("id", "window").rows() == [(1, 0), (2, 0), (3, 1), (4, 1)]


def test_an_op_is_not_lost_to_a_window_without_length():
    steps = [step(1, 0, 10), step(2, 10, 10), step(3, 10, 20)]
    assert view(profile([kernel(10, 12)], steps=steps)).used_ops["window"].to_list() == [2]


def test_host_ops_belong_to_the_host_s_own_range():
    made = profile(host_ops=[on_host("op", t, t + 1) for t in (4, 5, 14, 15)], steps=[step(1, 10, 30, host=(5, 15))])
    assert view(made).used_host.collect()["id"].to_list() == [1, 2]


def test_the_host_is_blocked_in_waits_and_in_launches_and_frees_that_a_busy_device_holds_up():
    # us        0        100       200       300
    # device    ==========          =====
    # sync         ===                              10 to 20
    # launch         ==========                     60 to 120: 60 us, of which the device is busy for 40
    # launch                     ==                 200 to 210: quick
    # free                        ========          205 to 285: waits while the device is busy; to allocate does not
    host = [on_host("sync", 10, 20), on_host("runtime", 60, 120), on_host("runtime", 200, 210)]
    host += [on_host("allocator", 205, 285, name="cudaFree"), on_host("allocator", 0, 90, name="cudaMalloc")]
    made = profile([kernel(0, 100), kernel(190, 240)], host, [step(1, 0, 300)])
    assert view(made).blocked.within([0, 60_000, 100_000], [60_000, 100_000, 300_000]).tolist() == [
        10_000,
        40_000,
        35_000,
    ]


def test_what_is_computed_once_is_kept():
    calls: list[int] = []
    one = view(of_lengths(100))

    def height(of: object) -> int:
        assert of is one
        calls.append(1)
        return one.steps.height

    assert (one.once(height), one.once(height), calls) == (1, 1, [1])


# ------------------------------------------------------------------------------- the critical device


def two_devices(first: Sequence[float], second: Sequence[float]) -> Selection:
    """Steps of one worker whose lengths differ from device to device, beginning together every 1,000 us."""
    of = {0: first, 1: second}
    return select_steps(
        profile(steps=[step(i, 1e3 * i, 1e3 * i + n, device=d) for d in of for i, n in enumerate(of[d])])
    )


@pytest.mark.parametrize(
    ("first", "second", "critical"),
    [
        ([100, 100, 100], [110, 110, 110], 1),
        ([110, 110, 110], [100, 100, 100], 0),
        ([100, 100, 100], [100, 100, 100], 0),  # the first of equals
        ([100, 100, 100, 100, 100], [110, 110, 110, 110, 900], 1),  # though fewer of its steps are steady
    ],
)
def test_the_critical_device_has_the_longest_steps(first: list[float], second: list[float], critical: int):
    assert [one.device for one in two_devices(first, second).critical] == [critical]


def test_every_worker_has_a_critical_device():
    steps = [step(1, 0, 10 * w + d, worker=w, device=d) for w in (1, 2) for d in (1, 2)]
    assert [(one.worker, one.device) for one in select_steps(profile(steps=steps)).critical] == [(1, 2), (2, 2)]


def test_what_could_be_any_worker_s_is_in_every_lane_and_gone_once_emptied():
    told = [{"worker": worker, "pid": 1, "thread": 1, "start_ns": 0, "dur_ns": 1} for worker in (0, 1, None)]
    samples = [{"worker": 0, "device": device, "metric": "sm_active", "at_ns": 1, "value": 0.5} for device in (0, 1)]
    made = profile(
        [kernel(0, 10), kernel(0, 10, worker=1)], os_calls=told, off_cpu=told, threads=told[:0], gpu_samples=samples
    )
    for lane_ in select_steps(made, "all").views:
        assert lane_.os_calls["worker"].to_list() == lane_.off_cpu["worker"].to_list() == [lane_.worker, None]
        assert lane_.gpu_samples.height == (lane_.worker == 0)
        small = lane_.emptied()
        assert not any(table.height for table in (small.os_calls, small.off_cpu, small.threads, small.gpu_samples))


def test_what_the_host_does_after_the_work_is_in_no_window():
    host = [on_host("allocator", 60, 70, name="cudaFree"), on_host("allocator", 110, 900, name="cudaFree")]
    workers = [{"worker": 0, "work_end_ns": 100_000}]
    made = view(profile([kernel(50, 100, 40)], host, workers=workers))
    assert made.used_host.collect()["start_ns"].to_list() == [60_000, 39_000]


# ------------------------------------------------------------------------------------ many devices


def test_of_very_many_devices_those_with_most_work_are_measured():
    """Of 20 devices with one op each, and one with two; a file may claim as many as it has ops."""
    ops = [kernel(n, n + 1, device=n) for n in range(20)] + [kernel(50, 51, device=20), kernel(52, 53, device=20)]
    selection = select_steps(profile(ops, [on_host("op", 0, 100)]))
    assert [view.device for view in selection.views] == [*range(15), 20]
    assert selection.profile.salvaged == (Note("busiest_devices", measured=16, devices=21),)


def test_of_many_files_every_rank_is_measured():
    ops = [kernel(0, 1, worker=rank, device=rank % 8) for rank in range(17)]
    workers = [{"worker": rank, "rank": rank, "file": f"rank{rank}.json"} for rank in range(17)]
    selection = select_steps(profile(ops, [on_host("op", 0, 100, worker=rank) for rank in range(17)], workers=workers))
    assert [view.worker for view in selection.views] == [*range(17)]
    assert selection.profile.salvaged == ()


def test_a_device_with_much_work_is_measured_whatever_their_number():
    busy = [kernel(n, n + 0.5, device=device) for device in range(17) for n in range(1_000)]
    selection = select_steps(profile(busy, [on_host("op", 0, 1_000)]))
    assert len(selection.views) == 17
    assert not selection.profile.salvaged


@pytest.mark.parametrize(("lacking", "left_out"), [({"cut_off": 1}, "file_cut"), ({}, None)])
def test_a_file_that_ends_early_without_marks_or_device_work_may_lack_it(lacking, left_out):
    """Kineto writes the device's work last: what was cut off is no job of the CPU."""
    made = profile(host_ops=[on_host("op", 0, 90)], devices=())
    made = replace(made, lacks={"device_ops": Missing("no_gpu_activity", **lacking)})
    assert select_steps(made).steps["left_out"].to_list() == [left_out]


def test_host_ops_are_looked_up_by_their_ids():
    host = [on_host("op", t, t + 1, name=f"op{t}") for t in (3, 5, 9)]
    made = view(profile(host_ops=host, steps=[step(1, 0, 20)]))
    rows = pl.DataFrame({"launch": [2, None, 0, 7, 2]}, schema={"launch": pl.Int64})
    assert made.with_host(rows, "launch", called_ns="start_ns")["called_ns"].to_list() == [9000, None, 3000, None, 9000]
    assert made.host_of(rows["launch"])["name"].to_list() == ["op3", "op9"]


@pytest.mark.parametrize("ids", [[10, 20, 40], [40, 10, 20]])
def test_ids_with_gaps_and_out_of_order_are_found(ids: list[int]):
    sought = pl.Series([20, 15, None, 40, 99, 0])
    at = positions(pl.DataFrame({"id": ids}), sought)
    assert [ids[i] if i >= 0 else None for i in at] == [20, None, None, 40, None, None]


def test_outermost_are_those_that_begin_when_all_before_on_their_thread_are_over():
    # us          0    10   20   30
    # thread 1    aaaaaaaaaa
    #                bb             inside a
    #                       ccccc   begins where a ends
    #                         dd    inside c
    # thread 2       ee             beside a
    rows = [("c", 1, 20, 10), ("b", 1, 5, 5), ("e", 2, 5, 5), ("d", 1, 25, 5), ("a", 1, 0, 20)]
    table = pl.DataFrame(rows, ["name", "thread", "start_ns", "dur_ns"], orient="row")
    assert outermost(table)["name"].to_list() == ["a", "c", "e"]
    assert by_start(table)["name"].to_list() == ["a", "b", "c", "d", "e"]


def test_host_ops_are_told_by_their_names_in_the_order_of_the_table():
    host = [
        on_host(kind, t, t + 1, name=name) for t, (kind, name) in enumerate([("op", "b1"), ("op", "a"), ("gc", "b2")])
    ]
    made = view(profile(host_ops=[*host, on_host("op", 30, 31, name="b1")], steps=[step(1, 0, 20)]))
    assert made.host_like("^b")["id"].to_list() == [0, 2, 3]
    assert made.host_like("^b", "op")["id"].to_list() == [0, 3]
    assert made.used_like("^b", "op").select("id", "window").rows() == [(0, 0)]
    assert made.host_like("^c").is_empty()


def test_of_each_op_the_time_within_a_union_counts():
    ops = pl.DataFrame([span(0, 10), span(20, 50), span(60, 70)])
    assert spent_ns(ops, union((5, 30), (40, 45))).to_list() == [5_000, 15_000, 0]
    assert spent_ns(ops.clear(), union((5, 30))).to_list() == []


def test_times_of_kinds_that_a_device_has_no_other_than_are_kept_once():
    one = view(profile([kernel(0, 20), kernel(30, 40)], steps=[step(1, 0, 100)]))
    assert one.device_spans("kernel") is one.device_spans("collective", "kernel") is one.busy
    assert not one.device_spans("collective").total
    both = view(profile([kernel(0, 20), on_device("memcpy", 30, 40)], steps=[step(1, 0, 100)]))
    assert (both.device_spans("kernel").total, both.busy.total) == (20_000, 30_000)
