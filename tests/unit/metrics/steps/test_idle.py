from __future__ import annotations

import pytest

from advisor.analysis.device.idle import CAUSES
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import kernel, measured, metrics_of, on_device, on_host, profile, step, view

# ms        0    2  2.5      5      8    10
# kernels   =====   ========       ======       launched 30 us before
LAUNCHING = profile(
    [kernel(0, 2_000, 0), kernel(2_500, 5_000, 2_470), kernel(8_000, 10_000, 7_970)], steps=[step(1, 0, 10_000)]
)


def test_busy_is_what_any_stream_runs_and_idle_the_rest():
    device = [kernel(0, 40), on_device("memcpy", 30, 60, stream=8), on_device("collective", 90, 120)]
    values = metrics_of(view(profile(device, steps=[step(1, 0, 100)])))
    assert values["device_busy_share"] == pytest.approx(0.7)
    assert values["idle_share"] == pytest.approx(0.3)


def test_causes_are_shares_of_the_step():
    # us        0    20   30   34   60   70   90  100
    # kernels   =====     ==        ====      ===        launched at 0, 5, 58 and 61
    # input                            |-|               72 to 80
    # sync                 ||                            33 to 35
    device = [kernel(0, 20, 0), kernel(30, 34, 5), kernel(60, 70, 58), kernel(90, 100, 61)]
    made = profile(device, [on_host("input", 72, 80), on_host("sync", 33, 35)], [step(1, 0, 100)])
    shares = {cause: metrics_of(view(made))[f"{cause}_idle_share"] for cause in CAUSES}
    assert {cause: share for cause, share in shares.items() if share} == pytest.approx(
        {"dependency": 0.22, "sync": 0.26, "input": 0.08}
    )


def test_short_host_bound_gaps_are_the_price_of_launching_and_long_ones_other_work():
    values = metrics_of(view(LAUNCHING))
    assert values["host_bound_idle_share"] == pytest.approx(0.35)
    assert values["launch_gap_share"] == pytest.approx(0.05)
    assert values["launch_gaps_per_step"] == 1
    assert values["host_busy_share"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("gaps", "longer_us", "names", "share"),
    [
        (11, 0, "ab", 24.97 / 37),
        (10, 20, "ab", 22.72 / 33.72),  # the last by 0.9 %
        (9, 0, "ab", 0),
        (11, 0, "a", 0),  # a kernel that was not recorded runs before each of this name
        (11, 300, "ab", 22.7 / 37.3),  # the last is no turn
        (11, 20, "abcdefghijkl", 24.99 / 37.02),
    ],
)
def test_equal_waits_before_several_ops_are_turns_of_another_program(
    gaps: int, longer_us: float, names: str, share: float
):
    """Kernels of 1 ms, all queued at once; 2.27 ms between them."""
    begins = [3_270 * number + longer_us * (number == gaps) for number in range(gaps + 1)]
    ops = [kernel(at + 1, at + 1_001, 0, name=names[n % len(names)]) for n, at in enumerate(begins)]
    values = metrics_of(view(profile(ops, steps=[step(1, 1, begins[-1] + 1_001)])))
    assert values["other_turns_share"] == pytest.approx(share, abs=0.001)
    assert values["other_turn_ms"] == pytest.approx(2.27 if share else 0, abs=0.01)


def test_uneven_waits_are_no_turns():
    """Each of 20 is 4 % longer than the one before, so that one or two are as long as half of them are."""
    begins = [0.0]
    for number in range(20):
        begins.append(begins[-1] + 1_000 + 1_500 * 1.04**number)
    ops = [kernel(at + 1, at + 1_001, 0, name="ab"[n % 2]) for n, at in enumerate(begins)]
    values = metrics_of(view(profile(ops, steps=[step(1, 1, begins[-1] + 1_001)])))
    assert values["unrecorded_idle_share"] > 0.5
    assert values["other_turns_share"] == 0


def test_a_gap_of_1_ms_is_short():
    device = [kernel(0, 1_000, 0), kernel(2_000, 3_000, 1_990), kernel(3_001, 4_000, 3_000.5)]
    values = metrics_of(view(profile(device, steps=[step(1, 0, 4_000)])))
    assert values["launch_gaps_per_step"] == 2
    assert values["host_busy_share"] == 0


def test_long_gaps_with_nothing_recorded_on_the_host_are_told_apart():
    """Of 3.5 ms of late launches 3 ms are one gap, in 2 of which an op runs, or none."""
    late, silent = (
        "the host has not yet launched the next op",
        "the host launches nothing and is in no recorded op or range",
    )
    assert metrics_of(view(LAUNCHING))["idle_causes"] == f"{silent} (30 %), {late} (5 %)"
    device = [kernel(0, 2_000, 0), kernel(2_500, 5_000, 2_470), kernel(8_000, 10_000, 7_970)]
    busy = profile(device, [on_host("op", 5_000, 7_000)], [step(1, 0, 10_000)])
    assert metrics_of(view(busy))["idle_causes"] == f"{late} (25 %), {silent} (10 %)"


