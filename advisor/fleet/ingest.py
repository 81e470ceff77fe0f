"""From folders of profiles to rows of the store, and stored runs judged anew from what was measured, without profiles.

What is new is checked, and written every few seconds.
"""

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import polars as pl

from advisor import __version__
from advisor.config import Config
from advisor.errors import NoRuns
from advisor.fleet.columns import TABLES, UNPROFILED, Row, Rows, as_measured, frame, judged_rows, stored
from advisor.fleet.examine import Done, Job, Settings, above, book, examine, recordings, unchecked, unread
from advisor.fleet.labels import Labels, week_of
from advisor.fleet.store import Store
from advisor.fleet.verify import disagreements
from advisor.inputs.discover import Recording, discover
from advisor.inputs.storage import is_url, listing, tidy
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from advisor.rules.user_config import rule_book
from advisor.runs.summary import judged_again
from advisor.system.engines import Engine, Killed, Progress, outcomes_of, silent
from advisor.text import one_line, plain

_FLUSH_S: Final = 5.0  # of work that a kill at the worst moment costs
_FLUSH_RUNS: Final = 256
_TELLING_ID: Final = 12  # characters of a run's number
_FLUSH_CHARACTERS: Final = 1 << 27  # of reports and drawings in memory
_UNCHECKED: Final = ("unreadable", "killed", "unreachable")
_RETRIED: Final = pl.col("status").is_in(_UNCHECKED[1:]) | (
    pl.col("status").eq("unreadable") & pl.col("advisor_version").ne_missing(__version__)  # may read it now
)
_AGAIN: Final = pl.col("again")  # of what the store knows: whether it is read once more all the same


@dataclass(frozen=True, slots=True)
class Changes:
    """What an ingest did to a store, or judging its runs again, of which there are `runs` and `notes` alone."""

    recordings: int = 0  # those known, added, relabelled, pruned and gone together
    known: int = 0  # in the store before, or copies
    added: int = 0
    runs: int = 0  # rows that are new, of runs that were checked
    relabelled: int = 0  # in the store before, with other labels
    pruned: int = 0  # of weeks that `prune` forgot
    unread: int = 0  # of the recordings, whenever that was found out
    partly: int = 0  # read only in part
    unreadable: int = 0  # rows that are new, of files that could not be read
    unprofiled: int = 0
    gone: int = 0
    notes: tuple[Note, ...] = ()


