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
    """How often to try again, the first wait (it doubles each time), and how long a rate limit may make us wait.

    `answer_s` bounds one request with its tries, and `total_s` all of it together, pages included.
    """

    tries: int = 6
    first_wait_s: float = 1.0
    rate_limit_s: int = 120
    between_writes_s: float = 1.0  # what GitHub asks for
    answer_s: float = 240.0
    total_s: float = 600.0


@dataclass(frozen=True)
class Note:
    """A comment as it stands on the host; a larger `id` is a younger one."""

    id: int
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
    threading.Thread(target=_run, args=(work, results), daemon=True).start()
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


def _run(work: Callable[[], Iterator[_Item]], results: SimpleQueue[tuple[str, Any]]) -> None:
    try:
        for item in work():
            results.put(("item", item))
        results.put(("end", None))
    except BaseException as error:  # noqa: BLE001 - it is raised where the results are read
        results.put(("error", error))


_HOST: Final = re.compile(r"[\w.:\[\]@%-]+")


class Branch(NamedTuple):
    """A branch, of a fork perhaps, at a commit: where the event gives no number."""

    owner: str
    name: str
    commit: str


@dataclass(frozen=True)
class Target:
    """What to post to, by CI's environment and the options.

    `kind` is the host's name in `advisor.pull_request.hosts`. `number` is the pull request's; where it is None,
    `branch` may help to find it, and `event` names what happened. `fork` says that the change comes from a fork, whose
    token may only read.
    """

    kind: str
    api_url: str
    repo: str
    token: str | None
    number: int | None = None
    branch: Branch | None = None
    commit: str | None = None
    link: str | None = None
    event: str | None = None
    fork: bool = False


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
    """All that is asked of a code host.

    `ci` runs its jobs, in each of which it sets the variable `signal`. `own` is what a server of one's own is called,
    `token` the variable that holds the token, and `rights` what to give a token that may not post. `target` raises
    UsageError where the CI's environment cannot be read.
    """

    ci: str
    own: str
    signal: str
    token: str
    rights: str
    target: Callable[[Mapping[str, str]], Target]
    api: Api


def is_address(url: str) -> bool:
    """Whether a URL is one of a web host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host) and _HOST.fullmatch(parts.netloc) is not None
