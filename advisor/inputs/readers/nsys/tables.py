"""The tables of an export, column by column: a SQLite database or a folder of Parquet files.

Only named columns of named tables are read, never whole tables: several of them hold the profiled process's
environment. Of `StringIds` only the texts that other columns refer to are read, for the same reason.

SQLite is read through ADBC: 4.1 million rows of 315 MB took 2.0 s so, 2.0 s with connectorx (a dependency ten times the
size), and 12 to 15 s with Python's sqlite3 module, however its rows were turned into columns.
"""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import adbc_driver_sqlite.dbapi as sqlite
import polars as pl
from polars.datatypes import DataTypeClass

from advisor.errors import ReadError
from advisor.inputs.clocks import LONGEST_NS
from advisor.inputs.names.calls import STEP, host_kinds
from advisor.model.profile import MEMORY_KINDS, TEXT
from advisor.secrets import secret_variables
from advisor.system.file_size import DEVICE_OP, HOST_OP, Room, too_large
from advisor.system.processes import panics_as_errors
from advisor.vocabulary.limits import table

Types = Mapping[str, DataTypeClass]
Where = str | tuple[int, ...] | None  # which rows: SQL, the `id`s that they have, or None for all
_LONGEST_TEXT: Final = 8_192  # an op's name with its shapes; what is longer helps nobody
_MOST_PRINTED: Final = 10_000  # texts
_BATCH_ROWS: Final = 65_536
_VALUES: Final[Mapping[DataTypeClass, str]] = {pl.String: "x''", pl.Float64: "0.0"}
_EXPORT_S: Final = 1_800
_VALUE_BYTES: Final = 48  # that a value of Parquet counts for
_OF_DEVICE: Final = frozenset(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
_EXPORT: Final = "export it again with `nsys export --type=sqlite`"
_MOST_CHECKED: Final = 1 << 26  # bytes: a second; to read a larger database takes long whatever it holds
_BROKEN: Final = f"the database is damaged or cut short; {_EXPORT}, or copy it again"
REPORTS: Final = frozenset({".nsys-rep", ".qdrep"})
PRIVATE: Final = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "ProcessStreams")  # they can hold secrets
_OF_OWNERS: Final = (*PRIVATE, "META_DATA_EXPORT", "EXPORT_META_DATA")
_OWNERS: Final = (
    "\"name\" IN ('Hostname', 'DEVICE_DISPLAY_NAME', 'EXPORT_USER', 'EXPORT_HOST') OR \"name\" LIKE '%:USER_NAME'"
)


@dataclass(slots=True)
class Request:
    """What the reader asked of a table: columns with their types, and which rows; every row where `wheres` has None."""

    name: str
    types: dict[str, DataTypeClass] = field(default_factory=dict)
    wheres: dict[Where, None] = field(default_factory=dict)


