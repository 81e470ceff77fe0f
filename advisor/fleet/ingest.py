"""From folders of profiles to rows of the store, and from stored metrics to a new judgement."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import polars as pl

from advisor import __version__
from advisor.config import Config
from advisor.discover import Found, discover
from advisor.engine import measured, replaced, rule_book, suppressions
from advisor.errors import AdvisorError, NothingFound, ReadError, UsageError
from advisor.fleet.engines import Engine, Killed, each
from advisor.fleet.labels import FILE, Labels, labels_of, of_file, of_path, week_of
from advisor.fleet.rows import Row, Rows, as_measured, judged_rows, kept, measured_rows, rule_set
from advisor.fleet.store import TABLES, Store, frame
from advisor.judge import Suppression, judge
from advisor.rulebook import Rule
from advisor.storage import is_url, listing, open_file, size, stamp, tidy
from advisor.summary import judged_again, summarise
from advisor.text import one_line, plain

Progress = Callable[[int], Callable[[int], object]]
"""Told how many runs there are to work on; gives back what is told of each number that is done."""

Book = tuple[Mapping[str, Rule], Mapping[str, Suppression], str, tuple[str, ...]]
"""The rules, the suppressions, a name for both, and notes on rules that were replaced."""

_FLUSH_S: Final = 5.0  # of work that a kill at the worst moment costs
_FLUSH_RUNS: Final = 256
_BLOCK_BYTES: Final = 8 << 20
_READ_AT_ONCE: Final = 512  # stored reports in memory
_UNCHECKED: Final = ("unreadable", "killed")


@dataclass(frozen=True, slots=True)
class Settings:
    """What every run of a batch is checked with."""

    config: Config
    today: dt.date


@dataclass(frozen=True, slots=True)
class Job:
    """One recording to ingest: where it lies, what is known of it, and the recordings that it may be a copy of."""

    found: Found
    labels: Labels
    note: str | None  # what is wrong with its labels
    fingerprint: str
    bytes: int
    started: dt.datetime
    started_from: str
    settings: Settings
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one recording; without rows if it is known already, or gone."""

    recording: str
    rows: Rows = field(default_factory=dict)
    known: bool = False
    gone: bool = False
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did. Runs are rows that were checked; `known` recordings were in the store before."""

    recordings: int = 0
    known: int = 0
    runs: int = 0
    unreadable: int = 0
    gone: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------- the batch


def ingest(  # noqa: PLR0913 - all but the first two are options
    roots: Sequence[str],
    store: Store,
    engine: Engine,
    *,
    config: Config | None = None,
    labels: Mapping[str, str] | None = None,
    today: dt.date | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Check every recording under `roots` that the store does not hold, and write it there.

    Args:
        roots: Folders, files or URLs.
        store: Where to.
        engine: What to work with.
        config: Rules, suppressions, and the fleet's path patterns.
        labels: Of all runs; a path's or a `run.yaml`'s go before them.
        today: Date to hold the suppressions' expiry against.
        progress: Told what is done.

    Raises:
        NothingFound: there is no profile, good or bad.
        ReadError: a root cannot be listed.
        StoreError: the store cannot be written; what is in it stays, and the same command goes on from there.
        UsageError: the configuration is wrong.
    """
    settings = Settings(config or Config(), today or dt.datetime.now(dt.UTC).date())
    rule_book(settings.config)  # a wrong rule is said once, here, and not for each run
    found, rejected = discover([_absolute(root) for root in roots], all_runs=True)
    rejected = [one for one in rejected if one.path not in map(_absolute, roots) or listing(one.path) is None]
    if not (found or rejected):
        raise NothingFound(f"{', '.join(roots)}: no profile there; give a folder of recordings")
    jobs, gone = _jobs(found, settings, labels or {})
    bad = [_rejected(path, one.why, settings) for one in rejected for path in (one.path, *one.others)]
    earlier = _earlier(store, [*jobs, *bad])
    known = set(earlier.filter(~pl.col("status").eq("killed"))["fingerprint"])
    fresh = [_with_candidates(job, earlier) for job in jobs if job.fingerprint not in known]
    fresh_bad = [job for job in bad if job.fingerprint not in known]
    told = (progress or _silent)(len(fresh))
    writer = _Writer(store, earlier)
    for job in fresh_bad:
        writer.add(job, Done(_bad(job.found), _bad_rows(job, job.found.path, job.note or "")))
    notes = [f"{job.found.path}: {job.note}" for job in fresh if job.note]
    vanished = gone
    try:
        for job, outcome in each(engine, examine, fresh):
            done = outcome if isinstance(outcome, Done) else _failed(job, outcome)
            vanished += done.gone
            writer.add(job, done)
            told(1)
    except KeyboardInterrupt:
        writer.flush()
        raise
    writer.flush()
    return Ingested(
        recordings=len(found) + len(bad),
        known=len(jobs) + len(bad) - len(fresh) - len(fresh_bad) + writer.copies,
        runs=writer.counts["checked"],
        unreadable=sum(writer.counts[status] for status in _UNCHECKED),
        gone=vanished,
        bytes=sum(job.bytes for job in fresh),
        notes=tuple(notes),
    )


