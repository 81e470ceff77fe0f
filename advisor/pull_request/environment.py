"""What CI says of where a command runs: which host, repository, pull request and commit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"[\w.:\[\]@%-]+")


@dataclass(frozen=True)
class Branch:
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


@dataclass(frozen=True)
class CodeHost:
    """All that others ask of a code host but its client, which needs a package of its own.

    Attributes:
        ci: What runs its jobs.
        own: What a server of one's own is called, whose address `--api-url` gives.
        signal: The variable that its CI sets in every job.
        token: The variable that holds the token.
        rights: What to give a token that may not post.
        target: What to post to, as its CI's environment says it. Raises UsageError where that cannot be read.
    """

    ci: str
    own: str
    signal: str
    token: str
    rights: str
    target: Callable[[Mapping[str, str]], Target]


def is_address(url: str) -> bool:
    """Whether a URL is one of a web host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host) and _HOST.fullmatch(parts.netloc) is not None
