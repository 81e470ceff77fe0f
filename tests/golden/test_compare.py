"""`advisor compare` on real recordings: verdicts that were worked out from the step times by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import check, compare
from advisor.errors import NoRuns, ReadError, UsageError
from advisor.model.comparison import Comparison, FailOn
from advisor.model.report import Report
from advisor.options import Options
from advisor.render import json
from advisor.render.json import read_as
from tests import profiles

TRACES = Path(__file__).parents[2].parent / "shared/traces/kineto"
FIXTURES = Path(__file__).parents[2] / "fixtures"
WORKERS0, WORKERS4 = (str(TRACES / f"resnet50-v100-workers{n}") for n in (0, 4))
HEALTHY, WAITING = (str(FIXTURES / f"simulated-{name}") for name in ("healthy-a100", "input-bound-v100"))

real = pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")


def statuses(found: Comparison) -> dict[str, str]:
    return {change.key: change.status for change in found.findings}


@real
def test_more_loader_workers_make_the_job_faster_because_of_its_input():
    found = profiles.compare(WORKERS0, WORKERS4)
    assert found.verdict == "faster"
    assert found.base.mean_ms == pytest.approx(175.6, abs=0.05)
    assert found.head.mean_ms == pytest.approx(140.98, abs=0.05)
    assert found.base.median_ms == pytest.approx(175.65, abs=0.05)
    assert found.head.median_ms == pytest.approx(126.7, abs=0.05)
    assert (found.base.steps, found.head.steps) == (6, 6)
    assert found.change is not None
    assert found.change.p == pytest.approx(0.041, abs=0.0005)
    assert found.cause is not None
    assert found.cause.part == "input"
    assert statuses(found)["input-bound"] == statuses(found)["single-process-data-loader"] == "gone"
    assert found.exit_code(strict=True) == 0
    assert any(w.name == "aten::div" and w.status == "vanished" for w in found.work)


@real
def test_fewer_make_it_slower_and_the_check_fails():
    found = profiles.compare(WORKERS4, WORKERS0)
    assert (found.verdict, found.exit_code()) == ("slower", 1)
    assert found.exit_code(FailOn(slower=0.5)) == 0
    assert statuses(found)["input-bound"] == "new"


@real
@pytest.mark.parametrize("job", ["resnet50-v100-workers0", "resnet50-v100-workers4", "ddp-a100-6steps"])
def test_a_run_against_itself_is_the_same(job: str):
    found = profiles.compare(TRACES / job, TRACES / job)
    assert (found.verdict, found.work) == ("same", ())
    assert set(statuses(found).values()) == {"same"}


@real
@pytest.mark.soak  # few steps are in tests/unit/comparing
def test_two_steps_a_side_are_too_few():
    found = profiles.compare(WORKERS0, WORKERS4, steps="9:11")
    assert (found.verdict, found.obstacle, found.exit_code(strict=True)) == ("inconclusive", "few-steps", 4)


@real
def test_other_hardware_is_explained_and_not_judged():
    found = profiles.compare(TRACES / "ddp-a100-6steps", WORKERS0)
    assert (found.verdict, found.obstacle, found.cause) == ("inconclusive", "hardware", None)
    assert found.breakdown
    assert found.work
    assert found.findings


@real
@pytest.mark.parametrize("broken", [pytest.param("", marks=pytest.mark.soak), "truncated-60pct.pt.trace.json.gz"])
def test_a_malformed_side_never_passes(broken: str):
    malformed = str(TRACES.parent / "malformed" / broken)
    assert profiles.compare(malformed, malformed).exit_code() == profiles.compare(WORKERS0, malformed).exit_code() == 3


@pytest.mark.soak  # by hand it is in tests/unit/rules/test_nsys_to_rules.py
@real
def test_named_ranges_are_steps_where_the_profile_marks_none(tmp_path: Path):
    recording = str(TRACES.parent / "nsys" / "llm-2.7b-a100-nvtx.sqlite")
    unmarked = profiles.compare(recording, recording)
    assert (unmarked.obstacle, "--step-range" in unmarked.reason.words) == ("no-steps", True)
    named = profiles.compare(recording, recording, step_range="scaled dot product attention")
    assert (named.verdict, named.base.steps > 10) == ("same", True)
    report = tmp_path / "base.json"
    report.write_text(json.render(profiles.check(WORKERS0)))
    with pytest.raises(UsageError, match=r"--step-range x: .*base\.json is a saved report"):
        compare([str(report)], [recording], Options(step_range="x"))


@real
def test_a_saved_report_stands_for_its_profile(tmp_path: Path):
    report = tmp_path / "base.json"
    report.write_text(json.render(profiles.check(WORKERS0)))
    saved, checked = compare([str(report)], [WORKERS4]), profiles.compare(WORKERS0, WORKERS4)
    assert saved.base.paths == (str(report),)
    assert saved.model_copy(update={"base": checked.base}) == checked


@real
def test_several_runs_make_one_side(tmp_path: Path):
    second = tmp_path / "second.json"
    second.write_text(json.render(profiles.check(WORKERS4)))
    found = compare([WORKERS4, str(second)], [WORKERS0])
    assert (len(found.base.series), found.base.steps, found.head.steps) == (2, 12, 6)
    assert found.verdict == "slower"


def test_a_baseline_marks_new_findings(tmp_path: Path):
    before = tmp_path / "before.json"
    before.write_text(json.render(profiles.check(HEALTHY)))
    (run,) = check([WAITING], Options(baseline=str(before))).runs
    assert run.findings
    assert all(finding.new for finding in run.findings)
    before.write_text(json.render(profiles.check(WAITING)))
    (run,) = check([WAITING], Options(baseline=str(before))).runs
    assert not any(finding.new for finding in run.findings)


def test_what_is_no_report_or_profile_is_refused(tmp_path: Path):
    broken = tmp_path / "report.json"
    broken.write_text('{"advisor_version": "1", "runs": 3}')
    with pytest.raises(ReadError, match="is no report"):
        compare([str(broken)], [WAITING])
    with pytest.raises(ReadError, match="is no report"):
        read_as(Report, str(broken))
    broken.write_text("hello")
    with pytest.raises(NoRuns):
        compare([WAITING], [str(broken)])


def test_a_saved_comparison_is_told_from_a_report(tmp_path: Path):
    path = tmp_path / "comparison.json"
    path.write_text(json.render(profiles.compare(HEALTHY, WAITING)))
    with pytest.raises(ReadError, match=r"comparison\.json: is a saved comparison, not a report"):
        compare([str(path)], [WAITING])


def test_a_path_given_twice_is_said_to_count_once():
    found = compare([HEALTHY, HEALTHY], [WAITING])
    assert len(found.base.series) == 1
    assert f"given 2 times for the runs before the change, counted once: {HEALTHY}" in [
        note.words for note in found.notes
    ]
