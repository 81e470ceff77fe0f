"""A device's clock against its host's: 20 launches, 1 ms apart; each kernel begins 10 us after its call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.inputs.clocks import Alignment, align, impossible, sound
from advisor.model.notes import Note
from tests.tables import kernel, on_host, profile

CALLS = [1_000.0 * number for number in range(1, 21)]


def aligned(begins: Callable[[float], float], calls: list[float] = CALLS, runs: float = 100) -> Alignment:
    """Kernels that begin at `begins(call)`, in us."""
    made = profile([kernel(begins(at), begins(at) + runs, launched=at + 1) for at in calls])
    return align(made.device_ops, made.host_ops)


def starts_us(alignment: Alignment) -> list[float]:
    return [ns / 1000 for ns in alignment.device["start_ns"]]


@pytest.mark.parametrize(("kernel_us", "notes"), [(0.499, ["short_kernels"]), (0.5, [])])
def test_kernels_that_no_gpu_runs_so_quickly_are_said(kernel_us: float, notes: list[str]):
    salvaged: list[Note] = []
    made = profile([kernel(at, at + kernel_us) for at in CALLS])
    assert sound(made.device_ops, salvaged) is made.device_ops
    assert [note.code for note in salvaged] == notes


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


@pytest.mark.parametrize(
    ("us", "more", "wrong"),
    [
        (5_000, {}, True),
        (1_900, {}, False),  # under 20 times the usual 100 us
        (2_500, {}, False),  # three others end it: two of them start before
        (5_000, {"graph": 1}, False),  # branches of a graph run side by side
        (5_000, {"name": "sort"}, False),  # nothing else has its name
        (5_000, {"stream": 8}, False),
    ],
)
def test_an_op_in_which_others_of_its_stream_start_has_a_wrong_time(us: float, more: dict[str, object], *, wrong: bool):
    ops = [kernel(at + 10, at + 110, launched=at + 1, name="gemm") for at in CALLS]
    ops[4] = kernel(5_010, 5_010 + us, launched=5_001, **({"name": "gemm"} | more))
    assert impossible(profile(ops).device_ops).to_list() == [number == 4 and wrong for number in range(20)]
