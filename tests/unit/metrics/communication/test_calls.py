from __future__ import annotations

import pytest

from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view

STEP = [step(1, 0, 1000)]


def test_calls_of_collectives_take_the_hosts_time_and_may_leave_the_device_idle():
    # The call of the second collective returns at 395 us, 65 us after the device ran dry.
    host = [
        on_host("op", 0, 20, name="c10d::allreduce_"),
        on_host("runtime", 10, 15, parent=0),
        on_host("op", 300, 395, name="c10d::allreduce_"),
        on_host("runtime", 350, 395, parent=2),
    ]
    device = [on_device("collective", 30, 330, launch=1), on_device("collective", 400, 1000, launch=3)]
    values = metrics_of(view(profile(device, host, STEP)))
    assert values["collective_call_idle_ms"] == pytest.approx(0.1)  # 70 us, and 30 before the first
    assert metrics_of(view(profile([on_device("collective", 100, 300)], [], STEP)))["collective_call_idle_ms"] == 0


def broadcast(*more: Row, forward: float = 1000) -> list[Row]:
    """The host's side of a broadcast of buffers in a forward pass from 0 us on."""
    return [
        on_host("annotation", 0, forward, name="DistributedDataParallel.forward"),
        on_host("op", 100, 150, name="aten::flatten_dense_tensors"),
        on_host("op", 110, 140, name="aten::cat"),
        on_host("op", 150, 200, name="c10d::broadcast_"),
        on_host("op", 200, 400, name="aten::unflatten_dense_tensors"),
        on_host("op", 420, 460, name="aten::copy_"),
        *more,
    ]


CONVOLUTION = on_host("op", 500, 900, name="aten::conv2d")
COPY = on_host("op", 900, 950, name="aten::copy_")  # of the module itself
LATE = [on_device("collective", 180, 240, 190), kernel(900, 1000, 890)]  # before and between them the device idles


def buffers_ms(host: list[Row], device: list[Row]) -> object:
    return metrics_of(view(profile(device, host, STEP)))["buffer_broadcast_idle_ms"]


def test_the_device_idles_while_the_host_broadcasts_buffers():
    # From 100 to 460 us, less the broadcast itself from 180 to 240.
    assert buffers_ms(broadcast(CONVOLUTION, COPY), LATE) == pytest.approx(0.3)
    assert buffers_ms(broadcast(), LATE) == pytest.approx(0.3)


def test_broadcasts_of_buffers_cost_nothing_while_kernels_run():
    assert buffers_ms(broadcast(CONVOLUTION), [kernel(0, 600), *LATE]) == 0


@pytest.mark.parametrize(
    "without", ["DistributedDataParallel.forward", "aten::flatten_dense_tensors", "c10d::broadcast_"]
)
def test_only_a_whole_broadcast_in_a_forward_pass_counts(without: str):
    host = [op for op in broadcast(CONVOLUTION, COPY) if op["name"] != without]
    assert buffers_ms(host, LATE) == 0


def test_each_forward_pass_of_each_thread_broadcasts_by_itself():
    elsewhere = [
        on_host("annotation", 90, 300, name="DistributedDataParallel.forward", thread=7),
        on_host("op", 120, 300, name="aten::conv2d", thread=7),
    ]
    # a second pass of the first thread broadcasts from 620 to 720, and its convolution ends that
    second = [
        on_host("annotation", 600, 1000, name="DistributedDataParallel.forward"),
        on_host("op", 620, 660, name="aten::flatten_dense_tensors"),
        on_host("op", 660, 720, name="c10d::broadcast_"),
        on_host("op", 720, 800, name="aten::conv2d"),
        COPY,
    ]
    assert buffers_ms([*broadcast(forward=600), *elsewhere, *second], LATE) == pytest.approx(0.3 + 0.1)


def loop_ms(device: list[Row], op: str = "all_reduce") -> object:
    rows = [i for i, each in enumerate(device) if each["kind"] == "collective"]
    kinds = ["all_reduce"] * (len(rows) - 1) + [op]
    facts = [{"device_op": i, "worker": 0, "op": kind} for i, kind in zip(rows, kinds, strict=True)]
    made = profile(device, [], STEP, collectives=facts)
    return metrics_of(view(made))["collective_loop_idle_ms"]


# Launched at 99, 399 and 699 us; between these the device runs for 10 us at 110, and for 10 at 410.
REDUCTIONS = [on_device("collective", at + 10, at + 20, at) for at in (100, 400, 700)]


def test_the_device_idles_while_the_host_calls_for_one_collective_after_another():
    assert loop_ms(REDUCTIONS) == pytest.approx(0.58)
    assert loop_ms([*REDUCTIONS, kernel(210, 220, 200)]) == pytest.approx(0.57)  # a division between two of them


def test_collectives_of_layers_of_other_kinds_or_beside_kernels_are_no_loop():
    layers = [kernel(at + 10, at + 20, at) for at in (200, 250, 500, 550)]
    assert loop_ms([*REDUCTIONS, *layers]) == 0
    assert loop_ms(REDUCTIONS, "all_gather") == pytest.approx(0.29)
    assert loop_ms([*REDUCTIONS, kernel(0, 900)]) == 0  # launched before the recording
    assert loop_ms(REDUCTIONS[:1]) == 0


def test_a_pause_between_two_collectives_is_no_loop():
    assert loop_ms([on_device("collective", at + 10, at + 20, at) for at in (-400, 700)]) == 0
