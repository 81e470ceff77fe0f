"""The verdict: the sentence above everything else."""

from pathlib import Path

from advisor.engine import check

HEALTHY = str(Path(__file__).parents[2] / "fixtures" / "simulated-healthy-a100")


def test_no_findings_say_how_many_rules_looked_and_why_the_others_could_not():
    run = check([HEALTHY]).runs[0]

    assert run.findings == ()
    assert run.verdict.startswith(
        f"Nothing found by the {len(run.passed)} rules that could be judged; 1 more could not"
    )
    assert " because no Python calls were recorded" in run.verdict


def test_a_remark_on_the_recording_is_no_verdict_on_the_job():
    run = check([HEALTHY], steps="5:7").runs[0]

    assert [finding.rule for finding in run.findings] == ["too-few-steps"]
    assert run.verdict.startswith(f"No gain found by the {len(run.passed) + 1} rules that could be judged")
