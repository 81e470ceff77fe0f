"""A device's clock against its host's: 20 launches, 1 ms apart; each kernel begins 10 us after its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import polars as pl
import pytest

from advisor.errors import ReadError
from advisor.inputs.clocks import Alignment, align, impossible, sound
from advisor.model.clause import Missing, Note
from tests.tables import kernel, on_host, profile

CALLS = [1_000.0 * number for number in range(1, 21)]


def aligned(begins: Callable[[float], float], calls: list[float] = CALLS, runs: float = 100) -> Alignment:
    """Kernels that begin at `begins(call)`, in us."""
    made = profile([kernel(begins(at), begins(at) + runs, launched=at + 1) for at in calls])
    return align(made.device_ops, made.host_ops)


def starts_us(alignment: Alignment) -> list[float]:
    return [ns / 1000 for ns in alignment.device["start_ns"]]


@pytest.mark.parametrize(("kernel_us", "kernels", "wrong"), [(0.499, 100, True), (0.5, 100, False), (0.499, 99, False)])
def test_many_kernels_that_no_gpu_runs_so_quickly_are_not_judged(kernel_us: float, kernels: int, *, wrong: bool):
    made = profile([kernel(at, at + kernel_us) for at in range(kernels)])
    ops = made.device_ops.with_columns(correlation=pl.lit(None))
    with pytest.raises(ReadError, match="100 of 100 device ops") if wrong else nullcontext():
        assert sound(ops, "a.json", []) is ops


def test_a_sound_clock_is_left_alone():
    found = aligned(lambda at: at + 10)
    assert starts_us(found) == [at + 10 for at in CALLS]
    assert (found.notes, found.drift) == ((), None)


@pytest.mark.parametrize(("offset", "code"), [(-300_000, "clock_behind"), (300_000, "clock_ahead")])
def test_a_constant_offset_is_taken_off_and_noted(offset: float, code: str):
    found = aligned(lambda at: at + 10 + offset)
    assert starts_us(found) == [at + 5 for at in CALLS]  # the least that a launch takes
    assert [(note.code, note.values["device"]) for note in found.notes] == [(code, 0)]
    assert found.notes[0].values["offset"] == pytest.approx(300, abs=0.01)
    assert found.drift is None
    assert found.device["launch"].null_count() == 0


@pytest.mark.parametrize(
    ("early", "returns", "call", "streams", "apart"),
    [
        (3, 1_999, "cudaStreamSynchronize", 1, 1),
        (3, 2_000, "cudaStreamSynchronize", 1, 0),  # a millisecond before the end, which is not more
        (2, 1_999, "cudaStreamSynchronize", 1, 0),
        (3, 1_999, "cudaStreamSynchronize", 2, 0),  # it may wait for the other stream
        (3, 1_999, "cudaDeviceSynchronize", 2, 1),
        (3, 1_999, "cudaEventSynchronize", 1, 0),
    ],
)
def test_a_wait_for_the_device_that_returns_long_before_its_work_ends_shows_clocks_that_do_not_fit(
    early: int, returns: float, call: str, streams: int, apart: int
):
    """Kernels of 3 ms, each 10 us after its call, and a wait after each."""
    calls = [10_000.0 * number for number in range(1, 21)]
    kernels = [kernel(at + 10, at + 3_000, launched=at + 1, stream=n % streams) for n, at in enumerate(calls)]
    ends = [returns if n < early else 3_005 for n in range(20)]
    waits = [on_host("sync", at + 20, at + end, name=call) for at, end in zip(calls, ends, strict=True)]
    made = profile(kernels, waits)
    found = align(made.device_ops, made.host_ops)
    assert (found.drift is not None) == apart
    if found.drift:
        assert (found.drift.code, found.drift.values) == ("clocks_apart", {"early": 3, "waits": 20})
        assert found.drift in found.notes
        assert found.unlinked(found.device)["launch"].null_count() == 20


@pytest.mark.parametrize(
    ("calls", "codes"),
    [([1_000, 5_000, 20_000], ["clock_ahead"]), ([1_000, 5_000], []), ([1_000, 1_200, 1_400], [])],
)
def test_few_late_ops_show_an_offset_if_their_calls_lie_apart(calls: list[float], codes: list[str]):
    """A queue that holds ops up lets them go at once, not as far apart as they were launched."""
    found = aligned(lambda at: at + 300_010, calls)
    assert [note.code for note in found.notes] == codes


def test_kernels_and_copies_that_wait_for_the_host_show_one_offset():
    """Kernels begin 30 us after their calls, copies 105: few of both, all of them on an idle device."""
    calls = [1_000.0 + 4_000 * number for number in range(5)]
    found = aligned(lambda at: at + 300_030 + (75 if at in calls[1::2] else 0), calls)
    assert [note.code for note in found.notes] == ["clock_ahead"]


def test_a_queue_that_is_full_from_the_first_op_on_is_no_offset():
    """The device works for 40 ms before it reaches what was launched meanwhile, one op right after the other."""
    found = aligned(lambda at: 40_000 + at / 10, runs=100)
    assert (found.notes, found.drift) == ((), None)


def test_late_ops_that_do_not_agree_are_no_offset():
    """Each waits for another rank, for a time of its own."""
    found = aligned(lambda at: at + 2_000 + (at * 7) % 900)
    assert (found.notes, found.drift) == ((), None)


@pytest.mark.parametrize(
    ("waits", "returns_us", "thread", "codes"),
    [
        (3, 5, 2, ["clock_ahead"]),
        (2, 5, 2, []),
        (3, 5, 1, []),  # a thread that launched none of it
        (3, 1_100, 2, []),  # later by a millisecond: the clock may be right, and the work late
        (3, -20, 2, []),  # before the work could have ended at the earliest: it waits for other work
    ],
)
def test_waits_that_return_before_their_work_show_that_it_is_the_clock_that_is_late(
    waits: int, returns_us: float, thread: int, codes: list[str]
):
    """20 kernels of 100 us, 300 ms late and each up to 0.9 ms more, of which three agree; some are waited for."""
    late = [10 + (0 if number in {2, 9, 15} else 100 + (number * 370) % 800) for number in range(20)]
    kernels = [
        kernel(at + 300_000 + more, at + 300_100 + more, launched=at + 1) for at, more in zip(CALLS, late, strict=True)
    ]
    ends = [at + 110 for number, at in enumerate(CALLS) if number in {2, 9, 15}][:waits]
    calls = [on_host("sync", end - 105, end + returns_us, name="cudaStreamSynchronize", thread=thread) for end in ends]
    made = profile(kernels, calls)
    found = align(made.device_ops, made.host_ops)
    assert [note.code for note in found.notes if note.code != "clocks_apart"] == codes
    if codes:
        assert found.notes[0].values["offset"] == pytest.approx(300, abs=0.02)


def test_a_queue_that_grows_evenly_is_no_drift():
    """A step is launched each ms and takes 10: this device waits for another one between any two."""
    found = aligned(lambda at: 10 * at, runs=5_000)
    assert (found.notes, found.drift) == ((), None)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_drift_withholds_what_joins_host_and_device(sign: int):
    calls = [100 * at for at in CALLS]
    found = aligned(lambda at: at + 10 + sign * 0.001 * at, calls)  # 1.9 ms over 1.9 s
    assert found.drift is not None
    assert found.drift.code == "clocks_drift"
    assert found.drift.values["drift"] == pytest.approx(1.9, rel=0.1)
    assert starts_us(found)[10] == pytest.approx(calls[10] + 5, abs=120)
    assert found.unlinked(found.device)["launch"].null_count() == len(CALLS)


@pytest.mark.parametrize(("more_us", "stretches", "bent"), [(4, 16, True), (3, 16, False), (4, 7, False)])
def test_a_clock_that_wanders_is_put_right_where_ops_begin_before_their_calls(
    more_us: int, stretches: int, *, bent: bool
):
    """10 launches in each of 16 ms: the clock is behind by 30 us, and by some more in each later one.

    Before the last of these stretches the device begins nothing for 500 us, so that the clock shows nothing there. By
    60 us in all it wanders, by 45, or by 24 in 7 stretches: more than 50 in 8 or more are known to be the clock's.
    """
    calls = [1_000.0 + 100 * number for number in range(160)]
    known = [at for at in calls if at >= 1_000 * (17 - stretches)]
    found = aligned(lambda at: at - 30 - more_us * (at // 1_000) + (5 if at in known else 505), calls, runs=2)
    off = [start - at for start, at in zip(starts_us(found), calls, strict=True) if at in known]
    assert (max(off) - min(off) <= 2 * more_us) == bent
    assert found.drift is None


def test_a_pair_that_does_not_belong_together_is_cut_and_moves_nothing():
    found = aligned(lambda at: at + 10 if at != CALLS[7] else at - 6_500)
    assert found.device["launch"].null_count() == 1
    assert starts_us(found)[0] == CALLS[0] + 10
    assert found.notes == (Note("early_ops", ops=1),)


def test_two_devices_have_a_clock_each():
    made = profile(
        [
            *(kernel(at + 10, at + 100, launched=at + 1) for at in CALLS),
            *(kernel(at - 700, at - 600, launched=at + 1, device=1) for at in CALLS),
        ]
    )
    found = align(made.device_ops, made.host_ops)
    assert starts_us(found) == [*(at + 10 for at in CALLS), *(at + 5 for at in CALLS)]
    assert list(found.skews) == [1]


@pytest.mark.parametrize("off", [-300_000, 300_000])
def test_of_devices_with_one_clock_the_one_that_waits_for_none_shows_it(off: float):
    """Device 1 begins 4 ms after each launch, because it needs what device 0 computes."""
    calls = [10 * at for at in CALLS]
    of_first = [kernel(at + 10 + off, at + 4_000 + off, launched=at + 1) for at in calls]
    of_second = [kernel(at + 4_010 + off, at + 8_000 + off, launched=at + 2, device=1) for at in calls]
    made = profile([*of_first, *of_second])
    found = align(made.device_ops, made.host_ops)
    assert starts_us(found) == [*(at + 5 for at in calls), *(at + 4_005 for at in calls)]
    assert {skew.offset_ns for skew in found.skews.values()} == {round(off * 1_000) + 5_000}


def test_without_links_nothing_is_said():
    made = profile([kernel(at, at + 100) for at in CALLS])
    assert align(made.device_ops, made.host_ops).notes == ()


OPS = 100
"""Kernels of 100 us, 1 ms apart: one of them is a hundredth."""


def device_ops(changed: Mapping[int, tuple[float, dict[str, object]]]) -> pl.DataFrame:
    """Those kernels, and of some how long they take in us and what else of them is different."""
    rows = [(1_000.0 * n, *changed.get(n, (100, {}))) for n in range(OPS)]
    ops = [kernel(at, at + us, name=f"k{n % 25}") | more for n, (at, us, more) in enumerate(rows)]
    return profile(ops).device_ops.with_columns(correlation=pl.int_range(OPS))


@pytest.mark.parametrize(
    ("us", "more", "wrong"),
    [
        (5_000, {}, True),
        (1_102, {}, False),  # 2 us after the end of the next
        (1_103, {}, True),
        (1_000, {}, False),  # it may begin while this one ends
        (5_000, {"graph": 1}, False),  # branches of a graph run side by side
        (5_000, {"name": "sort"}, True),  # nothing else has its name
        (5_000, {"stream": 8}, False),
        (0.499, {}, True),  # the others of its name take 100 us
        (0.5, {}, False),
        (0.499, {"name": "sort"}, False),
        (0.499, {"kind": "memset"}, False),
    ],
)
def test_an_op_that_ends_after_a_later_one_of_its_stream_or_at_once_has_a_wrong_length(
    us: float, more: dict[str, object], *, wrong: bool
):
    ops, salvaged = device_ops({4: (us, more)}), list[Note]()
    found = sound(ops, "a.json", salvaged)
    assert found["id"].to_list() == [number for number in range(OPS) if number != 4 or not wrong]
    assert salvaged == ([Note("unsound_ops", rows=1, ops=OPS)] if wrong else [])


@pytest.mark.parametrize(("usual_us", "wrong"), [(4.999, False), (5, True)])
def test_a_kernel_may_take_no_time_where_others_of_its_name_take_little(usual_us: float, *, wrong: bool):
    ops = device_ops({n: (0.0 if n == 4 else usual_us, {}) for n in (4, 29, 54, 79)})
    assert impossible(ops, "a.json").any() == wrong


def test_nodes_that_one_call_launched_run_side_by_side():
    one_call = device_ops({4: (5_000, {})}).with_columns(correlation=pl.col("id").clip(5))
    assert not impossible(one_call.with_columns(pl.lit(None, pl.Int64).alias("graph")), "a.json").any()


def test_of_a_name_whose_lengths_are_mostly_wrong_the_last_op_is_wrong_too():
    last = {"name": "adam"}
    assert impossible(device_ops({98: (5_000, last), 99: (5_000, last)}), "a.json").sum() == 0  # nothing ends after 99
    rows = pl.concat([device_ops({4: (9_000, last), 99: (9_000, last), 50: (9_000, last)}), *[device_ops({})] * 3])
    assert impossible(rows.with_columns(device=pl.int_range(4 * OPS) // OPS), "a.json").sum() == 3


@pytest.mark.parametrize(("wrong", "times"), [(3, 1), (4, 4)])
def test_a_few_wrong_lengths_are_three_or_a_hundredth_and_more_are_not_judged(wrong: int, times: int):
    ops = device_ops({10 * n: (5_000, {"name": f"long{n}"}) for n in range(wrong)})
    many = pl.concat([ops, *[device_ops({})] * (times - 1)]).with_columns(device=pl.int_range(pl.len()) // OPS)
    assert impossible(many, "a.json").sum() == wrong
    one_more = device_ops({10 * n: (5_000, {"name": f"long{n}"}) for n in range(wrong + 1)})
    few = pl.concat([one_more, *[device_ops({})] * (times - 1)]).with_columns(device=pl.int_range(pl.len()) // OPS)
    with pytest.raises(ReadError, match=rf"^a\.json: {wrong + 1} of {times}00 device ops end after"):
        impossible(few, "a.json")


@pytest.mark.parametrize(("calls", "joined", "why"), [(3, 0, "calls_unjoined"), (3, 1, None), (2, 0, None)])
def test_kernels_of_which_none_has_the_number_of_a_call_are_said(calls: int, joined: int, why: str | None):
    made = profile([kernel(at + 10, at + 110, launched=at + 1) for at in CALLS[:calls]])
    ops = made.device_ops.with_columns(launch=pl.when(pl.int_range(pl.len()) < joined).then("launch"))
    found = align(ops, made.host_ops)
    assert getattr(found.lacks.get("device_ops.launch"), "code", None) == why
    assert [note.code for note in found.notes] == ([why] if why else [])


QUEUED_US = 100.0


def queued(late: int, by_us: float, ops: int = 101, devices: int = 1) -> Missing | None:
    """Why nothing is known of kernels of 100 us that are all launched at once, of which some begin late."""
    begins = [1_000 + n * QUEUED_US + sum(by_us for of in range(n + 1) if 0 < of <= late) for n in range(ops)]
    made = [kernel(at, at + QUEUED_US, launched=n / 100, device=n % devices) for n, at in enumerate(begins)]
    tables = profile(made)
    return align(tables.device_ops, tables.host_ops).lacks.get("device_ops")


@pytest.mark.parametrize(
    ("late", "by_us", "wrong"),
    [
        (26, 40, True),
        (25, 40, False),  # of the 100 that find work before them: not more than a quarter
        (100, 10, False),  # not late
        (100, 10.1, True),
        (26, 20, False),  # 520 us of 10.4 ms: not a twentieth
    ],
)
def test_queued_ops_that_begin_late_on_an_idle_device_show_lengths_that_are_too_short(
    late: int, by_us: float, *, wrong: bool
):
    why = queued(late, by_us)
    assert (why == Missing("queue_waits", late=late, queued=100)) == wrong
    assert queued(min(late, 99), 40, ops=100) is None  # too few
    assert queued(late, by_us, devices=2) is None  # one may wait for the other
