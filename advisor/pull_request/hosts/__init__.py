"""One module per code host: its CI, its token, and the table of its API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from advisor.errors import UsageError
from advisor.pull_request.host import CodeHost, Patience, Target, is_address, is_commit
from advisor.pull_request.hosts.github import GITHUB
from advisor.pull_request.hosts.gitlab import GITLAB
from advisor.text import shortened

if TYPE_CHECKING:
    from advisor.pull_request.client import Repository

HOSTS: Final[Mapping[str, CodeHost]] = {"github": GITHUB, "gitlab": GITLAB}
"""By name; the first is meant where no CI is to be seen."""


def target_of(env: Mapping[str, str], kind: str | None = None, **options: str | int | None) -> Target:
    """What to post to, by CI's environment and the options; by default on the host whose CI this is, or the first.

    Other fields of the target may be given in place of what the environment tells. A UsageError of an unfit event
    or commit.
    """
    here = [name for name, host in HOSTS.items() if env.get(host.signal)]
    target = HOSTS[kind or [*here, *HOSTS][0]].target(env)
    target = replace(target, **{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]  # the caller names fields
    if target.commit and not is_commit(target.commit):
        source = next((name for name, value in env.items() if value == target.commit), "--commit")
        raise UsageError(f"{source}: {shortened(target.commit, 80)!r} is no SHA of a commit; give one with --commit")
    return target


def connected(target: Target, token: str, patience: Patience) -> Repository:
    """The target's repository, of which nothing is asked yet; a UsageError without a web address or the extra `bot`."""
    if not is_address(target.api_url):
        raise UsageError(f"--api-url {target.api_url}: no web address; write it as https://HOST")
    try:
        from advisor.pull_request.client import Repository  # noqa: PLC0415 - of the extra `bot`
    except ImportError as error:
        raise UsageError(f"{error.name or 'a package'} is not installed: pip install 'gpu-advisor[bot]'") from None
    return Repository(HOSTS[target.kind], target.api_url, target.repo, token, patience)
