"""What is said to a host and comes from it, how long to try, and what goes wrong on the way."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

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


@dataclass(frozen=True)
class Patience:
    """How often to try again, the first wait (it doubles each time), and how long a rate limit may make us wait.

    `total_s` bounds all of it together, pages included.
    """

    tries: int = 6
    first_wait_s: float = 1.0
    rate_limit_s: int = 120
    between_writes_s: float = 1.0  # what GitHub asks for
    total_s: float = 600.0


@dataclass(frozen=True)
class Note:
    """A comment as it stands on the host; a larger `id` is a younger one."""

    id: int
    author: str
    body: str
    url: str = ""


@dataclass(frozen=True)
class Seal:
    """A verdict on a commit, for a check run or a commit status."""

    commit: str
    verdict: str
    failed: bool
    link: str | None
    name: str = NAME


def within(seconds: float, work: Callable[[], Iterator[_Item]]) -> Iterator[_Item]:
    """What `work` yields, within so many seconds in all: tries, pauses, pages and the slowest of answers together.

    It runs in a thread of its own, since no client bounds how slowly the head of an answer may come. A thread that is
    late is left to the end of the process.

    Raises:
        Unreachable: the time is up.
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