class Export:
    """What the reader asks an export for; absent tables are empty, absent columns null."""

    def __init__(self, tables: "_Database | _Folder") -> None:
        self._tables = tables
        self.requests: dict[str, Request] = {}  # what it did ask for, by the table's name

    def rows(
        self, table: str, types: Types, *, needs: tuple[str, ...] | None = None, where: Where = None
    ) -> pl.DataFrame:
        """These columns of a table, or of the first that exists of several names with a `|` between them.

        No rows where it lacks one of `needs` (None: of all), without which they mean nothing; SQL in `where` must use
        no others.
        """
        for name in table.split("|"):
            if name in PRIVATE:
                raise ValueError(f"{name} may hold secrets")
            there = self._tables.columns(name)
            columns = {column: dtype for column, dtype in types.items() if column in there}
            if columns and there.issuperset(types if needs is None else needs):
                request = self.requests.setdefault(name, Request(name))
                request.types |= columns
                request.wheres[where] = None
                rows = self._tables.select(name, columns, where)
                absent = [pl.lit(None, dtype).alias(c) for c, dtype in types.items() if c not in there]
                return rows.with_columns(absent).select(list(types))
        return pl.DataFrame(schema=dict(types))

    def printed(self, stream: str) -> list[str]:
        """What the processes wrote to `stderr` or `stdout`, which may hold secrets: no request is kept for a copy."""
        types: Types = {"filenameId": pl.Int64, "contentId": pl.Int64}
        texts_of: Types = {"id": pl.Int64, "value": pl.String}
        needs = {"ProcessStreams": types, "StringIds": texts_of}
        if not all(self._tables.columns(table).issuperset(columns) for table, columns in needs.items()):
            return []
        rows = self._tables.select("ProcessStreams", types, None)
        ids = [*rows["filenameId"].drop_nulls(), *rows["contentId"].drop_nulls()]
        those = tuple(ids[:_MOST_PRINTED])
        texts = dict(self._tables.select("StringIds", texts_of, those, ends=True).drop_nulls().rows())
        return [texts[text] for file, text in rows.rows() if stream in texts.get(file, "") and text in texts]

    def names(self) -> frozenset[str]:
        """Names of all tables, asked for or not."""
        return self._tables.names()

    def rows_of(self, request: Request) -> pl.DataFrame:
        """All rows and columns of a table that were asked for."""
        wheres = [None] if None in request.wheres else request.wheres
        rows = pl.concat([self._tables.select(request.name, request.types, where) for where in wheres])
        return rows.unique(maintain_order=True) if len(request.wheres) > 1 and None not in request.wheres else rows

    def secret_variables(self) -> list[str]:
        """Names of the variables of the profiled process's environment that are called like secrets; never values."""
        texts = (f"{name}={value}\n{value}" for name, value in self._facts(PRIVATE, None))
        return sorted({variable for text in texts for variable in secret_variables(text.encode())})

    def owners(self) -> list[bytes]:
        """Names of users and hosts that fields of the export say."""
        return [value.encode() for _, value in self._facts(_OF_OWNERS, _OWNERS) if value]

    def _facts(self, tables: Iterable[str], where: str | None) -> Iterator[tuple[str, str]]:
        types: dict[str, DataTypeClass] = {"name": pl.String, "value": pl.String}
        for name in tables:
            if self._tables.columns(name).issuperset(types):
                yield from self._tables.select(name, types, where).unique(maintain_order=True).iter_rows()

    def strings(self, *columns: pl.Series) -> pl.DataFrame:
        """Id and value of the texts that these columns refer to."""
        ids = pl.concat([pl.Series(dtype=pl.Int64), *columns]).drop_nulls().unique().sort()
        return self.rows("StringIds", {"id": pl.Int64, "value": pl.String}, where=(*ids,)).unique("id", keep="first")


@contextmanager
def opened(path: Path, name: str, max_bytes: int | None = None, memory: int | None = None) -> Iterator[Export]:
    """The export at `path`: a database, a folder of Parquet files, or a report, which is exported first.

    `max_bytes` limits the size of a database, `memory` what becomes of Parquet's rows. What is damaged is a ReadError
    while its rows are read as well.
    """
    try:
        if path.is_dir():
            yield Export(_Folder(path, name, Room(name, memory)))
        elif path.suffix.lower() in REPORTS:
            with (
                TemporaryDirectory(prefix="advisor-") as folder,
                _connected(_exported(path, Path(folder), name), name) as tables,
            ):
                yield Export(tables)
        else:
            if max_bytes is not None and path.stat().st_size > max_bytes:
                raise too_large(name, max_bytes)
            with _connected(path, name, checks=path.stat().st_size < _MOST_CHECKED) as tables:
                yield Export(tables)
    except (sqlite.Error, pl.exceptions.PolarsError, OSError) as error:
        of_folder = _BROKEN.replace("the database", "a table of the folder").replace("sqlite", "parquetdir")
        raise ReadError(of_folder if path.is_dir() else _BROKEN, name) from error


_MOST_FAULTS: Final = 2_000  # characters: SQLite stops at the hundredth fault, before it may come to a repeated page
_LONGEST_DEFAULT: Final = 100  # characters: a column that was added has its default in each row, and no bytes there


