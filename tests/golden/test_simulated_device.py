"""What is computed: simulated and recorded jobs whose fault is known, and what its repair saves."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.inputs.readers import kineto
from advisor.metrics import measure
from advisor.model.finding import Finding
from advisor.model.profile import Profile
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from tests import profiles
from tests.effort import every, soak

ROOT = Path(__file__).parents[2]
RULES = (
    *("amp-unused", "tf32-off", "misaligned-matmul", "unfused-attention", "elementwise-chains", "layout-transposes"),
    *("optimizer-not-fused", "copy-not-overlapped", "few-blocks", "tail-wave", "low-occupancy"),
)
JOBS = [
    ("amp-unused", "v100", 3, "amp-unused"),
    ("tf32-off", "a100", 4, "tf32-off"),
    ("tf32-off", "h100", 5, "tf32-off"),
    ("optimizer-not-fused", "a100", 6, "optimizer-not-fused"),
    ("unfused-attention", "h100", 7, "unfused-attention"),
    ("layout-transposes", "v100", 8, "layout-transposes"),
    ("elementwise-chains", "a100", 9, "elementwise-chains"),
    ("copy-not-overlapped", "h100", 10, "copy-not-overlapped"),
]


@cache
def simulated(fault: str, gpu: str, seed: int) -> tuple[dict[str, Finding], float, float]:
    """The group's findings by rule, what the repair saves in ms, and the step in ms."""
    made = profiles.case(fault, gpu, seed)
    found = judged(kineto.read(io.BytesIO(made.faulty.kineto()), fault))
    return found, made.saved_ms, made.faulty.step_ms


def judged(profile: Profile) -> dict[str, Finding]:
    rules = {rule: profiles.book()[rule] for rule in RULES}
    findings = judge(measured_run(measure(select_steps(profile), selected(rules.values()))), rules, {}).findings
    return {finding.rule: finding for finding in findings}


@pytest.mark.parametrize(("fault", "gpu", "seed", "rule"), every(4, JOBS))
def test_the_fault_comes_first_and_its_saving_holds_the_truth(fault: str, gpu: str, seed: int, rule: str):
    findings, saved_ms, step_ms = simulated(fault, gpu, seed)
    assert next(iter(findings)) == rule
    saving = findings[rule].saving
    assert saving
    assert saving.low_ms - 0.01 * step_ms <= saved_ms <= saving.high_ms + 0.01 * step_ms
    assert saving.high_ms - saving.low_ms <= 0.2 * step_ms


@pytest.mark.parametrize(
    ("fault", "gpu"),
    soak([("none", "v100"), ("none", "h100"), ("logged-loss", "a100")], unless=("none", "v100").__eq__),
)
def test_a_healthy_job_raises_nothing(fault: str, gpu: str):
    assert simulated(fault, gpu, 11)[0] == {}


def test_a_batch_too_small_for_the_device_is_named_without_a_saving():
    findings, _, _ = simulated("few-blocks", "a100", 12)
    assert list(findings) == ["few-blocks"]
    assert findings["few-blocks"].saving is None


@pytest.mark.parametrize(
    ("fixture", "fires"),
    soak(
        [
            ("torch-cpu-elementwise-chains", ["elementwise-chains"]),
            ("torch-cpu-unfused-attention", ["unfused-attention"]),
            ("torch-cpu-for-loop-optimizer", ["optimizer-not-fused"]),
            ("torch-cpu-none", []),
            ("torch-cpu-zero-workers", []),
        ],
        unless=lambda job: job[0] in {"torch-cpu-elementwise-chains", "torch-cpu-none"},
    ),
)
def test_what_a_cpu_computes_is_judged_by_its_ops(fixture: str, fires: list[str]):
    assert list(judged(profiles.read(profiles.ROOT / "fixtures" / fixture))) == fires
