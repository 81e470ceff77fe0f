"""What is asked of a host, how long to try, and what a verdict looks like beside a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from advisor.pull_request.comment import Thread
from advisor.pull_request.environment import Branch
from advisor.pull_request.source import Annotation

NAME: Final = "gpu-advisor"


@dataclass(frozen=True)
class Patience:
    """How often to try again, the first wait (it doubles each time), and how long a rate limit may make us wait."""

    tries: int = 6
    first_wait_s: float = 1.0
    rate_limit_s: int = 120
    between_writes_s: float = 1.0  # what GitHub asks for


@dataclass(frozen=True)
class Seal:
    """A verdict on a commit, for a check run or a commit status."""

    commit: str
    verdict: str
    failed: bool
    link: str | None
    name: str = NAME


class Host(Protocol):
    """A repository on a code host, and what a token may do there; raises as `Thread` does."""

    def pull_of(self, branch: Branch) -> int | None:
        """The open pull request whose head is the branch at that very commit; None where a later one was pushed."""

    def thread(self, number: int) -> Thread:
        """The comments of a pull request."""

    def set_status(self, seal: Seal) -> None:
        """The verdict as a commit status."""

    def add_check_run(self, seal: Seal, summary: str, remarks: Sequence[Annotation]) -> None:
        """The verdict as a check run: its summary in Markdown, and remarks on lines."""
