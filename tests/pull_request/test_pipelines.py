"""Every script of the GitHub Action and of the GitLab component, run as the host would run it."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from advisor.pull_request import deliver
from advisor.pull_request.host import Patience
from advisor.system import engines
from tests.command import advisor, service
from tests.fleet import Here
from tests.pull_request.schemas import departures
from tests.pull_request.servers import GitHub, GitLab

pytestmark = [pytest.mark.network_server, pytest.mark.usefixtures("measured_once")]

ROOT = Path(__file__).parents[2]
SLOW = ROOT / "fixtures" / "simulated-input-bound-v100"
FAST = ROOT / "fixtures" / "simulated-healthy-a100"
MEDIUM = ROOT / "fixtures" / "simulated-sync-a100"  # one finding, of medium severity
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HEADER, COMPONENT = yaml.safe_load_all((ROOT / "templates" / "gpu-advisor.yml").read_text())
BOT = "github-actions[bot]"
SHA = "a" * 40
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


PROCESS = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m advisor "$@"\n'


@pytest.fixture(autouse=True)
def _hosts_take_writes_at_once(monkeypatch):
    monkeypatch.setattr(deliver, "Patience", lambda: Patience(between_writes_s=0))


@pytest.fixture(scope="module")
def command():
    with service() as text:
        yield text


def executable(path, text):
    """The command where the install step leaves it, without an installation."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)


class Runner:
    """Runs the steps of the action in order, with the runner's files and expressions."""

    def __init__(self, command, folder, inputs, server=None, event=None):
        self.command = command
        self.inputs = {name: str(known.get("default", "")) for name, known in ACTION["inputs"].items()} | inputs
        self.inputs["token"] = inputs.get("token", "ci")
        self.outputs = {"upload": {"artifact-url": "https://github.test/artifact/1"}}
        self.workspace, self.temp = folder / "workspace", folder / "temp"
        self.summary = folder / "summary"
        self.output = folder / "output"
        for each in (self.workspace, self.temp):
            each.mkdir()
        (folder / "event.json").write_text(json.dumps(event or {}))
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_EVENT_NAME": "pull_request" if event else "push",
            "GITHUB_REPOSITORY": "octo/train",
            "GITHUB_SHA": "c" * 40,
            "GITHUB_API_URL": server.url if server else "http://127.0.0.1:1",
        }

    def value(self, text):
        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: self.named(found[1]), str(text))

    def named(self, name):
        if name == "github.action_path":
            return str(ROOT)
        room, *rest = name.split(".")
        return self.inputs[rest[0]] if room == "inputs" else self.outputs.get(rest[0], {}).get(rest[2], "")

    def holds(self, condition):
        words = re.sub(r"(?:inputs|steps)[\w.-]+", lambda found: repr(self.named(found[0])), condition.strip("${} "))
        return eval(words.replace("&&", " and ").replace("||", " or "))  # noqa: S307 - our own file's conditions

    def step(self, name, **more):
        step = STEPS[name]
        if not self.holds(step.get("if", "True")):
            return None
        env = self.env | {key: self.value(value) for key, value in step["env"].items()} | more
        self.output.write_text("")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=self.workspace, env=env, capture_output=True, text=True, check=False)
        pairs = [line.partition("=") for line in self.output.read_text().splitlines()]
        self.outputs[step.get("id", name)] = {key: value for key, _, value in pairs}
        return done

    def install(self):
        executable(self.temp / "gpu-advisor-venv/bin/advisor", self.command)

    def all(self):
        self.install()
        done = {name: self.step(name) for name, step in STEPS.items() if name != "Install" and "run" in step}
        return done, done["Verdict"].returncode


@pytest.fixture
def server():
    with GitHub({"ci": BOT, "fork": BOT}, read_only={"fork"}) as running:
        yield running


def pull_request(head="octo/train"):
    repo = {"full_name": "octo/train", "owner": {"login": "octo"}}
    source = {"full_name": head, "owner": {"login": head.partition("/")[0]}}
    sides = {"head": {"sha": SHA, "repo": source}, "base": {"sha": "d" * 40, "repo": repo}}
    return {"pull_request": {"number": 7, **sides}}


