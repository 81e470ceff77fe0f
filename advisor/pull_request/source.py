"""Lines of the checkout that findings point at, told from the call stacks of their places."""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, TypeAlias

from advisor.model.comparison import FindingChange, SideFinding
from advisor.model.finding import Finding
from advisor.text import one_line
from advisor.vocabulary.severities import Severity

_FRAME: Final = re.compile(r"^\s*(?P<file>[^\x00]{1,1000}?)\((?P<line>\d{1,7})\)")
_MOST_FRAMES: Final = 200
_MOST_BYTES: Final = 4 << 20


class Annotation(NamedTuple):
    """A remark on one line of one file; `path` is relative to the checkout."""

    path: str
    line: int
    severity: Severity
    title: str
    message: str


Pointer: TypeAlias = tuple[str, str, Severity, Finding | SideFinding]
"""Key, title and severity of a finding, and the finding, which names places."""


def pointers(findings: Iterable[Finding]) -> tuple[Pointer, ...]:
    """The findings of a report."""
    return tuple((f.key, f.title, f.severity, f) for f in findings)


def pointers_of_changes(changes: Iterable[FindingChange]) -> tuple[Pointer, ...]:
    """The findings of a comparison that the change is to blame for: those that are new or worse."""
    heads = ((c.key, c.title, c.head) for c in changes if c.head and c.status in {"new", "worse"} and not c.head.under)
    return tuple((key, title, head.severity, head) for key, title, head in heads if head.severity)


def annotated(findings: Iterable[Pointer], root: Path) -> list[Annotation]:
    """One remark for each finding and line: the innermost frame of each place that lies in the checkout at `root`."""
    annotations: dict[tuple[str, str, int], Annotation] = {}
    in_checkout = cache(partial(_in_checkout, root=root))
    for key, title, severity, finding in findings:
        for place in finding.where:
            frames = filter(None, map(_FRAME.match, re.split(r"[;\n]", place.stack or "")[:_MOST_FRAMES]))
            files = ((in_checkout(frame["file"]), int(frame["line"])) for frame in frames)
            spots = ((file[0], line) for file, line in files if file and 1 <= line <= file[1])
            if spot := next(spots, None):
                message = one_line(f"{finding.says} Seen at {place.name}.", 2000)
                annotations.setdefault((key, *spot), Annotation(*spot, severity, one_line(title, 200), message))
    return list(annotations.values())


def _in_checkout(name: str, root: Path) -> tuple[str, int] | None:
    """The checkout's file of that name, and its number of lines.

    A job may run in other folders than the checkout: then the longest end of its path that exists here is the file. One
    name alone is no evidence for a file that was installed elsewhere.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or "site-packages" in parts or "dist-packages" in parts:
        return None
    above = PurePosixPath(root.resolve()).parts
    if parts[: len(above)] == above:
        parts = parts[len(above) :]
    for first in range(len(parts) if len(parts) == 1 else len(parts) - 1):
        candidate = PurePosixPath(*(part for part in parts[first:] if part != "/"))
        file = root / candidate
        with suppress(OSError, ValueError):
            inside = file.resolve().is_relative_to(root.resolve())
            if inside and file.is_file() and file.stat().st_size <= _MOST_BYTES:
                return candidate.as_posix(), file.read_bytes().count(b"\n") + 1
    return None
