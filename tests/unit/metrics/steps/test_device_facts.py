from __future__ import annotations

import pytest

from advisor.metrics.steps import device_facts
from advisor.metrics.steps.device_facts import data_parallel, device, devices
from advisor.model.missing import Missing
from tests.tables import V100, Row, by_name, kernel, on_device, on_host, profile, step, view

device = by_name(device)


def facts(*devices: Row) -> tuple[object, object]:
    found = device(view(profile([kernel(0, 1)], devices=devices)))
    return found["device_name"], found["capability"]


def test_name_and_capability_are_as_recorded():
    assert facts(V100) == ("Tesla V100-SXM2-16GB", 7.0)
    assert facts({"device": 0, "name": "Something New", "capability": 13.5}) == ("Something New", 13.5)


def test_a_device_without_a_name_bears_the_model_its_figures_tell():
    assert facts(V100 | {"name": ""})[0] == "V100"


@pytest.mark.parametrize(
    "devices", [(), ({"device": 1} | V100 | {"device": 1},), (V100 | {"name": None, "sm_count": None},)]
)
def test_a_device_that_is_not_described_has_no_name(devices: tuple[Row, ...]):
    assert isinstance(facts(*devices)[0], Missing)


def test_devices_that_are_visible_and_used():
    visible = [V100 | {"device": i} for i in range(4)]
    ops = [kernel(0, 1, device=2), on_device("memcpy", 0, 1, device=3)]
    values = devices(view(profile(ops, steps=[step(1, 0, 10, device=2)], devices=visible)))
    assert values == {
        device_facts.DEVICES_VISIBLE: 4,
        device_facts.DEVICES_USED: 2,
        device_facts.DEVICES_IDLE: 2,
        device_facts.DEVICES_WORKING: "2",
        device_facts.VISIBLE_NAMES: V100["name"],
    }


def test_devices_and_data_parallel_passes_are_counted():
    host = [on_host("annotation", 10, 90, name="DataParallel.forward"), on_host("annotation", 5, 9, name="forward")]
    device = [kernel(0, 10, 0), kernel(0, 10, 0, device=1)]
    trace = profile(device, host, [step(1, 0, 100), step(2, 100, 200)])
    first = view(profile(device, host, [step(1, 0, 100)]))
    assert devices(first)[device_facts.DEVICES_USED] == 2
    assert data_parallel(first) == {device_facts.DATA_PARALLEL_CALLS_PER_STEP: 1}
    assert data_parallel(view(trace))[device_facts.DATA_PARALLEL_CALLS_PER_STEP] == 0.5


def test_a_worker_without_a_device_uses_none():
    assert (
        devices(view(profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)])))[device_facts.DEVICES_USED] == 0
    )


def test_without_a_step_nothing_is_known_of_devices():
    trace = view(profile([kernel(5, 25)], steps=[step(1, 0, 125, incomplete="cut")]))
    assert devices(trace) == data_parallel(trace) == {}