def test_a_check_comments_and_passes(tmp_path, server):
    runner = Runner(
        PROCESS, tmp_path, {"profile": str(SLOW), "check-run": "true", "status": "true"}, server, pull_request()
    )
    done, code = runner.all()
    assert code == 0, done
    (comment,), (status,), (run,) = server.comments.values(), server.statuses, server.runs.values()
    assert "loads its batches itself" in comment["body"].splitlines()[1]
    assert "<code>aaaaaaaa</code>" in comment["body"]
    assert "[Full report](<https://github.test/artifact/1>)" in comment["body"]
    assert (status["state"], status["sha"], run["conclusion"]) == ("success", SHA, "success")
    report = Path(runner.outputs["look"]["report"])
    assert {path.name for path in report.iterdir()} == {"report.html", "report.json", "report.md"}
    assert runner.summary.read_text() == (report / "report.md").read_text()


def test_a_check_fails_at_the_level_asked_for_after_it_has_commented(command, tmp_path, server):
    wanted = {"profile": str(SLOW), "fail-on": "high", "status": "true"}
    _, code = Runner(command, tmp_path, wanted, server, pull_request()).all()
    assert code == 1
    assert len(server.comments) == 1
    assert server.statuses[0]["state"] == "failure"


LEVELS = {"medium\nhigh\nnever": 1, "slower\nhigh": 0, "hihg\nlow": 2}


@pytest.mark.parametrize("words", LEVELS)
def test_of_several_levels_the_strictest_counts(command, tmp_path, server, words):
    wanted = {"profile": str(MEDIUM), "fail-on": words, "comment": "false"}
    assert Runner(command, tmp_path, wanted, server, pull_request()).all()[1] == LEVELS[words]


@pytest.mark.parametrize("words", LEVELS)
def test_of_several_levels_the_strictest_counts_in_gitlab(tmp_path, gitlab, words):
    assert job(tmp_path, gitlab, profile=str(MEDIUM), **{"fail-on": words}).returncode == LEVELS[words]


@pytest.mark.soak
def test_a_comparison_of_several_runs_a_side(command, tmp_path, server):
    wanted = {"profile": f"{FAST}\n  {FAST}\n", "baseline": f"{FAST}\n{FAST}", "fail-on": "slower:5\nnew-high"}
    _, code = Runner(command, tmp_path, wanted, server, pull_request()).all()
    assert code == 0
    (comment,) = server.comments.values()
    assert "No change" in comment["body"].splitlines()[1]


@pytest.mark.soak  # exit code 4 is in tests/unit/test_cli.py, a check that fails is above
def test_strict_fails_where_nothing_can_be_told(command, tmp_path, server):
    wanted = {"profile": str(SLOW), "baseline": str(FAST), "strict": "true", "status": "true"}
    assert Runner(command, tmp_path, wanted, server, pull_request()).all()[1] == 4
    assert server.statuses[0]["state"] == "failure"


@pytest.mark.soak  # GitLab has the same case
def test_without_its_baseline_a_comparison_becomes_a_check(command, tmp_path, server):
    wanted = {"profile": str(SLOW), "baseline": "last/report.json", "fail-on": "slower\nnew-high"}
    done, code = Runner(command, tmp_path, wanted, server, pull_request()).all()
    assert code == 0
    assert "no baseline at last/report.json" in done["Look"].stdout
    assert "loads its batches itself" in next(iter(server.comments.values()))["body"]


def test_nothing_readable_fails_and_comments_nothing(command, tmp_path, server):
    done, code = Runner(command, tmp_path, {"profile": "nowhere"}, server, pull_request()).all()
    assert code == 3
    assert done["Comment"] is None
    assert not server.comments


