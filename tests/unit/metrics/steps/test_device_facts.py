from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from tests.tables import V100, Row, kernel, metrics_of, on_device, on_host, profile, step, values_of, view


def facts(*devices: Row) -> tuple[object, object]:
    found = metrics_of(view(profile([kernel(0, 1)], devices=devices)))
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
    made = view(profile(ops, steps=[step(1, 0, 10, device=2)], devices=visible))
    told = {
        "devices_visible": 4,
        "devices_used": 2,
        "devices_idle": 2,
        "devices_working": "2",
        "devices_unused": "0\N{EN DASH}1",
    }
    told["visible_devices"] = V100["name"]
    assert values_of(told, made) == told


def test_devices_without_a_name_are_visible_too():
    """As in a viewer's copy of a TensorFlow profile, whose processes are the devices, with events or without."""
    seen = view(
        profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)], devices=({"device": 0}, {"device": 1}))
    )
    assert metrics_of(seen)["visible_devices"] == "a device without a name"


def test_memory_of_a_device_shows_that_it_worked():
    """Two blocks taken there and one given back, and one of the host."""
    moves = [(0, 512), (0, 256), (0, -512), (None, 64)]
    blocks = [{"worker": 0, "device": device, "at_ns": 0, "bytes": size} for device, size in moves]
    made = profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)], devices=(), allocations=blocks)
    assert values_of(("gpu_blocks", "devices_used"), view(made)) == {"gpu_blocks": 2, "devices_used": 0}


@pytest.mark.parametrize(
    ("ops", "devices_of_blocks", "proven"),
    [
        (["aten::mkldnn_convolution"], [], 1),  # of oneDNN
        (["aten::mkldnn_convolution"], [None, 0], 0),
        (["aten::addmm"], [], 0),  # which both run
        (["aten::addmm"], [None], 1),
        (["aten::addmm", "aten::_foreach_add_"], [None], 0),  # which only a GPU runs by itself
        (["MatMul"], [None], 0),  # of TensorFlow, whose devices need not report their memory
    ],
)
def test_ops_and_their_memory_prove_that_a_program_ran_on_the_cpu(ops, devices_of_blocks, proven):
    blocks = [{"worker": 0, "device": device, "at_ns": 0, "bytes": 64} for device in devices_of_blocks]
    made = profile(
        [],
        [on_host("op", 0, 1, name=name) for name in ops],
        [step(1, 0, 9, device=None)],
        devices=(),
        allocations=blocks,
    )
    assert values_of(("ran_on_cpu",), view(made)) == {"ran_on_cpu": proven}


def test_devices_are_counted():
    device = [kernel(0, 10, 0), kernel(0, 10, 0, device=1)]
    first = view(profile(device, steps=[step(1, 0, 100)]))
    assert metrics_of(first)["devices_used"] == 2


def test_a_worker_without_a_device_uses_none():
    assert metrics_of(view(profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)])))["devices_used"] == 0


def test_without_a_step_the_devices_used_are_known_and_not_which_idle():
    trace = view(profile([kernel(5, 25)], steps=[step(1, 0, 125, incomplete="cut")]))
    assert values_of(("devices_used", "devices_idle"), trace) == {"devices_used": 1, "devices_idle": None}
