"""A few of the cases that `make fuzz` runs by the thousand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from tests.effort import every
from tests.fuzz.__main__ import TARGETS, checked, fault
from tests.strategies_kineto import LAUNCH, text


@pytest.mark.parametrize(
    ("name", "number"),
    every(9, [(name, number) for name in TARGETS for number in range(3)]),
)
def test_a_changed_file_is_checked_or_refused(name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    target = import_module(f"tests.fuzz.{name}")
    path = target.case(Random(f"{name}-{number}"), tmp_path)
    assert not fault(checked(path, *([target.check] if hasattr(target, "check") else [])))


def test_a_contained_bug_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ValueError

    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    monkeypatch.setattr("advisor.runs.files.select_steps", fail)
    path = tmp_path / "a.json"
    path.write_bytes(text(*LAUNCH))
    assert "ValueError" in fault(checked(path))["fault"]


def test_what_a_check_of_its_own_raises_is_a_fault(tmp_path: Path):
    def check(_: Path) -> None:
        raise TimeoutError

    assert "TimeoutError" in fault(checked(tmp_path, check))["fault"]


def test_the_same_number_is_the_same_file(tmp_path: Path):
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        made.append(import_module("tests.fuzz.xplane").case(Random("7"), folder).read_bytes())
    assert made[0] == made[1]