@pytest.mark.parametrize("fault", ["read-only", pytest.param("down", marks=pytest.mark.soak)])
def test_a_comment_that_cannot_be_posted_leaves_the_build_green(command, tmp_path, server, fault):
    token = "fork" if fault == "read-only" else "ci"
    runner = Runner(command, tmp_path, {"profile": str(FAST), "token": token}, server, pull_request("forker/train"))
    if fault == "down":
        runner.env["GITHUB_API_URL"] = server.url
        limited = (403, {"message": "API rate limit exceeded"}, {"X-RateLimit-Reset": "99999999999"})
        server.faults.extend([("POST", limited)])
    done, code = runner.all()
    assert code == 0
    assert done["Comment"].returncode == 0
    assert "::warning title=gpu-advisor::" in done["Comment"].stdout
    assert not server.comments


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"key": "bert"}, "gpu-advisor-bert"),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in [({}, "gpu-advisor"), ({"artifact": ""}, "")]),
    ],
)
def test_the_artifacts_of_a_matrix_have_names_of_their_own(command, tmp_path, inputs, name):
    runner = Runner(command, tmp_path, {"profile": str(FAST), **inputs})
    runner.install()
    runner.step("Look")
    assert runner.outputs["look"]["artifact"] == name
    assert runner.value(STEPS["Upload"]["with"]["name"]) == name
    assert runner.holds(STEPS["Upload"]["if"]) == bool(name)


def test_remarks_are_relative_to_the_checkout_of_the_change(command, tmp_path, server):
    """The recipe checks out base and change side by side; the stacks name the change's files by their whole path."""
    runner = Runner(
        command, tmp_path, {"profile": str(SLOW), "check-run": "true", "root": "head"}, server, pull_request()
    )
    for side in ("base", "head"):
        (runner.workspace / side).mkdir()
        (runner.workspace / side / "train.py").write_text("x\n" * 20)
    runner.install()
    runner.step("Look")
    file = Path(runner.outputs["look"]["report"]) / "report.json"
    report = json.loads(file.read_text())
    for place in report["runs"][0]["findings"][0]["where"]:
        place["stack"] = f"{runner.workspace}/head/train.py(7): <module>"
    file.write_text(json.dumps(report))
    assert runner.step("Comment").returncode == 0
    (run,) = server.runs.values()
    assert {(a["path"], a["start_line"]) for a in run["annotations"]} == {("train.py", 7)}


def test_a_comparison_fails_where_a_side_could_not_be_read(command, tmp_path, server):
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "rank0.pt.trace.json").write_bytes(next(FAST.iterdir()).read_bytes()[:0])
    for file in FAST.iterdir():
        shutil.copy(file, tmp_path / "head" / file.name)
    wanted = {"profile": str(tmp_path / "head"), "baseline": str(FAST), "fail-on": "slower", "status": "true"}
    assert Runner(command, tmp_path, wanted, server, pull_request()).all()[1] == 3
    assert "of the runs after the change: " in next(iter(server.comments.values()))["body"]
    assert server.statuses[0]["state"] == "failure"


def test_words_in_inputs_are_never_run(command, tmp_path, server):
    wanted = {"profile": f"{FAST}\n$(touch pwned)\n`touch pwned`; touch pwned", "key": "$(touch pwned)"}
    runner = Runner(command, tmp_path, wanted, server, pull_request())
    runner.all()
    assert not list(tmp_path.rglob("pwned"))
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


@pytest.mark.soak  # what it asks of pip is below
def test_the_install_step_installs_a_command_that_runs(tmp_path):
    """For real, but from this environment's packages: nothing is downloaded."""
    runner = Runner(PROCESS, tmp_path, {"python": sys.executable})
    site = tmp_path / "site"
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("gpu_advisor", "_gpu_advisor", "__editable__", "pip", "setuptools")):
            (site / path.name).symlink_to(path)
    offline = {"PYTHONPATH": str(site), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    done = runner.step("Install", **offline)
    assert done.returncode == 0, done.stderr
    command = [runner.temp / "gpu-advisor-venv/bin/advisor", "--help"]
    shown = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True)
    assert "comment" in shown.stdout


@pytest.fixture
def gitlab(command, tmp_path):
    with GitLab({"ci": "project_1_bot", "fork": "forker"}, read_only={"fork"}) as running:
        executable(tmp_path / ".gpu-advisor-venv/bin/advisor", command)
        yield running


