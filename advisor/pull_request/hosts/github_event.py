"""The event that a job of GitHub Actions runs for."""

from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from advisor.errors import ReadError, UsageError
from advisor.inputs.storage import head_of
from advisor.pull_request.environment import Branch

_MOST_BYTES: Final = 32 << 20  # GitHub's own limit is 25 MB


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Owner(_Part):
    login: str


class _Repo(_Part):
    full_name: str
    owner: _Owner


class _Head(_Part):
    sha: str
    repo: _Repo | None = None  # None: the fork was deleted


class _Pull(_Part):
    number: int
    head: _Head


class _Issue(_Part):
    number: int
    pull_request: dict[str, object] | None = None


class _WorkflowRun(_Part):
    event: str
    head_branch: str | None
    head_sha: str
    head_repository: _Repo | None = None
    html_url: str | None = None


class Event(_Part):
    """The parts of a webhook's payload that tell of a pull request."""

    pull_request: _Pull | None = None
    issue: _Issue | None = None
    workflow_run: _WorkflowRun | None = None

    @property
    def number(self) -> int | None:
        """The pull request's; None where the event is of none, or gives its branch alone."""
        if self.pull_request:
            return self.pull_request.number
        return self.issue.number if self.issue and self.issue.pull_request is not None else None

    @property
    def branch(self) -> Branch | None:
        """Where a workflow run's change comes from; its list of pull requests is empty for forks."""
        run = self.workflow_run
        if run is None or not run.event.startswith("pull_request"):
            return None
        if run.head_repository is None or run.head_branch is None:
            return None
        return Branch(run.head_repository.owner.login, run.head_branch, run.head_sha)


def event_in(path: str | None) -> Event:
    """The event that a file tells of; without a file, none.

    Raises:
        UsageError: the file cannot be read.
    """
    if not path:
        return Event()
    try:
        return Event.model_validate_json(head_of(path, _MOST_BYTES))
    except ReadError as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {error}; or give --pr instead") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"GITHUB_EVENT_PATH: {path}: {where}: {first['msg']}; give --pr instead") from None
