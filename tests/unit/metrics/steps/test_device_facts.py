from __future__ import annotations

import pytest

from advisor.metrics.steps.device_facts import device
from advisor.model.missing import Missing
from tests.tables import V100, Row, by_name, kernel, profile, view

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