def job(folder, server, scripts=slice(1, 2), source="merge_request_event", **inputs):
    """The job's scripts, in one shell as GitLab runs them; by default without the installation."""
    known = {name: str(about.get("default", "")) for name, about in HEADER["spec"]["inputs"].items()} | inputs
    (template,) = COMPONENT.values()
    variables = {
        name: re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda found: known[found[1]], value)
        for name, value in template["variables"].items()
    }
    request = {"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_ID": "12"}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": "ci",
        "CI_SERVER_URL": server.url,
        "CI_PROJECT_ID": "12",
        "CI_COMMIT_SHA": SHA,
        "CI_JOB_URL": "https://gitlab.test/job/1",
        "CI_PIPELINE_SOURCE": source,
        **(request if source == "merge_request_event" else {}),
        **variables,
    }
    env |= {name: value for name, value in inputs.items() if name.isupper()}
    env = {name: value for name, value in env.items() if value is not None}
    script = "\n".join(template["script"][scripts])
    return subprocess.run(["sh", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_the_gitlab_job_comments_and_passes(tmp_path, gitlab):
    done = job(tmp_path, gitlab, profile=str(SLOW), status="true")
    assert done.returncode == 0, done.stderr
    (note,), (status,) = gitlab.comments.values(), gitlab.statuses
    assert "loads its batches itself" in note["body"].splitlines()[1]
    assert "[Full report](<https://gitlab.test/job/1/artifacts/file/gpu-advisor/report.html>)" in note["body"]
    assert (status["state"], status["sha"]) == ("success", SHA)
    assert {path.name for path in (tmp_path / "gpu-advisor").iterdir()} == {"report.html", "report.json", "report.md"}


def test_the_gitlab_job_compares_and_fails_after_it_has_commented(tmp_path, gitlab):
    (tmp_path / "base").mkdir()
    healthy = tmp_path / "base" / "report.json"
    assert advisor("check", FAST, "-o", healthy, cwd=ROOT).returncode == 0
    done = job(tmp_path, gitlab, profile=f"{SLOW} {SLOW}", baseline=f"{healthy} none.json", **{"fail-on": "new-high"})
    assert done.returncode == 1, done.stderr
    assert "no baseline at none.json" in done.stdout
    assert len(gitlab.comments) == 1


def test_the_gitlab_job_without_a_baseline_checks(tmp_path, gitlab):
    assert job(tmp_path, gitlab, profile=str(SLOW), baseline="no.json", **{"fail-on": "slower"}).returncode == 0
    assert job(tmp_path, gitlab, profile="nowhere").returncode == 3


@pytest.mark.soak
def test_the_gitlab_job_fails_at_the_level(tmp_path, gitlab):
    assert job(tmp_path, gitlab, profile=str(SLOW), **{"fail-on": "high"}).returncode == 1


def test_the_gitlab_job_of_a_fork_or_a_branch_stays_green(tmp_path, gitlab):
    fork = job(tmp_path, gitlab, profile=str(FAST), GITLAB_TOKEN="fork", CI_MERGE_REQUEST_SOURCE_PROJECT_ID="13")
    assert fork.returncode == 0
    assert "Pull requests from forks" in fork.stderr
    branch = job(tmp_path, gitlab, profile=str(FAST), source="push", GITLAB_TOKEN=None)
    assert branch.returncode == 0, branch.stderr
    assert "push is no event" in branch.stdout
    assert not gitlab.comments


def test_the_gitlab_installation_asks_pip_for_the_package(tmp_path, gitlab):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python3"
    fake.write_text('#!/bin/sh\nmkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "$@" >>asked\n')
    fake.chmod(0o755)
    package = "gpu-advisor[bot] @ git+https://gitlab.test/ml/advisor@v1"
    done = job(
        tmp_path, gitlab, scripts=slice(0, 1), profile="x", package=package, PATH=f"{tmp_path}/bin:/usr/bin:/bin"
    )
    asked = (tmp_path / "asked").read_text().splitlines()
    assert done.returncode == 0, done.stderr
    assert asked[0] == "-m venv .gpu-advisor-venv"
    assert asked[1].endswith(f"--disable-pip-version-check {package}")


def test_extras_are_asked_of_pip(tmp_path):
    for extras, asked in (("", "[bot]"), ("s3", "[bot,s3]"), ("s3,gcs", "[bot,s3,gcs]")):
        folder = tmp_path / f"with-{extras}"
        folder.mkdir()
        fake = folder / "python3"
        fake.write_text('#!/bin/sh\nmkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "$@" >>"$HOME/asked"\n')
        fake.chmod(0o755)
        assert Runner(PROCESS, folder, {"extras": extras, "python": str(fake)}).step("Install").returncode == 0
        assert (folder / "asked").read_text().splitlines()[1].endswith(f"{ROOT}{asked}")


def test_both_files_are_as_their_hosts_describe_them(tmp_path):
    component = tmp_path / "component.json"
    filled = json.dumps(COMPONENT).replace('"$[[ inputs.needs ]]"', '["profile"]')
    component.write_text(re.sub(r"\$\[\[ inputs\.[\w-]+ \]\]", "x", filled))
    for schema, file in (("github-actions", ROOT / "action.yml"), ("gitlab-ci", component)):
        assert departures(file, schema) == ""


RECIPES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "pull-requests.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_the_recipes_are_as_their_hosts_describe_them(tmp_path, recipe):
    words = {"on" if name is True else name: value for name, value in yaml.safe_load(recipe).items()}  # YAML 1.1
    gitlab = "include" in words
    if "jobs" not in words and not gitlab:
        words["jobs"] = {"x": {"runs-on": "x", "steps": [{"run": "x"}]}}  # a part of a workflow
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(words))
    assert departures(file, "gitlab-ci" if gitlab else "github-workflows") == ""
    inputs = [step.get("with", {}) for job in words.get("jobs", {}).values() for step in job.get("steps", [])]
    ours = [each for each in inputs if "profile" in each]
    assert all(set(each) <= set(ACTION["inputs"]) for each in ours)
    if gitlab:
        assert set(words["include"][0]["inputs"]) <= set(HEADER["spec"]["inputs"])


def script(recipe, name):
    """What the step of that name runs, out of the recipes."""
    steps = [step for job in yaml.safe_load(recipe)["jobs"].values() for step in job["steps"]]
    return next(step["run"] for step in steps if step.get("name") == name)


@pytest.mark.soak
def test_the_recipe_of_the_fleet_store_gives_several_baselines(command, tmp_path, monkeypatch):
    (recipe,) = [each for each in RECIPES if "advisor fleet ingest" in each]
    monkeypatch.setattr(engines, "engine", lambda _name, _processes: Here())
    executable(tmp_path / "bin" / "advisor", command)
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "STORE": str(tmp_path / "store"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_SHA": SHA,
    }

    def bash(text):
        words = ["bash", "-e", "-c", text]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    other = ROOT / "fixtures" / "simulated-sync-a100"
    bash(f"advisor fleet ingest {other} --store $STORE --label job='train-main two' --label team='a train-main'")
    for fixture in (FAST, SLOW):
        (tmp_path / "profiles").unlink(missing_ok=True)
        (tmp_path / "profiles").symlink_to(fixture)
        bash(script(recipe, "Store the run of main").replace("--label", "--label team='the a team' --label", 1))
    bash(script(recipe, "Fetch the runs of main"))
    begin, *reports, end = (tmp_path / "output").read_text().splitlines()
    assert (begin, end, len(reports)) == ("reports<<END", "END", 2)
    done = advisor("compare", reports[0], FAST, "--fail-on", "never", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


def test_the_recipe_for_forks_tells_of_failures_too_and_says_what_fails():
    (recipe,) = [each for each in RECIPES if "workflow_run:" in each]
    (job,) = yaml.safe_load(recipe)["jobs"].values()
    assert '["success", "failure"]' in job["if"]
    assert "conclusion" in job["if"]
    download, post = job["steps"]
    assert download["continue-on-error"] is True
    assert post["if"] == f"steps.{download['id']}.outcome == 'success'"
    words = post["run"].replace("\\\n", " ").split()
    assert words[words.index("comment") :] == [
        *("comment", "report/report.json", "--status", "--fail-on", "slower:5", "--fail-on", "new-high")
    ]