class _Writer:
    """Gathers rows and writes them every few seconds, each recording at most once."""

    def __init__(self, store: Store, earlier: pl.DataFrame) -> None:
        self.counts: Counter[str] = Counter()
        self.copies = 0
        self._store, self._earlier = store, earlier
        self._written: set[str] = set()
        self._last = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._replaced: set[str] = set()
        self._weeks: set[str] = set()

    def add(self, job: Job, done: Done) -> None:
        """One recording's rows; they are written now if the last time is long ago."""
        if done.known or done.recording in self._written:
            self.copies += 1
        elif not done.gone:
            self._written.add(done.recording)
            self._gather(job, done)
        if time.monotonic() - self._last > _FLUSH_S or len(self._replaced) >= _FLUSH_RUNS:
            self.flush()

    def _gather(self, job: Job, done: Done) -> None:
        old = self._earlier.filter(_superseded(job, done))
        self._replaced |= {done.recording, *old["recording"]}
        self._weeks |= {week_of(job.started), *old["week"]}
        for name, rows in done.rows.items():
            self._rows[name] += rows
        self.counts.update(row["status"] for row in done.rows["runs"])

    def flush(self) -> None:
        """Write what was gathered."""
        if self._replaced:
            rows = {name: frame(name, rows) for name, rows in self._rows.items()}
            self._store.write(rows, "recording", self._replaced, self._weeks)
        self._clear()
        self._last = time.monotonic()


def _superseded(job: Job, done: Done) -> pl.Expr:
    """Rows that the new ones take the place of: of the same content, of a part of it at the same place, or bad ones."""
    same = pl.col("recording").is_in([done.recording, _bad(job.found)])
    mended = pl.col("path").is_in([plain(file) for file in job.found.files]) & (pl.col("status") == "unreadable")
    shares = pl.col("digests").list.set_intersection(pl.lit([*done.digests], pl.List(pl.String))).list.len() > 0
    return same | mended | (pl.col("path").eq(plain(job.found.path)) & shares)


def _earlier(store: Store, jobs: Sequence[Job]) -> pl.DataFrame:
    """What the store holds of these recordings: by fingerprint, by place, or by size, which is what copies share."""
    places = pl.Series([plain(path) for job in jobs for path in (job.found.path, *job.found.files)], dtype=pl.String)
    sizes = pl.Series([job.bytes for job in jobs], dtype=pl.Int64)
    prints = pl.Series([job.fingerprint for job in jobs], dtype=pl.String)
    mine = (
        pl.col("fingerprint").is_in(prints.unique().implode())
        | pl.col("path").is_in(places.unique().implode())
        | pl.col("bytes").is_in(sizes.unique().implode())
    )
    columns = ("recording", "week", "path", "status", "fingerprint", "digests", "bytes", "labels")
    return store.collect(store.scan("runs").filter(mine).select(columns))


def _with_candidates(job: Job, earlier: pl.DataFrame) -> Job:
    alike = earlier.filter(
        pl.col("bytes") == job.bytes, pl.col("labels") == job.labels.canonical(), pl.col("status") != "killed"
    )
    return replace(job, candidates=frozenset(alike["recording"]))


def _failed(job: Job, error: Exception) -> Done:
    """A run whose process died or whose check went wrong in a way that nobody foresaw."""
    if isinstance(error, Killed):
        return Done(_bad(job.found), _bad_rows(job, job.found.path, str(error), status="killed"))
    why = f"{type(error).__name__}: {one_line(str(error), 300)}; please report this as a bug"
    return Done(_bad(job.found), _bad_rows(job, job.found.path, why))


def _bad(found: Found) -> str:
    """The name of a recording that was never read: by its place, for want of its content."""
    return _hashed("unread", found.path, *found.files)


# ---------------------------------------------------------------------------------------------- what is there to do


def _jobs(found: Iterable[Found], settings: Settings, labels: Mapping[str, str]) -> tuple[list[Job], int]:
    """One job per recording, and the number of those that are gone by now."""
    jobs, gone = [], 0
    sources = _RunFiles()
    for one in found:
        try:
            stamps = [stamp(file) for file in one.files]
        except ReadError:
            gone += 1
            continue
        known, note = _labelled(one, settings.config, labels, sources)
        written = [moment for _, moment in stamps if moment is not None]
        started = known.when or max(written, default=dt.datetime.now(dt.UTC))
        marks = [part for file, (mark, _) in zip(one.files, stamps, strict=True) for part in (file, mark)]
        jobs.append(
            Job(
                found=one,
                labels=known,
                note=note,
                fingerprint=_hashed(*marks, known.canonical(), note or ""),
                bytes=sum(size(file) or 0 for file in one.files),
                started=started,
                started_from="label" if known.when else "file",
                settings=settings,
            )
        )
    return jobs, gone


