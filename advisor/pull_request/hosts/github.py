"""GitHub and GitHub Enterprise."""

import json
from collections.abc import Mapping
from typing import Final

from advisor.errors import ReadError, UsageError
from advisor.inputs.storage import head_of
from advisor.pull_request.host import Api, Branch, CodeHost, Target, is_address, is_commit
from advisor.text import one_line

_MOST_BYTES: Final = 32 << 20  # of an event; GitHub's own limit is 25 MB


def _target(env: Mapping[str, str]) -> Target:
    """As `CodeHost.target`; an event of another form is the user's to mend."""
    path = env.get("GITHUB_EVENT_PATH") or ""
    try:
        event = json.loads(head_of(path, _MOST_BYTES)) if path else {}
        pull, run = event.get("pull_request"), event.get("workflow_run")
        here = env.get("GITHUB_REPOSITORY") or ""
        page = [env.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
        link = "{}/{}/actions/runs/{}".format(*page) if all(page) else None
        commit = pull["head"]["sha"] if pull else run["head_sha"] if run else None
        of_run = run.get("html_url") if run else None
        if (commit is not None and not is_commit(commit)) or (of_run and not is_address(of_run)):
            raise ValueError("no SHA of a commit, or no web address of a run")  # noqa: TRY301 - as what else is unfit
        source = pull["head"]["repo"] if pull else None  # None: the fork was deleted
        # The pull request's; None where the event is of none, or gives its branch alone.
        issue = event.get("issue") or {}
        of = event.get("pull_request") or (issue if issue.get("pull_request") is not None else None)
        branch = None  # where a workflow run's change comes from; its list of pull requests is empty for forks
        if run and run["event"].startswith("pull_request") and run.get("head_repository") and run["head_branch"]:
            branch = Branch(run["head_repository"]["owner"]["login"], run["head_branch"], run["head_sha"])
        return Target(
            kind="github",
            api_url=env.get("GITHUB_API_URL") or "https://api.github.com",
            repo=here,
            token=env.get("GITHUB_TOKEN") or env.get("GH_TOKEN") or None,
            number=int(of["number"]) if of else None,
            branch=branch,
            commit=commit or env.get("GITHUB_SHA") or None,
            link=of_run or link,
            event=env.get("GITHUB_EVENT_NAME") or None,
            fork=bool(pull and (source is None or source["full_name"] != here)),
        )
    except ReadError as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {error}; or unset it, and give --pr and --commit") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        words = f"is no event of GitHub's ({type(error).__name__}: {one_line(str(error), 80)})"
        raise UsageError(f"GITHUB_EVENT_PATH: {path}: {words}; unset it, and give --pr and --commit") from None


GITHUB: Final = CodeHost(
    ci="GitHub Actions",
    own="GitHub Enterprise",
    signal="GITHUB_ACTIONS",
    token="GITHUB_TOKEN",  # noqa: S106 - a variable's name
    rights="permissions: {pull-requests: write, checks: write, statuses: write}",
    target=_target,
    api=Api(
        name="GitHub",
        root="",
        sign="#",
        header=("Authorization", "Bearer {token}"),
        # `GET /user` is closed to the token of a workflow; this is open to every token. On an own server it stands
        # beside the root, not below it.
        me=("POST", "../graphql", {"query": "query { viewer { login } }"}, ("data", "viewer", "login")),
        notes="repos/{repo}/issues/{number}/comments",
        order={},
        note="repos/{repo}/issues/comments/{note}",
        edit="PATCH",
        author=("user", "login"),
        most=65_536,
        status="repos/{repo}/statuses/{sha}",
        context="context",
        failed="failure",
        description=140,
        pulls="repos/{repo}/pulls",
        check_runs="repos/{repo}/check-runs",
    ),
)