class _Database:
    def __init__(self, connection: sqlite.Connection, name: str, *, checks: bool) -> None:
        self._connection, self._name, self._checks = connection, name, checks
        self._require_plain = cache(self._check)

    def names(self) -> frozenset[str]:
        rows = self._fetch("select cast(name as blob) as name from sqlite_master where type = 'table'")
        return frozenset(_text(rows["name"])) if rows.height else frozenset()

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns but computed ones; none where the table is absent."""
        rows = self._fetch(f"select cast(name as blob) as name from pragma_table_info({_quoted(table)})")  # noqa: S608 - quoted
        return frozenset(_text(rows["name"])) if rows.height else frozenset()

    def _check(self, table: str) -> None:
        """A ReadError where its rows are not in the file, each once: they may be anything, or more than it holds.

        Tables that nobody reads may be of a kind unknown here.
        """
        is_plain = "t.type = 'table' and t.sql like 'create table%'"
        of_columns = f"from sqlite_master t, pragma_table_xinfo(t.name) where t.name = {_quoted(table)}"
        for wrong, is_wrong in (
            ("is a view or a virtual table, which may hold anything", f"not ({is_plain})"),
            ("has a computed column, which may hold anything", "hidden = 2"),  # and which a check would compute
            ("has a column with a long text by default", f"length(dflt_value) > {_LONGEST_DEFAULT}"),
        ):
            if self._fetch(f"select 1 {of_columns} and {is_wrong}").height:
                raise ReadError(f"{table} {wrong}; {_EXPORT}", self._name)
        # SQLite reads a page as often as others refer to it: for ever, if they are many. 1 MB takes 15 ms to check.
        if self._checks:
            faults = str(self._fetch(f"pragma quick_check({_quoted(table)})").rows())
            if "2nd reference to page" in faults or len(faults) > _MOST_FAULTS:
                raise ReadError(_BROKEN, self._name)

    def select(self, table: str, types: Types, where: Where, *, ends: bool = False) -> pl.DataFrame:
        """The named columns of a table, all of which exist, as these types.

        Of a long text it is the beginning, or the end where that is asked for.
        """
        self._require_plain(table)
        # The first batch decides the columns' types, and may be nulls alone: a row that has them goes before.
        first = ", ".join(f'{_VALUES.get(dtype, "0")} as "{column}"' for column, dtype in types.items())
        expressions = ", ".join(self._cast(column, dtype, ends) for column, dtype in types.items())
        query = f'select {first} union all select {expressions} from "{table}"'  # noqa: S608 - names of ours
        if isinstance(where, tuple):  # as JSON: a table is read once, however many ids there are
            where = f"id in (select value from json_each('[{','.join(map(str, where))}]'))"  # noqa: S608 - numbers
        rows = self._fetch(query + (f" where {where}" if where else ""))[1:]
        texts = [_text(rows[column]) for column, dtype in types.items() if dtype == pl.String]
        return rows.with_columns(texts).select(pl.col(column).cast(dtype) for column, dtype in types.items())

    def _fetch(self, query: str) -> pl.DataFrame:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(query)
            return pl.DataFrame(cursor.fetch_arrow())

    @staticmethod
    def _cast(column: str, dtype: DataTypeClass, ends: bool) -> str:  # noqa: FBT001 - as `select` was asked
        # As bytes, since texts need not be UTF-8.
        if dtype == pl.String:
            return f'cast(substr("{column}", {-_LONGEST_TEXT if ends else 1}, {_LONGEST_TEXT}) as blob)'
        number = f'typeof("{column}") in (\'integer\', \'real\') or cast("{column}" as numeric) = "{column}"'
        return f'case when {number} then cast("{column}" as {"real" if dtype == pl.Float64 else "integer"}) end'


class _Folder:
    """The same of a parquetdir export: `<table>.parquet` each."""

    def __init__(self, folder: Path, name: str, room: Room) -> None:
        self._folder, self._room, self._counted = folder, room, set[str]()
        root = folder.resolve()
        if outside := [file for file in folder.glob("*.parquet") if not file.resolve().is_relative_to(root)]:
            raise ReadError(f"{outside[0].name} is a link that leads out of the folder; copy the file there", name)

    def names(self) -> frozenset[str]:
        return frozenset(file.stem for file in self._folder.glob("*.parquet"))

    def columns(self, table: str) -> frozenset[str]:
        file = self._folder / f"{table}.parquet"
        with panics_as_errors():
            schema = pl.read_parquet_schema(file) if file.is_file() else {}
        return frozenset(column for column, dtype in schema.items() if not dtype.is_nested())  # a list is no value

    def select(self, table: str, types: Types, where: Where, *, ends: bool = False) -> pl.DataFrame:
        rows = pl.scan_parquet(self._folder / f"{table}.parquet", glob=False)
        if table not in self._counted:
            self._counted.add(table)
            each = DEVICE_OP if table in _OF_DEVICE else HOST_OP if "start" in types else (_VALUE_BYTES * len(types), 0)
            self._room.take(_collected(rows.select(pl.len())).item(), each)
        texts = [column for column, dtype in types.items() if dtype == pl.String]
        cut = partial(_cut, ends=ends)
        spelt = pl.col(pl.Categorical, pl.Enum).exclude(texts).cast(pl.String)  # what stands for numbers
        rows = rows.with_columns(spelt, *(pl.col(column).map_batches(cut, return_dtype=pl.String) for column in texts))
        if where is not None:
            rows = rows.filter(pl.sql_expr(where) if isinstance(where, str) else pl.col("id").is_in(where))
        return _collected(rows.select(pl.col(column).cast(dtype, strict=False) for column, dtype in types.items()))


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _collected(rows: pl.LazyFrame) -> pl.DataFrame:
    with panics_as_errors():
        return rows.collect()


@contextmanager
def _connected(path: Path, name: str, *, checks: bool = False) -> Iterator[_Database]:
    # immutable: no lock, no journal, whatever lies beside it
    with sqlite.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1") as connection:
        yield _Database(connection, name, checks=checks)


def _exported(path: Path, folder: Path, name: str) -> Path:
    command = ["nsys", "export", "--type=sqlite", "--force-overwrite=true"]
    program = shutil.which("nsys")
    if program is None:
        typed = " ".join([*command[:3], name])
        raise ReadError(
            "an Nsight Systems report, and `nsys` (package `nsight-systems-cli`) is not on the PATH. Where it is, run "
            f"this, and give the .sqlite file that it writes: `{typed}`",
            name,
        )
    target = folder / "report.sqlite"
    arguments = [program, *command[1:], f"--output={target}", str(path.resolve())]
    try:
        done = subprocess.run(arguments, capture_output=True, check=False, timeout=_EXPORT_S)  # noqa: S603 - no shell
    except subprocess.TimeoutExpired:
        raise ReadError(f"`nsys export` took over {_EXPORT_S // 60} minutes; export it by hand", name) from None
    if done.returncode or not target.is_file():
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise ReadError(f"`nsys export` failed: {lines[-1] if lines else 'it says nothing'}; record it again", name)
    return target


def _cut(column: pl.Series, *, ends: bool) -> pl.Series:
    """The beginning of each text, or its end: in Parquet a long one of many rows is there once, and takes no space."""
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        each = column.unique()
        texts = _cut(each.cast(pl.String), ends=ends)
        return column.to_physical().replace_strict(each.to_physical(), texts).cast(pl.String)
    column = column if column.dtype == pl.Binary else column.cast(pl.String)
    of_kind = column.bin if column.dtype == pl.Binary else column.str
    return _text(of_kind.tail(_LONGEST_TEXT) if ends else of_kind.head(_LONGEST_TEXT))


def _text(column: pl.Series) -> pl.Series:
    """Bytes as text; what is not UTF-8 is replaced."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.ComputeError:
        lenient = [None if value is None else value.decode("utf-8", "replace") for value in column]
        return pl.Series(column.name, lenient, dtype=pl.String)


