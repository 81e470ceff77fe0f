"""GitLab's API, by python-gitlab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import gitlab
import requests
from gitlab.exceptions import GitlabAuthenticationError, GitlabError
from urllib3.util import Retry

from advisor.errors import UsageError
from advisor.pull_request.comment import Note
from advisor.pull_request.environment import Branch
from advisor.pull_request.errors import Gone, HostError, Refused
from advisor.pull_request.host import Patience, Seal
from advisor.pull_request.source import Annotation
from advisor.pull_request.wire import SameHostAdapter, answering
from advisor.text import one_line, shortened

_MOST_NOTE: Final = 262_144  # a note may have 1,048,576 bytes, and a character four
_MOST_DESCRIPTION: Final = 255
_TIMEOUT_S: Final = 30
_TRY_AGAIN: Final = (429, 500, 502, 503, 504)
_TRIED: Final = frozenset({"GET", "POST", "PUT", "DELETE"})
_NO_SUCH_PAGE: Final = 404
_FORBIDDEN: Final = 403


class Repository:
    """One project, and what a token may do there."""

    def __init__(self, url: str, project: str, token: str, patience: Patience) -> None:
        """Nothing is asked yet."""
        self._client = gitlab.Gitlab(
            url, private_token=token, timeout=_TIMEOUT_S, per_page=100, session=_patient(url, patience)
        )
        self._project = self._client.projects.get(project, lazy=True)

    def me(self) -> str:
        """The user name that notes of this token carry."""
        with _asking("who the token belongs to"):
            return str(cast("dict[str, Any]", self._client.http_get("/user"))["username"])

    def pull_of(self, branch: Branch) -> int | None:
        """None: a job of a merge request knows its number, and another has none."""
        del branch
        return None

    def thread(self, number: int) -> Thread:
        """The notes of a merge request."""
        return Thread(self, self._project.mergerequests.get(number, lazy=True).notes, number)

    def set_status(self, seal: Seal) -> None:
        """The verdict as a commit status."""
        with _asking("to set a commit status"):
            self._project.commits.get(seal.commit, lazy=True).statuses.create(
                {
                    "state": "failed" if seal.failed else "success",
                    "name": seal.name,
                    "description": shortened(seal.verdict, _MOST_DESCRIPTION),
                    **({"target_url": seal.link} if seal.link else {}),
                }
            )

    def add_check_run(self, seal: Seal, summary: str, remarks: Sequence[Annotation]) -> None:
        """GitLab has none."""
        del seal, summary, remarks
        raise UsageError("--check-run: GitLab has no check runs; use --status")


class Thread:
    """The notes of one merge request."""

    most = _MOST_NOTE

    def __init__(self, project: Repository, manager: Any, number: int) -> None:  # noqa: ANN401 - as lazily typed there
        """The notes that `manager` reaches, of the merge request `number`."""
        self._manager, self._number = manager, number
        self.me = project.me

    def notes(self) -> Iterator[Note]:
        """All notes that people or tools wrote."""
        with _asking(f"the notes of !{self._number}"):
            for note in self._manager.list(iterator=True, sort="asc", order_by="created_at"):
                if not note.system:
                    yield _noted(note)

    def create(self, body: str) -> Note:
        """A new note."""
        with _asking(f"to comment on !{self._number}"):
            return _noted(self._manager.create({"body": body}))

    def edit(self, note: Note, body: str) -> None:
        """Another text for a note."""
        with _asking(f"to edit a note on !{self._number}"):
            self._manager.update(note.id, {"body": body})

    def delete(self, note: Note) -> None:
        """No more of a note."""
        with _asking(f"to delete a note on !{self._number}"):
            self._manager.delete(note.id)


def _noted(note: Any) -> Note:  # noqa: ANN401 - its attributes are whatever the server sent
    return Note(note.id, note.author["username"], note.body)


def _patient(url: str, patience: Patience) -> requests.Session:
    """A session that tries again when the server is ill or asks to wait."""
    retry = Retry(
        total=patience.tries,
        backoff_factor=patience.first_wait_s / 2,  # none before the first, then doubled
        status_forcelist=_TRY_AGAIN,
        allowed_methods=_TRIED,  # a POST that went through after all leaves two notes; `post` tidies up
        retry_after_max=patience.rate_limit_s,
    )
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, SameHostAdapter(url, max_retries=retry))
    return session


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turns what python-gitlab raises into an error of ours."""
    with answering("GitLab", what):
        try:
            yield
        except GitlabAuthenticationError:
            raise HostError("GitLab does not know the token (401); set GITLAB_TOKEN to one that is valid") from None
        except GitlabError as error:
            raise _ours(error, what) from None


def _ours(error: GitlabError, what: str) -> HostError:
    reason = one_line(str(error.error_message or error), 200)
    if error.response_code == _FORBIDDEN:
        return Refused(f"GitLab, asked {what}: {reason} (403)")
    if error.response_code == _NO_SUCH_PAGE:
        return Gone(f"GitLab, asked {what}: {reason} (404); check --repo and --pr, and what the token may see")
    return HostError(f"GitLab, asked {what}: {reason} ({error.response_code or 'no answer'})")
