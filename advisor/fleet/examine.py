"""What there is to ingest, and what becomes of it: one recording read, measured and judged, as its rows of the store.

Every recording has its labels, its week and the mark that tells known from new.
"""

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from advisor import __version__
from advisor.config import Config
from advisor.engine import measured
from advisor.errors import AdvisorError, ReadError, UsageError
from advisor.fleet import columns
from advisor.fleet.labels import FILE, TRIALS, Labels, labels_of, of_file, of_path, of_trials, valid_labels, week_of
from advisor.inputs.discover import Recording, Rejected
from advisor.inputs.storage import is_url, listing, local, open_file, size, stamp
from advisor.metrics.stored_names import NAME_METRICS
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.options import Options
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import Suppression, judge
from advisor.rules.rule_file import Rule, selected
from advisor.rules.user_config import replaced, rule_book, suppressions
from advisor.runs.summary import judged_again, summarise
from advisor.text import plain
from advisor.yamltree import leads_out

_BARE: Final = f"{FILE} tells GPU-hours, but no profile lies here"


@dataclass(frozen=True, slots=True)
class Settings:
    """What every run of a batch is checked with."""

    config: Config
    today: dt.date
    max_bytes: int | None = None  # the size, unpacked, up to which a file is read


@dataclass(frozen=True, slots=True)
class Job:
    """One recording to ingest: where it lies, what is known of it, and the recordings that it may be a copy of."""

    source: Recording
    labels: Labels
    note: str | None  # what is wrong with its labels
    fingerprint: str
    bytes: int
    started: dt.datetime
    started_from: str
    settings: Settings
    candidates: frozenset[str] = frozenset()


