"""The engine: discover, read, measure, judge, report."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from advisor import __version__, excerpts, files, metrics
from advisor.analysis.device.steps import STEADY, select_steps
from advisor.config import Config
from advisor.errors import NothingFound, ReadError, RuleError, UsageError, contained, failure
from advisor.files import Progress, summed_up, unreadable
from advisor.inputs.discover import Found, discover
from advisor.inputs.storage import HEAD_BYTES, listing, open_file, tidy
from advisor.metrics import Measurements
from advisor.model.profile import Profile, join
from advisor.model.report import Report, Run, Unreadable
from advisor.render import json
from advisor.resources import rules_folder
from advisor.rules.book import Rule, load
from advisor.rules.judge import Suppression, judge
from advisor.rules.lint import lint
from advisor.summary import summarise
from advisor.text import one_line

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison

_COMPARISON: Final = re.compile(rb'\s*\{\s*"schema_version":\s*\d+,\s*"advisor_version":\s*"[^"]*",\s*"verdict"')
_MOST_REASONS: Final = 20
_MOST_BYTES: Final = 1 << 29  # a report of thousands of ranks is a tenth of it


def check(  # noqa: PLR0913 - all but the paths are options with a default
    paths: Sequence[str],
    *,
    config: Config | None = None,
    steps: str = STEADY,
    today: dt.date | None = None,
    progress: Progress | None = None,
    processes: int = 1,
    step_range: str | None = None,
    run: str | None = None,
    all_runs: bool = False,
    baseline: str | None = None,
    max_bytes: int | None = None,
) -> Report:
    """Check every run under `paths`.

    Args:
        paths: Files, folders or URLs of profiles.
        config: Rule folders, overrides and suppressions.
        steps: `steady`, `all` or `A:B`.
        today: Date to hold the suppressions' expiry against; the current one by default.
        progress: Where to report the bytes read.
        processes: How many files of one run to read side by side, each in a process of its own. A script that asks for
            more than one needs the guard `if __name__ == "__main__":`, as always with multiprocessing.
        step_range: Regular expression of the host's ranges that are steps, in place of those that the profile marks.
        run: Of the runs in one TensorFlow or JAX log folder, the one to check instead of the newest.
        all_runs: Check all of them.
        baseline: A report saved as JSON; findings say whether they are new against it.
        max_bytes: The size, unpacked, up to which a file is read; by default what fits into 70 % of the memory.

    Raises:
        NothingFound: none of the paths holds a readable profile.
        ReadError: the baseline is no report.
        UsageError: the configuration, a rule, `steps` or `step_range` is wrong.
    """
    config = config or Config()
    earlier = None if baseline is None else saved(baseline)
    rules = rule_book(config)
    silenced = suppressions(config, today or dt.datetime.now(dt.UTC).date())
    changed = replaced(config)
    found, rejected = discover(paths, run=run, all_runs=all_runs)
    lost = [unreadable(r.path, r.why, r.others) for r in rejected]
    formats = _formats(found)

    def checked(one: Found) -> tuple[list[Run], list[Unreadable]]:
        jobs, broken = measured(one, steps, progress, processes, step_range, max_bytes)
        beside = (*one.notes, *_beside(formats[_folder(one)]), *changed)
        told = [(name, whole, judge(whole, rules, silenced), (*notes, *beside)) for name, whole, notes in jobs]
        return [
            summarise(name, one.path, whole, replace(judged, notes=(*judged.notes, *notes)))
            for name, whole, judged, notes in told
        ], broken

    outcomes = [contained(partial(checked, one), partial(_failed, one)) for one in found]
    runs = [run for of_one, _ in outcomes for run in of_one]
    lost = summed_up([*lost, *(file for _, broken in outcomes for file in broken)])
    if not runs:
        raise NothingFound(_why_nothing(lost) or "no profile given")
    report = Report(advisor_version=__version__, runs=tuple(runs), unreadable=tuple(lost))
    if not earlier:
        return report
    from advisor.comparing import mark_new  # noqa: PLC0415 - a plain check does without what compares

    return mark_new(report, earlier)


def _failed(found: Found, kind: str) -> tuple[list[Run], list[Unreadable]]:
    """A run that a bug keeps from being judged."""
    return [], [unreadable(found.path, failure(kind))]


def _why_nothing(lost: Sequence[Unreadable]) -> str:
    """Of each file, or kind of file, why it cannot be read; of some where they are many."""
    told = [f"{file.path}: {file.why}" for file in lost[:_MOST_REASONS]]
    return "; ".join([*told, *([f"and {len(lost) - len(told):,} more"] if len(lost) > len(told) else [])])


def _formats(found: Iterable[Found]) -> dict[str, set[str]]:
    """The formats of the profiles in each folder."""
    formats = defaultdict(set)
    for one in found:
        formats[_folder(one)].add(one.format)
    return formats


def _folder(found: Found) -> str:
    return found.files[0].rpartition("/")[0]


def _beside(formats: Iterable[str]) -> list[str]:
    """What is to be noted of a run in whose folder there are profiles of these formats."""
    formats = sorted(formats)
    if len(formats) == 1:
        return []
    return [f"{' and '.join(formats)} profiles lie in this folder: taken as different runs, even if of one job"]


def measured(  # noqa: PLR0913, PLR0917 - as check
    found: Found,
    steps: str = STEADY,
    progress: Progress | None = None,
    processes: int = 1,
    step_range: str | None = None,
    max_bytes: int | None = None,
) -> tuple[list[tuple[str, Measurements, Sequence[str]]], list[Unreadable]]:
    """The jobs in one run's files, each with its name and what to note of its files; and the unreadable files.

    Arguments as in `check`.

    Raises:
        UsageError: `steps` or `step_range` is wrong.
    """
    read_, broken = files.parts(found, steps, progress or _silent, processes, step_range, max_bytes)
    return [(name, metrics.conclude(of_job), notes) for name, of_job, notes in files.jobs(found, read_)], broken


def compare(  # noqa: PLR0913 - all but the paths are options with a default
    base: Sequence[str],
    head: Sequence[str],
    *,
    config: Config | None = None,
    steps: str = STEADY,
    today: dt.date | None = None,
    progress: Progress | None = None,
    processes: int = 1,
    step_range: str | None = None,
    max_bytes: int | None = None,
) -> Comparison:
    """Compare the runs under `head` with those under `base`.

    Args:
        base: Profiles, folders or URLs of them, and reports saved as JSON; every run in them is one of this side's.
        head: The same of the other side.
        config: As in `check`, like all that follow.
        steps: Also outliers count, except where this is a range. Of saved reports they are fixed: only the default.
        today: As in `check`.
        progress: As in `check`.
        processes: As in `check`.
        step_range: As in `check`; not for saved reports either.
        max_bytes: As in `check`.

    Raises:
        NothingFound: a side holds no readable profile and no report.
        ReadError: a report cannot be read.
        UsageError: the configuration, a rule, `steps` or `step_range` is wrong.
    """
    asked = f"--step-range {step_range}" if step_range is not None else f"--steps {steps}" if steps != STEADY else ""
    if fixed := [path for path in (*base, *head) if _is_report(path)] if asked else []:
        raise UsageError(f"{asked}: {fixed[0]} is a saved report, whose steps are fixed; give the profile instead")
    checked = partial(
        check,
        config=config,
        steps=steps,
        today=today,
        progress=progress,
        processes=processes,
        step_range=step_range,
        max_bytes=max_bytes,
    )
    (before, lost), (after, lost_too) = (_runs(paths, checked) for paths in (base, head))
    notes = [*_given_twice("base", base), *_given_twice("head", head)]
    from advisor.comparing import compare as compared  # noqa: PLC0415 - as above

    return compared(before, after, advisor_version=__version__, unreadable=(lost, lost_too), notes=notes)


def _given_twice(side: str, paths: Sequence[str]) -> Iterator[str]:
    """A word on each path that a side was given more than once: it is one run all the same."""
    times = Counter(map(tidy, paths))
    yield from (f"given twice for the {side}, counted once: {one_line(path)}" for path, n in times.items() if n > 1)


def _runs(paths: Sequence[str], checked: Callable[[Sequence[str]], Report]) -> tuple[list[Run], list[Unreadable]]:
    """Every run of one side, those of saved reports as they are, those of profiles checked; and what is unreadable."""
    reports = {path: saved(path) for path in paths if _is_report(path)}
    profiles = [path for path in paths if path not in reports]
    read_ = [*reports.values(), *([checked(profiles)] if profiles else [])]
    return [run for report in read_ for run in report.runs], [lost for report in read_ for lost in report.unreadable]


def _is_report(path: str) -> bool:
    if listing(path) is not None:
        return False
    with open_file(path) as stream:
        head = stream.read(HEAD_BYTES)
    return head.lstrip().startswith(b"{") and b'"advisor_version"' in head


def saved(path: str) -> Report:
    """A report saved as JSON.

    Raises:
        ReadError: it cannot be opened, is no report, or is too large for one.
    """
    with open_file(path) as stream:
        text = stream.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ReadError(f"{path}: larger than any report; give the profile itself")
    if _COMPARISON.match(text):
        raise ReadError(f"{path}: is a saved comparison, not a report; give what `advisor check -o FILE.json` wrote")
    return json.load(text, path)


def read(path: str, max_bytes: int | None = None) -> Profile:
    """The profile of the one run at `path`: a file, a folder or a URL; `max_bytes` as in `check`.

    Raises:
        ReadError: there is no readable run, or more than one.
    """
    found, rejected = discover([path])
    lost = [unreadable(r.path, r.why, r.others) for r in rejected]
    profiles = []
    for one in found:
        whole, broken = files.read(one, _silent, max_bytes)
        profiles += [join(whole)] if whole and not _repeated(p.workers for p in whole) else whole
        lost += broken
    if not profiles:
        raise NothingFound(_why_nothing(summed_up(lost)) or f"{path}: no profile")
    if len(profiles) > 1:
        raise ReadError(f"{path}: holds {len(profiles)} runs; give the path of one, as {found[0].files[0]}")
    return profiles[0]


def excerpt(
    path: str, key: str, *, config: Config | None = None, steps: str = STEADY, max_bytes: int | None = None
) -> dict[str, Any]:
    """A Chrome trace, as a JSON object, of the part of the one run at `path` that shows a finding.

    Args:
        path: A file, a folder or a URL.
        key: The finding, by its rule's name.
        config: Rule folders and overrides, as for `check`.
        steps: As for `check`.
        max_bytes: As for `check`.

    Raises:
        ReadError: there is no readable run, or more than one.
        UsageError: nothing of that name was found in the run.
    """
    profile = read(path, max_bytes)
    measured = metrics.measure(select_steps(profile, steps))
    findings = judge(measured, rule_book(config or Config()), {}).findings
    shown = next((f for f in findings if key in {f.key, f.rule, *(s.rule for s in f.symptoms)}), None)
    if shown is None:
        raise UsageError(
            f"--finding {key}: not found in {path}; found: {', '.join(f.key for f in findings) or 'nothing'}"
        )
    worker = shown.where[0].worker if shown.where else shown.scope.workers[0]
    return excerpts.excerpt(profile, measured.selection.of(worker), findings, shown)


def _repeated(workers: Iterable[pl.DataFrame]) -> bool:
    """Whether two files claim the same rank."""
    ranks = [rank for table in workers for rank in table["worker"]]
    return len(set(ranks)) < len(ranks)


def replaced(config: Config) -> list[str]:
    """A word on each shipped rule that one of the user's takes the place of."""
    taken = load([rules_folder()]).keys() & load(config.rules).keys() if config.rules else ()
    return [f"{name} is your own rule, in place of the shipped one" for name in sorted(taken)]


def _silent(_: str) -> Callable[[int], object]:
    return lambda _: None


def suppressions(config: Config, today: dt.date) -> dict[str, Suppression]:
    """The suppressions by rule; of several for one, that which holds longest."""
    ordered = sorted(config.suppress, key=lambda s: s.until)
    return {s.rule: Suppression(s.reason, s.until.isoformat(), expired=s.until < today) for s in ordered}


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
    for name, override in config.overrides.items():
        if unknown := sorted(override.params.keys() - book[name].params.keys()):
            known = ", ".join(book[name].params) or "none"
            raise UsageError(f"overrides.{name}.params.{unknown[0]}: no such parameter; {name} has {known}")
    changed = {name: book[name].adjusted(o.params, o.severity) for name, o in config.overrides.items()}
    return book | changed
