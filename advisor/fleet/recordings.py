"""What there is to ingest: every recording with its labels, what these may say, its week, and whether it is known."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from advisor.config import MOST_HOURS, MOST_PRICE, Config
from advisor.errors import AdvisorError, ReadError, UsageError
from advisor.inputs.discover import Recording, Rejected, is_report
from advisor.inputs.storage import head_of, is_url, listing, size, stamp
from advisor.model.trials import Trials
from advisor.render.json import read_as
from advisor.text import one_line, plain
from advisor.vocabulary.limits import table
from advisor.yamltree import MOST_BYTES, FormError, Yaml, decoded, leads_out

FILE: Final = "run.yaml"
_OF_TENSORBOARD: Final = "/plugins/profile/"  # below it lie the runs of a log folder
TRIALS: Final = "trials.json"
"""What `advisor try` measured on the job, beside its recordings."""

LAST: Final = "last"
_LONGEST: Final = 300
_MOST_ERRORS: Final = 5
_YEARS: Final = range(1970, 2200)  # within the nanoseconds of the store

SYSTEMS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = table(__file__, "systems")
"""By system, the variables of its environment that tell a label, the first one first: systems.yaml."""


class Labels(BaseModel):
    """Labels of one run; `other` are those of names that nothing here gives a meaning.

    `trials` are the shares of the step that the fixes of findings saved when they were tried: both ends, by rule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    team: str | None = None
    job: str | None = None
    owner: str | None = None
    model: str | None = None
    commit: str | None = None
    host: str | None = None
    hosts: Mapping[int, str] = {}
    gpu_hours: Annotated[float, Field(ge=0, le=MOST_HOURS, allow_inf_nan=False)] | None = None
    price: Annotated[float, Field(ge=0, le=MOST_PRICE, allow_inf_nan=False)] | None = None
    started: dt.datetime | dt.date | None = None
    trials: Mapping[str, tuple[FiniteFloat, FiniteFloat]] = {}
    other: Mapping[str, str] = {}

    @field_validator("started")
    @classmethod
    def _of_our_time(cls, started: dt.date | None) -> dt.date | None:
        if started and started.year not in _YEARS:
            raise ValueError(f"a run starts between {_YEARS[0]} and {_YEARS[-1]}")
        return started

    def canonical(self) -> str:
        """As JSON: the same labels give the same text."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)

    @property
    def when(self) -> dt.datetime | None:
        """When the run started, in UTC; a time without a zone is taken for UTC."""
        if self.started is None:
            return None
        if not isinstance(self.started, dt.datetime):
            return dt.datetime.combine(self.started, dt.time(), dt.UTC)
        return self.started.replace(tzinfo=self.started.tzinfo or dt.UTC).astimezone(dt.UTC)


def labels_of_run(pairs: Iterable[str], systems: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Labels from the command line: `key=value`, and what the environment of a scheduler tells.

    Raises:
        UsageError: a pair or a system is none.
    """
    labels: dict[str, str] = {}
    for system in systems:
        if system not in SYSTEMS:
            raise UsageError(f"--labels-from {system}: not one of {', '.join(SYSTEMS)}")
        job = {
            label: next((environment[n] for n in names if environment.get(n)), None)
            for label, names in SYSTEMS[system].items()
        }
        labels |= {label: value for label, value in job.items() if value is not None}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not (key and sign):
            raise UsageError(f"--label {pair}: give it as KEY=VALUE")
        labels[key] = value
    labels_of(labels)
    return labels


def labels_of(*sources: Mapping[str, object]) -> Labels:
    """The labels in these sources, a later one's over an earlier one's.

    Raises:
        UsageError: a value is of the wrong kind.
    """
    values: dict[str, object] = {}
    other: dict[str, str] = {}
    for source in sources:
        for key, value in source.items():
            if value is None:
                continue
            if key in Labels.model_fields and key != "other":
                values[key] = _short(value) if isinstance(value, str) else value
            else:
                other[_short(str(key))] = _short(str(value))
    try:
        return Labels.model_validate({**values, "other": other})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:_MOST_ERRORS]
        wrong = (f"{one_line('.'.join(map(str, e['loc'][:2])), 100)}: {one_line(e['msg'], 200)}" for e in first)
        raise UsageError(f"label {'; '.join(wrong)}") from None