def _rejected(path: str, why: str, settings: Settings) -> Job:
    """What discovery could not take, in the form of a job that is done."""
    try:
        mark, written = stamp(path)
    except AdvisorError:
        mark, written = "", None
    return Job(
        found=Found(path, path, "", (path,)),
        labels=Labels(),
        note=why,
        fingerprint=_hashed(path, why, mark),
        bytes=size(path) or 0,
        started=written or dt.datetime.now(dt.UTC),
        started_from="file",
        settings=settings,
    )


class _RunFiles:
    """The `run.yaml` of folders, each read once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, object] | None] = {}

    def nearest(self, path: str) -> dict[str, object]:
        """That of the folder or the nearest one above it.

        Raises:
            ReadError: it is no list of labels.
        """
        folder = path
        while folder and not folder.endswith(("://", ":/")):
            if folder not in self._seen:
                self._seen[folder] = self._read(f"{folder}/{FILE}")
            if (told := self._seen[folder]) is not None:
                return told
            folder = folder.rpartition("/")[0]
        return {}

    @staticmethod
    def _read(path: str) -> dict[str, object] | None:
        if size(path) is None:
            return None
        return of_file(path)


def _labelled(one: Found, config: Config, given: Mapping[str, str], files: _RunFiles) -> tuple[Labels, str | None]:
    """A run's labels, and what is wrong with them: a run does not stay out for its labels."""
    of_place = of_path(one.path, config.fleet.paths)
    folder = one.path if one.files != (one.path,) else one.path.rpartition("/")[0]
    try:
        return labels_of(given, of_place, files.nearest(folder)), None
    except (ReadError, UsageError) as error:
        why = str(error)
    try:
        return labels_of(given, of_place), why
    except UsageError:
        return labels_of(given), why


# ---------------------------------------------------------------------------------------------- one recording


def examine(job: Job) -> Done:
    """Read, measure and judge one recording, in whatever process this is."""
    try:
        digests = tuple(_digest(file) for file in job.found.files)
    except ReadError:
        return Done("", gone=True)
    recording = _hashed(*sorted(digests))
    if recording in job.candidates:
        return Done(recording, known=True)
    rules, silenced, version, changed = _book(job.settings)
    jobs, broken = measured(job.found)
    if not jobs and not any(size(file) is not None for file in job.found.files):
        return Done("", gone=True)
    rows: dict[str, list[Row]] = defaultdict(list)
    keys = {"week": week_of(job.started), "recording": recording, "digests": list(digests)}
    for number, (name, whole, notes) in enumerate(jobs):
        judged = judge(whole, rules, silenced)
        own = summarise(name, job.found.path, whole, replace(judged, notes=()))
        keep = kept(whole, own.source.notes, notes)
        run = judged_again(own, judged, (*keep.notes, *judged.notes, *keep.file_notes, *changed))
        run_id = f"{recording}-{number}" if number else recording
        hosts = {**dict(whole.lens.profile.workers.select("worker", "host").drop_nulls().rows()), **job.labels.hosts}
        of_run = judged_rows(run, keep, version) | measured_rows(run, hosts, job.labels.host)
        of_run["runs"][0] |= _beside(job) | {"bytes": job.bytes if not number else 0}
        _collect(rows, of_run, keys | {"run_id": run_id})
    for number, bad in enumerate(broken):
        run_id = f"{recording}-u{number}"
        _collect(rows, _bad_rows(job, bad.path, bad.why), keys | {"run_id": run_id})
    return Done(recording, {name: rows[name] for name in TABLES}, digests=digests)


def _collect(rows: dict[str, list[Row]], more: Rows, keys: Row) -> None:
    for name, added in more.items():
        rows[name] += [{**row, **keys} for row in added]


def _beside(job: Job) -> Row:
    """The columns of `runs` that the profile does not tell."""
    labels = job.labels
    return {
        "reason": job.note,
        "fingerprint": job.fingerprint,
        "bytes": job.bytes,
        "started": job.started,
        "started_from": job.started_from,
        "ingested": dt.datetime.now(dt.UTC),
        **{name: getattr(labels, name) for name in ("team", "job", "owner", "model", "commit", "gpu_hours", "price")},
        "labels": labels.canonical(),
    }