class _Nearest:
    """The labels that a file of this name has in the folder of a run or above, each read once; none above the roots."""

    def __init__(self, roots: Iterable[str], name: str, read: Callable[[str], dict[str, object]]) -> None:
        self._roots, self._name, self._of_file = tuple(roots), name, read
        self._labels: dict[str, dict[str, object] | None] = {}

    def share_out(self, label: str, folders: Iterable[str]) -> None:
        """Divide a number that a file gives among the runs that it is the nearest to: it is of all of them together."""
        of_runs = Counter[str]()
        for folder in folders:
            with suppress(ReadError, UsageError):
                of_runs[self._nearest(folder) or ""] += 1
        for place, runs in of_runs.items():
            labels = self._labels.get(place) or {}
            if isinstance(amount := labels.get(label), int | float) and not isinstance(amount, bool):
                self._labels[place] = labels | {label: amount / runs}

    def to(self, path: str) -> tuple[dict[str, object], list[str]]:
        """Those of the folder or the nearest one above it, up to the root, and what is wrong with others."""
        try:
            place = self._nearest(path)
            return valid_labels(self._labels[place] or {}) if place is not None else ({}, [])
        except (ReadError, UsageError) as error:
            return {}, [str(error)]

    def _nearest(self, path: str) -> str | None:
        """The folder that has the labels of a run; None where none has any."""
        folder = path
        while any(folder == root or folder.startswith(f"{root}/") for root in self._roots):
            if folder not in self._labels:
                self._labels[folder] = self._read(f"{folder}/{self._name}")
            if self._labels[folder] is not None:
                return folder
            folder = folder.rpartition("/")[0]
        return None

    def _read(self, path: str) -> dict[str, object] | None:
        if size(path) is None:
            return None
        if not is_url(path) and all(leads_out(Path(path), Path(root)) for root in self._roots):
            raise ReadError("a link that leads out of what is ingested; put the file itself there", path)
        return self._of_file(path)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Makes a job of what lies there, with the labels of the command, of its path and of the files nearest to it."""

    settings: Settings
    labels: Mapping[str, str]
    files: Sequence[_Nearest]

    def of(self, source: Recording, stamps: Sequence[tuple[str, dt.datetime | None]], why: str | None = None) -> Job:
        """`why` says that it cannot be read; for wrong labels a run does not stay out.

        For want of a label, it started when its newest file was written.
        """
        of_files = [each.to(_folder(source)) for each in self.files]
        of_place, also = valid_labels(of_path(source.path, self.settings.config.fleet.paths))
        labels = labels_of(self.labels, of_place, *(right for right, _ in of_files))
        note = why or "; ".join([*also, *(problem for _, problems in of_files for problem in problems)]) or None
        marks = [part for file, (mark, _) in zip(source.files, stamps, strict=True) for part in (file, mark)]
        parts = (source.path, why, marks[-1]) if why else marks
        fingerprint = hashed(*parts, labels.canonical(), *([] if why else [note or ""]))
        started = labels.when or max(filter(None, (time for _, time in stamps)), default=dt.datetime.now(dt.UTC))
        length, origin = sum(size(file) or 0 for file in source.files), "label" if labels.when else "file"
        return Job(source, labels, note, fingerprint, length, started, origin, self.settings)

    def refused(self, path: str, why: str) -> Job:
        """What cannot be read, in the form of a job that is done."""
        file = f"{path}/{FILE}" if why == _BARE else path
        try:
            written = stamp(file)
        except AdvisorError:
            written = "", None
        return self.of(Recording(path, path, "", (file,)), [written], why)


def recordings(  # noqa: PLR0913, PLR0917 - what there is, and how to take it
    sources: Iterable[Recording],
    rejected: Iterable[Rejected],
    settings: Settings,
    labels: Mapping[str, str],
    roots: Iterable[str],
    first_week: str = "",
) -> tuple[list[Job], list[Job], list[Job], int, int]:
    """What discovery found of the weeks from this one on, as jobs: to check, and not to be read (`note` says why).

    Then folders whose `run.yaml` tells GPU-hours, with no profile in them; how many are gone by now, and how many are
    of earlier weeks.

    `labels` are of all of them; a path's or a `run.yaml`'s go before these. A `run.yaml` or `trials.json` above the
    `roots` that were searched labels nothing.
    """
    sources, rejected, roots = list(sources), list(rejected), list(roots)
    places = {file for source in sources for file in source.files} | {file.path for file in rejected}
    folders = [root.rpartition("/")[0] if root in places else root for root in roots]
    files = (_Nearest(folders, FILE, of_file), _Nearest(folders, TRIALS, of_trials))
    files[0].share_out("gpu_hours", [*map(_folder, sources), *(file.path.rpartition("/")[0] for file in rejected)])
    make, jobs, bad, gone = _Jobs(settings, labels, files), [], [], 0
    for source in sources:
        try:
            stamps = [stamp(file) for file in source.files]
        except ReadError as error:
            if vanished(error):
                gone += 1
            else:
                bad.append(make.refused(source.path, str(error)))
        else:
            jobs.append(make.of(source, stamps))
    bad += [make.refused(file.path, file.why) for file in rejected]
    profiled = {place for job in (*jobs, *bad) for place in (job.source.path, *above(job.source.path))}
    below = [file for root in roots for file in (listing(root) or ([], []))[0] if file.endswith(f"/{FILE}")]
    bare = dict.fromkeys(folder for file in below if (folder := file.rpartition("/")[0]) not in profiled)
    groups = jobs, bad, [job for job in (make.refused(folder, _BARE) for folder in bare) if job.labels.gpu_hours]
    to_check, refused, unprofiled = ([job for job in group if week_of(job.started) >= first_week] for group in groups)
    return to_check, refused, unprofiled, gone, len(jobs) + len(bad) - len(to_check) - len(refused)


def above(path: str) -> list[str]:
    """All folders that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def vanished(error: ReadError) -> bool:
    """Whether what could not be read is not there any more."""
    return isinstance(error.__cause__, FileNotFoundError)


def _folder(source: Recording) -> str:
    return source.path if source.files != (source.path,) else source.path.rpartition("/")[0]


def hashed(*parts: str) -> str:
    """A name for these texts together."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def unread(source: Recording) -> str:
    """The name of a recording that was never read: by its place, for want of its content."""
    return hashed("unread", source.path, *source.files)


Book: TypeAlias = tuple[Mapping[str, Rule], Mapping[str, Suppression], str, tuple[Note, ...]]
"""The rules, the suppressions, a name for both, and notes on rules that were replaced."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one recording; without rows if it is known already, or gone."""

    recording: str
    rows: columns.Rows = field(default_factory=dict)
    known: bool = False
    gone: bool = False
    digests: tuple[str, ...] = ()


