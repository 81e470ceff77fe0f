"""What the host does: simulated jobs whose fault is known, and what its repair saves."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.inputs.readers import kineto
from advisor.metrics import measure
from advisor.model.finding import Finding
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from tests import profiles
from tests.effort import soak

ROOT = Path(__file__).parents[2]
RULES = (
    *("input-bound", "single-process-data-loader", "launch-bound", "small-kernels", "python-bound"),
    *("host-op-placement", "host-stalls", "allocator-churn", "memory-fragmentation", "step-outliers"),
    *("compile-in-steady-steps", "dataparallel-instead-of-ddp", "debug-overhead", "host-line"),
    *("profiler-overhead", "frequent-synchronisation", "low-gpu-utilisation"),
)
JOBS = [
    ("input-bound", "v100", 11, "single-process-data-loader"),
    ("slow-workers", "a100", 12, "input-bound"),
    ("launch-bound", "h100", 13, "small-kernels"),
    ("python-bound", "a100", 14, "python-bound"),
    ("frequent-synchronisation", "h100", 15, "frequent-synchronisation"),
    ("allocator-churn", "v100", 16, "allocator-churn"),
    ("checkpoint-stall", "a100", 17, "step-outliers"),
    ("step-outliers", "h100", 18, "step-outliers"),
    ("compile-in-steady-steps", "v100", 19, "compile-in-steady-steps"),
]
AGAIN = {"input-bound", "launch-bound", "checkpoint-stall"}  # other tests ask for these


def is_quick(job: tuple[object, ...]) -> bool:
    return job[0] in AGAIN


@cache
def simulated(fault: str, gpu: str, seed: int) -> tuple[list[Finding], float]:
    """The group's findings, and what the repair saves in ms."""
    made = profiles.case(fault, gpu, seed)
    rules = {rule: profiles.book()[rule] for rule in RULES}
    found = measure(select_steps(kineto.read(io.BytesIO(made.faulty.kineto()), fault)), selected(rules.values()))
    return list(judge(measured_run(found), rules, {}).findings), made.saved_ms


@pytest.mark.parametrize(("fault", "gpu", "seed", "rule"), soak(JOBS, unless=is_quick))
def test_the_fault_comes_first_and_its_saving_holds_the_truth(fault, gpu, seed, rule):
    (first, *_), saved_ms = simulated(fault, gpu, seed)
    assert first.rule == rule
    assert first.saving is not None
    assert first.saving.low_ms <= saved_ms <= first.saving.high_ms


@pytest.mark.parametrize(("fault", "gpu", "seed", "symptoms"), soak([
    ("input-bound", "v100", 11, {"input-bound"}),
    ("launch-bound", "h100", 13, {"launch-bound", "low-gpu-utilisation"}),
    ("python-bound", "a100", 14, {"launch-bound"}),
], unless=is_quick))  # fmt: skip
def test_the_cause_is_shown_with_what_it_accounts_for(fault, gpu, seed, symptoms):
    (first, *_), _ = simulated(fault, gpu, seed)
    assert symptoms <= {symptom.rule for symptom in first.symptoms}


@pytest.mark.parametrize(
    ("fault", "gpu", "seed", "words"),
    soak(
        [
            ("checkpoint-stall", "a100", 17, "saving a checkpoint"),
            ("step-outliers", "h100", 18, "work or waits that were not recorded"),
        ],
        unless=is_quick,
    ),
)
def test_a_long_step_s_cause_is_named(fault, gpu, seed, words):
    (first, *_), _ = simulated(fault, gpu, seed)
    assert words in first.says


@pytest.mark.parametrize(
    ("fault", "gpu"),
    soak([("none", "v100"), ("none", "h100"), ("logged-loss", "a100")], unless=("logged-loss", "a100").__eq__),
)
def test_a_healthy_job_raises_nothing_above_low(fault, gpu):
    findings, _ = simulated(fault, gpu, 5)
    assert {finding.severity for finding in findings} <= {"low"}
