"""Nsight Systems exports whose tables, columns, values and pages are changed at random."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from tests.fuzz.trees import changed, spoilt
from tests.strategies_nsys import FULL, Row, write


def case(random: Random, folder: Path) -> Path:
    """Writes one changed export, as a database or as Parquet."""
    share = random.choice((0.6, 0.9, 1, 1))
    some = {name: rows for name, rows in FULL.items() if random.random() < share}
    tables = {str(name): rows for name, rows in changed(some, random).items() if _is_table(rows)}
    if random.random() < 0.15:
        return _as_parquet(tables, folder / "report_pqtdir", random)
    path = write(folder / "report.sqlite", {name: [_storable(row) for row in rows] for name, rows in tables.items()})
    if random.random() < 0.25:
        path.write_bytes(spoilt(path.read_bytes(), random))
    return path


def _is_table(rows: object) -> bool:
    return isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and row for row in rows)


def _storable(row: Row) -> Row:
    return {str(name) or "_": _cell(value) for name, value in row.items()}


def _cell(value: Any) -> object:
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else float(value)
    return value if value is None or isinstance(value, float | str | bytes) else str(value)


def _frame(rows: list[Row]) -> pl.DataFrame:
    """The rows; as text where a column mixes what Parquet has no common type for."""
    try:
        return pl.DataFrame(rows, infer_schema_length=None, strict=False)
    except pl.exceptions.PolarsError:
        return pl.DataFrame([{name: str(value) for name, value in row.items()} for row in rows], strict=False)


def _as_parquet(tables: dict[str, list[Row]], folder: Path, random: Random) -> Path:
    folder.mkdir()
    for name, rows in tables.items():
        path = folder / f"{name.replace('/', '_') or '_'}.parquet"
        _frame([_storable(row) for row in rows]).write_parquet(path)
        if random.random() < 0.05:
            path.write_bytes(spoilt(path.read_bytes(), random))
    (folder / "StringIds.parquet").exists() or pl.DataFrame({"id": [1], "value": ["x"]}).write_parquet(
        folder / "StringIds.parquet"
    )
    return folder
