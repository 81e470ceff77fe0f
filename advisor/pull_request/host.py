"""What there is to know of a code host, what is said to it and comes from it, and what goes wrong on the way."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from advisor.errors import AdvisorError
from advisor.text import count

_Item = TypeVar("_Item")

NAME: Final = "gpu-advisor"


class HostError(AdvisorError):
    """A code host and we did not come together."""

    exit_code = 5


class Unreachable(HostError):  # noqa: N818 - reads as what it says
    """It does not answer, or asks to come back later than is worth waiting for."""


class Refused(HostError):  # noqa: N818 - the same
    """The token may read and not write, as that of a pull request from a fork."""


class Gone(HostError):  # noqa: N818 - the same
    """What was asked for is not there, or not for this token to see."""


class Patience(NamedTuple):
    """How long to try."""

    tries: int = 6
    first_wait_s: float = 1.0  # it doubles each time
    rate_limit_s: int = 120  # that a rate limit may make us wait
    between_writes_s: float = 1.0  # what GitHub asks for
    answer_s: float = 240.0  # of one request with its tries
    total_s: float = 600.0  # of all together, pages included


@dataclass(frozen=True)
class Note:
    """A comment as it stands on the host."""

    id: int  # a larger one is younger
    author: str
    body: str
    url: str = ""


class Seal(NamedTuple):
    """A verdict on a commit, for a check run or a commit status."""

    commit: str
    verdict: str
    failed: bool
    link: str | None
    name: str = NAME


def within(seconds: float, work: Callable[[], Iterator[_Item]]) -> Iterator[_Item]:
    """What `work` yields, within so many seconds in all: tries, pauses, pages and the slowest of answers together.

    It runs in a thread of its own, since no client bounds how slowly the head of an answer may come. `Unreachable`
    where the time is up; a thread that is late is left to the end of the process.
    """
    results: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def run() -> None:
        try:
            for item in work():
                results.put(("item", item))
            results.put(("end", None))
        except BaseException as error:  # noqa: BLE001 - it is raised where the results are read
            results.put(("error", error))

    threading.Thread(target=run, daemon=True).start()
    end = time.monotonic() + seconds
    while True:
        try:
            kind, value = results.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            late = count(round(seconds), "second")
            raise Unreachable(f"the code host was not done after {late}; run this again later") from None
        if kind == "error":
            raise value
        if kind == "end":
            return
        yield value


_HOST: Final = re.compile(r"[\w.:\[\]@%-]+")
is_commit: Final = re.compile(r"[0-9A-Za-z]{1,64}").fullmatch
"""Whether a text may be the SHA of a commit, which becomes a part of addresses."""


class Branch(NamedTuple):
    """A branch, of a fork perhaps, at a commit: where the event gives no number."""

    owner: str
    name: str
    commit: str


@dataclass(frozen=True)
class Target:
    """What to post to, by CI's environment and the options."""

    kind: str  # the host's name in `advisor.pull_request.hosts`
    api_url: str
    repo: str
    token: str | None
    number: int | None = None  # the pull request's
    branch: Branch | None = None  # may help to find it
    commit: str | None = None
    link: str | None = None
    event: str | None = None  # what happened
    fork: bool = False  # whether the change comes from one, whose token may only read


class Api(NamedTuple):
    """A host's REST API: addresses below its root, with `{repo}` (or quoted, `{project}`) and the like; its fields."""

    name: str  # the host's, for messages
    root: str  # what follows the address of a server
    sign: str  # what stands before the number of a pull request
    header: tuple[str, str]  # the header that takes the token, and what it says
    me: tuple[str, str, object, tuple[str, ...]]  # whose the token is: method, address and body; where the name stands
    notes: str  # the comments of a pull request; `order` asks for them as they came
    order: Mapping[str, str]
    note: str  # one of them, which `edit` (a method) changes
    edit: str
    author: tuple[str, str]  # where in a comment the name of who wrote it stands
    most: int  # characters that the host takes in one comment
    status: str  # the status of a commit, `context` its field for a name, `failed` what it calls one that failed
    context: str
    failed: str
    description: int  # characters that a status may say
    pulls: str | None = None  # open pull requests, where a job may not know its own
    check_runs: str | None = None  # the check runs of a repository; None where the host has none


class CodeHost(NamedTuple):
    """All that is asked of a code host."""

    ci: str  # what runs its jobs, in each of which it sets the variable `signal`
    own: str  # what a server of one's own is called
    signal: str
    token: str  # the variable that holds it
    rights: str  # what to give a token that may not post
    target: Callable[[Mapping[str, str]], Target]  # a UsageError where the CI's environment cannot be read
    api: Api


def is_address(url: str) -> bool:
    """Whether a URL is one of a web host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host) and _HOST.fullmatch(parts.netloc) is not None