TIME: Final = ("start", "end")
_LATEST_NS: Final = 1 << 60  # with the session's time of day it stays below 2**63


def ints(*columns: str) -> dict[str, DataTypeClass]:
    """These columns as whole numbers."""
    return dict.fromkeys(columns, pl.Int64)


def records(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """The rows of a table with these columns, as `_placed`."""
    return placed(export.rows(table, ints(*TIME, *columns), needs=TIME, where=where))


def timed(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """Those that have a place in time."""
    return records(export, table, *columns, where=where).drop_nulls("dur_ns")


def placed(rows: pl.DataFrame) -> pl.DataFrame:
    """All rows, with start_ns and dur_ns; both null where the row has no sound place in time."""
    start, end = (pl.when(sane(column)).then(column) for column in TIME)
    sound = (end - start).is_between(0, LONGEST_NS)
    return rows.with_columns(start_ns=pl.when(sound).then(start), dur_ns=pl.when(sound).then(end - start))


def sane(column: str) -> pl.Expr:
    """Whether a time can be one of a session."""
    return pl.col(column).is_between(-_LATEST_NS, _LATEST_NS)


PROCESS: Final = pl.col("globalTid") // (1 << 24) * (1 << 24)  # the bits of globalTid that tell the process
PID: Final = pl.col("process") // (1 << 24) & 0xFFFFFF
THREAD: Final = pl.col("globalTid") & 0xFFFFFF
WHOSE: Final = [PROCESS.alias("process"), THREAD.alias("thread")]


def small(column: str | pl.Expr) -> pl.Expr:
    """As 32 bits; null where the number is larger."""
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.Int32, strict=False)


def with_names(rows: pl.DataFrame, column: str, export: Export) -> pl.DataFrame:
    """The rows with the `name` that a column refers to."""
    texts = export.strings(rows[column]).select(pl.col("id").alias(column), name=pl.col("value").cast(TEXT))
    return rows.join(texts, on=column, how="left", maintain_order="left")


_WRITTEN: Final = table(__file__, "names")
COPY_KINDS: Final[dict[int, str]] = _WRITTEN["copy_kinds"]
MEMORY: Final[dict[int, str]] = _WRITTEN["memory"]
GPU_METRICS: Final[list[tuple[str, str]]] = _WRITTEN["gpu_metrics"]
MIGRATIONS: Final = [11, 12, 13]
"""Those of managed memory: pages that the driver moves, with no call of the program around it."""

# ENUM_NSYS_EVENT_TYPE
NVTX_THREAD: Final = 39
NVTX_PUSH_POP: Final = (59, 70)
NVTX_START_END: Final = (60, 71)
NVTX_DOMAIN: Final = 75
# ENUM_NSYS_EVENT_CLASS: 67, "CUDA backtrace", repeats calls that are there already
API_CLASSES: Final = (0, 1)

VERSION: Final = r"_v\d{4,}$"  # cudaMalloc_v3020; cuGetProcAddress_v2 is a name of its own
_EMITTED: Final = r"^(.*?), (?:seq|op_id|sizes|input_op_ids) = "  # torch.autograd.profiler.emit_nvtx
_OP: Final = r"^[\w:.]+$|^autograd::"  # an operator's name, unlike one that a person gave, has no blanks
_OP_DOMAINS: Final = ["tensorflow-core", "TSL"]
# Ranges that people put around asking for the next batch; PyTorch's own are told by `host_kinds`.
_INPUT: Final = (
    r"(?i)^(?:(?:wait(?:ing)? (?:for|on) )?(?:the )?(?:next |get |load |fetch |read )?"
    r"(?:data[ _-]?load(?:er|ing)?|dataload(?:er|ing)|batch[ _-]?(?:load|gen|fetch)\w*|input[ _-]pipeline)"
    r"|(?:next|get|load|fetch|read)[ _-](?:a |the |next[ _-])?(?:data|batch|samples?|inputs?))\b"
)


def range_name(text: pl.Expr) -> pl.Expr:
    """An NVTX range's name without what PyTorch's emit_nvtx adds behind it."""
    return pl.coalesce(text.str.extract(_EMITTED), text)


def range_kinds(text: pl.Expr, domain: pl.Expr) -> pl.Expr:
    """Kind of an NVTX range: op, step, input, compile, gc or annotation.

    Ops are the ranges that emit_nvtx and `nsys --pytorch=autograd-nvtx` push for operators, and those of TensorFlow's
    and XLA's own domains.
    """
    name = range_name(text)
    emitted = text.str.contains(_EMITTED) & name.str.contains(_OP)
    is_op = emitted | name.str.contains(r"^(?:aten|autograd)::") | domain.is_in(_OP_DOMAINS).fill_null(value=False)
    started_as = pl.when(name.str.contains(STEP) | ~is_op).then(pl.lit("annotation")).otherwise(pl.lit("op"))
    asks = ~is_op & name.str.contains(_INPUT)
    return pl.when(asks).then(pl.lit("input")).otherwise(host_kinds(started_as, name).cast(pl.String))


def memory_kind(number: pl.Expr) -> pl.Expr:
    """pageable, pinned, device or managed, null where unknown."""
    return number.replace_strict(MEMORY, default=None, return_dtype=pl.String).cast(MEMORY_KINDS)
