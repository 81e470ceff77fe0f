from __future__ import annotations

import pytest

from advisor.analysis.device.idle import CAUSES, gaps, graph_holes_ns, graph_pauses_ns, launch_gaps, stalls
from advisor.analysis.device.view import DeviceView
from advisor.model.profile import Profile
from tests.tables import Row, kernel, on_device, on_host, profile, step, us, view

STEP = [step(1, 0, 100)]


def found(made: Profile) -> list[tuple[float, float, dict[str, float]]]:
    """Each gap's start and end in us, and the causes that own a part of it."""
    frame = gaps(view(made))
    return [(row["start_ns"] / 1e3, row["end_ns"] / 1e3, parts(row)) for row in frame.to_dicts()]


def parts(row: dict[str, int]) -> dict[str, float]:
    return {cause: row[f"{cause}_ns"] / 1e3 for cause in CAUSES if row[f"{cause}_ns"]}


# --------------------------------------------------------------------- told by when the next op was launched


def test_the_host_has_not_launched_yet():
    # us        0    20   40   60   80   100
    # kernels   =====          ==========
    # launched                a at 58, after 20
    assert found(profile([kernel(0, 20, 0), kernel(60, 100, 58)], steps=STEP)) == [(20, 60, {"host_bound": 40})]


def test_from_the_launch_on_the_device_is_the_cause():
    # us        0    20   58  108
    # kernels   =====         ======     launched at 58: up to 50 us are the price of launching
    assert found(profile([kernel(0, 20, 0), kernel(108, 200, 58)], steps=[step(1, 0, 200)])) == [
        (20, 108, {"host_bound": 88})
    ]
    assert found(profile([kernel(0, 20, 0), kernel(108.001, 200, 58)], steps=[step(1, 0, 200)])) == [
        (20, 108.001, {"host_bound": 38, "dependency": 50.001})
    ]


@pytest.mark.parametrize(("launched", "host"), [(58, 38), (9, 0)])
def test_a_launched_op_that_waits_long_waits_for_what_was_not_recorded(launched: float, host: float):
    until = max(20, launched) + 1000.001
    made = profile([kernel(0, 20, 0), kernel(until, 2000, launched)], steps=[step(1, 0, 2000)])
    expected = {"host_bound": host, "unrecorded": 1000.001}
    assert found(made) == [(20, until, {cause: us for cause, us in expected.items() if us})]


def test_with_a_second_device_it_may_wait_for_that():
    device = [kernel(0, 20, 0), kernel(1100, 2000, 58), kernel(0, 1090, 1, device=1)]
    made = profile(device, steps=[step(1, 0, 2000)])
    assert found(made) == [(20, 1100, {"host_bound": 38, "dependency": 1042})]


def test_what_a_wait_leaves_is_split_at_the_launch_too():
    # us        0    20  22        40            2000
    # sync        |-------|                             10 to 22
    # launched                      a at 40, 1.96 ms before the op
    made = profile([kernel(0, 20, 0), kernel(2000, 2100, 40)], [on_host("sync", 10, 22)], [step(1, 0, 2100)])
    assert found(made) == [(20, 2000, {"sync": 20, "unrecorded": 1960})]


def test_launched_before_and_about_to_start_is_queued_up_to_5_us():
    made = profile([kernel(0, 20, 0), kernel(25, 50, 9), kernel(55.001, 100, 9)], steps=STEP)
    assert found(made) == [(20, 25, {"queued": 5}), (50, 55.001, {"dependency": 5.001})]


def test_a_call_that_returns_just_as_the_device_runs_dry_was_in_time():
    assert found(profile([kernel(0, 20, 0), kernel(24, 100, 20)], steps=STEP)) == [(20, 24, {"queued": 4})]
    assert found(profile([kernel(0, 20, 0), kernel(24, 100, 20.001)], steps=STEP)) == [(20, 24, {"host_bound": 4})]


def test_without_the_launch_nothing_tells_why():
    assert found(profile([kernel(0, 20, 0), kernel(22, 100)], steps=STEP)) == [(20, 22, {"unknown": 2})]


def test_a_copy_or_a_collective_ends_a_gap_as_a_kernel_does():
    device = [on_device("memcpy", 0, 20, 0), on_device("collective", 30, 50, 9), on_device("memset", 60, 100, 55)]
    assert found(profile(device, steps=STEP)) == [(20, 30, {"dependency": 10}), (50, 60, {"host_bound": 10})]


def test_all_streams_are_one():
    # us         0    20   40   60   80   100
    # stream 7   =====          ==========        launched at 5 and 35
    # stream 8        =====          =====        launched at 15 and 70
    streams = [kernel(0, 20, 0), kernel(60, 90, 35), kernel(20, 40, 15, stream=8), kernel(70, 100, 70, stream=8)]
    assert found(profile(streams, steps=STEP)) == [(40, 60, {"dependency": 20})]


def test_another_device_is_another_matter():
    device = [kernel(0, 100, 0), kernel(0, 20, 0, device=1)]
    made = profile(device, steps=[step(1, 0, 100, device=1)])
    assert found(made) == [(20, 100, {"host_bound": 80})]


def test_the_next_op_is_the_first_of_those_that_start_together():
    device = [kernel(0, 20, 0), kernel(30, 100, 10), kernel(30, 100, 25, stream=8)]
    frame = gaps(view(profile(device, steps=STEP)))
    assert frame["next"].to_list() == [1]
    assert parts(frame.to_dicts()[0]) == {"dependency": 10}


# ----------------------------------------------------------------------------------- synchronisation


def test_a_host_that_was_waiting_had_nothing_queued():
    # us        0    20   40   60   80   100
    # kernels   =====          ==========
    # sync        |---|                          10 to 22: the device ran dry at 20
    # launched                a at 58
    waits = [on_host("sync", 10, 22)]
    assert found(profile([kernel(0, 20, 0), kernel(60, 100, 58)], waits, STEP)) == [(20, 60, {"sync": 40})]


@pytest.mark.parametrize("wait", [(2, 19.999), (20, 40), (21, 59)])
def test_a_wait_that_was_not_open_when_the_device_ran_dry_is_no_cause(wait: tuple[float, float]):
    made = profile([kernel(0, 20, 0), kernel(60, 100, 58)], [on_host("sync", *wait)], STEP)
    assert found(made) == [(20, 60, {"host_bound": 40})]


def test_a_wait_delays_nothing_that_was_queued():
    waits = [on_host("sync", 10, 22)]
    assert found(profile([kernel(0, 20, 0), kernel(23, 100, 9)], waits, STEP)) == [(20, 23, {"queued": 3})]


def test_what_follows_a_wait_for_over_1_ms_is_the_hosts():
    # us        0    20   22                2000   2100
    # kernels   =====                        ======
    # sync        |-------|                               10 to 22
    # launched                              a at 1998
    steps, waits = [step(1, 0, 2100)], [on_host("sync", 10, 22)]
    made = profile([kernel(0, 20, 0), kernel(2000, 2100, 1998)], waits, steps)
    assert found(made) == [(20, 2000, {"sync": 2, "host_bound": 1978})]
    assert gaps(view(made))["late_ns"].to_list() == [22_000]
    (stalled,) = zip(stalls(view(made)).starts, stalls(view(made)).ends, strict=True)
    assert stalled == (22_000, 2_000_000)
    assert not launch_gaps(view(made)).total


def test_up_to_1_ms_after_the_wait_is_the_waits():
    steps, waits = [step(1, 0, 2100)], [on_host("sync", 10, 22)]
    made = profile([kernel(0, 20, 0), kernel(1022, 2100, 1020)], waits, steps)
    assert found(made) == [(20, 1022, {"sync": 1002})]
    made = profile([kernel(0, 20, 0), kernel(1022.001, 2100, 1020)], waits, steps)
    assert found(made) == [(20, 1022.001, {"sync": 2, "host_bound": 1000.001})]


def test_a_wait_that_stays_open_owns_the_time_however_long():
    steps, waits = [step(1, 0, 5000)], [on_host("sync", 10, 4500)]
    made = profile([kernel(0, 20, 0), kernel(4600, 5000, 4599)], waits, steps)
    assert found(made) == [(20, 4600, {"sync": 4580})]


def test_ranges_before_and_after_the_return_own_their_time_on_their_side():
    # us        20   24   30    40   60                 2030
    # sync      |---------|                              10 to 30
    # gc             |-----------|                       24 to 40
    # input                           |-- 60 to 160 --|
    host = [on_host("sync", 10, 30), on_host("gc", 24, 40, thread=3), on_host("input", 60, 160)]
    made = profile([kernel(0, 20, 0), kernel(2030, 2100, 2029)], host, [step(1, 0, 2100)])
    assert found(made) == [(20, 2030, {"input": 100, "gc": 16, "sync": 4, "host_bound": 1890})]


