"""What the tables of an export have in common: times, processes, threads and names, in the profile's terms.

Every frame has `process`: the upper bits of globalTid or globalPid (hardware, virtual machine, process id), null where
an old schema does not tell. Times are the export's own, in ns since the session's start; they may be negative.
"""

from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from advisor.inputs.readers.nsys.tables import Export
from advisor.model.schemas import TEXT

TIME: Final = ("start", "end")
_LATEST_NS: Final = 1 << 60  # with the session's time of day it stays below 2**63
LONGEST_NS: Final = 1 << 50
"""13 days: no event is longer."""


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


def whose() -> list[pl.Expr]:
    """Process and thread, as `process` and `thread` give them."""
    return [process().alias("process"), thread().alias("thread")]


def process() -> pl.Expr:
    """The bits of globalTid that tell the process."""
    return pl.col("globalTid") // (1 << 24) * (1 << 24)


def thread() -> pl.Expr:
    """Those that tell the thread."""
    return pl.col("globalTid") & 0xFFFFFF


def name_of(column: str) -> pl.Expr:
    """A name, `?` where there is none."""
    return pl.col(column).fill_null("?").cast(TEXT)


def small(column: str | pl.Expr) -> pl.Expr:
    """As 32 bits; null where the number is larger."""
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.Int32, strict=False)


def with_names(rows: pl.DataFrame, column: str, export: Export) -> pl.DataFrame:
    """The rows with the `name` that a column refers to."""
    texts = export.strings(rows[column]).select(pl.col("id").alias(column), name=pl.col("value").cast(TEXT))
    return rows.join(texts, on=column, how="left", maintain_order="left")
