"""The whole of `advisor comment`: a message goes to the pull request that this job runs for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from advisor.errors import UsageError
from advisor.pull_request.comment import Draft, post
from advisor.pull_request.delivery import NAME, Host, Patience, Seal, within
from advisor.pull_request.environment import Situation
from advisor.pull_request.errors import Refused
from advisor.pull_request.message import Message
from advisor.pull_request.source import annotated
from advisor.text import count

RECIPE: Final = "docs/pull-requests.md, 'Pull requests from forks'"
_FIRST_DRAFT: Final = 65_536  # the smallest of the hosts' limits
_MOST_SUMMARY: Final = 60_000
_TOKENS: Final = {"github": "GITHUB_TOKEN", "gitlab": "GITLAB_TOKEN"}
_RIGHTS: Final = {
    "github": "permissions: {pull-requests: write, checks: write, statuses: write}",
    "gitlab": "a project access token with the scope `api`, role Developer",
}


@dataclass(frozen=True)
class Wanted:
    """What to post, and under which key; `root` is the checkout that annotations refer to."""

    key: str = "default"
    comment: bool = True
    check_run: bool = False
    status: bool = False
    root: Path = Path()


@dataclass(frozen=True)
class Told:
    """One line about what was done; `hint` where it was not, and says what to do."""

    line: str
    hint: bool = False


def dry_run(message: Message, where: Situation, wanted: Wanted) -> str:
    """The comment as it would be posted for the first time."""
    return _draft(message, where, wanted).body(_FIRST_DRAFT, _today())


def deliver(message: Message, where: Situation, wanted: Wanted, patience: Patience | None = None) -> Iterator[Told]:
    """Post the message; what the token may not do ends in a hint, not in an error.

    Raises:
        ForgeError: the host refuses for another reason, or does not answer.
        UsageError: no token, no such pull request, or something is asked for that the host or message does not have.
    """
    _check(message, where, wanted)
    if wanted.comment and where.number is None and where.branch is None:
        yield Told(f"no comment: {where.event} is no event of a pull request")
        wanted = replace(wanted, comment=False)
    if not (wanted.comment or wanted.status or wanted.check_run):
        return
    if not where.token:
        if not where.fork:
            raise UsageError(f"no token: set {_TOKENS[where.kind]}, or look at the comment with --dry-run")
        yield _refused("a fork's job gets no token", where)
        return
    patience = patience or Patience()
    host = _host(where, where.token, patience)
    yield from within(patience.total_s, lambda: _acts(host, message, where, wanted))


def _acts(host: Host, message: Message, where: Situation, wanted: Wanted) -> Iterator[Told]:
    for act in (_comment, _status, _check_run):
        try:
            yield from act(host, message, where, wanted)
        except Refused as error:
            yield _refused(str(error), where)


def _comment(host: Host, message: Message, where: Situation, wanted: Wanted) -> Iterator[Told]:
    if not wanted.comment:
        return
    number = where.number or (host.pull_of(where.branch) if where.branch else None)
    if number is None:
        yield Told("no comment: no open pull request has its head at that commit; a later push has a run of its own")
        return
    outcome, note = post(host.thread(number), _draft(message, where, wanted), _today())
    yield Told(f"comment on {where.repo} {number}: {outcome} {note.url}".rstrip())


def _status(host: Host, message: Message, where: Situation, wanted: Wanted) -> Iterator[Told]:
    if wanted.status:
        seal = _seal(message, where, wanted)
        host.set_status(seal)
        yield Told(f"status on {seal.commit}: {'failed' if seal.failed else 'passed'}")


def _check_run(host: Host, message: Message, where: Situation, wanted: Wanted) -> Iterator[Told]:
    if wanted.check_run:
        seal, remarks = _seal(message, where, wanted), annotated(message.findings, wanted.root)
        host.add_check_run(seal, message.markdown(_MOST_SUMMARY), remarks)
        yield Told(f"check run on {seal.commit}: {count(len(remarks), 'annotation')}")


def _check(message: Message, where: Situation, wanted: Wanted) -> None:
    """Complain before anything is posted."""
    sealed = wanted.status or wanted.check_run
    if sealed and message.failed is None:
        raise UsageError(
            "--status and --check-run need the JSON that `check` or `compare` wrote; Markdown does not tell"
        )
    if sealed and not where.commit:
        raise UsageError("--status and --check-run need a commit; give --commit")
    if not where.repo:
        raise UsageError("neither GitHub Actions nor GitLab CI is to be seen here; give --forge, --repo and --pr")
    if wanted.comment and where.number is None and where.branch is None and where.event is None:
        raise UsageError("no event of a pull request is to be seen here; give --pr NUMBER")


def _draft(message: Message, where: Situation, wanted: Wanted) -> Draft:
    return Draft(message.verdict, message.markdown, where.commit, where.link, wanted.key)


def _seal(message: Message, where: Situation, wanted: Wanted) -> Seal:
    name = NAME if wanted.key == Draft.key else f"{NAME} {wanted.key}"
    return Seal(where.commit or "", message.verdict, failed=bool(message.failed), link=where.link, name=name)


def _host(where: Situation, token: str, patience: Patience) -> Host:
    if not where.api_url.startswith(("https://", "http://")):
        raise UsageError(f"--api-url {where.api_url}: no web address; write it as https://HOST")
    try:
        if where.kind == "github":
            from advisor.pull_request.github import Repository  # noqa: PLC0415 - an optional dependency

            return Repository(where.api_url, where.repo, token, patience)
        from advisor.pull_request.gitlab import Project  # noqa: PLC0415 - the same

        return Project(where.api_url, where.repo, token, patience)
    except ImportError as error:
        raise UsageError(f"{error.name or 'a package'} is not installed: pip install 'gpu-advisor[bot]'") from None


def _refused(why: str, where: Situation) -> Told:
    if where.fork:
        return Told(
            f"not posted: {why}. The change comes from a fork, whose token may only read: see {RECIPE}", hint=True
        )
    return Told(
        f"not posted: {why}. The token may not: give it {_RIGHTS[where.kind]}; for forks see {RECIPE}", hint=True
    )


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()