def _bad_rows(job: Job, path: str, why: str, status: str = "unreadable") -> Rows:
    keys = {"week": week_of(job.started), "recording": _bad(job.found), "run_id": _bad(job.found)}
    about = {"status": status, "name": plain(job.found.name), "path": plain(path), "advisor_version": __version__}
    return {"runs": [{**keys, **_beside(job), **about, "reason": plain(why)}]}


@lru_cache(maxsize=1)
def _book_of(config: str, today: dt.date) -> Book:
    read = Config.model_validate_json(config)
    rules, silenced = rule_book(read), suppressions(read, today)
    return rules, silenced, rule_set(rules, silenced), tuple(replaced(read))


def _book(settings: Settings) -> Book:
    """What to judge by; loaded once in a process."""
    return _book_of(settings.config.model_dump_json(), settings.today)


def _digest(path: str) -> str:
    """Of a file's content; of a folder of tables, of all its files'."""
    if (below := listing(path)) is not None:
        return _hashed(*map(_digest, below[0]))
    told = hashlib.blake2b(digest_size=16)
    with open_file(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            told.update(block)
    return told.hexdigest()


def _hashed(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _absolute(root: str) -> str:
    root = tidy(root)
    return root if is_url(root) else str(Path(root).resolve())


def _silent(_: int) -> Callable[[int], object]:
    return lambda _: None


# ---------------------------------------------------------------------------------------------- judging again


@dataclass(frozen=True, slots=True)
class Again:
    """One stored run to judge anew."""

    row: Row
    report: str
    kept: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Rejudged:
    """How many runs were judged again; a note on each that could not be."""

    runs: int
    notes: tuple[str, ...]


def rejudge(  # noqa: PLR0913 - all but the first two are options
    store: Store,
    engine: Engine,
    *,
    config: Config | None = None,
    weeks: Sequence[str] | None = None,
    today: dt.date | None = None,
    progress: Progress | None = None,
) -> Rejudged:
    """Judge the stored runs again whose rule set is another one by now, without reading a profile.

    Raises:
        StoreError: the store cannot be written; the same command goes on from there.
        UsageError: the configuration is wrong.
    """
    settings = Settings(config or Config(), today or dt.datetime.now(dt.UTC).date())
    version = _book(settings)[2]
    stale = store.scan("runs", weeks).filter(pl.col("status") == "checked", pl.col("rule_set").ne_missing(version))
    left = store.collect(stale.select("week", "run_id").sort("week", "run_id"))
    told, judged, notes = (progress or _silent)(left.height), 0, []
    batch: list[tuple[Again, Rows]] = []
    for task, outcome in each(engine, again, _stored(store, left, settings)):
        if isinstance(outcome, Exception):
            notes.append(f"{task.row['run_id']}: cannot be judged again: {one_line(str(outcome), 200)}")
        else:
            batch.append((task, outcome))
            judged += 1
        if len(batch) >= _FLUSH_RUNS:
            _rewrite(store, batch)
            batch = []
        told(1)
    _rewrite(store, batch)
    return Rejudged(judged, tuple(notes))


def _rewrite(store: Store, batch: Sequence[tuple[Again, Rows]]) -> None:
    tables = {name: [row for _, rows in batch for row in rows[name]] for name in ("runs", "findings", "reports")}
    ids, weeks = zip(*((task.row["run_id"], task.row["week"]) for task, _ in batch), strict=True) if batch else ((), ())
    store.write({name: frame(name, rows) for name, rows in tables.items()}, "run_id", ids, weeks)


def _stored(store: Store, left: pl.DataFrame, settings: Settings) -> Iterator[Again]:
    """The runs with their reports, some hundred at a time."""
    for some in left.iter_slices(_READ_AT_ONCE):
        mine = pl.col("run_id").is_in(some["run_id"].implode())
        weeks = some["week"].unique().to_list()
        runs = store.collect(store.scan("runs", weeks).filter(mine))
        texts = store.collect(store.scan("reports", weeks).filter(mine).select("run_id", "report", "kept"))
        kept_of = {run_id: (report, beside) for run_id, report, beside in texts.iter_rows()}
        for row in runs.to_dicts():
            if row["run_id"] in kept_of:
                yield Again(row, *kept_of[row["run_id"]], settings)


def again(task: Again) -> Rows:
    """One stored run judged anew: its rows of `runs`, `findings` and `reports`."""
    rules, silenced, version, changed = _book(task.settings)
    found = as_measured(task.report, task.kept)
    judged, beside = judge(found, rules, silenced), found.kept
    run = judged_again(found.run, judged, (*beside.notes, *judged.notes, *beside.file_notes, *changed))
    rows = judged_rows(run, found.kept, version)
    keys = {key: task.row[key] for key in ("week", "recording", "run_id")}
    rows["runs"] = [{**task.row, **rows["runs"][0]}]
    return {name: [{**row, **keys} for row in of] for name, of in rows.items()}
