"""The fleet's store: five Delta Lake tables (`columns.py`), partitioned by ISO week, in a folder or an object store.

A write replaces all rows of the runs it is given, `runs` last: a run counts once its row in `runs` is there. A write
that is cut off leaves nothing behind that counts, and doing it again mends it.
Two writers that meet are put one after the other by a transaction id that all commits share; the second looks anew.
Checksums of files in a folder stand beside them, which Parquet seldom has: a changed byte is an error, never a number.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

import polars as pl

from advisor.errors import ReadError, StoreError, UsageError
from advisor.fleet.columns import LATER_TABLES, OWN, SCHEMAS, TABLES, WEEK, of_now
from advisor.fleet.labels import is_week
from advisor.inputs.storage import is_url, tidy
from advisor.system.processes import panics_as_errors
from advisor.text import one_line, visible

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

_Result = TypeVar("_Result")

KEEP_DAYS: Final = 7
_HORIZON: Final = "gpu-advisor.first-week"  # a property of the table of runs
_TRIES: Final = 60
_WAIT_S: Final = 0.5
_TOGETHER: Final = {"drawings": 32, "reports": 128}  # rows: few large texts are unpacked to get at one
_STATISTICS: Final = 64  # characters of a smallest and largest value: else the log holds whole reports
_CONDITIONAL: Final = {"aws_conditional_put": "etag"}  # S3 refuses a commit that another writer made first
_OUT_OF_REACH: Final = re.compile("Generic (?:S3|GCS) error|operation lacked|denied|No space|Read-only|Too many open")
_UNFIT: Final = re.compile(r"[][\\^|=\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")  # deltalake or polars misread it in a local path


@dataclass(frozen=True, slots=True)
class Store:
    """The tables under `uri`: a folder, or a URL of S3 (s3://) or Google (gs://).

    `options` go to the object store's client: credentials, regions and endpoints that the environment does not tell.
    Every method raises a StoreError where a table is out of reach, damaged, or missing although others are there.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def write(
        self,
        rows: Mapping[str, pl.DataFrame],
        key: str,
        values: Iterable[str],
        weeks: Iterable[str] = (),
        *,
        known: bool = False,
    ) -> None:
        """Replace the rows whose `key` (`recording` or `run_id`) is one of `values`, in the tables of `rows`.

        Every one of `values` loses its rows in these tables, whether there are new ones or not. `weeks` are where the
        rows to replace can lie: without them, the files of all weeks are opened. Of a store that is `known` to have
        been there before, no table is made anew. A StoreError leaves what was there before.
        """
        if known:
            self.require()
        gone, where = sorted(set(values)), sorted(set(weeks))
        within = f"{_among(WEEK, where)} AND " if where else ""
        for name in TABLES:
            if name in rows and gone:
                commit = partial(self._overwrite, of_now(name, rows[name]), within + _among(key, gone), where or None)
                self._retried(name, commit)

    def require(self) -> None:
        """Raise where a table is missing, of a store that is known to have been written."""
        for name in TABLES:
            with self._reaching(name):
                if name not in LATER_TABLES and self._open(name) is None:
                    raise self.missing(name)

    def scan(self, name: str, weeks: Sequence[str] | None = None) -> pl.LazyFrame:
        """A table, lazily; only the files of these weeks are opened. Empty where nothing was ever written."""
        with self._reaching(name):
            table = self._open(name, weeks)
            if table is None:
                if name not in LATER_TABLES and self.exists():
                    raise self.missing(name)
                return pl.LazyFrame(schema=SCHEMAS[name])
            frame = of_now(name, self._rows(table))
        return frame if weeks is None else frame.filter(pl.col(WEEK).is_in(list(weeks)))

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """What a scan gives; a StoreError where a file of the store is gone or unreadable."""
        try:
            with self._reaching():
                return frame.collect(engine="streaming")
        except StoreError:
            for name in TABLES:
                self.count(name)  # the damaged one says so by its name
            raise

    def count(self, name: str) -> int:
        """The rows of a table, every file of which is read; 0 where nothing was ever written.

        A StoreError where it holds another number of rows than its log tells.
        """
        frame = self.scan(name)
        with self._reaching(name):
            table = self._open(name)
            read = frame.group_by(WEEK).agg(pl.len().alias(""), pl.all().null_count()).collect(engine="streaming")
            files = pl.DataFrame(table.get_add_actions(flatten=True)).rows(named=True) if table else []
        rows, logged = Counter(dict(read.select(WEEK, "").rows())), Counter[str]()
        for file in files:
            logged[file[f"partition.{WEEK}"]] += file["num_records"] or 0
        for week in sorted(rows.keys() | logged.keys(), key=str):
            if rows[week] != logged[week]:
                raise self.unusable(name, f"{rows[week]:,} rows of {week}, where its log tells {logged[week]:,}")
        return rows.total()

    def unsummed(self, name: str) -> int:
        """How many files of a table have no checksum; none in an object store, which keeps its own."""
        with self._reaching(name):
            table, notes = self._open(name), Path(self._path(name), _NOTES)
            return len(_names(table) - {note.name for note in notes.glob("*")}) if table and not is_url(self.uri) else 0

    def exists(self) -> bool:
        """Whether anything was ever written here; a StoreError where it cannot be reached."""
        return self.since("runs") is not None

    def since(self, name: str) -> dt.datetime | None:
        """When a table was made; None where it is not there, as in a store of an earlier version."""
        with self._reaching(name):
            table = self._open(name)
            birth_ms = table.metadata().created_time if table else None
        return None if birth_ms is None else dt.datetime.fromtimestamp(birth_ms / 1_000, dt.UTC)

    def weeks(self, name: str = "runs") -> list[str]:
        """The weeks that a table has rows of, ascending."""
        with self._reaching(name):
            table = self._open(name)
            parts = table.partitions() if table else []
            if not all(is_week(part.get(WEEK) or "") for part in parts):
                raise OSError("a file of no week is in its log")
            return sorted({part[WEEK] for part in parts})

    def compact(self, keep_days: int = KEEP_DAYS) -> dict[str, tuple[int, int]]:
        """Few large files in place of many small ones; removes those that were replaced so many days ago.

        By table how many files are in use, and how many are of older states, which a later `compact` removes: whoever
        reads or writes such a state still needs them, and a day is safe where no ingest takes longer.
        """
        self.require()
        done = {name: self._retried(name, partial(self._compacted, hours=keep_days * 24)) for name in TABLES}
        return {name: files for name, files in done.items() if files is not None}

    def _compacted(self, name: str, hours: int) -> tuple[int, int] | None:
        if (table := self._open(name, None)) is None:
            return None
        for folder, folders, files in () if is_url(self.uri) else os.walk(self._path(name)):
            for link in filter(Path.is_symlink, (Path(folder, each) for each in (*folders, *files))):
                raise StoreError(f"{link} is a link, and compacting clears what it leads to; move that into the store")
        table.optimize.compact(writer_properties=_written(name))
        clear = partial(table.vacuum, enforce_retention_duration=False, full=True)  # full: what killed writers left too
        old = clear(retention_hours=hours, dry_run=False)
        unused = clear(retention_hours=0, dry_run=True)
        table.create_checkpoint()
        return len(table.file_uris()), len({*unused} - {*old})

    def before(self, week: str) -> pl.DataFrame:
        """The weeks before this one that hold runs, ascending, with the number of their rows: `week`, `rows`."""
        old = self.scan("runs").filter(pl.col(WEEK) < week)
        return self.collect(old.group_by(WEEK).agg(rows=pl.len()).sort(WEEK))

    def prune(self, before: str) -> int:
        """Forget the weeks before this one; how many `runs` those were. Files go with a `compact` some days later.

        The store remembers the week, so that no ingest brings back what was forgotten.
        """
        old = f"{WEEK} < '{before}'"
        self._retried("runs", partial(self._remember, week=before))
        forgotten = self.before(before)["rows"].sum()
        for name in reversed(TABLES):  # what counts goes first
            self._retried(name, partial(self._overwrite, pl.DataFrame(schema=SCHEMAS[name]), old, ()))
        return int(forgotten)

    def horizon(self) -> str:
        """The first week that the last `prune` left; empty where there was none."""
        with self._reaching("runs"):
            table = self._open("runs")
            return table.metadata().configuration.get(_HORIZON, "") if table else ""

    def _remember(self, name: str, week: str) -> None:
        if (table := self._open(name)) is not None:
            table.alter.set_table_properties({_HORIZON: week}, raise_if_not_exists=False)

    def _overwrite(self, rows: pl.DataFrame, predicate: str, weeks: Sequence[str] | None, name: str) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._created(name, weeks)
        # The rows with the types that an earlier version gave the columns they share.
        stored = pl.Schema(table.schema().to_arrow())
        shared = [pl.col(name).cast(stored[name], strict=False) for name in rows.columns if name in stored]
        write_deltalake(
            table,
            rows.with_columns(shared),
            mode="overwrite",
            predicate=predicate,
            schema_mode="merge",
            # retries inside would keep the snapshot that the other writer has changed: ours look anew
            commit_properties=CommitProperties(
                app_transactions=[Transaction("gpu-advisor", time.time_ns())], max_commit_retries=0
            ),
            writer_properties=_written(name),
        )

    def missing(self, name: str) -> StoreError:
        """What to raise where a table is not there."""
        return StoreError(f"{self.uri}: the table {name} is missing; {repair(name, self.uri)}")

    def _retried(self, name: str, commit: Callable[[str], _Result]) -> _Result:
        """A commit to a table, again and again while other writers come first; checksums of what it wrote are noted."""
        from deltalake.exceptions import CommitFailedError

        attempt = 0
        while True:
            with self._reaching():
                try:
                    done = commit(name)
                    if not is_url(self.uri) and (table := self._open(name)) is not None:
                        _note_sums(Path(self._path(name)), _names(table))
                except CommitFailedError:
                    attempt += 1
                    if attempt == _TRIES:
                        raise
                else:
                    return done
            time.sleep(random.uniform(0, min(_WAIT_S, 0.01 * 2**attempt)))  # noqa: S311 - spreads writers

    def _open(self, name: str, weeks: Sequence[str] | None = ()) -> DeltaTable | None:
        """The table, if its files of these weeks, or of all, are as they were written."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        below = () if is_url(self.uri) else Path(self._path(name)).rglob("*")
        if odd := next((file for file in below if file.exists() and not (file.is_file() or file.is_dir())), None):
            raise self.unusable(name, f"{odd.relative_to(self._path(name))} is not a regular file")
        try:
            table = DeltaTable(self._path(name), storage_options=self._options() or None)
        except TableNotFoundError:
            return None
        if OWN[name] not in {column.name for column in table.schema().fields}:
            raise self.unusable(name, "another table lies in its place")
        live, folder = _names(table, weeks), Path(self._path(name))
        for file in () if is_url(self.uri) else folder.glob("week=*/*"):
            with suppress(FileNotFoundError):  # no checksum, or gone since
                if file.name in live and (folder / _NOTES / file.name).read_bytes() != _sum(file):
                    raise self.unusable(name, f"{file.relative_to(folder)} is not as it was written")
        return table

    def _rows(self, table: DeltaTable) -> pl.LazyFrame:
        """A table, lazily. `scan_delta` takes what is encoded in its URL for names of files, and `*` for any name."""
        uris = table.file_uris()
        files = uris if is_url(self.uri) else [unquote(uri) for uri in uris]
        if files == uris and "*" not in table.table_uri:
            return pl.scan_delta(table, storage_options=self._options() or None)
        schema, week = pl.Schema(table.schema()), {WEEK: pl.String}
        return pl.scan_parquet(files, glob=False, schema=schema, hive_schema=week, missing_columns="insert")

    def _created(self, name: str, weeks: Sequence[str] | None) -> DeltaTable:
        from deltalake import write_deltalake

        if (table := self._open(name, weeks)) is not None:
            return table
        if not is_url(self.uri):
            Path(self._path(name)).mkdir(parents=True, exist_ok=True)
        empty = pl.DataFrame(schema=SCHEMAS[name])
        options = self._options() or None
        try:
            write_deltalake(self._path(name), empty, mode="error", partition_by=[WEEK], storage_options=options)
        except Exception:
            if self._open(name) is None:  # else another writer was first
                raise
        table = self._open(name)
        assert table is not None  # noqa: S101 - it was written above
        return table

    def _path(self, name: str) -> str:
        return f"{tidy(self.uri)}/{name}"

    def _options(self) -> dict[str, str]:
        return {**(_CONDITIONAL if self.uri.startswith(("s3://", "s3a://")) else {}), **self.options}

    @contextmanager
    def _reaching(self, name: str | None = None) -> Iterator[None]:
        """Turns what goes wrong on the way to the store, or to its table `name`, into a StoreError."""
        from deltalake.exceptions import DeltaError

        try:
            with panics_as_errors():
                yield
        except (DeltaError, OSError, TypeError, pl.exceptions.PolarsError) as error:  # TypeError: a size below 0
            raise self.unusable(name, str(error).partition("\n   0: ")[0]) from error  # before the calls of Rust

    def unusable(self, name: str | None, why: str) -> StoreError:
        """What to raise where the store, or its table `name`, is damaged or out of reach."""
        which = f"its table {name}: " if name else ""
        is_damaged = name and not _OUT_OF_REACH.search(why)
        remedy = repair(str(name), self.uri) if is_damaged else "check the path, the room, the access and `ulimit -n`"
        return StoreError(f"{self.uri}: the fleet store cannot be used: {which}{one_line(visible(why), 300)}; {remedy}")


def opened(uri: str, options: Iterable[str] = ()) -> Store:
    """The store at a path or URL, with options as `key=value`.

    A UsageError where no table can have the path, an option has no value, or the package is missing.
    """
    if uri.encode(errors="replace").decode() != uri:
        raise UsageError(f"{uri}: the path of a fleet store must be UTF-8; give another name")
    if not is_url(tidy(uri)) and (unfit := _UNFIT.search(Path(tidy(uri)).resolve().as_posix())):
        raise UsageError(f"{visible(uri)}: a fleet store's path cannot hold {unfit[0]!r}; give another folder")
    try:
        import deltalake  # noqa: F401 - whether it is there
    except ImportError:
        raise UsageError("the fleet store needs more packages: pip install 'gpu-advisor[fleet]'") from None
    pairs = [option.partition("=") for option in options]
    if not all(key and sign for key, sign, _ in pairs):  # what stands there may be a secret
        raise UsageError("--option: give it as KEY=VALUE")
    return Store(tidy(uri), {key: value for key, _, value in pairs})


def existing(store: Store) -> Store:
    """The store itself; a ReadError where nothing was ever written to it."""
    if not store.exists():
        if any(map(store.since, TABLES)):
            raise store.missing("runs")
        raise ReadError(f"holds no fleet store; `advisor fleet ingest ROOT --store {store.uri}` makes one", store.uri)
    return store


def repair(name: str, uri: str) -> str:
    """What brings a lost or damaged table back."""
    if name == "findings":
        return f"remove {uri}/findings if it is there, then `advisor fleet rejudge --all --store {uri}` writes it anew"
    if name == "drawings":
        return f"remove {uri}/drawings if it is there; reports of stored runs then lack their pictures"
    if name == "runs":
        return f"remove {uri}/runs if it is there, then `advisor fleet ingest` of the same roots writes it anew"
    return f"restore {uri}/{name} from a backup, or ingest the profiles into a new store"


def _written(name: str) -> WriterProperties:
    from deltalake import WriterProperties

    return WriterProperties(
        compression="ZSTD", statistics_truncate_length=_STATISTICS, max_row_group_size=_TOGETHER.get(name)
    )


def _names(table: DeltaTable, weeks: Sequence[str] | None = None) -> set[str]:
    places = [uri.rsplit("/", 2)[1:] for uri in (table.file_uris() if weeks != () else ())]
    return {name for folder, name in places if weeks is None or folder.removeprefix(f"{WEEK}=") in weeks}


def _among(key: str, values: Sequence[str]) -> str:
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"{key} IN ({quoted})"


_NOTES: Final = "_sums"


def _note_sums(table: Path, live: Collection[str]) -> None:
    """Note the checksums of the files with these names, where none is; forget those of files that are gone."""
    (table / _NOTES).mkdir(exist_ok=True)
    noted = {note.name: note for note in (table / _NOTES).iterdir()}
    for file in table.glob("week=*/*"):
        if noted.pop(file.name, None) is None and file.name in live:
            with suppress(FileNotFoundError):  # another writer has compacted the table, or is as far
                partial = table / _NOTES / f"{file.name}.{os.getpid()}"
                partial.write_bytes(_sum(file))
                partial.replace(partial.with_suffix(""))
    for orphan in noted.values():
        orphan.unlink(missing_ok=True)


def _sum(file: Path) -> bytes:
    return b"%08x" % zlib.crc32(file.read_bytes() if file.is_file() or not file.exists() else b"")
