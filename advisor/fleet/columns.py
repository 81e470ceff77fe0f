"""Expressions over the columns of runs and findings that several parts of the weekly report need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

LIKE: Final = ("job_key", "gpu_type", "gpus")  # runs that may be compared


def sum_of(values: pl.Expr) -> pl.Expr:
    """The sum, null where all values are."""
    return pl.when(values.is_not_null().any()).then(values.sum())


def only(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some fields of a row."""
    return {name: row[name] for name in names}
