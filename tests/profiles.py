"""Recorded profiles and simulated jobs, each read, measured, checked or simulated once in a process.

What comes back is shared between tests: change nothing in it.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import engine
from advisor.comparison import Comparison
from advisor.lanes.lens import look
from advisor.metrics import Measurements, measure
from advisor.profile import Profile
from advisor.report import Report
from advisor.resources import rules_folder
from advisor.rules.book import Rule, load

if TYPE_CHECKING:
    from simulator import Case

ROOT = Path(__file__).parents[1]


def read(path: str | Path) -> Profile:
    """The profile of a file or folder."""
    return _read(str(path))


@cache
def measured(path: str | Path, steps: str = "steady") -> Measurements:
    """All metrics of a profile."""
    return measure(look(read(path), steps))


def check(*paths: str | Path, **options: str | bool) -> Report:
    """The report of these paths by the shipped rules; the options are those of `engine.check`."""
    return _check(tuple(map(str, paths)), **options)


def compare(base: str | Path, head: str | Path, **options: str) -> Comparison:
    """The comparison of two paths; the options are those of `engine.compare`."""
    return _compare(str(base), str(head), **options)


@cache
def book() -> dict[str, Rule]:
    """The shipped rules."""
    return load([rules_folder()])


@cache
def case(name: str, gpu: str = "a100", seed: int = 0, steps: int = 8, ranks: int = 8) -> Case:
    """A simulated job with a fault, and its repair."""
    folder = str(ROOT / "fixtures" / "make")
    if folder not in sys.path:
        sys.path.append(folder)
    from simulator import case as simulated  # noqa: PLC0415 - the scripts of fixtures/ are no package

    return simulated(name, gpu, seed, steps, ranks)


@cache
def _read(path: str) -> Profile:
    return engine.read(path)


@cache
def _check(paths: tuple[str, ...], **options: Any) -> Report:
    return engine.check(paths, **options)


@cache
def _compare(base: str, head: str, **options: str) -> Comparison:
    return engine.compare([base], [head], **options)
