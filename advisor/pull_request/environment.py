"""Where a command runs: which host, repository, pull request and commit, told by what CI leaves in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from advisor.errors import UsageError

Kind: TypeAlias = Literal["github", "gitlab"]
KINDS: Final[tuple[Kind, ...]] = ("github", "gitlab")

_GITHUB_API: Final = "https://api.github.com"
_GITLAB: Final = "https://gitlab.com"


@dataclass(frozen=True)
class Branch:
    """A branch, of a fork perhaps, at a commit: where the event gives no number."""

    owner: str
    name: str
    commit: str


@dataclass(frozen=True)
class Target:
    """What to post to, by CI's environment and the options.

    `number` is the pull request's; where it is None, `branch` may help to find it, and `event` names what happened.
    `fork` says that the change comes from a fork, whose token may only read.
    """

    kind: Kind
    api_url: str
    repo: str
    token: str | None
    number: int | None = None
    branch: Branch | None = None
    commit: str | None = None
    link: str | None = None
    event: str | None = None
    fork: bool = False


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Owner(_Event):
    login: str


class _Repo(_Event):
    full_name: str
    owner: _Owner


class _Head(_Event):
    sha: str
    repo: _Repo | None = None  # None: the fork was deleted


class _Pull(_Event):
    number: int
    head: _Head
    base: _Head


class _Issue(_Event):
    number: int
    pull_request: dict[str, object] | None = None


class _WorkflowRun(_Event):
    event: str
    head_branch: str | None
    head_sha: str
    head_repository: _Repo | None = None
    html_url: str | None = None


class _GitHubEvent(_Event):
    """The parts of a webhook's payload that tell of a pull request."""

    pull_request: _Pull | None = None
    issue: _Issue | None = None
    workflow_run: _WorkflowRun | None = None


def target_of(env: Mapping[str, str], kind: Kind | None = None, **options: str | int | None) -> Target:
    """What to post to, by CI's environment and the options.

    Args:
        env: The environment variables.
        kind: The host; by default the one whose CI this is, or GitHub.
        **options: Other fields of the target, in place of what the environment tells; None leaves that.

    Raises:
        UsageError: the event cannot be read.
    """
    host = kind or ("gitlab" if env.get("GITLAB_CI") else "github")
    target = (_github if host == "github" else _gitlab)(env)
    return replace(target, **{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]  # the caller names fields


def _github(env: Mapping[str, str]) -> Target:
    event = _event(env.get("GITHUB_EVENT_PATH"))
    pull, run = event.pull_request, event.workflow_run
    here = env.get("GITHUB_REPOSITORY") or ""
    commit = pull.head.sha if pull else run.head_sha if run else env.get("GITHUB_SHA") or None
    return Target(
        kind="github",
        api_url=env.get("GITHUB_API_URL") or _GITHUB_API,
        repo=here,
        token=env.get("GITHUB_TOKEN") or env.get("GH_TOKEN") or None,
        number=_number(event),
        branch=_branch(run) if run and run.event.startswith("pull_request") else None,
        commit=commit,
        link=(run.html_url if run else None) or _run_page(env),
        event=env.get("GITHUB_EVENT_NAME") or None,
        fork=bool(pull and (pull.head.repo is None or pull.head.repo.full_name != here)),
    )


def _number(event: _GitHubEvent) -> int | None:
    if event.pull_request:
        return event.pull_request.number
    return event.issue.number if event.issue and event.issue.pull_request is not None else None


def _branch(run: _WorkflowRun) -> Branch | None:
    """Where a workflow run's change comes from; its list of pull requests is empty for forks."""
    if run.head_repository is None or run.head_branch is None:
        return None
    return Branch(run.head_repository.owner.login, run.head_branch, run.head_sha)


def _run_page(env: Mapping[str, str]) -> str | None:
    parts = [env.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    return "{}/{}/actions/runs/{}".format(*parts) if all(parts) else None


def _event(path: str | None) -> _GitHubEvent:
    if not path:
        return _GitHubEvent()
    try:
        return _GitHubEvent.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {path}: {error.strerror}; give --pr instead") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"GITHUB_EVENT_PATH: {path}: {where}: {first['msg']}; give --pr instead") from None


def _gitlab(env: Mapping[str, str]) -> Target:
    target, source = env.get("CI_MERGE_REQUEST_PROJECT_ID"), env.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID")
    number = env.get("CI_MERGE_REQUEST_IID", "")
    return Target(
        kind="gitlab",
        api_url=env.get("CI_SERVER_URL") or _GITLAB,
        repo=target or env.get("CI_PROJECT_ID") or "",
        token=env.get("GITLAB_TOKEN") or None,
        number=int(number) if number.isdecimal() else None,
        commit=env.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or env.get("CI_COMMIT_SHA") or None,
        link=env.get("CI_JOB_URL") or None,
        event=env.get("CI_PIPELINE_SOURCE") or None,
        fork=bool(target and source and target != source),
    )
