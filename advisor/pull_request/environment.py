"""What CI says of where a command runs, and what there is to know of each code host."""

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
class Api:
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


@dataclass(frozen=True)
class CodeHost:
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
