"""The verdict: the sentence above everything else."""

import shutil
from pathlib import Path

import pytest

from advisor.engine import check
from advisor.options import Options
from tests.render_samples import changed
from tests.render_samples import saving as won
from tests.strategies_kineto import call, kernel, op, text

pytestmark = pytest.mark.usefixtures("measured_once")
HEALTHY = str(Path(__file__).parents[3] / "fixtures" / "simulated-healthy-a100")


def test_no_findings_say_how_many_rules_looked_and_why_the_others_could_not():
    run = check([HEALTHY]).runs[0]

    assert run.findings == ()
    assert run.outcome.model_dump(include={"code", "judged", "not_evaluable", "reason_rules"}) == {
        "code": "nothing",
        "judged": len(run.passed),
        "not_evaluable": 4,
        "reason_rules": 2,
    }
    rest = "faster kernels, padding, repeated work and another algorithm."
    busy = f"the GPU is busy 99.2 % of each step. Not checked: {rest}"
    assert run.verdict == f"No problem found by 78 rules: {busy}"


def test_a_remark_on_the_recording_is_no_verdict_on_the_job():
    run = check([HEALTHY], Options(steps="5:7")).runs[0]

    assert [finding.rule for finding in run.findings] == ["too-few-steps"]
    assert run.outcome.code == "minor"
    assert run.verdict.startswith("Nothing to fix: the GPU is busy 99.2 % of each step")
    assert run.actions == ()
    assert run.trust == "medium"
    (remark,) = run.findings
    saves = {"of_recording": False, "saving": won(10, 20, "input", "")}
    assert run.model_copy(update={"findings": (changed(remark, **saves),)}).outcome.code == "finding"


def test_the_environment_is_what_the_job_ran_on_and_how_it_was_recorded(tmp_path: Path):
    for file in (Path(HEALTHY).parent / "simulated-ranks-healthy-a100").glob("rank[01].*"):
        shutil.copy(file, tmp_path)
    (run,) = check([str(tmp_path)]).runs
    told = run.source.environment
    assert told["hardware"].startswith(f"{len(run.source.devices)} \N{MULTIPLICATION SIGN} NVIDIA A100")
    assert "multiprocessors, capability 8" in told["hardware"]
    assert told["communication"] == "nccl"
    assert told["profiler"] == "Kineto schema 1"


def test_what_lies_before_the_first_recorded_op_is_noted_where_it_counts_in_no_step(tmp_path: Path):
    for launched_us, noted in ((10, True), (1900, False)):
        trace = tmp_path / f"{launched_us}.pt.trace.json"
        trace.write_bytes(text(op(0, 3000), call(launched_us, 5, 1), kernel(2000, 900, 1)))
        notes = [note.words for note in check([str(trace)]).runs[0].source.notes]
        told = (
            "the recording began 2 ms earlier: that time is left out, because the GPU was busy with work that was not "
            "recorded"
        )
        assert (told in notes) == noted


def test_a_report_has_so_many_steps_of_each_device(monkeypatch: pytest.MonkeyPatch):
    ranks = str(Path(HEALTHY).parent / "simulated-two-devices")
    every = check([ranks]).runs[0].metrics["step"]
    monkeypatch.setattr("advisor.runs.summary._MOST_STEPS", 2)
    few = check([ranks]).runs[0].metrics["step"]
    assert few == tuple(row for row in every if row["step"] in sorted({of["step"] for of in every})[:2])
    assert 0 < len(few) < len(every)
