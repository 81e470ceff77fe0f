"""The engine: discover, read, measure, judge, report."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from advisor import __version__, metrics
from advisor.config import Config
from advisor.discover import Found, discover
from advisor.errors import NothingFound, ReadError, RuleError, UsageError
from advisor.judge import Suppression, judge
from advisor.lens import STEADY, look
from advisor.profile import Profile, join
from advisor.readers import reader
from advisor.report import Report, Unreadable
from advisor.resources import rules_folder
from advisor.rulebook import Rule, load
from advisor.rulelint import lint
from advisor.storage import open_file
from advisor.summary import summarise
from advisor.text import plain

Progress: TypeAlias = Callable[[str], Callable[[int], object]]
"""Told the file that is about to be read; gives back what is told each number of bytes read."""


def check(
    paths: Sequence[str],
    *,
    config: Config | None = None,
    steps: str = STEADY,
    today: dt.date | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check every run under `paths`.

    Args:
        paths: Files, folders or URLs of profiles.
        config: Rule folders, overrides and suppressions.
        steps: `steady`, `all` or `A:B`.
        today: Date to hold the suppressions' expiry against; the current one by default.
        progress: Where to report the bytes read.

    Raises:
        NothingFound: none of the paths holds a readable profile.
        UsageError: the configuration, a rule or `steps` is wrong.
    """
    config = config or Config()
    rules = rule_book(config)
    silenced = _active(config, today or dt.datetime.now(dt.UTC).date())
    found, rejected = discover(paths)
    unreadable = [_unreadable(r.path, r.why) for r in rejected]
    runs = []
    for one in found:
        for name, profile in _profiles(one, progress or _silent, unreadable):
            measured = metrics.measure(look(profile, steps))
            runs.append(summarise(name, one.path, measured, judge(measured, rules, silenced)))
    if not runs:
        raise NothingFound("; ".join(f"{u.path}: {u.why}" for u in unreadable) or "no profile given")
    return Report(advisor_version=__version__, runs=tuple(runs), unreadable=tuple(unreadable))


def read(path: str) -> Profile:
    """The profile of the one run at `path`: a file, a folder or a URL.

    Raises:
        ReadError: there is no readable run, or more than one.
    """
    found, rejected = discover([path])
    unreadable = [_unreadable(r.path, r.why) for r in rejected]
    profiles = [profile for one in found for _, profile in _profiles(one, _silent, unreadable)]
    if not profiles:
        raise NothingFound("; ".join(f"{u.path}: {u.why}" for u in unreadable) or f"{path}: no profile")
    if len(profiles) > 1:
        raise ReadError(f"{path}: holds {len(profiles)} runs; give the path of one")
    return profiles[0]


def _unreadable(path: str, why: str) -> Unreadable:
    return Unreadable(path=plain(path), why=plain(why))


def _silent(_: str) -> Callable[[int], object]:
    return lambda _: None


def _active(config: Config, today: dt.date) -> dict[str, Suppression]:
    """The suppressions that have not expired, by rule."""
    return {s.rule: Suppression(s.reason, s.until.isoformat()) for s in config.suppress if s.until >= today}


def rule_book(config: Config) -> dict[str, Rule]:
    """The shipped rules and the user's, with the user's overrides.

    Raises:
        RuleError: a user's rule is wrong.
        UsageError: an override or suppression names no rule.
    """
    for folder in config.rules:
        shipped = load([rules_folder()])
        if problems := lint(folder, metrics.dtypes(), shipped):
            raise RuleError(problems[0])
    book = load([rules_folder(), *config.rules])
    for name in [*config.overrides, *(s.rule for s in config.suppress)]:
        if name not in book:
            near = difflib.get_close_matches(name, book, n=1)
            raise UsageError(f"no rule is called {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    changed = {name: book[name].adjusted(o.params, o.severity) for name, o in config.overrides.items()}
    return book | changed


def _profiles(found: Found, progress: Progress, unreadable: list[Unreadable]) -> Iterable[tuple[str, Profile]]:
    """The run's profile; files that claim one and the same rank are different jobs and come one by one."""
    profiles: list[Profile] = []
    for number, file in enumerate(found.files):
        try:
            with open_file(file) as stream:
                profiles.append(reader(found.format).read(stream, file, number, progress(file)))
        except ReadError as error:
            unreadable.append(_unreadable(file, str(error).removeprefix(f"{file}: ")))
    if not profiles:
        return []
    ranks = [rank for profile in profiles for rank in profile.workers["worker"]]
    if len(set(ranks)) == len(ranks):
        return [(found.name, join(profiles))]
    return [(f"{found.name}/{Path(p.workers['file'][0]).name}", p) for p in profiles]
