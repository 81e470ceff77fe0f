"""Host, repository, pull request and commit as CI's environment and event tell them."""

import json

import pytest

from advisor.errors import UsageError
from advisor.pull_request.host import Branch
from advisor.pull_request.hosts import target_of

SHA = "a" * 40
GITHUB = {
    "GITHUB_REPOSITORY": "octo/train",
    "GITHUB_SERVER_URL": "https://github.test",
    "GITHUB_RUN_ID": "5",
    "GITHUB_API_URL": "https://github.test/api/v3",
    "GITHUB_TOKEN": "t",
    "GITHUB_SHA": "c" * 40,
}


def repo(name):
    return {"full_name": name, "owner": {"login": name.partition("/")[0]}}


def github(folder, event, name, **more):
    path = folder / "event.json"
    path.write_text(json.dumps(event))
    return target_of(GITHUB | {"GITHUB_EVENT_PATH": str(path), "GITHUB_EVENT_NAME": name}, **more)


def pull(head):
    return {"pull_request": {"number": 7, "head": {"sha": SHA, "repo": head}, "base": {"sha": SHA}, "title": "x"}}


@pytest.mark.parametrize(("head", "fork"), [(repo("octo/train"), False), (repo("me/train"), True), (None, True)])
def test_a_pull_request(tmp_path, head, fork):
    found = github(tmp_path, pull(head), "pull_request")
    assert (found.kind, found.api_url, found.repo) == ("github", "https://github.test/api/v3", "octo/train")
    assert (found.number, found.fork, found.token) == (7, fork, "t")
    assert found.commit == SHA  # not the merge commit of GITHUB_SHA
    assert found.link == "https://github.test/octo/train/actions/runs/5"


def test_a_workflow_run_of_a_fork_tells_the_branch_and_the_page_of_the_run_that_measured(tmp_path):
    run = {
        "event": "pull_request",
        "head_branch": "fast",
        "head_sha": SHA,
        "head_repository": repo("me/train"),
        "pull_requests": [],
        "html_url": "https://github.test/octo/train/actions/runs/4",
    }
    found = github(tmp_path, {"workflow_run": run}, "workflow_run")
    assert (found.number, found.branch, found.commit) == (None, Branch("me", "fast", SHA), SHA)
    assert found.link == "https://github.test/octo/train/actions/runs/4"
    assert github(tmp_path, {"workflow_run": run | {"event": "push"}}, "workflow_run").branch is None


def test_a_comment_on_a_pull_request_and_one_on_an_issue(tmp_path):
    assert github(tmp_path, {"issue": {"number": 7, "pull_request": {"url": "u"}}}, "issue_comment").number == 7
    assert github(tmp_path, {"issue": {"number": 7}}, "issue_comment").number is None


def test_a_push_has_no_number(tmp_path):
    found = github(tmp_path, {"ref": "refs/heads/main"}, "push")
    assert (found.number, found.branch, found.commit, found.event) == (None, None, "c" * 40, "push")


def test_the_command_line_has_the_last_word(tmp_path):
    found = github(tmp_path, pull(None), "pull_request", number=9, repo="a/b", commit=None)
    assert (found.number, found.repo, found.commit) == (9, "a/b", SHA)


RUN = {"event": "pull_request", "head_branch": "fast", "head_sha": SHA, "head_repository": repo("me/train")}


def of_commit(sha):
    return {"pull_request": {"number": 7, "head": {"sha": sha, "repo": None}}}


@pytest.mark.parametrize(
    "event",
    [
        [],
        {"pull_request": 1},
        {"pull_request": {"number": "x"}},
        {"pull_request": {"number": float("inf"), "head": {"sha": SHA, "repo": None}}},
        *map(of_commit, [5, ["a"], "\ud800abc", "a" * 65, "../../../user", SHA + "\n"]),
        {"workflow_run": RUN | {"html_url": 5}},
    ],
)
def test_an_event_of_another_form_is_an_error_that_names_the_field(tmp_path, event):
    with pytest.raises(UsageError, match=r"GITHUB_EVENT_PATH.*unset it, and give --pr"):
        github(tmp_path, event, "pull_request")


def test_an_event_that_is_not_there_and_one_that_is_infinite_once_read(tmp_path):
    with pytest.raises(UsageError, match=r"GITHUB_EVENT_PATH: /no/such: .*give --pr"):
        target_of(GITHUB | {"GITHUB_EVENT_PATH": "/no/such"})
    (tmp_path / "e.json").write_text('{"issue": {"number": 1e999, "pull_request": {}}}')
    with pytest.raises(UsageError, match=r"GITHUB_EVENT_PATH.*give --pr"):
        target_of(GITHUB | {"GITHUB_EVENT_PATH": str(tmp_path / "e.json")})


@pytest.mark.parametrize("sha", ["a" * 65, "a/../b", "\udcff"])
def test_what_is_no_commit_is_an_error_that_names_its_source_and_the_option_has_the_last_word(sha):
    with pytest.raises(UsageError, match=r"^GITHUB_SHA: .* is no SHA of a commit"):
        target_of(GITHUB | {"GITHUB_SHA": sha})
    with pytest.raises(UsageError, match=r"^CI_COMMIT_SHA: .* is no SHA of a commit"):
        target_of(GITLAB | {"CI_COMMIT_SHA": sha})
    with pytest.raises(UsageError, match=r"^--commit: .* is no SHA of a commit"):
        target_of(GITHUB, commit=sha)
    assert target_of(GITHUB | {"GITHUB_SHA": sha}, commit=SHA).commit == SHA


GITLAB = {
    "GITLAB_CI": "true",
    "CI_SERVER_URL": "https://gitlab.test",
    "CI_PROJECT_ID": "13",
    "CI_MERGE_REQUEST_PROJECT_ID": "12",
    "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "13",
    "CI_MERGE_REQUEST_IID": "7",
    "CI_COMMIT_SHA": SHA,
    "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "",
    "CI_JOB_URL": "https://gitlab.test/job/1",
    "CI_PIPELINE_SOURCE": "merge_request_event",
}


def test_a_merge_request_of_a_fork_belongs_to_the_target():
    found = target_of(GITLAB)
    assert (found.kind, found.api_url, found.repo, found.number) == ("gitlab", "https://gitlab.test", "12", 7)
    assert (found.commit, found.link, found.fork) == (SHA, "https://gitlab.test/job/1", True)


@pytest.mark.parametrize("number", ["", "nan", "9" * 5_000])
def test_what_is_no_number_of_a_merge_request_is_none(number):
    assert target_of(GITLAB | {"CI_MERGE_REQUEST_IID": number}).number is None


def test_a_merge_request_of_the_project_itself():
    assert not target_of(GITLAB | {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "12"}).fork
