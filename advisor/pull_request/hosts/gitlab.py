"""GitLab, on gitlab.com or one's own server."""

import re
from collections.abc import Mapping
from typing import Final

from advisor.pull_request.host import Api, CodeHost, Target


def _target(env: Mapping[str, str]) -> Target:
    target, source = env.get("CI_MERGE_REQUEST_PROJECT_ID"), env.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID")
    number = env.get("CI_MERGE_REQUEST_IID", "")
    return Target(
        kind="gitlab",
        api_url=env.get("CI_SERVER_URL") or "https://gitlab.com",
        repo=target or env.get("CI_PROJECT_ID") or "",
        token=env.get("GITLAB_TOKEN") or None,
        number=int(number) if re.fullmatch("[0-9]{1,18}", number) else None,
        commit=env.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or env.get("CI_COMMIT_SHA") or None,
        link=env.get("CI_JOB_URL") or None,
        event=env.get("CI_PIPELINE_SOURCE") or None,
        fork=bool(target and source and target != source),
    )


GITLAB: Final = CodeHost(
    ci="GitLab CI",
    own="an own GitLab",
    signal="GITLAB_CI",
    token="GITLAB_TOKEN",  # noqa: S106 - a variable's name
    rights="a project access token with the scope `api`, role Developer",
    target=_target,
    api=Api(
        name="GitLab",
        root="/api/v4",
        sign="!",
        header=("PRIVATE-TOKEN", "{token}"),
        me=("GET", "user", None, ("username",)),
        notes="projects/{project}/merge_requests/{number}/notes",
        order={"sort": "asc", "order_by": "created_at"},
        note="projects/{project}/merge_requests/{number}/notes/{note}",
        edit="PUT",
        author=("author", "username"),
        most=262_144,  # a note may have 1,048,576 bytes, and a character four
        status="projects/{project}/statuses/{sha}",
        context="name",
        failed="failed",
        description=255,
    ),
)
