"""A copy of an Nsight Systems export with nothing but what the reader asks for, its texts masked."""

import errno
import io
import os
import re
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import polars as pl

from advisor.errors import UsageError
from advisor.inputs.readers.nsys import profile_of
from advisor.inputs.readers.nsys.messages import last_error
from advisor.inputs.readers.nsys.tables import REPORTS, opened
from advisor.secrets import masked_text, naming
from advisor.system.file_size import most_bytes

_MEMORY_PER_BYTE: Final = 4.0
_PAGE_BYTES: Final = 1024  # a large first page would be moved far back as soon as it is full of names
_TYPES: Final = {pl.Int64: "INTEGER", pl.Float64: "REAL", pl.String: "TEXT"}


def clean_copy(path: Path, target: Path, max_bytes: int | None) -> list[str]:
    """Write the copy; the names of the tables that it lacks. A UsageError of a report, which only `nsys` can write."""
    if path.suffix.lower() in REPORTS:
        raise UsageError(
            f"{path}: a report of Nsight Systems cannot be rewritten; export it with `nsys export --type=sqlite`, "
            "scrub the .sqlite, and pass on that alone"
        )
    memory = max(most_bytes(1), max_bytes or 0)
    with opened(path, str(path), max_bytes or most_bytes(_MEMORY_PER_BYTE), memory) as export:
        profile_of(export, str(path))
        more = naming(export.owners())
        requests = sorted(export.requests.values(), key=lambda request: request.name != "StringIds")
        tables = {request.name: _masked(export.rows_of(request), more) for request in requests}
        tables |= _of_error(last_error(export), tables.get("StringIds"))
        dropped = sorted(export.names() - tables.keys())
    (_write_folder if path.is_dir() else _write_database)(target, tables)
    return dropped


def _masked(rows: pl.DataFrame, more: Collection[re.Pattern[bytes]]) -> pl.DataFrame:
    for column in rows.select(pl.col(pl.String)).columns:
        texts = rows[column].unique().drop_nulls().to_list()
        clean = {text: masked_text(text, more) for text in texts}
        rows = rows.with_columns(pl.col(column).replace(clean))
    return rows


def _of_error(error: str | None, strings: pl.DataFrame | None) -> dict[str, pl.DataFrame]:
    """The table of what was printed with the error alone that ended the program, and its texts among the others."""
    if error is None or strings is None:
        return {}
    ids = [int(strings.select(pl.max("id")).item() or 0) + more for more in (1, 2)]
    texts = pl.DataFrame({"id": ids, "value": ["stderr", error]}, schema_overrides={"id": pl.Int64})
    printed = pl.DataFrame({"filenameId": ids[:1], "contentId": ids[1:]}, schema_overrides={"filenameId": pl.Int64})
    return {"StringIds": pl.concat([strings, texts], how="diagonal"), "ProcessStreams": printed}


def _write_folder(target: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    target.mkdir()
    for name, rows in tables.items():
        written = io.BytesIO()  # polars' own error does not say that the disk is full
        rows.write_parquet(written)
        (target / f"{name}.parquet").write_bytes(written.getvalue())


def _write_database(target: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    """All tables before any row: a database is known by the first names in it."""
    target.touch(exist_ok=False)
    try:
        with closing(sqlite3.connect(target.resolve().as_uri(), uri=True, isolation_level=None)) as base:
            for pragma in (f"page_size = {_PAGE_BYTES}", "journal_mode = OFF", "synchronous = OFF"):
                base.execute(f"PRAGMA {pragma}")
            base.execute("BEGIN")
            for name, rows in tables.items():
                columns = ", ".join(f'"{column}" {_TYPES[kind.base_type()]}' for column, kind in rows.schema.items())
                base.execute(f'CREATE TABLE "{name}" ({columns})')
            for name, rows in tables.items():
                values = ", ".join("?" * rows.width)
                base.executemany(f'INSERT INTO "{name}" VALUES ({values})', rows.iter_rows())  # noqa: S608 - our names
            base.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "full" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise
