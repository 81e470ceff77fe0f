from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from tests.tables import kernel, metrics_of, on_device, on_host, profile, span, step, values_of, view

host_ops = metrics_of
stalling = metrics_of

# us        0 1  5      25                101 105    125
# host      ||                             |      110        calls of 1 us, 4 us before their kernels start
# kernels        =======                      ========
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]
STEPS = [step(1, 0, 125, host=(0, 110))]


# A stall: in each of two steps the second kernel is launched 2 ms later.
BEGINS = (0, 2125)
LATE = [op for at in BEGINS for op in (kernel(at + 5, at + 25, at + 2), kernel(at + 2105, at + 2125, at + 2102))]
LATE_STEPS = [step(n, at, at + 2125, host=(at, at + 2110)) for n, at in enumerate(BEGINS, 1)]


def test_a_stall_is_named_by_what_ran():
    host = [on_host("annotation", at + 100, at + 1600, name="validate", thread=2) for at in BEGINS]
    values = metrics_of(view(profile(LATE, host, LATE_STEPS)))
    causes = "validate (1.5 ms), work or waits that were not recorded (0.58 ms)"  # the launch, 1 us, is next to nothing
    assert values["stall_causes"] == causes


@pytest.mark.parametrize(
    ("names", "causes"),
    [
        (("layer_1", "layer_12"), "layer_* (1.5 ms)"),
        (("layers_[1, 2]", "layers_[2, 3]"), "layers_* (1.5 ms)"),
        (("layer_1", "layer_1"), "layer_1 (1.5 ms)"),  # there are no others
        (("log2", "layer_1"), "layer_1 (0.75 ms), log2 (0.75 ms)"),
        (("aten::log2", "aten::log10"), "aten::log10 (0.75 ms), aten::log2 (0.75 ms)"),  # other functions
        (("train.py(1): step", "train.py(12): step"), "train.py(1): step (0.75 ms), train.py(12): step (0.75 ms)"),
    ],
)
def test_ranges_that_are_counted_are_one(names: tuple[str, str], causes: str):
    spans = zip(names, BEGINS, strict=True)
    host = [on_host("annotation", at + 100, at + 1600, name=name, thread=2) for name, at in spans]
    values = metrics_of(view(profile(LATE, host, LATE_STEPS)))
    assert str(values["stall_causes"]).startswith(f"{causes}, work or waits")


@pytest.mark.parametrize(
    ("second", "place"),
    [("cudaMemcpy", "between `cudaEventSynchronize` and `cudaMemcpy` (99.9 %)"), ("cudaMalloc", "")],
)
def test_a_stall_that_nothing_names_lies_between_two_calls(second: str, place: str):
    """Each of two lasts from the end of a wait, 20 us into the gap, to a call: half of it is not most."""
    names = zip(BEGINS, ("cudaMemcpy", second), strict=True)
    calls = [on_host("runtime", at + 2100, at + 2101, name=name) for at, name in names]
    waits = [on_host("sync", at + 25, at + 45, name="cudaEventSynchronize") for at in BEGINS]
    assert metrics_of(view(profile(LATE, [*waits, *calls], LATE_STEPS)))["open_place"] == place


def test_a_stall_inside_an_optimizer_s_step_is_an_update():
    # Of the gap of 2,076 us, from 25 to 2,101, the update has the last 1,038.
    names = ("offload", "Optimizer.step#DeepSpeedCPUAdam.step")
    spans = zip(names, ((0, 1063), (1063, 2110)), strict=True)
    host = [on_host("annotation", start, end, name=name, thread=2) for name, (start, end) in spans]
    values = metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))
    assert values["stall_update_part"] == pytest.approx(0.5, abs=0.001)


def test_a_launching_thread_that_is_on_no_cpu_waits_and_does_not_work():
    # Of a gap of 2,076 us, from 25 to 2,101, the thread that launches sleeps 1,038, and another thread all.
    worker = [{"worker": 0, "pid": 7}]
    host = [on_host("annotation", 0, 2110, name="loop", thread=2)]
    away = [{"worker": 0, "pid": 7, "thread": thread, **span(25, end)} for thread, end in ((2, 1063), (9, 2101))]
    trace = profile(LATE[:2], host, LATE_STEPS[:1], workers=worker, off_cpu=away)
    assert metrics_of(view(trace))["stall_off_cpu_part"] == pytest.approx(0.5, abs=0.001)
    assert metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1], workers=worker)))["stall_off_cpu_part"] == 0


@pytest.mark.parametrize(("until", "thread", "is_at"), [(441, 2, True), (440, 2, False), (441, 9, False)])
def test_a_thread_that_works_on_files_is_named_by_the_call(until: float, thread: int, *, is_at: bool):
    """Of a gap of 2,076 us, the thread that launches writes for 416, a fifth, in two calls; or another one does."""
    calls = [("open", 25, 125), ("pwrite", 125, until)]
    rows = [{"pid": 7, "thread": thread, "name": name, **span(start, end)} for name, start, end in calls]
    values = metrics_of(view(profile(LATE[:2], steps=LATE_STEPS[:1], workers=[{"worker": 0, "pid": 7}], os_calls=rows)))
    if is_at:
        assert values["stall_causes"] == "work on and around files, as in `pwrite` (2.1 ms)"
        assert values["stall_file_part"] == pytest.approx(1, abs=0.001)  # but for the launching call
    else:
        assert isinstance(values["stall_causes"], Missing)


def test_without_the_stall_the_next_kernel_follows():
    # 2,099 us before the call, 2,076 of them idle, become 23 (or half of the idle ones more): the call at 25 or 1063
    host = [on_host("annotation", 0, 2110, name="loop", thread=2)]
    values = metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))
    assert values["stall_gain_ms"] == pytest.approx(2.076)
    assert values["stall_least_gain_ms"] == pytest.approx(1.038)


def test_an_op_is_named_and_not_the_views_it_consists_of():
    host = [on_host("annotation", 0, 2110, name="forward", thread=2)]
    host += [on_host("op", 100, 1500, name="aten::unflatten_dense_tensors", thread=2, parent=0)]
    host += [on_host("op", 100 * i, 100 * i + 95, name="aten::view", thread=2, parent=1) for i in range(1, 15)]
    values = metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))
    assert values["stall_causes"].startswith("forward (2.1 ms)")  # all of it is in the stall
    host[0] |= {"dur_ns": 5_000_000}
    values = metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))
    assert values["stall_causes"].startswith("aten::unflatten_dense_tensors (1.4 ms), forward (0.68 ms)")


@pytest.mark.parametrize("steps", [[], [step(1, 0, 4250, host=(0, 4240))]])
def test_where_nothing_was_recorded_and_no_second_step_is_marked_the_host_s_work_is_not_known(steps):
    causes = metrics_of(view(profile(LATE, steps=steps)))["stall_causes"]
    assert isinstance(causes, Missing)
    assert (causes.code, round(causes.values["share"], 2)) == ("silent_host", 0.98)


def test_without_marks_a_host_that_waits_for_a_socket_may_have_nothing_to_do():
    names = ("selectors.py(451): select", "<built-in method poll of select.epoll object at 0x7f>")
    host = [on_host("python", 0, 4240, name=name, thread=2) for name in names]
    causes = metrics_of(view(profile(LATE, host)))["stall_causes"]
    assert isinstance(causes, Missing)
    assert (causes.code, causes.values["range"]) == ("thread_wait", "selectors.py(451): select")
    marked = metrics_of(view(profile(LATE, host, LATE_STEPS)))["stall_causes"]
    assert str(marked).startswith("selectors.py")


def test_in_one_step_too_what_was_recorded_on_the_host_tells_what_it_did():
    host = [on_host("annotation", 0, 4240, name="validate", thread=2)]
    values = metrics_of(view(profile(LATE, host, [step(1, 0, 4250, host=(0, 4240))])))
    assert str(values["stall_causes"]).startswith("validate (4.2 ms)")


def test_a_range_gives_way_to_what_it_holds_and_one_that_launches_is_the_step_s_own_work():
    host = [on_host("annotation", 0, 2110, name="forward", thread=2)]
    host += [on_host("annotation", 20, 2109, name="sparse arch", thread=2, parent=0)]
    values = metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))
    assert str(values["stall_causes"]).startswith("sparse arch (2.1 ms)")
    assert values["stall_launches_per_step"] == 1  # at 2,102
    batch = [LATE[0], on_device("memcpy", 2105, 2125, 2102)]
    assert metrics_of(view(profile(batch, host, LATE_STEPS[:1])))["stall_launches_per_step"] == 0
    host[1] |= {"dur_ns": 2_070_000}
    assert metrics_of(view(profile(LATE[:2], host, LATE_STEPS[:1])))["stall_launches_per_step"] == 0


def test_before_the_first_device_op_of_the_recording_the_profiler_may_be_at_its_start():
    """Of two gaps of over 1 ms, 2,001 us lie before any op and its call, and 2,076 between two."""
    ops = [kernel(at + 2005, at + 2025, at + 2002) for at in (0, 2100)]
    host = [on_host("annotation", 0, 4110, name="loop", thread=2)]
    edge = metrics_of(view(profile(ops, host, [step(1, 0, 4125, host=(0, 4110))])))["stall_edge_part"]
    assert edge == pytest.approx(2001 / (2001 + 2076), abs=0.001)
    assert metrics_of(view(profile(LATE[:2], host[:1], LATE_STEPS[:1])))["stall_edge_part"] == 0


def test_short_gaps_are_no_stall():
    expected = {
        "stall_causes": "",
        "stall_launches_per_step": 0,
        "stall_update_part": 0,
        "stall_least_gain_ms": 0,
        "stall_gain_ms": 0,
    }
    assert values_of(expected, view(profile(DEVICE, steps=STEPS))) == expected


def test_without_launches_the_host_s_part_is_not_known():
    trace = view(profile([kernel(0, 20), kernel(60, 80)], steps=[step(1, 0, 80)]))
    known = {
        name: value for name, value in (metrics_of(trace) | metrics_of(trace)).items() if not isinstance(value, Missing)
    }
    assert known == {}


@pytest.mark.parametrize(("until", "cause"), [(2_000, "result_wait"), (1_500, "")])
def test_a_wait_for_a_result_is_no_work_of_the_host(until: float, cause: str):
    """The device idles for 3 ms: for 1.9 of these the host waits for what launches late, or only for 1.4."""
    frames = [(100, until, "$api.py:12 block_until_ready"), (until, 3_090, "$load.py:3 load")]
    host = [on_host("python", start, end, name=name, thread=2) for start, end, name in frames]
    made = profile([kernel(0, 100, 0), kernel(3_100, 3_200, 3_095)], host, [step(1, 0, 3_200, host=(0, 3_100))])
    gain = metrics_of(view(made))["stall_gain_ms"]
    assert (gain.code if isinstance(gain, Missing) else "") == cause
