"""GitHub and GitHub Enterprise."""

from collections.abc import Mapping
from typing import Final

from advisor.pull_request.environment import Api, CodeHost, Target


def _target(env: Mapping[str, str]) -> Target:
    from advisor.pull_request.hosts.github_event import event_in  # noqa: PLC0415 - its library is slow to import

    event = event_in(env.get("GITHUB_EVENT_PATH"))
    pull, run = event.pull_request, event.workflow_run
    here = env.get("GITHUB_REPOSITORY") or ""
    commit = pull.head.sha if pull else run.head_sha if run else env.get("GITHUB_SHA") or None
    return Target(
        kind="github",
        api_url=env.get("GITHUB_API_URL") or "https://api.github.com",
        repo=here,
        token=env.get("GITHUB_TOKEN") or env.get("GH_TOKEN") or None,
        number=event.number,
        branch=event.branch,
        commit=commit,
        link=(run.html_url if run else None) or _run_page(env),
        event=env.get("GITHUB_EVENT_NAME") or None,
        fork=bool(pull and (pull.head.repo is None or pull.head.repo.full_name != here)),
    )


def _run_page(env: Mapping[str, str]) -> str | None:
    parts = [env.get(name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    return "{}/{}/actions/runs/{}".format(*parts) if all(parts) else None


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
