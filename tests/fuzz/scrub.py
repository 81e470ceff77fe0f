"""Copies without secrets of changed recordings: a copy with the same findings, or an error and no copy."""

from __future__ import annotations

from pathlib import Path
from random import Random

from advisor import engine
from advisor.errors import AdvisorError
from advisor.model.report import Report
from advisor.scrub import scrub
from tests.fuzz import kineto, nsys, xplane


def case(random: Random, folder: Path) -> Path:
    """Writes a recording as one of the formats' own targets does."""
    path: Path = random.choice((kineto, nsys, xplane)).case(random, folder)
    return path


def check(path: Path) -> None:
    """Scrubs it, and holds the copy's findings against its own.

    Raises:
        AssertionError: the copy has others, or a copy that failed left something.
    """
    target = path.with_name(f"clean-{path.name}")
    before = set(path.parent.iterdir())
    try:
        scrub(path, target)
    except AdvisorError:
        assert set(path.parent.iterdir()) == before, "something is left of a copy that failed"
        return
    assert _findings(engine.check([str(target)])) == _findings(engine.check([str(path)])), "the copy has other findings"


def _findings(report: Report) -> list[tuple[str, str]]:
    return [(finding.key, finding.severity) for run in report.runs for finding in run.findings]
