"""The recipes of docs/fleet.md, run: by the shell, against an S3 server, on a cluster that a batch system starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from advisor.fleet.labels import week_name
from advisor.fleet.store import Store
from tests.command import service
from tests.fleet import trace
from tests.pull_request.schemas import departures

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CRONTAB = (DOCS / "examples/fleet.crontab").read_text("utf-8")
WORKFLOW = DOCS / "examples/fleet-github-actions.yaml"
CRONJOB = yaml.safe_load((DOCS / "examples/fleet-cronjob.yaml").read_text("utf-8"))
PATIENCE_S = 240
RUNS = 2
FIELD = r"(?:\*|\d+)(?:[-/,]\d+)*"


def profiles(root: Path) -> Path:
    """Two runs of the week that ended last."""
    started = datetime.now(UTC) - timedelta(weeks=1)
    for number in range(RUNS):
        trace(root / f"job{number}", number)
    (root / "run.yaml").write_text(yaml.safe_dump({"team": "vision", "started": started}))
    return root


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Runs a script where `advisor` is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "advisor"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m advisor "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(script: str, *words: str, **environment: str) -> str:
        one = subprocess.Popen(
            [*(words or ("/bin/sh", "-c")), script],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = one.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(one.pid, signal.SIGKILL)
            raise
        assert one.returncode == 0, said
        return said

    return run


def test_the_lines_of_the_crontab(tmp_path, shell):
    profiles(tmp_path / "srv/profiles")
    (tmp_path / "srv/advisor.yaml").write_text("fleet: {prices: {a100: 2}}\n")
    (tmp_path / "srv/www").mkdir()
    lines = [line for line in CRONTAB.replace("/srv", f"{tmp_path}/srv").splitlines() if not line.startswith("#")]
    environment = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    entries = [re.fullmatch(rf"((?:{FIELD}\s+){{5}})(.+)", line) for line in lines if not re.match(r"\w+=", line)]
    assert len(entries) == 3
    with service() as text:
        (tmp_path / "bin/advisor").write_text(text)
        for entry in entries:
            assert not re.search(r"(?<!\\)%", entry[2])  # cron takes it for the end of the line
            shell(entry[2].replace(r"\%", "%"), **environment)
    assert week_name("last") in (tmp_path / "srv/www/fleet.md").read_text()
    assert (tmp_path / "srv/www/fleet.html").exists()


@pytest.fixture
def buckets(tmp_path, s3, monkeypatch):  # noqa: ARG001 - for what it starts
    """Profiles in S3 where the examples look for them, and a bucket for the store."""
    files = pytest.importorskip("fsspec").filesystem("s3")
    for bucket in ("company-profiles", "company-fleet"):
        if files.exists(bucket):
            files.rm(bucket, recursive=True)
        files.mkdir(bucket)
    files.put(f"{profiles(tmp_path / 'profiles')}/", "company-profiles/", recursive=True)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return Store("s3://company-fleet/store")


def stored(store: Store) -> int:
    return store.collect(store.scan("runs")).filter(status="checked", team="vision").height


def workflow():
    """YAML 1.1 reads `on` as true; GitHub does not."""
    return {"on" if key is True else key: value for key, value in yaml.safe_load(WORKFLOW.read_text()).items()}


def test_the_workflow_is_as_github_describes_it(tmp_path):
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps(workflow()))
    assert departures(file, "github-workflows") == ""


@pytest.mark.soak  # the crontab runs the same commands, and test_faults.py ingests from a bucket into one
@pytest.mark.network_server
def test_the_workflow(tmp_path, buckets, shell):
    steps = workflow()["jobs"]["report"]["steps"]
    summary = tmp_path / "summary.md"
    for step in steps:
        if "run" in step and not step["run"].startswith("pip "):
            shell(step["run"], "bash", "-e", "-o", "pipefail", "-c", GITHUB_STEP_SUMMARY=str(summary))
    assert stored(buckets) == RUNS
    assert week_name("last") in summary.read_text()
    assert (tmp_path / "fleet.html").exists()
    kept = steps[-1]["with"]["path"].split()
    assert "fleet.html" in kept
    assert "fleet-runs/" in kept


def test_the_cron_job_of_kubernetes_is_valid():
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    validator.validate(CRONJOB, validator.latest_version(), strict=True)
    container, script = container_of_cronjob()
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"/out"}
    assert set(re.findall(r"-o (/\w+)/", script)) <= mounted


def container_of_cronjob() -> tuple[dict, str]:
    (container,) = CRONJOB["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    return container, script


@pytest.mark.soak  # as the workflow
@pytest.mark.network_server
def test_the_cron_job_of_kubernetes(tmp_path, buckets, shell):
    container, script = container_of_cronjob()
    (tmp_path / "out").mkdir()
    shell(script.replace("/out", f"{tmp_path}/out"), *container["command"])
    assert stored(buckets) == RUNS
    assert week_name("last") in (tmp_path / "out/fleet.md").read_text()


# ---------------------------------------------------------------------------------------------- clusters


def snippets(word: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (DOCS / "fleet.md").read_text("utf-8"), re.DOTALL)
    return [code for code in found if word in code]


SBATCH = """#!/bin/sh
cp "$1" "{folder}/job$$.sh"  # the caller removes its own when this returns
setsid /bin/bash "{folder}/job$$.sh" >"{folder}/job$$.log" 2>&1 &
echo $! >>"{folder}/jobs"
echo "Submitted batch job $!"
"""


@pytest.mark.soak
@pytest.mark.network_server
def test_the_slurm_recipe_with_a_batch_system_that_starts_jobs_here(tmp_path, shell):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    (code,) = snippets("SLURMCluster")
    for name, text in (("sbatch", SBATCH.format(folder=tmp_path)), ("scancel", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    root = profiles(tmp_path / "profiles")
    script = tmp_path / "recipe.py"
    # instead of a person who reads the address and types the command
    waits = (
        "import os, sys\ndef input(told):\n    os.system(f'advisor fleet ingest {sys.argv[1]} --store {sys.argv[2]} '\n"
    )
    waits += "              + told.partition(';')[0])\n"
    here = code.replace("scale(jobs=32)", "scale(jobs=2)").replace('"port": 8786', '"port": 0, "host": "127.0.0.1"')
    assert here != code
    body = "".join(f"    {line}\n" for line in (waits + here).splitlines())
    script.write_text(f"if __name__ == '__main__':\n{body}")
    try:
        shell(f"{sys.executable} {script} {root} {tmp_path}/store")
    finally:
        for job in (tmp_path / "jobs").read_text().split() if (tmp_path / "jobs").exists() else ():
            try:
                os.killpg(int(job), signal.SIGKILL)
            except ProcessLookupError:
                continue
    assert len((tmp_path / "jobs").read_text().split()) == 2
    assert stored(Store(f"{tmp_path}/store")) == RUNS


def test_the_kubernetes_recipe_is_python():
    (code,) = snippets("KubeCluster")
    compile(code, "docs/fleet.md", "exec")
