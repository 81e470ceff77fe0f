"""Recorded profiles and simulated jobs, each read, measured, checked or simulated once in a process.

What comes back is shared between tests: change nothing in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advisor import engine
from advisor.analysis.device.view import DeviceView
from advisor.inputs.discover import discover
from advisor.metrics import Measurements
from advisor.model.comparison import Comparison
from advisor.model.profile import Profile
from advisor.model.report import Report
from advisor.options import Options
from advisor.rules.rule_file import Rule, load, selected
from advisor.system.resources import rules_folder
from tests.tables import told

if TYPE_CHECKING:
    from simulator import Case

ROOT = Path(__file__).parents[1]
# recordings that many golden tests check: others are left to `make soak` where one test goes through them all
COMMON = {
    *("jax-cpu-none", "simulated-healthy-a100", "simulated-input-bound-v100", "simulated-ranks-slow-rank-a100"),
    *("simulated-sync-a100", "simulated-two-devices", "tensorflow-cpu-none", "torch-cpu-tiny-kernels"),
    *("nccl-metadata-a100", "qwen-h100", "resnet50-v100-workers0", "vllm-eager-b200"),
    *("cloverleaf-a100-schema3.13.sqlite", "two-gpu-before.sqlite"),
    *("te-attention-mi355", "tf-gpu-multi-worker"),
}


def is_common(name: str | Path) -> bool:
    """Whether many tests check the recording of this name or path, which is then read and measured once for all."""
    last = str(name).rpartition("/")[2]
    return last in COMMON or f"{last}.sqlite" in COMMON


def read(path: str | Path) -> Profile:
    """The profile of a file or folder."""
    return _read(str(path))


@cache
def measured(path: str | Path, steps: str = "steady") -> Measurements:
    """All metrics of a recording, as a check has them."""
    (recording,), _ = discover([str(path)])
    options = Options(steps=steps)
    jobs, _ = engine.measured(recording, options, selected(engine.rule_book(options.config).values()))
    return jobs[0][1]


def check(*paths: str | Path, steps: str = "steady", step_range: str | None = None, all_runs: bool = False) -> Report:
    """The report of these paths by the shipped rules."""
    return _check(tuple(map(str, paths)), steps, step_range, all_runs)


@cache
def compare(base: str | Path, head: str | Path, **options: str) -> Comparison:
    """The comparison of two paths, each of which is checked once; with these options."""

    def side(paths: Sequence[str], options: Options) -> Report:
        return check(*paths, steps=options.steps, step_range=options.step_range)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "check", side)
        return engine.compare([str(base)], [str(head)], Options(**options))


@cache
def book() -> dict[str, Rule]:
    """The shipped rules."""
    return load([rules_folder()])


class _OfRule(dict[str, Any]):
    def __init__(self, rule: str, view: DeviceView) -> None:
        self.selected, self.view = book()[rule].selected, view

    def __missing__(self, name: str) -> Any:
        return told(self.selected[name].value(self.view))


def of_rule(rule: str, view: DeviceView) -> Mapping[str, Any]:
    """The metrics of a shipped rule's selections, by the names that they have in the rule."""
    return _OfRule(rule, view)


@cache
def case(name: str, gpu: str = "a100", seed: int = 0, steps: int = 8, ranks: int = 8) -> Case:
    """A simulated job with a fault, and its repair."""
    folder = str(ROOT / "fixtures" / "make")
    if folder not in sys.path:
        sys.path.append(folder)
    from simulator import case as simulated  # noqa: PLC0415 - the scripts of fixtures/ are no package

    return simulated(name, gpu, seed, steps, ranks)


@cache
def _read(path: str) -> Profile:
    return engine.read(path)


_engine_check = engine.check


@cache
def _check(paths: tuple[str, ...], steps: str, step_range: str | None, all_runs: bool) -> Report:  # noqa: FBT001
    return _engine_check(paths, Options(steps=steps, step_range=step_range, all_runs=all_runs))
