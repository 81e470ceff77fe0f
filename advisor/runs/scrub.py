"""A copy of a recording without environment, user, host and secrets, which is checked to the same findings."""

import gzip
import io
import os
import shutil
import sqlite3
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import polars as pl

from advisor.errors import ReadError, UsageError
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.discover import discover
from advisor.inputs.readers.kineto.fields import Header
from advisor.inputs.readers.nsys.tables import PRIVATE
from advisor.inputs.secrets import hints, masked, masked_json, naming
from advisor.system.file_size import most_bytes, too_large
from advisor.system.silence import panics_as_errors

_MEMORY_PER_BYTE: Final = 4.0
_MEMORY_PER_VALUE: Final = 64.0  # of a Parquet table: as many bytes as there may be values
_LEVEL: Final = 6  # of gzip
_DAMAGED: Final = "damaged or cut short, so that it cannot be copied in part; record it again, or do not pass it on"
_RECORDING: Final = "a file, or a folder of Parquet tables"
_REPORTS: Final = (".nsys-rep", ".qdrep")
_VIEWERS: Final = "highres-ticks"  # what tells the trace viewer's copy of an XPlane profile
_STREAMS: Final = {"ProcessStreams": ("filenameId", "contentId"), "ANALYSIS_FILE": ("contentId",)}  # texts' ids
_HOSTS: Final = "\"name\" IN ('Hostname', 'DEVICE_DISPLAY_NAME', 'EXPORT_USER', 'EXPORT_HOST', 'PROCESS_0:USER_NAME')"
_PAGE_BYTES: Final = 1024  # a large first page would be moved far back as soon as it is full of names
_TYPES: Final = frozenset({b"INTEGER", b"REAL", b"TEXT", b"BLOB"})
_MASKED: Final = (
    "CASE typeof({0}) WHEN 'text' THEN CAST(masked(CAST({0} AS BLOB)) AS TEXT) WHEN 'blob' THEN masked({0}) "
    "ELSE {0} END"
)
_NAMING_TABLES: Final = (*PRIVATE, "META_DATA_EXPORT", "EXPORT_META_DATA")

Fields: TypeAlias = Mapping[int, Any]
"""Of a protobuf message: the fields that are texts (True), or messages with texts inside (their own fields)."""

_STAT: Final[Fields] = {5: True, 6: True}
_PLANE: Final[Fields] = {
    2: True,
    3: {2: True, 11: True, 4: {4: _STAT}},
    4: {2: {2: True, 3: True, 4: True, 5: _STAT}},
    5: {2: {2: True, 3: True}},
    6: _STAT,
}
_SPACE: Final[Fields] = {1: _PLANE, 2: True, 3: True}  # openxla/xprof, xplane.proto
_HOST_NAMES: Final = 4
_LENGTHS: Final = {1: 8, 5: 4}  # of fixed fields, by wire type
_VARINT, _BYTES = 0, 2
_VARINT_BYTES: Final = 10  # of 64 bits


def scrub(path: Path, target: Path) -> None:
    """Write a copy of the recording at `path`, a file or a folder of Parquet tables, to `target`.

    Raises:
        ReadError: it is no recording, or damaged.
        UsageError: it has to be exported first; or `target` is the recording, or cannot be written.
    """
    if path.suffix.lower() in _REPORTS:
        raise UsageError(
            f"{path}: a report of Nsight Systems cannot be rewritten; export it with `nsys export --type=sqlite`, "
            "scrub the .sqlite, and pass on that alone"
        )
    runs, rejected = discover([str(path)])
    if rejected or len(runs) != 1 or [*map(Path, runs[0].files)] != [path]:
        raise ReadError(rejected[0].why if rejected else f"give one recording: {_RECORDING}", path)
    is_new = not os.path.lexists(target)
    is_other = is_new or (stat.S_ISREG(target.lstat().st_mode) and not target.samefile(path))
    if not is_other or target.resolve().is_relative_to(path.resolve()):
        raise UsageError(f"-o {target}: is the recording itself, or no regular file; give another name")
    if path.is_dir():
        copied = _parquet
    elif runs[0].format == "nsys":
        copied = _database
    else:
        copied = _planes if path.name.lower().endswith(".pb") else _chrome
    with _placed(target) as partial_copy:
        copied(path, partial_copy)


