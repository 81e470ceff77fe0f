"""The engine: discover, read, measure, judge, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from advisor import __version__, excerpts, metrics
from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.job import job_of
from advisor.errors import NoRuns, ReadError, UsageError, contained, failure
from advisor.inputs import ncu
from advisor.inputs.discover import Recording, Rejected, discover, is_report
from advisor.inputs.storage import tidy
from advisor.metrics import Measurements, Metric
from advisor.model.clause import Note
from advisor.model.profile import Profile, join
from advisor.model.reason import Reason, remark
from advisor.model.report import Report, Run, Unreadable
from advisor.options import Options
from advisor.render.json import read_as
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import Suppression, judge
from advisor.rules.rule_file import Rule, selected
from advisor.rules.user_config import replaced, rule_book, suppressions
from advisor.runs import files
from advisor.runs.files import summed_up, unreadable
from advisor.runs.summary import Outcome, last_cycles, summarise, without_last_cycles
from advisor.system.polars_pool import inside_pool
from advisor.system.processes import LOCAL
from advisor.text import did_you_mean, one_line, plain

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison

# The jobs in one recording's files: name, measurements, notes on the files
Jobs: TypeAlias = list[tuple[str, Measurements, Sequence[Note]]]
Book: TypeAlias = tuple[Mapping[str, Rule], Mapping[str, Suppression]]

_MOST_REASONS: Final = 20


def check(paths: Sequence[str], options: Options | None = None) -> Report:
    """Check every run under `paths`: files, folders or URLs of profiles; see `advisor.check` for what it raises."""
    options = options or Options()
    baseline = read_as(Report, options.baseline) if options.baseline is not None else None
    book = inside_pool(lambda: rule_book(options.config)), suppressions(options.config, options.today)
    recordings, rejected = discover(paths, run=options.run, all_runs=options.all_runs)
    changed = replaced(options.config)
    outcomes = list[Outcome]()
    for recording in recordings:
        judged = partial(_judged, recording, book, (*recording.notes, *changed), options)
        # What comes from a cluster becomes tables on other threads, which need polars' own while this one waits.
        is_small = options.engine == LOCAL and files.are_small(recording.copies or recording.files)
        in_place = partial(inside_pool, judged) if is_small else judged
        outcomes.append(contained(in_place, partial(_failed, recording)))
    if not options.all_runs:
        outcomes = [*without_last_cycles(recordings, outcomes)]
    runs = [run for of_recording, _ in outcomes for run in of_recording]
    bad = _bad(rejected, outcomes)
    if not runs:
        raise NoRuns(_reasons(bad) or "no profile given")
    report = Report(advisor_version=__version__, runs=tuple(runs), unreadable=tuple(bad))
    if not baseline:
        return report
    from advisor.comparing import mark_new  # noqa: PLC0415 - a plain check does without what compares

    return mark_new(report, baseline)


def _judged(
    recording: Recording, book: Book, notes: Sequence[Note], options: Options
) -> tuple[list[Run], list[Unreadable]]:
    jobs, broken = measured(recording, options, selected(book[0].values()))
    runs = []
    for name, measurements, file_notes in jobs:
        judgement = judge(measured_run(measurements), *book)
        noted = replace(judgement, notes=(*judgement.notes, *file_notes, *notes))
        runs.append(summarise(name, recording.path, measurements, noted))
    return runs, broken


def measured(
    recording: Recording, options: Options | None = None, more: Sequence[Metric] = ()
) -> tuple[Jobs, list[Unreadable]]:
    """The jobs in one recording's files, with `more` metrics than the registered ones; and the unreadable files.

    A UsageError where `steps` or `step_range` is wrong.
    """
    choice, read = options or Options(), list[Note]()
    parts, broken = files.parts(recording, choice, more)
    counters = None if choice.ncu is None else ncu.read(choice.ncu)
    if choice.sample and choice.sample < (of := len(recording.files)):
        read.append(Note("ranks_sampled", read=len(parts) + len(broken), files=of))
    jobs = [*files.jobs(recording, parts)]
    logs, others, unread = files.logs(recording, jobs, choice)
    read += [Note("logs_beside", logs=len(logs))] if logs else []
    concluded = [(name, metrics.conclude(job, logs), [*read, *notes]) for name, job, notes in jobs]
    concluded += [(name, metrics.conclude(job), notes) for name, job, notes in others]
    return [
        (name, known.of_kind(choice.workload).of_flops(choice.flops_per_step).of_counters(counters), notes)
        for name, known, notes in concluded
    ], [*broken, *unread]


def measured_runs(
    paths: Sequence[str], more: Sequence[Metric] = (), options: Options | None = None
) -> list[tuple[str, Measurements]]:
    """Every run under `paths` by its name, measured and not judged, with `more` metrics than the registered ones.

    NoRuns where none of the paths holds a readable profile, a UsageError where `steps` or `step_range` is wrong.
    """
    recordings, rejected = discover(paths)
    outcomes = [measured(recording, options, more) for recording in recordings]
    runs = [(name, measurements) for jobs, _ in outcomes for name, measurements, _ in jobs]
    if not runs:
        raise NoRuns(_reasons(_bad(rejected, outcomes)) or "no profile given")
    return runs


def compare(base: Sequence[str], head: Sequence[str], options: Options | None = None) -> Comparison:
    """Compare the runs under `head` with those under `base`: profiles, folders or URLs of them, and saved reports.

    Every run in the paths of a side belongs to that side. The steps of a saved report are fixed. `advisor.compare` says
    what it raises.
    """
    from advisor.model.trials import Trials  # noqa: PLC0415 - as above

    options = options or Options()
    trials = read_as(Trials, options.trials) if options.trials is not None else None
    reports = [path for path in (*base, *head) if is_report(path)] if options.fixes_steps else []
    if reports:
        raise UsageError(
            f"{options.fixes_steps}: {reports[0]} is a saved report, whose steps are fixed; give the profile instead"
        )
    (before, bad_before), (after, bad_after) = (_side(paths, options) for paths in (base, head))
    notes = [*_repetitions("base", base), *_repetitions("head", head)]
    from advisor.comparing import compare as compare_runs  # noqa: PLC0415 - as above

    known = compare_runs(
        before, after, advisor_version=__version__, unreadable=(bad_before, bad_after), notes=notes, trials=trials
    )
    sides = (("base", known.base, base), ("head", known.head, head))
    of_paths = {name: side.model_copy(update={"paths": tuple(map(plain, paths))}) for name, side, paths in sides}
    return known.model_copy(update=of_paths)


def _side(paths: Sequence[str], options: Options) -> tuple[list[Run], list[Unreadable]]:
    """Every run of one side, those of saved reports as they are, those of profiles checked; and what is unreadable."""
    reports = {path: read_as(Report, path) for path in paths if is_report(path)}
    profiles = [path for path in paths if path not in reports]
    sides = [*reports.values(), *([check(profiles, options)] if profiles else [])]
    return [run for report in sides for run in report.runs], [file for report in sides for file in report.unreadable]


def _repetitions(side: str, paths: Sequence[str]) -> Iterator[Reason]:
    """A note on each path that a side has more than once: it is one run all the same."""
    times = Counter(map(tidy, paths))
    yield from (remark("repeated_path", side=side, path=plain(path), times=n) for path, n in times.items() if n > 1)


def read(path: str, options: Options | None = None) -> Profile:
    """The profile of the one run at `path`: a file, a folder or a URL.

    Raises:
        ReadError: there is no readable run, or more than one.
    """
    recordings, rejected = discover([path])
    outcomes = [files.read(recording, options or Options()) for recording in recordings]
    fragments = last_cycles(recordings, [_steps(*outcome) for outcome in outcomes])
    profiles = []
    for ranks in [ranks for number, (ranks, _) in enumerate(outcomes) if number not in fragments]:
        numbers = [number for rank in ranks for number in rank.workers["worker"]]  # twice, they are of two jobs
        profiles += [join(ranks)] if ranks and len({*numbers}) == len(numbers) else ranks
    if not profiles:
        raise NoRuns(_reasons(_bad(rejected, outcomes)) or f"{path}: no profile")
    if len(profiles) > 1:
        raise ReadError(f"{path}: holds {len(profiles)} runs; give the path of one, as {recordings[0].files[0]}")
    return profiles[0]


def _steps(ranks: Sequence[Profile], broken: Sequence[Unreadable]) -> int | None:
    """The steps that a recording marks; None where it marks none, or files of it are unreadable."""
    steps = [rank.steps.height for rank in ranks]
    return max(steps, default=0) if all(steps) and all(file.is_empty for file in broken) else None


def excerpt(path: str, key: str, options: Options | None = None, *, all_ranks: bool = False) -> dict[str, Any]:
    """A Chrome trace, as a JSON object, of the part of the one run at `path` that shows a finding, on its ranks or all.

    `key` is the rule's name. A ReadError where there is no readable run, or more than one; a UsageError where it has no
    such finding.
    """
    options = options or Options()
    profile = read(path, options)
    if not (profile.device_ops.height or profile.host_ops.height):
        raise UsageError(f"{path}: a log of collectives has no timeline; give a profile of the job")
    book = rule_book(options.config)
    measurements = metrics.measure(select_steps(profile, options.steps), selected(book.values()))
    findings = judge(measured_run(measurements.of_kind(options.workload)), book, {}).findings
    finding = next((f for f in findings if key in {f.key, f.rule, *(s.rule for s in f.symptoms)}), None)
    if finding is None:
        keys = [f.key for f in findings]
        has = f"{', '.join(keys) or 'none'}{did_you_mean(key, keys)}"
        raise UsageError(f"'{one_line(key, 80)}': no such finding in {path}, which has {has}")
    worker = finding.where[0].worker if finding.where else finding.scope.workers[0]
    others = measurements.selection.workers if all_ranks else finding.scope.workers
    job = job_of([rank for part in measurements.parts for rank in part.ranks])
    ahead_ns = {rank.worker: int(ns) for rank, ns in zip(job.ranks, job.offsets_ns, strict=True)}
    views = [measurements.selection.of(each) for each in dict.fromkeys([worker, *others])]
    return excerpts.excerpt(profile, views, findings, finding, ahead_ns)


def _failed(recording: Recording, kind: str) -> tuple[list[Run], list[Unreadable]]:
    return [], [unreadable(recording.path, failure(kind))]


def _bad(rejected: Iterable[Rejected], outcomes: Iterable[tuple[object, Sequence[Unreadable]]]) -> list[Unreadable]:
    """What could not be taken, and what of the runs could not be read."""
    broken = (file for _, files in outcomes for file in files)
    return summed_up([*(unreadable(file.path, file.why) for file in rejected), *broken])


def _reasons(bad: Sequence[Unreadable]) -> str:
    """Why each file, or kind of file, cannot be read; of the first ones where they are many."""
    reasons = [f"{file.path}: {file.why}" for file in bad[:_MOST_REASONS]]
    return "; ".join([*reasons, *([f"and {len(bad) - len(reasons):,} more"] if len(bad) > len(reasons) else [])])