@pytest.mark.parametrize(("unknown_us", "told"), [(4.999, True), (5, False)])
def test_with_a_twentieth_of_unknown_cause_the_others_are_untold(unknown_us: float, *, told: bool):
    made = profile([kernel(0, 20, 0), kernel(20 + unknown_us, 60), kernel(80, 100, 79)], steps=[step(1, 0, 100)])
    values = metrics_of(view(made))
    assert values["unknown_idle_share"] == pytest.approx(unknown_us / 100)
    assert values["idle_share"] == pytest.approx(0.2 + unknown_us / 100)
    assert values["input_idle_share"] == 0  # a range of its own tells it
    for name in ("host_bound_idle_share", "sync_idle_share", "queued_idle_share"):
        assert isinstance(values[name], Missing) is not told


def test_a_cause_that_is_untold_is_not_named_either():
    made = profile([kernel(0, 20, 0), kernel(40, 60), kernel(80, 100, 79)], steps=[step(1, 0, 100)])
    told = metrics_of(view(made))["idle_causes"]
    # us 20 to 40 before a kernel without a launch, 60 to 80 before one that was launched late
    assert told == "the cause was not recorded (20 %), a launch or other work was late: could not tell which (20 %)"


def test_the_causes_in_words_are_the_three_largest_of_a_percent_or_more():
    ranges = [("input", 20, 30), ("compile", 30, 50), ("start_up", 50, 58), ("allocator", 52, 61)]
    made = profile([kernel(0, 20, 0), kernel(61, 100, 5)], [on_host(*one) for one in ranges], [step(1, 0, 100)])
    assert metrics_of(view(made))["idle_causes"] == (
        "code is being compiled (20 %), the data loader is being asked for the next batch (10 %), "
        "CUDA or HIP sets itself up or loads a kernel (8 %)"
    )
    hardly = profile([kernel(0, 50, 0), kernel(50.9, 100, 5)], steps=[step(1, 0, 100)])
    assert metrics_of(view(hardly))["idle_causes"] == ""


def test_places_of_a_cause_are_its_gaps_the_longest_first():
    assert places(LAUNCHING, "host_bound_idle_share") == [(1, 5_000_000, 3_000_000), (1, 2_000_000, 500_000)]
    assert places(LAUNCHING, "launch_gap_share") == [(1, 2_000_000, 500_000)]
    assert places(LAUNCHING, "host_busy_share") == [(1, 5_000_000, 3_000_000)]
    assert places(LAUNCHING, "input_idle_share") == []


def test_a_place_holds_no_time_that_is_another_cause_s():
    # us 20 to 61 idle; of that 30 to 50 in the loader
    made = profile([kernel(0, 20, 0), kernel(61, 100, 55)], [on_host("input", 30, 50)], [step(1, 0, 100)])
    assert places(made, "launch_gap_share") == [(1, 50_000, 11_000), (1, 20_000, 10_000)]
    assert places(made, "input_idle_share") == [(1, 30_000, 20_000)]


def test_at_most_ten_places_are_given():
    device = [kernel(10 * i, 10 * i + 5, 10 * i - 1) for i in range(20)]
    assert len(places(profile(device, steps=[step(1, 0, 200)]), "host_bound_idle_share")) == 10


def places(made: Profile, metric: str) -> list[tuple[object, ...]]:
    found = measured(made).places(metric, 0)
    return found.select("step", "start_ns", "dur_ns").rows() if found.height else []


def test_a_place_where_the_device_waits_for_a_launch_names_the_late_op_and_the_lines_it_was_called_from():
    # us        0    50   60  90 100        the second kernel is launched at 89, in an op that two Python calls hold
    calls = [("train.py(7): main", None), ("torch/nn/functional.py(9): linear", 0)]
    host = [on_host("python", 51, 95, name=name, parent=parent) for name, parent in calls]
    host.append(on_host("op", 80, 95, name="aten::mm", parent=1))
    device = [kernel(0, 50, 1, op=None), kernel(90, 100, 89, op=2)]
    made = measured(profile(device, host, [step(1, 0, 100)]))
    (place,) = made.places("host_bound_idle_share", 0).to_dicts()
    assert (place["op"], place["stack"]) == ("aten::mm", "torch/nn/functional.py(9): linear;train.py(7): main")
    recorded = [*host[:2], host[2] | {"stack": "train.py(8): f"}]
    (place,) = measured(profile(device, recorded, [step(1, 0, 100)])).places("host_bound_idle_share", 0).to_dicts()
    assert place["stack"] == "train.py(8): f"


def test_a_place_where_the_host_did_something_else_names_that_and_not_the_op_that_followed():
    # us        0    50    55     88  89 90 100        `resample` takes four fifths of the gap, `augment` lies around it
    calls = [
        ("train.py(7): main", 0, 100, None),
        ("train.py(40): augment", 51, 88, 0),
        ("lib.py(9): resample", 55, 88, 1),
    ]
    host = [on_host("python", start, end, name=name, parent=parent, thread=2) for name, start, end, parent in calls]
    host.append(on_host("op", 88, 95, name="aten::mm", parent=0, thread=2))
    device = [kernel(0, 50, 1, op=None), kernel(90, 100, 89, op=3)]
    (place,) = measured(profile(device, host, [step(1, 0, 100)])).places("host_bound_idle_share", 0).to_dicts()
    stack = "lib.py(9): resample;train.py(40): augment;train.py(7): main"
    assert (place["op"], place["stack"]) == ("lib.py(9): resample", stack)
