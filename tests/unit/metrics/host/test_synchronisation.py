from __future__ import annotations

from advisor.analysis.device.selection import select_steps
from advisor.metrics.metric import METRICS
from tests.tables import kernel, metrics_of, on_host, profile, step, view

# us        0    20        60   80        100
# kernels   =====          ====           ====     launched at 0, 58 and 99
# waits       |---|         |----|                  10 to 22 and 65 to 82
DEVICE = [kernel(0, 20, 0), kernel(60, 80, 58), kernel(100, 110, 99)]
ITEM = [
    on_host("op", 2, 30, name="aten::item"),
    on_host("op", 4, 28, name="aten::_local_scalar_dense", parent=0),
    on_host("sync", 10, 22, name="cudaStreamSynchronize", parent=1),
]


def test_waits_per_step_count_those_that_begin_in_the_host_s_range():
    host = [on_host("sync", 10, 20), on_host("sync", 99, 130), on_host("sync", 150, 160), on_host("op", 0, 1)]
    steps = [step(1, 0, 100), step(2, 100, 200, host=(100, 140))]
    assert metrics_of(view(profile(DEVICE, host, steps)))["syncs_per_step"] == 1


def test_the_outermost_framework_op_names_the_wait():
    host = [*ITEM, on_host("sync", 65, 82, name="cudaDeviceSynchronize")]
    values = metrics_of(view(profile(DEVICE, host, [step(1, 0, 110)])))
    assert values["sync_calls"] == "aten::item (40 µs), cudaDeviceSynchronize (20 µs)"


def test_a_range_that_is_no_framework_op_does_not_name_it():
    host = [on_host("annotation", 0, 90, name="train"), on_host("sync", 10, 22, name="cudaStreamSynchronize", parent=0)]
    values = metrics_of(view(profile(DEVICE, host, [step(1, 0, 110)])))
    assert values["sync_calls"] == "cudaStreamSynchronize (40 µs)"


def test_a_wait_names_the_gap_beyond_its_step_too():
    steps = [step(1, 0, 30), step(2, 30, 110)]
    # 40 in two steps
    assert metrics_of(view(profile(DEVICE, ITEM, steps)))["sync_calls"] == "aten::item (20 µs)"


def test_a_wait_that_returns_as_the_device_runs_dry_is_named():
    trace = profile(DEVICE, [on_host("sync", 10, 20, name="cudaStreamSynchronize")], [step(1, 0, 100)])
    assert metrics_of(view(trace))["sync_calls"] == "cudaStreamSynchronize (40 µs)"


def test_waits_of_one_op_are_added_up_per_step():
    device = [kernel(100 * i, 100 * i + 50, 100 * i - 1) for i in range(6)]  # each ends in a wait
    waits = [on_host("sync", 100 * i + 40, 100 * i + 51, name=name) for i, name in enumerate("aabcd")]
    steps = [step(1, 0, 250), step(2, 250, 550)]
    assert metrics_of(view(profile(device, waits, steps)))["sync_calls"] == "a (50 µs), b (25 µs), c (25 µs), d (25 µs)"


def test_without_a_wait_there_is_none_to_name():
    values = metrics_of(view(profile(DEVICE, steps=[step(1, 0, 110)])))
    assert (values["syncs_per_step"], values["sync_calls"]) == (0, "")


def test_a_wait_of_the_second_worker_is_found_by_its_own_ids():
    of_first = [on_host("op", 0, 100, name="aten::add") for _ in range(3)]
    second = [row | {"worker": 1, "parent": None if i == 0 else i + 2} for i, row in enumerate(ITEM)]
    device = [row | {"worker": 1} for row in DEVICE]
    trace = profile(device, [*of_first, *second], [step(1, 0, 110, worker=1)])
    (_, of_second) = select_steps(trace, "all").views
    assert metrics_of(of_second)["sync_calls"] == "aten::item (40 µs)"


def test_places_are_the_calls_that_cost_most_with_the_range_around_them_and_the_idle_time_that_follows():
    where = METRICS["sync_idle_share"].where
    assert where
    host = [on_host("annotation", 0, 90, name="train"), on_host("sync", 10, 22, name="cudaStreamSynchronize", parent=0)]
    (row,) = where(view(profile(DEVICE, host, [step(1, 0, 110)]))).to_dicts()
    assert row["name"] == "cudaStreamSynchronize, then the device idles for 40 µs"
    assert (row["table"], row["start_ns"], row["dur_ns"], row["op"], row["step"]) == ("host_ops", 10_000, 12_000, 0, 1)