def examine(job: Job) -> Done:
    """Read, measure and judge one recording, in whatever process this is; what lies elsewhere is fetched once."""
    with ExitStack() as fetched:
        try:
            copies = tuple(str(fetched.enter_context(local(file))) for file in job.source.files)
            digests = tuple(map(_digest, copies))
        except ReadError as error:
            if vanished(error):  # after it was found: it leaves no row
                return Done("", gone=True)
            return unchecked(job, str(error), "unreachable")
        return _examined(job, replace(job.source, copies=copies), digests)


def _examined(job: Job, fetched: Recording, digests: tuple[str, ...]) -> Done:
    recording = hashed(*sorted(digests))
    if recording in job.candidates:
        return Done(recording, known=True)
    rules, silenced, version, changed = book(job.settings)
    more = [*selected(rules.values()), *NAME_METRICS.values()]
    jobs, broken = measured(fetched, Options(max_bytes=job.settings.max_bytes), more)
    if not jobs and not any(size(file) is not None for file in fetched.copies):
        return Done("", gone=True)
    rows: dict[str, list[columns.Row]] = defaultdict(list)
    keys = {"week": week_of(job.started), "recording": recording, "digests": list(digests)}
    for number, (name, measurements, notes) in enumerate(jobs):
        subject = measured_run(measurements)
        judged = judge(subject, rules, silenced)
        plain_measurements, names = columns.without_names(measurements)
        own = summarise(name, fetched.path, plain_measurements, replace(judged, notes=()))
        keep = columns.context_of(subject, measurements.selected, own.source.notes, notes)
        run = judged_again(own, judged, keep.notes, (*keep.file_notes, *map(Reason.of, changed)))
        run_id = f"{recording}-{number}" if number else recording
        hosts = {
            **dict(measurements.selection.profile.workers.select("worker", "host").drop_nulls().rows()),
            **job.labels.hosts,
        }
        of_run = columns.judged_rows(run, keep, version, job.labels.trials)
        of_run |= columns.measured_rows(run, names, hosts, job.labels.host)
        of_run["runs"][0] |= _ingest_columns(job) | {"bytes": job.bytes if not number else 0}
        for table, added in of_run.items():
            rows[table] += [{**row, **keys, "run_id": run_id} for row in added]
    for number, bad in enumerate(broken):
        (row,) = _bad_rows(job, bad.path, bad.why)["runs"]
        rows["runs"].append({**row, **keys, "run_id": f"{recording}-u{number}"})
    return Done(recording, {name: rows[name] for name in columns.TABLES}, digests=digests)


def _ingest_columns(job: Job) -> columns.Row:
    labels = job.labels
    return {
        "reason": job.note,
        "fingerprint": job.fingerprint,
        "bytes": job.bytes,
        "started": job.started,
        "started_from": job.started_from,
        "ingested": dt.datetime.now(dt.UTC),
        **{name: getattr(labels, name) for name in (*columns.LABELS, "gpu_hours", "price")},
        "labels": labels.canonical(),
    }


def unchecked(job: Job, why: str, status: str = "unreadable") -> Done:
    """A recording that was not checked, and why."""
    return Done(unread(job.source), _bad_rows(job, job.source.path, why, status))


def _bad_rows(job: Job, path: str, why: str, status: str = "unreadable") -> columns.Rows:
    keys = {"week": week_of(job.started), "recording": unread(job.source), "run_id": unread(job.source)}
    about = {"status": status, "name": plain(job.source.name), "path": plain(path), "advisor_version": __version__}
    return {"runs": [{**keys, **_ingest_columns(job), **about, "reason": plain(why)}]}


@lru_cache(maxsize=1)
def _book_of(config: str, today: dt.date) -> Book:
    read = Config.model_validate_json(config)
    rules, silenced = rule_book(read), suppressions(read, today)
    return rules, silenced, columns.rule_set(rules, silenced), tuple(replaced(read))


def book(settings: Settings) -> Book:
    """What to judge by; loaded once in a process."""
    rules, silenced, version, notes = _book_of(settings.config.model_dump_json(), settings.today)
    return rules, silenced, version, (*settings.config.notes, *notes)


def _digest(path: str) -> str:
    """Of a file's content; of a folder of tables, of all its files'."""
    if (below := listing(path)) is not None:
        return hashed(*map(_digest, below[0]))
    digest = hashlib.blake2b(digest_size=16)
    with open_file(path) as stream:
        while block := stream.read(8 << 20):
            digest.update(block)
    return digest.hexdigest()
