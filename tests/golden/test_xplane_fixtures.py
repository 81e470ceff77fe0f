"""Recorded loops of TensorFlow and JAX whose fault is known: what must fire, what must not, what the repair saves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.model.finding import Finding
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from tests import profiles
from tests.effort import soak

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = sorted(path.parent.name for kind in ("tensorflow", "jax") for path in FIXTURES.glob(f"{kind}-cpu-*/case.yaml"))
SLOW = ("tensorflow-cpu-serial-map", "tensorflow-cpu-generator", "jax-cpu-slow-loader")
QUICK = {"jax-cpu-slow-loader", "jax-cpu-none", "tensorflow-cpu-none", "tensorflow-cpu-retrace"}


def facts(name: str) -> Any:
    return yaml.safe_load((FIXTURES / name / "case.yaml").read_text())


@cache
def findings(name: str) -> tuple[Finding, ...]:
    return judge(measured_run(profiles.measured(FIXTURES / name)), profiles.book(), {}).findings


def test_there_are_fixtures():
    assert len(CASES) == 8


@pytest.mark.parametrize("name", soak(CASES, unless=QUICK.__contains__))
def test_the_fault_is_found_and_nothing_that_is_not_there(name: str):
    told, found = facts(name), findings(name)
    fired = {one.rule for f in found for one in (f, *f.symptoms)}
    assert set(told["must_fire"]) <= fired
    assert not set(told["must_not_fire"]) & fired


@pytest.mark.parametrize("name", soak(SLOW, unless=QUICK.__contains__))
def test_the_saving_holds_the_truth(name: str):
    saving = findings(name)[0].saving
    assert saving is not None
    assert saving.low_ms <= facts(name)["truth"]["saved_ms"] <= saving.high_ms
