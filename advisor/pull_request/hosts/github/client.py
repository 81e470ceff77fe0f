"""GitHub's API, by PyGithub."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from github import Auth, Github, GithubException
from github.GithubException import RateLimitExceededException, UnknownObjectException
from github.GithubObject import NotSet
from github.GithubRetry import GithubRetry
from github.Issue import Issue
from github.IssueComment import IssueComment
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass

from advisor.pull_request.comment import Note
from advisor.pull_request.environment import Branch
from advisor.pull_request.errors import Gone, HostError, Refused, Unreachable
from advisor.pull_request.host import Patience, Seal
from advisor.pull_request.source import Annotation
from advisor.pull_request.wire import SameHostAdapter, answering
from advisor.text import one_line, shortened
from advisor.vocabulary.severities import GRADES

_MOST_COMMENT: Final = 65_536
_MOST_SUMMARY: Final = 65_535
_MOST_ANNOTATIONS: Final = 50  # in one request
_MOST_DESCRIPTION: Final = 140
_MOST_PULLS: Final = 1_000  # of one branch
_TIMEOUT_S: Final = 30
_UNAUTHORISED: Final = 401
_FORBIDDEN: Final = 403
_TRIED: Final = frozenset({"GET", "POST", "PATCH", "DELETE"})
# `GET /user` is closed to the token of a workflow; this is open to every token.
_WHO: Final = "query { viewer { login } }"

logging.getLogger("github").setLevel(logging.CRITICAL)  # it prints what goes wrong, which is our error


class Repository:
    """One repository, and what a token may do there."""

    def __init__(self, api_url: str, repo: str, token: str, patience: Patience) -> None:
        """Nothing is asked yet."""
        retry = GithubRetry(
            total=patience.tries,
            backoff_factor=patience.first_wait_s / 2,  # urllib3 waits none before the first, then doubles
            allowed_methods=_TRIED,  # a POST that went through after all leaves two comments; `post` tidies up
            secondary_rate_wait=min(60, patience.rate_limit_s),
            max_rate_limit_wait=patience.rate_limit_s,
            retry_after_max=patience.rate_limit_s,
        )
        self._client = Github(
            auth=Auth.Token(token),
            base_url=api_url.rstrip("/"),
            retry=retry,
            per_page=100,
            timeout=_TIMEOUT_S,
            seconds_between_requests=None,
            seconds_between_writes=patience.between_writes_s,
            lazy=True,
        )
        for name, kind in _connections(api_url).items():
            setattr(self._client.requester, f"_Requester__{name}", kind)  # its public way is one for all clients
        self._repo = self._client.get_repo(repo)

    def me(self) -> str:
        """The login that comments of this token carry."""
        with _asking("who the token belongs to"):
            data: dict[str, Any] = self._client.requester.graphql_query(_WHO, {})[1]
            return str(data["data"]["viewer"]["login"])

    def pull_of(self, branch: Branch) -> int | None:
        """The open pull request whose head is the branch at that very commit; None where a later one was pushed."""
        with _asking("the pull request of a branch"):
            pulls = self._repo.get_pulls(state="open", head=f"{branch.owner}:{branch.name}")
            return next((pull.number for pull in islice(pulls, _MOST_PULLS) if pull.head.sha == branch.commit), None)

    def thread(self, number: int) -> Thread:
        """The comments of a pull request."""
        return Thread(self, number)

    def issue(self, number: int) -> Issue:
        """A pull request as the issue that its comments are of."""
        return self._repo.get_issue(number)

    def set_status(self, seal: Seal) -> None:
        """The verdict as a commit status."""
        with _asking("to set a commit status"):
            self._repo.get_commit(seal.commit).create_status(
                state="failure" if seal.failed else "success",
                description=shortened(seal.verdict, _MOST_DESCRIPTION),
                context=seal.name,
                target_url=seal.link or NotSet,
            )

    def add_check_run(self, seal: Seal, summary: str, remarks: Sequence[Annotation]) -> None:
        """The verdict as a check run, with remarks on lines."""
        first, *rest = [
            [_annotation(remark) for remark in remarks[at : at + _MOST_ANNOTATIONS]]
            for at in range(0, max(1, len(remarks)), _MOST_ANNOTATIONS)
        ]
        about: dict[str, Any] = {"title": shortened(seal.verdict, 250), "summary": shortened(summary, _MOST_SUMMARY)}
        with _asking("to add a check run"):
            run = self._repo.create_check_run(
                seal.name,
                seal.commit,
                status="completed",
                conclusion="failure" if seal.failed else "success",
                output={**about, "annotations": first},
                details_url=seal.link or NotSet,
            )
            for more in rest:
                run.edit(output={**about, "annotations": more})


def _connections(url: str) -> dict[str, type]:
    """PyGithub's connections, by what it calls their classes, kept to the origin of `url`."""

    def guarded(kind: Any) -> type:  # noqa: ANN401 - two classes with no base
        class Connection(kind):  # type: ignore[misc] # a class that is a value
            def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - PyGithub's
                super().__init__(*args, **options)
                self.session.mount(f"{self.protocol}://", SameHostAdapter(url, max_retries=self.retry))

        return Connection

    http, https = map(guarded, (HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass))
    first = https if url.startswith("https://") else http
    return {"connectionClass": first, "httpConnectionClass": http, "httpsConnectionClass": https}


