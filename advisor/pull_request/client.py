"""The way to a code host: what is asked by the table of its API, of that host alone, again and again, and in bounds."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial, reduce
from itertools import islice
from operator import getitem
from typing import Any, Final, Self
from urllib.parse import quote, urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from advisor.errors import UsageError
from advisor.pull_request import host
from advisor.pull_request.host import Branch, CodeHost, Gone, HostError, Note, Patience, Refused, Seal, Unreachable
from advisor.pull_request.source import Annotation
from advisor.secrets import without_secrets
from advisor.text import one_line, shortened, visible
from advisor.vocabulary.severities import GRADES

_TIMEOUT_S: Final = 30  # of each read; `Patience` bounds the whole answer
_MOST_BYTES: Final = 16 << 20  # a page of a hundred comments of a GitHub is below 7 MB; read, it takes 30 times that
_MOST_PULLS: Final = 1_000  # of one branch
_MOST_SUMMARY: Final = 65_535
_MOST_ANNOTATIONS: Final = 50  # in one request
_TRY_AGAIN: Final = (429, 500, 502, 503, 504)
_UNAUTHORISED, _FORBIDDEN, _NO_SUCH_PAGE = 401, 403, 404
_PIECE: Final = 6  # characters of the token that show it
_LIMIT: Final = "rate limit"
_LIMIT_S: Final = 60  # of a rate limit that does not say how long
# What reading one thing raises where another was sent: null, a list, a page of HTML.
_UNLIKE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Repository:
    """A repository on a code host, and what a token may do there; `thread` has it for the comments of a pull request.

    Every method raises `Refused` where the token may not, `Gone` where what is asked for is not there, `Unreachable`
    where the host stays silent after retries, and HostError where it answers anything else.
    """

    def __init__(self, host: CodeHost, url: str, repo: str, token: str, patience: Patience) -> None:
        """Nothing is asked yet."""
        self.api, self.most = host.api, host.api.most
        self._variable, self._patience, self._token = host.token, patience, token
        self._root = url.rstrip("/").removesuffix(host.api.root) + host.api.root + "/"
        self._names: dict[str, object] = {"repo": repo, "project": quote(repo, safe=""), "sign": host.api.sign}
        header, words = host.api.header
        self._session = _Session(url, patience)
        self._session.headers[header] = words.format(token=token)
        self._session.auth = lambda request: request  # nothing beside the token, as of ~/.netrc or of the address
        self._written_s = 0.0

    def thread(self, number: int) -> Self:
        """The same for the pull request of this number."""
        thread = copy(self)
        thread._names = self._names | {"number": number}  # noqa: SLF001 - its own
        return thread

    def me(self) -> str:
        """The name under which the token writes."""
        method, path, body, keys = self.api.me
        with self._asking("who the token belongs to"):
            return str(reduce(getitem, keys, self._answer(method, path, json=body)))

    def pull_of(self, branch: Branch) -> int | None:
        """The open pull request whose head is the branch at that very commit; None where a later one was pushed."""
        if self.api.pulls is None:
            return None
        with self._asking("the pull request of a branch"):
            pulls = self._rows(self.api.pulls, {"state": "open", "head": f"{branch.owner}:{branch.name}"})
            of_commit = (p["number"] for p in islice(pulls, _MOST_PULLS) if p["head"]["sha"] == branch.commit)
            return next(of_commit, None)

    def set_status(self, seal: Seal) -> None:
        """The verdict as a commit status."""
        status = {
            "state": self.api.failed if seal.failed else "success",
            "description": shortened(seal.verdict, self.api.description),
            self.api.context: seal.name,
            **({"target_url": seal.link} if seal.link else {}),
        }
        with self._asking("to set a commit status"):
            self._answer("POST", self.api.status, json=status, sha=seal.commit)

    def add_check_run(self, seal: Seal, summary: str, remarks: Sequence[Annotation]) -> None:
        """The verdict as a check run: its summary in Markdown, and remarks on lines."""
        path = self.api.check_runs
        if path is None:
            raise UsageError(f"--check-run: {self.api.name} has no check runs; use --status")
        first, *rest = [
            {
                "title": shortened(seal.verdict, 250),
                "summary": shortened(summary, _MOST_SUMMARY),
                "annotations": [
                    {
                        "path": remark.path,
                        "start_line": remark.line,
                        "end_line": remark.line,
                        "annotation_level": GRADES[remark.severity].annotation,
                        "title": remark.title,
                        "message": remark.message,
                    }
                    for remark in remarks[at : at + _MOST_ANNOTATIONS]
                ],
            }
            for at in range(0, max(1, len(remarks)), _MOST_ANNOTATIONS)
        ]
        run = {
            "name": seal.name,
            "head_sha": seal.commit,
            "status": "completed",
            "conclusion": "failure" if seal.failed else "success",
            "output": first,
            **({"details_url": seal.link} if seal.link else {}),
        }
        with self._asking("to add a check run"):
            number = self._answer("POST", path, json=run)["id"]
            for more in rest:
                self._answer("PATCH", path + "/{run:d}", json={"output": more}, run=number)

    def notes(self) -> Iterator[Note]:
        """All comments that people or tools wrote, from every page."""
        with self._asking("the comments of {sign}{number}"):
            for row in self._rows(self.api.notes, self.api.order):
                if not row.get("system"):
                    yield self._noted(row)

    def create(self, body: str) -> Note:
        """A new comment."""
        with self._asking("to comment on {sign}{number}"):
            return self._noted(self._answer("POST", self.api.notes, json={"body": body}))

    def edit(self, note: Note, body: str) -> None:
        """Another text for a comment. Raises `Gone` where it is no longer there."""
        with self._asking("to edit a comment on {sign}{number}"):
            self._answer(self.api.edit, self.api.note, json={"body": body}, note=note.id)

    def delete(self, note: Note) -> None:
        """No more of a comment. Raises `Gone` where it is no longer there."""
        with self._asking("to delete a comment on {sign}{number}"):
            self._answer("DELETE", self.api.note, note=note.id)

    def _noted(self, row: Mapping[str, Any]) -> Note:
        whose, name = self.api.author
        author = row[whose][name] if row[whose] else ""  # an account that was deleted
        fields = {"id": row["id"], "author": author, "body": row["body"] or "", "url": row.get("html_url") or ""}
        return msgspec.convert(fields, Note)

    def _rows(self, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        url, more, pages = self._url(path), {"params": {**query, "per_page": "100"}}, {""}
        while url not in pages:  # a host may name a page as its own next one
            pages.add(url)
            response = self._response("GET", url, **more)
            yield from response.json()
            url, more = response.links.get("next", {}).get("url", ""), {}

    def _answer(self, method: str, path: str, *, json: object = None, **names: object) -> Any:  # noqa: ANN401 - any JSON
        response = self._response(method, self._url(path, **names), json=json)
        return response.json() if response.content else None

    def _url(self, path: str, **names: object) -> str:
        return urljoin(self._root, path.format(**self._names, **names))

    def _response(self, method: str, url: str, **more: Any) -> requests.Response:  # noqa: ANN401 - as requests has it
        """The answer, once any rate limit is over; writes stand so far apart as GitHub asks for."""
        if method != "GET":
            time.sleep(max(0.0, self._written_s + self._patience.between_writes_s - time.monotonic()))
            self._written_s = time.monotonic()
        reply = partial(self._session.request, method, url, timeout=_TIMEOUT_S, **more)
        for tries in range(self._patience.tries, -1, -1):
            (response,) = host.within(self._patience.answer_s, lambda: iter([reply()]))
            wait_s = _rate_limit_s(response, self._patience.rate_limit_s)
            if wait_s is None or wait_s > self._patience.rate_limit_s or not tries:
                break
            time.sleep(wait_s)
        if not response.ok:
            raise _Refusal(response=response)
        return response

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turns what goes wrong on the way, and an answer that is not one of the host's API, into an error of ours."""
        question = f"{self.api.name}, asked {what.format(**self._names)}"
        try:
            yield
        except _Unfit as error:
            raise HostError(f"{question}: {self._without_token(str(error), 600)}") from None
        except _UNLIKE:
            words = f"{question}: its answer is not one of its API; check --api-url, and proxies on the way"
            raise HostError(words) from None
        except requests.TooManyRedirects:
            raise HostError(f"{question}: it redirects in a circle; check --api-url") from None
        except _Refusal as error:
            raise self._refusal(question, error.response) from None
        except requests.RequestException as error:
            words = f"no answer after several tries: {self._without_token(str(error))}; run this again later"
            raise Unreachable(f"{question}: {words}") from None

    def _without_token(self, says: str, most: int = 200) -> str:
        """What the host, or the library of what it sent, says: without any piece of the token, if it is sent back."""
        words, token = visible(says[:_MOST_SUMMARY]), self._token
        for at in range(len(token) - _PIECE + 1):
            words = words.replace(token[at : at + _PIECE], "...")
        return one_line(without_secrets(words), most)

    def _refusal(self, question: str, response: requests.Response) -> HostError:
        status, reason = response.status_code, self._without_token(_reason(response))
        if _LIMIT in reason.lower():
            return Unreachable(f"{question}: rate limit: {reason}; run this again later")
        if status == _NO_SUCH_PAGE:
            return Gone(f"{question}: not found (404); check --repo and --pr, and what the token may see")
        if status == _UNAUTHORISED:
            words = f"{self.api.name} does not know the token (401); set {self._variable} to one that is valid"
            return HostError(words)
        return (Refused if status == _FORBIDDEN else HostError)(f"{question}: {reason} ({status})")


