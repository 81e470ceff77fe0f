"""The page of case studies says what the advisor says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.text import interval, ms
from tests import profiles
from tests.effort import soak

ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared/traces/kineto"
ROWS = (
    *("resnet50-v100-workers0", "resnet50-v100-workers4", "qwen-h100", "bert-small-h100", "vllm-eager-b200"),
    *("memory-events-nccl", "nccl-metadata-a100", "ddp-a100-6steps", "dlrm-8rank-v100", "cpu-only"),
)
QUICK = {"resnet50-v100-workers0", "qwen-h100"}

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "case-studies.md").read_text("utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]


def test_every_trace_of_the_page_is_held_against_it():
    assert len(rows()) == len(ROWS)


@pytest.mark.parametrize(("row", "trace"), soak(enumerate(ROWS), unless=lambda row: row[1] in QUICK))
def test_steps_and_savings_of_the_page_are_todays(row: int, trace: str):
    run = profiles.check(TRACES / trace).runs[0]
    name, _, advisor = rows()[row]
    steps = run.source.steps
    assert ms(steps.step_mean_ms) in name
    assert steps.used == steps.count or f"{steps.used} of {steps.count} steps" in name
    claims = [f.saving for f in run.findings if f.saving]
    savings = [interval(x.low_ms, x.high_ms).replace("\N{EN DASH}", "-").removesuffix(" ms") for x in claims]
    last = 0
    for saving in savings:  # in the advisor's own order
        assert saving in advisor[last:], f"{saving} of {savings}"
        last = advisor.index(saving, last)
