"""The brief of every fixture: its first fix has the snippet, and its `next` is a command that runs as it stands."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

from advisor.render.brief import render
from tests import profiles
from tests.command import advisor
from tests.effort import soak

FIXTURES = sorted(path.parent.name for path in (profiles.ROOT / "fixtures").glob("*/case.yaml"))


def jobs(report):
    return json.loads(render(report))["runs"]


def run(command, folder):
    """What a shell does with the command in this folder."""
    name, *words = shlex.split(command)
    assert name == "advisor"
    return advisor(*words, cwd=folder)


@pytest.mark.parametrize("fixture", soak(FIXTURES, unless=profiles.is_common))
def test_the_first_finding_has_the_snippet_of_its_fix(fixture):
    report = profiles.check(profiles.ROOT / "fixtures" / fixture)
    for run, job in zip(report.runs, jobs(report), strict=True):
        for finding, known in zip(run.findings[:1], job.get("findings", []), strict=False):
            fixes = finding.fixes_for(run.source.framework)
            assert known["fix"].get("code") == (fixes[0].code.strip() if fixes[0].code else None)


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize(
    "fixture", soak(FIXTURES, unless={"jax-cpu-none", "simulated-ranks-slow-rank-a100"}.__contains__)
)
def test_the_next_command_runs(fixture, tmp_path):
    path = profiles.ROOT / "fixtures" / fixture
    for job in jobs(profiles.check(path)):
        done = run(job["next"], tmp_path)
        assert done.returncode == 0, (job["next"], done.stderr)
        assert done.stdout


@pytest.mark.usefixtures("measured_once")
def test_the_next_command_leads_to_one_of_two_jobs_in_a_folder(tmp_path):
    for name in ("healthy", "slow-rank"):
        source = next((profiles.ROOT / f"fixtures/simulated-ranks-{name}-a100").glob("rank0.*"))
        shutil.copy(source, tmp_path / f"{name}.pt.trace.json.gz")
    both = jobs(profiles.check(tmp_path))
    assert len({job["path"] for job in both}) < len(both)
    assert [run(job["next"], tmp_path).returncode for job in both] == [0, 0]


@pytest.mark.soak
@pytest.mark.usefixtures("measured_once")
def test_the_next_command_of_a_comparison_runs(tmp_path):
    sides = [profiles.ROOT / "fixtures" / name for name in ("simulated-sync-a100", "simulated-healthy-a100")]
    brief = json.loads(render(profiles.compare(*sides)))
    done = run(brief["comparison"]["next"], tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("Faster")