def _reason(response: requests.Response) -> str:
    try:
        words = response.json()["message"]
    except _UNLIKE:
        words = response.reason
    return str(words or "no reason given")


def _rate_limit_s(response: requests.Response, most_s: float) -> float | None:
    """How long to wait for a rate limit to end, as GitHub says it; None where there is none."""
    if response.status_code != _FORBIDDEN or _LIMIT not in _reason(response).lower():
        return None
    reset = response.headers.get("X-RateLimit-Reset", "")
    return max(0.0, int(reset) - time.time()) if reset.isdecimal() else min(_LIMIT_S, most_s)


class _Refusal(requests.HTTPError):
    response: requests.Response


class _Unfit(requests.RequestException):
    """The host points to another one, or to itself over another protocol; or its answer has no end."""


class _Retry(Retry):
    RETRY_AFTER_STATUS_CODES = Retry.RETRY_AFTER_STATUS_CODES | {_FORBIDDEN}  # with which GitHub asks to come back


class _Session(requests.Session):
    """Asks the origin of a URL alone, so that no redirect and no link to a next page takes the token elsewhere."""

    def __init__(self, url: str, patience: Patience) -> None:
        super().__init__()
        self._origin = _origin(url)
        retry = _Retry(
            total=patience.tries,
            backoff_factor=patience.first_wait_s / 2,  # none before the first, then doubled
            status_forcelist=_TRY_AGAIN,
            allowed_methods=None,  # a POST that went through after all leaves two comments; `post` tidies up
            retry_after_max=patience.rate_limit_s,
        )
        self._adapter = _Bounded(max_retries=retry)

    def rebuild_auth(self, *_: object) -> None:
        """After a redirect the token stays: it is to the same origin, and nothing of ~/.netrc goes there."""

    def get_adapter(self, url: str) -> HTTPAdapter:
        """What sends to this address, that of each redirect included."""
        if (origin := _origin(url)) != self._origin:
            here, there = (one_line("{}://{}:{}".format(*each), 200) for each in (self._origin, origin))
            words = f"{here} points to {there}, which the token is not meant for"
            raise _Unfit(f"{words}; give that address with --api-url if it is the host's own")
        return self._adapter


class _Bounded(HTTPAdapter):
    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:  # noqa: ANN401 - of HTTPAdapter
        """The answer without its cookies: Python's parser of them prints what it cannot read."""
        del resp._original_response.msg["Set-Cookie"]  # noqa: SLF001 - where requests looks for them
        return super().build_response(req, resp)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:  # noqa: ANN401 - of HTTPAdapter
        """The answer, all of it; raises where it is too large."""
        response = super().send(request, *args, **{**options, "stream": True})
        with response.raw:
            response._content = b"".join(_blocks(response))  # noqa: SLF001 - as requests fills it in
        return response


def _blocks(response: requests.Response) -> Iterator[bytes]:
    size = 0
    for block in response.iter_content(1 << 16):
        size += len(block)
        if size > _MOST_BYTES:
            raise _Unfit(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
        yield block


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