# --------------------------------------------------------------------------------------- host ranges


@pytest.mark.parametrize("cause", ["input", "compile", "gc", "allocator"])
def test_time_under_a_host_range_belongs_to_it(cause: str):
    # us        0    20   40   60   80   100
    # kernels   =====          ==========
    # range            |---|                     30 to 50
    made = profile([kernel(0, 20, 0), kernel(60, 100, 58)], [on_host(cause, 30, 50)], STEP)
    assert found(made) == [(20, 60, {cause: 20, "host_bound": 20})]


def test_the_first_of_overlapping_ranges_owns_the_time():
    # us          20   30   40   50   60
    # input            |---------|             30 to 50
    # compile               |---------|        40 to 60
    # gc               |----|                  30 to 40: all of it under input
    # allocator   |---------|                  20 to 40
    ranges = [("gc", 30, 40), ("allocator", 20, 40), ("compile", 40, 60), ("input", 30, 50)]
    made = profile([kernel(0, 20, 0), kernel(60, 100, 58)], [on_host(*one) for one in ranges], STEP)
    assert found(made) == [(20, 60, {"input": 20, "compile": 10, "allocator": 10})]


def test_a_range_takes_nothing_from_a_busy_device_and_not_twice_from_two_threads():
    ranges = [on_host("input", 0, 40), on_host("input", 10, 30, thread=9)]
    made = profile([kernel(0, 20, 0), kernel(60, 100, 58)], ranges, STEP)
    assert found(made) == [(20, 60, {"input": 20, "host_bound": 20})]


def test_whatever_a_range_covers_the_length_of_the_whole_gap_decides_on_the_rest():
    made = profile([kernel(0, 20, 0), kernel(28, 100, 9)], [on_host("gc", 20, 24)], STEP)
    assert found(made) == [(20, 28, {"gc": 4, "dependency": 4})]


# --------------------------------------------------------------------------------------- the edges


def test_before_the_first_op_and_after_the_last_the_host_is_late():
    # us        0    20   40   60   80   100
    # kernels        =====                       launched at 15
    made = profile([kernel(20, 40, 15)], steps=STEP)
    assert found(made) == [(0, 20, {"host_bound": 20}), (40, 100, {"host_bound": 60})]
    assert gaps(view(made))["next"].to_list() == [0, None]


def test_a_gap_over_a_boundary_of_steps_is_cut_there():
    # us        0    50   100  150  200
    # kernels   =====          ==========        launched at 140
    # steps     |-- 1 ---||-- 2 ---|
    steps = [step(1, 0, 100), step(2, 100, 200)]
    frame = gaps(view(profile([kernel(0, 50, 0), kernel(150, 200, 140)], steps=steps)))
    assert frame.select("window", "start_ns", "end_ns", "host_bound_ns").rows() == [
        (0, 50_000, 100_000, 50_000),
        (1, 100_000, 150_000, 50_000),
    ]


def test_a_wait_at_the_end_of_a_step_explains_the_gap_beyond_it():
    waits, steps = [on_host("sync", 40, 60)], [step(1, 0, 100), step(2, 100, 200)]
    made = profile([kernel(0, 50, 0), kernel(150, 200, 140)], waits, steps)
    assert found(made) == [(50, 100, {"sync": 50}), (100, 150, {"sync": 50})]


def test_what_is_between_the_steps_used_is_no_gap():
    steps = [step(1, 0, 100), step(3, 200, 300)]
    made = profile([kernel(0, 100, 0), kernel(210, 300, 205)], steps=steps)
    assert found(made) == [(200, 210, {"host_bound": 10})]


def test_at_the_edges_of_a_recording_without_steps_nothing_is_known():
    # us        0    20   40   60   80   100
    # host      |----------------------|        0 to 90
    # kernels        =====     =====             launched at 10 and 55
    made = profile([kernel(20, 40, 10), kernel(60, 80, 55)], [on_host("op", 0, 90)])
    assert found(made) == [(0, 20, {"unknown": 20}), (40, 60, {"host_bound": 20}), (80, 90, {"unknown": 10})]


