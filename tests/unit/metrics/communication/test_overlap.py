from __future__ import annotations

from typing import Any

import pytest

from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view

STEP = [step(1, 0, 1000)]


def trace(device: list[Row], host: list[Row] = (), op: str = "all_reduce", **more: Any):
    rows = [i for i, row in enumerate(device) if row["kind"] == "collective"]
    facts = [{"device_op": i, "worker": 0, "op": device[i].pop("does", op)} for i in rows]
    return view(profile(device, host, STEP, collectives=facts, **more))


def collective(start: float, end: float, stream: int = 20, **more: Any) -> Row:
    return on_device("collective", start, end, stream=stream, **more)


# us            0   100  200  300  400  500  600
# collective         =========          ====         100 to 300, 500 to 600
# kernel        =========     ==========             0 to 200, 300 to 500
QUEUED = [kernel(0, 200), collective(100, 300), kernel(300, 500), collective(500, 600)]


def test_room_for_overlap_is_kernel_time_that_hides_nothing():
    values = metrics_of(trace(QUEUED))
    assert values["overlap_room_ms"] == pytest.approx(0.3)  # 0 to 100 and 300 to 500
    assert values["exposed_collectives"] == "all_reduce (0.2 ms)"


def test_collectives_on_the_stream_of_the_kernels_cannot_be_hidden():
    alone = [kernel(0, 200, stream=7), collective(200, 300, stream=7), kernel(300, 500, stream=7)]
    assert metrics_of(trace(alone))["compute_stream_communication_ms"] == pytest.approx(0.1)
    assert metrics_of(trace(QUEUED))["compute_stream_communication_ms"] == 0


def test_a_stream_whose_ops_overlap_tells_no_order():
    graph = [kernel(0, 200, stream=7), collective(150, 300, stream=7), kernel(180, 500, stream=7)]
    assert metrics_of(trace(graph))["compute_stream_communication_ms"] == 0


def test_copies_for_a_gather_make_its_stream_no_compute_stream():
    gather = [kernel(0, 300, stream=7), kernel(300, 310, stream=20), collective(310, 400, stream=20)]
    assert metrics_of(trace(gather))["compute_stream_communication_ms"] == 0


# us            0   100  200  300  400  500  600  700
# gather        ====           ====           ====
# kernel            ==========     ==========     ====   one layer after each gather
LAYERS = [
    collective(0, 100),
    kernel(100, 300),
    collective(300, 400),
    kernel(400, 600),
    collective(600, 700),
    kernel(700, 800),
]
SHARDED = [on_host("op", 0, 20, name="FSDP::all_gather (layers.0)")]


def test_gathers_that_start_when_the_layer_before_is_done_are_not_prefetched():
    values = metrics_of(trace([dict(row) for row in LAYERS], SHARDED, op="all_gather"))
    assert values["gathers_per_step"] == 3
    assert values["late_gather_share"] == pytest.approx(2 / 3)  # the first has no layer before it
    assert values["late_gather_ms"] == pytest.approx(0.2)


def test_gathers_of_activations_are_no_parameters():
    assert metrics_of(trace([dict(row) for row in LAYERS], op="all_gather"))["gathers_per_step"] == 0


def test_a_program_that_shards_by_itself_scatters_without_a_range_of_a_library():
    assert metrics_of(trace([dict(row) for row in LAYERS], op="reduce_scatter"))["own_scatters_per_step"] == 3
    assert metrics_of(trace([dict(row) for row in LAYERS], SHARDED, op="reduce_scatter"))["own_scatters_per_step"] == 0


def test_prefetched_gathers_follow_each_other():
    ahead = [collective(0, 100), collective(100, 200), kernel(100, 300), collective(200, 300), kernel(300, 500)]
    assert metrics_of(trace(ahead, SHARDED, op="all_gather"))["late_gather_ms"] == 0


def test_gathers_that_the_host_calls_late_are_not_blamed_on_the_layer_before():
    # Each call starts 50 us after the layer before is done, and its gather 10 us later.
    host = [*SHARDED, on_host("runtime", 350, 355), on_host("runtime", 650, 655)]
    late = [kernel(100, 300), collective(360, 460, launch=1), kernel(460, 600), collective(660, 760, launch=2)]
    assert metrics_of(trace(late, host, op="all_gather"))["late_gather_ms"] == 0


def test_gathers_that_queue_behind_another_collective_wait_for_that():
    # The reduce-scatter of the layer before holds the stream until 350.
    queued = [kernel(0, 300), collective(100, 350, does="reduce_scatter"), collective(350, 450), kernel(450, 600)]
    assert metrics_of(trace(queued, SHARDED, op="all_gather"))["late_gather_ms"] == 0


def test_the_copy_that_prepares_a_gather_is_no_reason_to_start_late():
    # FSDP copies the shards on the gather's stream, from 300 to 310: that waited for the layer, too.
    prepared = [collective(0, 100), kernel(100, 300), kernel(300, 310, stream=20), collective(310, 400)]
    values = metrics_of(trace([*prepared, kernel(400, 600)], SHARDED, op="all_gather"))
    assert values["late_gather_share"] == pytest.approx(1 / 2)
    assert values["late_gather_ms"] == pytest.approx(0.1)  # from 300 to 400: the copy as well


def test_notify_is_waiting_and_dispatch_may_be():
    exchange = [
        collective(0, 200, does="barrier", name="void deep_ep::intranode::notify_dispatch<8>(int const*)"),
        collective(200, 250, does="all_to_all", name="void deep_ep::intranode::dispatch<8>(int4*)"),
        kernel(250, 400),
        collective(400, 500, does="all_to_all", name="void deep_ep::intranode::dispatch<8>(int4*)"),
    ]
    values = metrics_of(trace(exchange))
    assert values["expert_wait_ms"] == pytest.approx(0.2)
    assert values["expert_transfer_ms"] == pytest.approx(0.15)
    assert values["expert_wait_most_ms"] == pytest.approx(0.25)  # the second took 50 us longer


def test_other_collectives_are_no_exchange_of_experts():
    values = metrics_of(trace([collective(0, 200, name="ncclDevKernel_AllToAll")], op="all_to_all"))
    assert {values[f"expert_{what}_ms"] for what in ("transfer", "wait", "wait_most")} == {0.0}