def ingest(  # noqa: PLR0913 - all but the first two are options
    roots: Sequence[str],
    store: Store,
    engine: Engine,
    *,
    config: Config | None = None,
    labels: Mapping[str, str] | None = None,
    today: dt.date | None = None,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Changes:
    """Check every recording under `roots` that the store does not hold, and write it there.

    `labels` are of all runs; a path's or a `run.yaml`'s go before them. `today` is what the suppressions' expiry is
    held against, and `max_bytes` the size, unpacked, up to which a file is read. Where the store cannot be written, or
    is removed meanwhile, what is in it stays, and the same command goes on from there; so it is with `rejudge`.
    """
    settings = Settings(config or Config(), today or dt.datetime.now(dt.UTC).date(), max_bytes)
    rule_book(settings.config)  # a wrong rule is said once, here, and not for each run
    places = [root if is_url(root) else str(Path(root).resolve()) for root in map(tidy, roots)]
    sources, rejected = discover(places, all_runs=True)
    sources = [replace(source, name=_name(source, places)) for source in sources]
    rejected = [file for file in rejected if file.path not in places or listing(file.path) is None]
    jobs, bad, bare, gone, pruned = recordings(sources, rejected, settings, labels or {}, places, store.horizon())
    every = len(jobs) + len(bad) + gone + pruned
    if not (sources or rejected or bare):
        raise NoRuns(f"{', '.join(roots)}: no profile there; give a folder of recordings")
    earlier = _earlier(store, [*jobs, *bad, *bare])
    known = set(earlier.filter(~_AGAIN)["fingerprint"])
    # What was found, or what no root covers, so that nobody looked.
    looked = [pl.col("path").str.starts_with(f"{plain(root)}/") for root in places]
    at = pl.Series([plain(job.source.path) for job in jobs], dtype=pl.String)
    homes = earlier.filter(pl.col("path").is_in(at.unique().implode()) | ~pl.any_horizontal(looked))
    fresh = [_with_candidates(job, earlier, homes) for job in jobs if job.fingerprint not in known]
    fresh_bad = [_with_name(job, places) for job in bad if job.fingerprint not in known]
    on_done = (progress or silent)(len(fresh))
    writer = _Writer(store, earlier)
    skipped = [job.fingerprint for job in (*jobs, *bad) if job.fingerprint in known]
    copies = earlier.filter(pl.col("fingerprint").is_in(pl.Series(skipped, dtype=pl.String).implode()))
    before = Counter(map(_read, copies.group_by("fingerprint").agg("status")["status"]))
    for job in fresh_bad:
        writer.add(job, unchecked(job, job.note or ""))
    for job in _never_profiled(store, [_with_name(job, places) for job in bare if job.fingerprint not in known]):
        writer.add(job, unchecked(job, job.note or "", UNPROFILED))
    notes = [Note("wrong_labels", path=job.source.path, why=job.note) for job in fresh if job.note]
    try:
        for job, outcome in outcomes_of(engine, examine, fresh):
            how = "killed" if isinstance(outcome, Killed) else "unreadable"  # or a check went wrong
            done = outcome if isinstance(outcome, Done) else unchecked(job, one_line(str(outcome), 300), how)
            gone += done.gone
            writer.add(job, done)
            on_done(1)
    except KeyboardInterrupt:
        writer.flush()
        raise
    writer.close()
    unlike = [(place, home) for place, home, alike in writer.copies if not alike]
    more = {"more": len(unlike) - 1} if unlike[1:] else {}
    notes += [Note("copies", path=place, home=home, **more) for place, home in unlike[:1]]
    return Changes(
        recordings=every,
        known=len(skipped) + len(writer.copies),
        added=writer.counts["added"],
        runs=writer.counts["checked"],
        relabelled=writer.counts["relabelled"],
        pruned=pruned,
        unread=before["unread"] + writer.counts["unread"],
        partly=before["partly"] + writer.counts["partly"],
        unreadable=sum(writer.counts[status] for status in _UNCHECKED),
        unprofiled=writer.counts[UNPROFILED],
        gone=gone,
        notes=tuple(notes),
    )


class _Writer:
    """Gathers rows and writes them every few seconds, each recording once: that of its first place in sorted order."""

    def __init__(self, store: Store, earlier: pl.DataFrame) -> None:
        self.counts: Counter[str] = Counter()
        self.copies: list[tuple[str, str, bool]] = []  # place, whose copy it is, whether its labels are the same
        self._store, self._earlier = store, earlier
        self._known = store.exists()  # from then on, a store that is gone was removed
        self._checked = set(earlier.filter(pl.col("status") == "checked", ~_AGAIN)["recording"])
        self._written: dict[str, tuple[Job, Done]] = {}
        self._last = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._replaced: set[str] = set()
        self._weeks: set[str] = set()
        self._characters = 0

    def add(self, job: Job, done: Done) -> None:
        """One recording's rows; they are written now if the last time is long ago."""
        if done.known:
            homes = self._earlier.filter(pl.col("recording") == done.recording).sort("path")
            self._copy(job, homes["path"][0], homes["labels"][0], homes["status"])
        elif (other := self._written.get(done.recording)) and plain(other[0].source.path) <= plain(job.source.path):
            self._copy(job, plain(other[0].source.path), other[0].labels.canonical(), _statuses(other[1]))
        elif not done.gone:
            if other:
                self._take_back(*other, instead=job)
            self._written[done.recording] = job, replace(done, rows={"runs": done.rows["runs"]})
            self._gather(job, done)
        full = len(self._replaced) >= _FLUSH_RUNS or self._characters > _FLUSH_CHARACTERS
        if full or time.monotonic() - self._last > _FLUSH_S:
            self.flush()

    def _copy(self, job: Job, home: str, labels: str, statuses: Iterable[str]) -> None:
        self.counts[_read(statuses)] += 1
        self.copies.append((plain(job.source.path), home, labels == job.labels.canonical()))

    def _take_back(self, job: Job, done: Done, *, instead: Job) -> None:
        """Undo what was gathered, or written, of a place that turns out to be a copy."""
        self._rows = {
            name: [row for row in rows if row["recording"] != done.recording] for name, rows in self._rows.items()
        }
        self._weeks.add(week_of(job.started))
        self._replaced.add(done.recording)
        self.counts.subtract(self._outcomes(done))
        self._copy(job, plain(instead.source.path), instead.labels.canonical(), _statuses(done))

    def _gather(self, job: Job, done: Done) -> None:
        # Rows that the new ones take the place of: of the same content, of a part of it at the same place, or bad ones.
        same = pl.col("recording").is_in([done.recording, unread(job.source)])
        files = [plain(file) for file in job.source.files]  # who reads them could list their folders
        mended = pl.col("path").is_in({*files, *chain.from_iterable(map(above, files))})
        mended &= pl.col("status") == "unreadable"
        shares = pl.col("digests").list.set_intersection(pl.lit([*done.digests], pl.List(pl.String))).list.len() > 0
        here = plain(job.source.path)
        profiled = pl.col("path").is_in([here, *above(here)]) & (pl.col("status") == UNPROFILED)
        old = self._earlier.filter(same | mended | profiled | pl.col("path").eq(here) & shares)
        self._replaced |= {done.recording, *old["recording"]}
        self._weeks |= {week_of(job.started), *old["week"]}
        for name, rows in done.rows.items():
            self._rows[name] += rows
        self._characters += sum(len(row["drawing"]) + len(row["names"]) for row in done.rows.get("drawings", ()))
        self.counts.update(self._outcomes(done))

    def _outcomes(self, done: Done) -> list[str]:
        """What a recording and its rows count as; its runs only if they are new."""
        statuses = _statuses(done)
        if statuses == [UNPROFILED]:
            return statuses
        if done.recording in self._checked:
            return ["relabelled", _read(statuses), *(status for status in statuses if status != "checked")]
        return ["added", _read(statuses), *statuses]

    def close(self) -> None:
        """Write the rest, and see that what was written is there."""
        self.flush()
        if self._known:
            self._store.require()

    def flush(self) -> None:
        """Write what was gathered."""
        if self._replaced:
            rows = {name: frame(name, rows) for name, rows in self._rows.items()}
            self._store.write(rows, "recording", self._replaced, self._weeks, known=self._known)
            self._known = True
        self._clear()
        self._last = time.monotonic()


def _statuses(done: Done) -> list[str]:
    return [row["status"] for row in done.rows["runs"]]


def _read(statuses: Iterable[str]) -> str:
    """How much of a recording could be read: all of it, a part or nothing."""
    checked = [status == "checked" for status in statuses]
    return "read" if all(checked) else "partly" if any(checked) else "unread"


def _earlier(store: Store, jobs: Sequence[Job]) -> pl.DataFrame:
    """What the store holds of these recordings: by fingerprint, by place, or by size, which is what copies share.

    `again` are those that may be read now, and those whose rows are not all there.
    """
    places = pl.Series([plain(path) for job in jobs for path in (job.source.path, *job.source.files)], dtype=pl.String)
    sizes = pl.Series([job.bytes for job in jobs], dtype=pl.Int64)
    prints = pl.Series([job.fingerprint for job in jobs], dtype=pl.String)
    same = (
        pl.col("fingerprint").is_in(prints.unique().implode())
        | pl.col("path").is_in(places.unique().implode())
        | pl.col("bytes").is_in(sizes.unique().implode())
        | pl.col("status").eq(UNPROFILED)  # few; a profile may have come to one
    )
    columns = ("recording", "week", "path", "status", "fingerprint", "digests", "bytes", "labels", "advisor_version")
    rows = store.collect(store.scan("runs").filter(same).select(columns))
    torn = disagreements(store, rows["week"].unique().to_list())["recording"]
    return rows.with_columns(again=_RETRIED | pl.col("recording").is_in(torn.implode()))


def _never_profiled(store: Store, bare: Sequence[Job]) -> list[Job]:
    """Those of which the store knows no profile either: one that was ingested and removed since still counts."""
    if not bare:
        return []
    checked = store.scan("runs").filter(pl.col("status") != UNPROFILED).select("path").unique()
    profiled = {place for (path,) in store.collect(checked).iter_rows() for place in (path, *above(path))}
    return [job for job in bare if plain(job.source.path) not in profiled]


def _with_candidates(job: Job, earlier: pl.DataFrame, homes: pl.DataFrame) -> Job:
    """The job with the recordings that it may be a copy of: labelled alike, or at a place that goes before its own."""
    size = (pl.col("bytes") == job.bytes) & ~_AGAIN
    alike = earlier.filter(size, pl.col("labels") == job.labels.canonical())
    before = homes.filter(size, pl.col("path") < plain(job.source.path))
    return replace(job, candidates=frozenset([*alike["recording"], *before["recording"]]))


def _name(recording: Recording, roots: Sequence[str]) -> str:
    """What a run goes by: its place under the root, which does not depend on what else lies there."""
    below = min((recording.path.removeprefix(f"{root}/") for root in roots), key=len)
    _, sign, number = recording.name.rpartition("#")  # of several recordings in one place
    return recording.name if below == recording.path else below + (sign + number if number.isdigit() else "")


def _with_name(job: Job, roots: Sequence[str]) -> Job:
    return replace(job, source=replace(job.source, name=_name(job.source, roots)))


_READ_AT_ONCE: Final = 512  # stored reports in memory


Again: TypeAlias = tuple[Row, str, str, str | None, Settings]
"""A stored run to judge anew: its row, its report, what was kept beside, what ran by name, and by what to judge."""


def rejudge(  # noqa: PLR0913 - all but the first two are options
    store: Store,
    engine: Engine,
    *,
    config: Config | None = None,
    weeks: Sequence[str] | None = None,
    every: bool = False,
    today: dt.date | None = None,
    progress: Progress | None = None,
) -> Changes:
    """Judge the stored runs again whose rule set is another one by now, or `every` one, without reading a profile.

    A StoreError where the store cannot be written; the same command goes on from there.
    """
    settings = Settings(config or Config(), today or dt.datetime.now(dt.UTC).date())
    version = book(settings)[2]
    outdated = pl.lit(every) | pl.col("rule_set").ne_missing(version)
    stale = store.scan("runs", weeks).filter(pl.col("status") == "checked", outdated)
    runs = store.collect(stale.select("week", "run_id").sort("week", "run_id"))
    on_done, judged, notes = (progress or silent)(runs.height), 0, []
    batch: list[tuple[Again, Rows]] = []
    for task, outcome in outcomes_of(engine, judge_run, _stored(store, runs, settings)):
        if isinstance(outcome, Exception):
            run = str(task[0]["run_id"])[:_TELLING_ID]  # all of it looks like a secret
            notes.append(Note("not_judged_again", run=run, why=one_line(str(outcome), 200)))
        else:
            batch.append((task, outcome))
            judged += 1
        if len(batch) >= _FLUSH_RUNS:
            _rewrite(store, batch)
            batch = []
        on_done(1)
    _rewrite(store, batch)
    return Changes(runs=judged, notes=tuple(notes))


def _rewrite(store: Store, batch: Sequence[tuple[Again, Rows]]) -> None:
    tables = {name: [row for _, rows in batch for row in rows[name]] for name in ("runs", "findings", "reports")}
    ids, weeks = ([task[0][key] for task, _ in batch] for key in ("run_id", "week"))
    store.write({name: frame(name, rows) for name, rows in tables.items()}, "run_id", ids, weeks)


def _stored(store: Store, runs: pl.DataFrame, settings: Settings) -> Iterator[Again]:
    """The runs with their reports, some hundred at a time; with what ran by name only if a rule selects by names."""
    has_selections = bool(selected(book(settings)[0].values()))
    for some in runs.iter_slices(_READ_AT_ONCE):
        of_slice = pl.col("run_id").is_in(some["run_id"].implode())
        weeks = some["week"].unique().to_list()
        stored = store.collect(store.scan("runs", weeks).filter(of_slice))
        texts = store.collect(store.scan("reports", weeks).filter(of_slice).select("run_id", "report", "kept"))
        contexts = {run_id: (report, beside) for run_id, report, beside in texts.iter_rows()}
        by_name = store.scan("drawings", weeks).filter(of_slice if has_selections else pl.lit(value=False))
        names = dict(store.collect(by_name.select("run_id", "names")).iter_rows())
        for row in stored.to_dicts():
            if row["run_id"] in contexts:
                yield row, *contexts[row["run_id"]], names.get(row["run_id"]), settings


def judge_run(task: Again) -> Rows:
    """One stored run judged anew: its rows of `runs`, `findings` and `reports`."""
    row, report, context, by_name, settings = task
    rules, silenced, version, changed = book(settings)
    before, beside, names = stored(report, context, by_name)
    judged = judge(as_measured(before, beside, names, selected(rules.values())), rules, silenced)
    run = judged_again(before, judged, beside.notes, (*beside.file_notes, *map(Reason.of, changed)))
    rows = judged_rows(run, beside, version, Labels.model_validate_json(row["labels"] or "{}").trials)
    keys = {key: row[key] for key in ("week", "recording", "run_id")}
    rows["runs"] = [{**row, **rows["runs"][0]}]
    return {name: [{**each, **keys} for each in of] for name, of in rows.items()}