@contextmanager
def _placed(target: Path) -> Iterator[Path]:
    """A path beside the target, which takes its place once it is complete, and else is gone."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"-o {target}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            shutil.rmtree(beside) if beside.is_dir() else beside.unlink()


def _content(path: Path) -> bytes:
    """What is in a file, unpacked."""
    most, pieces, size = most_bytes(_MEMORY_PER_BYTE), [], 0
    with path.open("rb") as stream:
        source = Source(stream)
        for piece in source:
            pieces.append(piece)
            if (size := size + len(piece)) > most:
                raise too_large(str(path), most)
    if source.broken:
        raise ReadError(_DAMAGED, path)
    return b"".join(pieces)


# ---------------------------------------------------------------------------------------------- Chrome traces


def _chrome(path: Path, target: Path) -> None:
    """The events, masked, and of the header what is read of it."""
    text = masked_json(_content(path))
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ReadError(_DAMAGED, path) from None
    if isinstance(fields, dict):
        known = {*Header.__struct_fields__, "traceEvents", "displayTimeUnit"}
        viewers = msgspec.json.decode(fields.get("metadata", b"{}"))
        header: dict[str, Any] = {name: value for name, value in fields.items() if name in known}
        if isinstance(viewers, dict) and _VIEWERS in viewers:
            header = {"metadata": {_VIEWERS: viewers[_VIEWERS]}, **header}
        text = msgspec.json.encode(dict(sorted(header.items(), key=lambda field: field[0] == "traceEvents")))
    target.write_bytes(gzip.compress(text, _LEVEL, mtime=0) if path.suffix.lower() == ".gz" else text)


# ---------------------------------------------------------------------------------------------- XPlane


def _planes(path: Path, target: Path) -> None:
    """The same bytes, with the texts in them masked in place."""
    data = path.read_bytes()
    clean = bytearray(data)
    try:
        hosts = [data[start:end] for number, start, end in _fields(data, 0, len(data)) if number == _HOST_NAMES]
        more = naming(hosts)
        for start, end in _texts(data, 0, len(data), _SPACE, hints(data, hosts)):
            clean[start:end] = masked(data[start:end], more)
        for number, start, end in _fields(data, 0, len(data)):
            if number == _HOST_NAMES:
                clean[start:end] = b"x" * (end - start)
    except (IndexError, KeyError):
        raise ReadError(_DAMAGED, path) from None
    target.write_bytes(clean)


def _texts(data: bytes, start: int, end: int, fields: Fields, hits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where the texts of a message lie that have one of `hits`, ascending, inside."""
    for number, begin, stop in _fields(data, start, end):
        at = bisect_left(hits, begin)
        if number not in fields or at == len(hits) or hits[at] >= stop:
            continue
        if fields[number] is True:
            yield begin, stop
        else:
            yield from _texts(data, begin, stop, fields[number], hits)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number, begin and end of each field of a message that has a length."""
    while at < end:
        tag, at = _varint(data, at)
        if tag & 7 == _BYTES:
            size, at = _varint(data, at)
            if at + size > end:
                raise IndexError
            yield tag >> 3, at, at + size
            at += size
        elif tag & 7 == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _LENGTHS[tag & 7]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES):
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:  # noqa: PLR2004 - the last one of a number
            return value, at + place + 1
    raise IndexError  # a longer one would take quadratic time


# ---------------------------------------------------------------------------------------------- Nsight Systems


def _database(path: Path, target: Path) -> None:
    """A new database with the rows that are not private: of what else a file may hold, nothing comes along."""
    target.touch(exist_ok=False)
    try:
        with closing(sqlite3.connect(target.resolve().as_uri(), uri=True, isolation_level=None)) as base:
            base.execute("ATTACH ? AS source", (f"{path.resolve().as_uri()}?mode=ro&immutable=1",))
            _copy_tables(base)
    except (sqlite3.Error, UnicodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
            raise OSError(28, "No space left on device") from None
        raise ReadError(_DAMAGED, path) from None


def _copy_tables(base: sqlite3.Connection) -> None:
    """Every table of `source`, without views, triggers, indexes, defaults and computed columns."""
    base.text_factory = bytes
    for pragma in (
        f"main.page_size = {_PAGE_BYTES}",
        "trusted_schema = OFF",
        "journal_mode = OFF",
        "synchronous = OFF",
    ):
        base.execute(f"PRAGMA {pragma}")
    stored = "SELECT name FROM source.sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT GLOB 'sqlite_*'"
    names = [name.decode() for (name,) in base.execute(stored).fetchall()]
    tables = {name: _columns(base, name) for name in sorted(names, key=lambda name: name != "StringIds")}
    clean = partial(masked, more=naming(_hosts(base, tables)))
    base.create_function("masked", 1, clean, deterministic=True)
    new = {name: "main." + _quoted(clean(name.encode()).decode()) for name in tables}
    for name, columns in tables.items():  # all before any row: a database is known by the first names in it
        kinds = ", ".join(f"{_quoted(clean(column.encode()).decode())} {kind}" for column, kind in columns.items())
        base.execute(f"CREATE TABLE {new[name]} ({kinds})")
    for name, columns in tables.items():
        if name not in PRIVATE:
            values = ", ".join(_MASKED.format(_quoted(column)) for column in columns)
            base.execute(f"INSERT INTO {new[name]} SELECT {values} FROM {_public(name, tables)}")  # noqa: S608 - quoted


def _columns(base: sqlite3.Connection, table: str) -> dict[str, str]:
    """Names of the stored columns, each with the type by which its values are compared, or as the number of a row."""
    rows = base.execute(f"PRAGMA source.table_xinfo({_quoted(table)})").fetchall()
    keys = [name for _, name, kind, _, _, key, _ in rows if key]
    return {
        name.decode(): f"{known} PRIMARY KEY" if known == "INTEGER" and keys == [name] else known
        for _, name, kind, _, _, _, is_computed in rows
        for known in [kind.decode().upper() if kind.upper() in _TYPES else ""]
        if not is_computed
    }


def _hosts(base: sqlite3.Connection, tables: Mapping[str, Mapping[str, str]]) -> list[bytes]:
    sources = [name for name in _NAMING_TABLES if {"name", "value"} <= {*tables.get(name, ())}]
    chosen = [f"SELECT CAST(value AS BLOB) FROM source.{name} WHERE {_HOSTS}" for name in sources]  # noqa: S608 - our words
    return [host for query in chosen for (host,) in base.execute(query) if host]


def _public(name: str, tables: Mapping[str, Mapping[str, str]]) -> str:
    """The rows of a table; of the texts those that are no output of the program."""
    streams = [(table, id_) for table, ids in _STREAMS.items() for id_ in ids if id_ in tables.get(table, ())]
    if name != "StringIds" or not streams or "id" not in tables[name]:
        return f"source.{_quoted(name)}"
    gone = " UNION ".join(f"SELECT {id_} FROM source.{table} WHERE {id_} IS NOT NULL" for table, id_ in streams)  # noqa: S608 - our words
    return f"source.StringIds WHERE id NOT IN ({gone})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _parquet(path: Path, target: Path) -> None:
    """The tables of a parquetdir export."""
    target.mkdir()
    tables = {file.stem: file for file in sorted(path.glob("*.parquet"))}
    private = [_rows(tables[name]) for name in _NAMING_TABLES if name in tables]
    columns = [rows.filter(pl.sql_expr(_HOSTS))["value"] for rows in private if {"name", "value"} <= {*rows.columns}]
    hosts = [value.encode() for values in columns for value in values.drop_nulls().cast(pl.String)]
    clean = partial(masked, more=naming(hosts))
    gone = {
        number
        for name, ids in _STREAMS.items()
        if name in tables
        for column, numbers in _rows(tables[name]).to_dict().items()
        if column in ids
        for number in numbers
    }
    for name, file in tables.items():
        rows = _rows(file)
        if name in PRIVATE:
            rows = rows.head(0)
        if name == "StringIds":
            rows = rows.with_columns(value=pl.when(pl.col("id").is_in([*gone])).then(pl.lit("")).otherwise("value"))
        written = io.BytesIO()  # polars' own error does not say that the disk is full
        _with_masks(rows, clean).write_parquet(written)
        (target / file.name).write_bytes(written.getvalue())


def _rows(file: Path) -> pl.DataFrame:
    """A table, unless it has more values than fit into the memory: few bytes of a file can hold many."""
    most = most_bytes(_MEMORY_PER_VALUE)
    try:
        with panics_as_errors():
            table = pl.scan_parquet(file, glob=False)
            if table.select(pl.len()).collect().item() * len(table.collect_schema()) > most:
                raise too_large(str(file), most)
            return table.collect()
    except (pl.exceptions.PolarsError, OSError):
        raise ReadError(_DAMAGED, file) from None


def _with_masks(rows: pl.DataFrame, clean: Callable[[bytes], bytes]) -> pl.DataFrame:
    for column in rows.select(pl.col(pl.String)).columns:
        texts = rows[column].unique().drop_nulls().to_list()
        changed = {text: new for text in texts if (new := clean(text.encode()).decode()) != text}
        if changed:
            rows = rows.with_columns(pl.col(column).replace(changed))
    return rows