def valid_labels(source: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The labels of a source that are of the right kind, and what is wrong with each of the others."""
    right: dict[str, object] = {}
    wrong: list[str] = []
    for key, value in source.items():
        try:
            labels_of({key: value})
        except UsageError as error:
            wrong.append(str(error))
        else:
            right[key] = value
    return right, wrong


def of_path(path: str, patterns: Sequence[str]) -> dict[str, str]:
    """The named groups of every pattern that matches in the path; that of a log folder for the runs below it."""
    folder = path.partition(_OF_TENSORBOARD)[0]
    text = pl.Series([folder.encode(errors="replace").decode()])  # which may be any bytes
    groups = [group for pattern in patterns for group in text.str.extract_groups(pattern).to_list()[0].items()]
    return {label: value for label, value in groups if value is not None and not label.isdecimal()}


def of_file(path: str) -> dict[str, object]:
    """What a `run.yaml` says.

    Raises:
        ReadError: it cannot be read, or is no mapping.
    """
    try:
        document = Yaml(decoded(head_of(path, MOST_BYTES + 1))).value
    except FormError as error:
        raise ReadError(error.of(path)) from None
    if not isinstance(document, dict):
        raise ReadError("a list of labels is a mapping, `team: vision` for one", path)
    return {str(key): value for key, value in document.items()}


def of_trials(path: str) -> dict[str, object]:
    """What a `trials.json` of `advisor try` says, as a label; nothing where it is another program's.

    Raises:
        ReadError: it cannot be read, or is something else of ours.
    """
    return {"trials": read_as(Trials, path).saved_shares} if is_report(path) else {}


def week_of(moment: dt.datetime) -> str:
    """ISO week, `2026-W47`."""
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02}"


def week_name(text: str | None, now: dt.datetime | None = None) -> str | None:
    """A week as a user names it: as `2026-W47`, or `last` for the one that ended last.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    if text == LAST:
        return weeks_before(week_of((now or dt.datetime.now(dt.UTC)).astimezone(dt.UTC)), 1)[0]
    monday_of(text)
    return text


def weeks_before(week: str, number: int) -> list[str]:
    """The `number` weeks before this one, ascending."""
    monday = monday_of(week)
    return [week_of(monday - dt.timedelta(weeks=back)) for back in range(number, 0, -1)]


def is_week(text: str) -> bool:
    """Whether a text is an ISO week."""
    with suppress(UsageError):
        return bool(monday_of(text))
    return False


def monday_of(week: str) -> dt.datetime:
    """The first instant of an ISO week, in UTC.

    Raises:
        UsageError: it is none.
    """
    try:
        if not re.fullmatch(r"[1-9]\d{3}-W\d{2}", week):
            raise ValueError(week)  # noqa: TRY301 - the same answer as to week 60
        return dt.datetime.combine(dt.date.fromisoformat(f"{week}-1"), dt.time(), dt.UTC)
    except ValueError:
        raise UsageError(f"{week}: no ISO week; write it as 2026-W47, or last") from None


def _short(text: str) -> str:
    return one_line(plain(text), _LONGEST)


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


@dataclass(frozen=True, slots=True)
class Recordings:
    """What lies under some roots: to check, not to be read (`note` says why), and the number that is gone by now.

    `bare` are folders whose `run.yaml` tells GPU-hours, with no profile in them.
    """

    jobs: tuple[Job, ...]
    bad: tuple[Job, ...]
    bare: tuple[Job, ...]
    gone: int


def recordings(
    sources: Iterable[Recording],
    rejected: Iterable[Rejected],
    settings: Settings,
    labels: Mapping[str, str],
    roots: Iterable[str],
) -> Recordings:
    """What discovery found, as jobs.

    `labels` are of all of them; a path's or a `run.yaml`'s go before these. A `run.yaml` or `trials.json` above the
    `roots` that were searched labels nothing.
    """
    sources, rejected, roots = list(sources), list(rejected), list(roots)
    places = {file for source in sources for file in source.files} | {file.path for file in rejected}
    folders = [root.rpartition("/")[0] if root in places else root for root in roots]
    files = (_Nearest(folders, FILE, of_file), _Nearest(folders, TRIALS, of_trials))
    files[0].share_out("gpu_hours", [*map(_folder, sources), *(file.path.rpartition("/")[0] for file in rejected)])
    jobs, bad, gone = [], [], 0
    for source in sources:
        try:
            stamps = [stamp(file) for file in source.files]
        except ReadError as error:
            if vanished(error):
                gone += 1
            else:
                bad.append(_refused(source.path, str(error), settings, labels, files))
            continue
        known, note = _labelled(source, settings.config, labels, files)
        marks = [part for file, (mark, _) in zip(source.files, stamps, strict=True) for part in (file, mark)]
        fingerprint = hashed(*marks, known.canonical(), note or "")
        jobs.append(_job(source, known, note, fingerprint, (moment for _, moment in stamps), settings))
    bad += [_refused(file.path, file.why, settings, labels, files) for file in rejected]
    profiled = {place for job in (*jobs, *bad) for place in (job.source.path, *above(job.source.path))}
    bare = dict.fromkeys(folder for root in roots for folder in _labelled_folders(root) if folder not in profiled)
    refused = (_refused(folder, _BARE, settings, labels, files) for folder in bare)
    return Recordings(tuple(jobs), tuple(bad), tuple(job for job in refused if job.labels.gpu_hours), gone)


def above(path: str) -> list[str]:
    """All folders that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _labelled_folders(root: str) -> list[str]:
    """Folders at or under a root that have a `run.yaml`."""
    below = listing(root)
    return [] if below is None else [file.rpartition("/")[0] for file in below[0] if file.endswith(f"/{FILE}")]


def vanished(error: ReadError) -> bool:
    """Whether what could not be read is not there any more."""
    return isinstance(error.__cause__, FileNotFoundError)


def _refused(path: str, why: str, settings: Settings, labels: Mapping[str, str], files: Sequence[_Nearest]) -> Job:
    """What cannot be read, in the form of a job that is done."""
    file = f"{path}/{FILE}" if why == _BARE else path
    try:
        mark, written = stamp(file)
    except AdvisorError:
        mark, written = "", None
    source = Recording(path, path, "", (file,))
    known, _ = _labelled(source, settings.config, labels, files)
    return _job(source, known, why, hashed(path, why, mark, known.canonical()), [written], settings)


def _job(  # noqa: PLR0913, PLR0917 - what is known of it
    source: Recording,
    labels: Labels,
    note: str | None,
    fingerprint: str,
    written: Iterable[dt.datetime | None],
    settings: Settings,
) -> Job:
    """A job; for want of a label, it started when its newest file was written."""
    started = labels.when or max(filter(None, written), default=dt.datetime.now(dt.UTC))
    length = sum(size(file) or 0 for file in source.files)
    return Job(source, labels, note, fingerprint, length, started, "label" if labels.when else "file", settings)


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


def _labelled(
    source: Recording, config: Config, of_command: Mapping[str, str], files: Sequence[_Nearest]
) -> tuple[Labels, str | None]:
    """A run's labels, and what is wrong with them: a run does not stay out for its labels."""
    of_files = [each.to(_folder(source)) for each in files]
    of_place, also = valid_labels(of_path(source.path, config.fleet.paths))
    wrong = [*also, *(problem for _, problems in of_files for problem in problems)]
    return labels_of(of_command, of_place, *(right for right, _ in of_files)), "; ".join(wrong) or None


def _folder(source: Recording) -> str:
    """Where labels of a run are sought first."""
    return source.path if source.files != (source.path,) else source.path.rpartition("/")[0]


def hashed(*parts: str) -> str:
    """A name for these texts together."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def unread(source: Recording) -> str:
    """The name of a recording that was never read: by its place, for want of its content."""
    return hashed("unread", source.path, *source.files)