class Thread:
    """The comments of one pull request."""

    most = _MOST_COMMENT

    def __init__(self, repository: Repository, number: int) -> None:
        """The pull request `number` of a repository."""
        self._repository, self._number = repository, number
        self._comments: dict[int, IssueComment] = {}
        self.me = repository.me

    def notes(self) -> Iterator[Note]:
        """All comments."""
        with _asking(f"the comments of #{self._number}"):
            yield from map(self._noted, self._repository.issue(self._number).get_comments())

    def create(self, body: str) -> Note:
        """A new comment."""
        with _asking(f"to comment on #{self._number}"):
            return self._noted(self._repository.issue(self._number).create_comment(body))

    def edit(self, note: Note, body: str) -> None:
        """Another text for a comment."""
        with _asking(f"to edit a comment on #{self._number}"):
            self._comments[note.id].edit(body)

    def delete(self, note: Note) -> None:
        """No more of a comment."""
        with _asking(f"to delete a comment on #{self._number}"):
            self._comments[note.id].delete()

    def _noted(self, comment: IssueComment) -> Note:
        self._comments[comment.id] = comment
        author = comment.user.login if comment.user else ""  # an account that was deleted
        return Note(comment.id, author, comment.body or "", comment.html_url)


def _annotation(remark: Annotation) -> dict[str, str | int]:
    return {
        "path": remark.path,
        "start_line": remark.line,
        "end_line": remark.line,
        "annotation_level": GRADES[remark.severity].annotation,
        "title": remark.title,
        "message": remark.message,
    }


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turns what PyGithub raises into an error of ours."""
    with answering("GitHub", what):
        try:
            yield
        except GithubException as error:
            raise _ours(error, what) from None


def _ours(error: GithubException, what: str) -> HostError:
    if isinstance(error, RateLimitExceededException):
        return Unreachable(f"GitHub, asked {what}: rate limit: {_reason(error)}; run this again later")
    if isinstance(error, UnknownObjectException):
        return Gone(f"GitHub, asked {what}: not found (404); check --repo and --pr, and what the token may see")
    if error.status == _UNAUTHORISED:
        return HostError("GitHub does not know the token (401); set GITHUB_TOKEN to one that is valid")
    kind = Refused if error.status == _FORBIDDEN else HostError
    return kind(f"GitHub, asked {what}: {_reason(error)} ({error.status})")


def _reason(error: GithubException) -> str:
    data: object = error.data
    message = data.get("message") if isinstance(data, dict) else data
    return one_line(str(message or error.message or "no reason given"), 200)
