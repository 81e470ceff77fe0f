from __future__ import annotations

import pytest

from advisor.analysis.device.workload import marks, phases, work
from advisor.metrics.steps.breakdown import of_engine
from tests.tables import Row, kernel, on_device, on_host, profile, step, view

# us     0         100        200        300
# host   |EXTEND---|  |DECODE-|  |DECODE-|         0-90, 100-180, 200-280
# device   |=======|      |==|       |==|          20-100, 150-170, 250-290
HOST = [
    on_host("annotation", 0, 90, name="step[EXTEND bs=2 toks=600]"),
    on_host("annotation", 100, 180, name="step[DECODE bs=4]"),
    on_host("annotation", 200, 280, name="step[DECODE bs=6]"),
]
DEVICE = [kernel(20, 60, 10), kernel(60, 100, 15), kernel(150, 170, 140), kernel(250, 290, 240)]


def by_phase(device: list[Row], host: list[Row]) -> dict[str, Row]:
    return {row["phase"]: row for row in phases(view(profile(device, host))).to_dicts()}


def test_each_phase_has_its_own_numbers():
    table = by_phase(DEVICE, HOST)
    prefill, decode = table["prefill"], table["decode"]
    assert (prefill["steps"], prefill["requests"], prefill["tokens"]) == (1, 2, 600)
    assert (decode["steps"], decode["requests"], decode["tokens"]) == (2, 5, 5)
    # on the device from first op to first op: 20-150, 150-250 and 250-290
    assert prefill["step_ms"] == pytest.approx(0.130)
    assert prefill["idle_share"] == pytest.approx(50 / 130)
    assert decode["step_ms"] == pytest.approx((100 + 40) / 2 / 1000)
    assert decode["idle_share"] == pytest.approx(80 / 140)
    # on the host from mark to mark: 0-100 with 2 calls of 1 us; 100-200 and 200-280 with one each
    assert prefill["launch_share"] == pytest.approx(0.02)
    assert decode["launch_share"] == pytest.approx(2 / 180)
    assert (prefill["kernels"], decode["kernels"]) == (2, 1)
    assert (prefill["graph_launches"], decode["communication_share"]) == (0, 0)


def test_the_host_causes_a_part_of_the_idle_time():
    # the kernels at 150 and 250 were launched at 140 and 240: until then the host is late
    table = of_engine(view(profile(DEVICE, HOST)))
    shares = dict(table.select("phase", "host_share").rows())
    assert shares["prefill"] == pytest.approx(50 / 130)
    assert shares["decode"] == pytest.approx(80 / 140)


def test_only_the_steps_that_are_used_count():
    used = [step(0, 0, 140), step(1, 140, 240)]
    table = phases(view(profile(DEVICE, HOST, used)))
    assert dict(table.select("phase", "steps").rows()) == {"prefill": 1, "decode": 1}


def test_jax_names_its_jitted_functions_after_phases():
    host = [on_host("op", 0, 90, name="PjitFunction(prefill)"), on_host("op", 100, 180, name="PjitFunction(generate)")]
    assert phases(view(profile(DEVICE[:3], host)))["phase"].sort().to_list() == ["decode", "prefill"]


def test_launches_of_graphs_and_communication_are_counted():
    graphs = [op | {"call": op["call"] | {"name": "cudaGraphLaunch"}} for op in DEVICE[2:]]
    table = by_phase([*DEVICE[:2], *graphs, on_device("collective", 260, 280, 245)], HOST)
    assert (table["prefill"]["graph_launches"], table["decode"]["graph_launches"]) == (0, 1)
    assert table["decode"]["communication_share"] == pytest.approx(20 / 60)


def test_marks_within_marks_and_on_other_threads_count_once():
    inner = on_host("annotation", 10, 80, name="execute_context_2(600)_generation_0(0)")
    beside = on_host("annotation", 0, 85, name="step[EXTEND bs=2 toks=600]", thread=9)
    assert marks(view(profile(DEVICE, [*HOST, inner, beside]))).height == 3


def test_without_marks_no_work_is_the_engine_s():
    assert work(view(profile(DEVICE))).height == 0


def test_without_marks_there_are_no_phases():
    assert by_phase(DEVICE, [on_host("annotation", 0, 90, name="step 1")]) == {}
    assert by_phase([], HOST) == {}
