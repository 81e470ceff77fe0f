"""Lines of the checkout that findings point at, told from the call stacks of their places."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from advisor.model.comparison import FindingChange
from advisor.model.finding import Finding, Place
from advisor.text import one_line
from advisor.vocabulary.severities import Severity

_FRAME: Final = re.compile(r"^\s*(?P<file>[^\x00]{1,1000}?)\((?P<line>\d{1,7})\)")
_MOST_FRAMES: Final = 200
_MOST_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Annotation:
    """A remark on one line of one file; `path` is relative to the checkout."""

    path: str
    line: int
    severity: Severity
    title: str
    message: str


class Pointer(NamedTuple):
    """A finding that names places."""

    key: str
    title: str
    severity: Severity
    says: str
    where: Sequence[Place]


def pointers(findings: Iterable[Finding]) -> tuple[Pointer, ...]:
    """The findings of a report."""
    return tuple(Pointer(f.key, f.title, f.severity, f.says, f.where) for f in findings)


def pointers_of_changes(changes: Iterable[FindingChange]) -> tuple[Pointer, ...]:
    """The findings of a comparison that the change is to blame for: those that are new or worse."""
    return tuple(
        Pointer(change.key, change.title, change.head.severity, change.head.says, change.head.where)
        for change in changes
        if change.status in {"new", "worse"} and change.head and change.head.severity and not change.head.under
    )


def annotated(findings: Iterable[Pointer], root: Path) -> list[Annotation]:
    """One remark for each finding and line: the innermost frame of each place that lies in the checkout at `root`."""
    annotations: dict[tuple[str, str, int], Annotation] = {}
    known: dict[str, tuple[str, int] | None] = {}
    for finding in findings:
        for place in finding.where:
            spot = _spot(place.stack, root, known)
            if spot:
                message = one_line(f"{finding.says} Seen at {place.name}.", 2000)
                remark = Annotation(*spot, finding.severity, one_line(finding.title, 200), message)
                annotations.setdefault((finding.key, *spot), remark)
    return list(annotations.values())


def _spot(stack: str | None, root: Path, known: dict[str, tuple[str, int] | None]) -> tuple[str, int] | None:
    """File and line of the innermost frame in the checkout; frames are separated by semicolons."""
    for frame in re.split(r"[;\n]", stack or "")[:_MOST_FRAMES]:
        match = _FRAME.match(frame)
        if not match:
            continue
        if match["file"] not in known:
            known[match["file"]] = _in_checkout(match["file"], root)
        file, line = known[match["file"]], int(match["line"])
        if file and 1 <= line <= file[1]:
            return file[0], line
    return None


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
        if _readable(file, root):
            return candidate.as_posix(), file.read_bytes().count(b"\n") + 1
    return None


def _readable(file: Path, root: Path) -> bool:
    try:
        inside = file.resolve().is_relative_to(root.resolve())
        return inside and file.is_file() and file.stat().st_size <= _MOST_BYTES
    except (OSError, ValueError):
        return False