def test_input_is_input_at_the_edges_too():
    made = profile([kernel(20, 40, 10)], [on_host("input", 0, 15), on_host("op", 0, 40)])
    assert found(made) == [(0, 20, {"input": 15, "unknown": 5})]


def test_a_device_that_runs_nothing_idles_all_the_time():
    made = profile(host_ops=[on_host("input", 0, 30)], steps=[step(1, 0, 100, device=None)])
    assert found(made) == [(0, 100, {"input": 30, "host_bound": 70})]


def test_no_window_no_gap():
    made = profile([kernel(20, 40, 10)], steps=[step(1, 0, 100, incomplete="cut")])
    assert found(made) == []


def test_times_before_zero_are_times():
    device = [kernel(-100, -80, -100), kernel(-40, 0, -42), kernel(0, 1, -60)]
    assert found(profile(device, steps=[step(1, -100, 0)])) == [(-80, -40, {"host_bound": 40})]


def replayed(*spans_us: tuple[float, float], launched: float = 5) -> DeviceView:
    """Nodes of one CUDA graph, launched at 4 us, in a step of 1,000."""
    call = on_host("runtime", 4, launched, name="cudaGraphLaunch")
    nodes = [kernel(start, end) | {"launch": 0} for start, end in spans_us]
    return view(profile(nodes, [call], [step(1, 0, 1000)]))


def test_a_long_gap_between_queued_nodes_of_a_graph_is_not_called_idle_for_a_cause():
    holes = replayed((10, 100), (400, 1000))
    assert gaps(holes)["unknown_ns"].sum() == 310_000  # the gap before the first node too: it may be as incomplete
    assert graph_holes_ns(holes) == 310_000


def test_short_pauses_between_the_nodes_of_a_graph_are_counted_apart():
    # 3 and 5 us between nodes; 6 us is more than recording a node takes, and 4 us come before the first
    nodes = replayed((10, 500), (503, 600), (605, 700), (706, 1000), launched=6)
    assert graph_pauses_ns(nodes) == 8_000


def test_a_window_may_end_after_the_last_node_of_a_graph():
    assert graph_holes_ns(replayed((10, 500))) == 0  # what no op ends is the wait for the next step


def test_a_graph_that_was_recorded_whole_has_no_holes():
    assert graph_holes_ns(replayed((10, 500), (503, 1000))) == 0


# us        0    20           100   120                 1300  1320
# kernels   =====             =====                     =====        the calls return as they start, after 1 us
DEVICE = [kernel(0, 20, 0), kernel(100, 120, 100), kernel(1300, 1320, 1300)]


STEPS = [step(1, 0, 1320)]


def test_waiting_up_to_a_millisecond_is_the_launches_and_longer_is_a_stall():
    trace = view(profile(DEVICE, steps=STEPS))
    assert us(launch_gaps(trace)) == [(20, 100)]
    assert us(stalls(trace)) == [(120, 1300)]


def test_what_other_causes_account_for_is_no_waiting_for_launches():
    trace = view(profile(DEVICE, [on_host("input", 30, 50), on_host("gc", 200, 300)], STEPS))
    assert us(launch_gaps(trace)) == [(20, 30), (50, 100)]
    assert us(stalls(trace)) == [(120, 200), (300, 1300)]


@pytest.mark.parametrize(("kind", "cause"), [("DtoH", "host_bound_ns"), ("HtoD", "unknown_ns")])
def test_a_page_that_moves_to_the_host_is_awaited_by_it(kind: str, cause: str):
    def page(start: float) -> Row:
        return on_device("memcpy", start, start + 10, source_memory="managed", copy_kind=kind)

    of = view(profile([kernel(0, 100, -1), page(400), page(700), page(10_711)], steps=[step(1, 0, 10_721)]))
    frame = of.once(gaps)
    assert frame[cause].to_list() == [300_000, 0, 10_001_000]
    assert frame["paging_ns"].to_list() == [0, 290_000, 0]


def test_a_cause_that_no_gap_has_takes_no_memory():
    many = 1_000
    idle = gaps(view(profile([kernel(10 * n, 10 * n + 5) for n in range(many)], steps=[step(1, 0, 10 * many)])))
    assert idle.estimated_size() < 9 * 8 * many  # of 18 columns: window, times, next, and the causes that own any
