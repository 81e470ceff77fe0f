"""The tables of the fleet's store and their columns; `rows.py` and `examine.py` fill them.

| table | one row per |
| --- | --- |
| runs | run, and file or folder that could not be read |
| findings | finding of a run, suppressed ones included |
| workers | worker of a run, and one (`scope` run) for the job as a whole; a column per metric |
| reports | run: its report as JSON, and what judging it again needs |
| drawings | run: what its report only draws, as JSON: large, opened for single runs, and judging changes none of it |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import polars as pl

from advisor.metrics import dtypes

Schema = dict[str, Any]
_Rows = TypeVar("_Rows", pl.DataFrame, pl.LazyFrame)

WEEK: Final = "week"
KEYS: Final[Schema] = {"week": pl.String, "recording": pl.String, "run_id": pl.String}
_TIME: Final = pl.Datetime("us", "UTC")
UNPROFILED: Final = "unprofiled"  # the status of a folder with labelled GPU-hours and no profile
LABELS: Final = ("team", "job", "owner", "model", "commit")

SCHEMAS: Final[dict[str, Schema]] = {
    "runs": {
        **KEYS,
        "status": pl.String,  # checked, unreadable, killed, unreachable or unprofiled
        "reason": pl.String,  # why it was not checked
        "name": pl.String,
        "path": pl.String,
        "fingerprint": pl.String,  # changes when a file is written anew
        "digests": pl.List(pl.String),  # one per file, of its content
        "bytes": pl.Int64,
        "started": _TIME,
        "started_from": pl.String,  # label, path or file: where `started` comes from
        "ingested": _TIME,
        **dict.fromkeys(LABELS, pl.String),
        "labels": pl.String,  # all of them, as JSON
        "gpu_hours": pl.Float64,  # as labelled
        "recorded_hours": pl.Float64,  # GPU-hours in the steps that were used
        "price": pl.Float64,  # of a GPU-hour, as labelled
        "format": pl.String,
        "framework": pl.String,
        "gpu_type": pl.String,
        "gpus": pl.Int64,
        "world_size": pl.Int64,
        "workers": pl.Int64,
        "steps": pl.Int64,
        "step_ms": pl.Float64,
        "busy_share": pl.Float64,
        "useful_share": pl.Float64,  # of the step, without what fixes shorten
        "low_share": pl.Float64,  # of the step, that all findings' fixes give back
        "high_share": pl.Float64,
        "expected_share": pl.Float64,
        "breakdown": pl.String,  # JSON: part of the accounting to share of the step
        "verdict": pl.String,
        "worst": pl.String,
        "findings": pl.Int64,  # rows that the table of findings has of it
        "passed": pl.List(pl.String),
        "not_evaluable": pl.List(pl.String),
        "rule_set": pl.String,
        "advisor_version": pl.String,
    },
    "findings": {
        **KEYS,
        "rule": pl.String,
        "title": pl.String,
        "severity": pl.String,
        "confidence": pl.String,
        "rank": pl.Int64,
        "of": pl.String,
        "low_ms": pl.Float64,
        "high_ms": pl.Float64,
        "low_share": pl.Float64,
        "high_share": pl.Float64,
        "expected_share": pl.Float64,
        "tried_low_share": pl.Float64,  # that the fix saved when it was tried
        "tried_high_share": pl.Float64,
        "worker": pl.Int64,  # that it is told of
        "workers": pl.List(pl.Int64),
        "says": pl.String,
        "fix": pl.String,  # the first for its framework
        "suppressed": pl.String,  # why; null where it is not
    },
    "workers": {
        **KEYS,
        "scope": pl.String,
        "worker": pl.Int32,
        "device": pl.Int32,
        "rank": pl.Int64,
        "host": pl.String,
        "gpu": pl.String,
        **dtypes(),
    },
    "reports": {**KEYS, "report": pl.String, "kept": pl.String},
    "drawings": {**KEYS, "drawing": pl.String},
}
TABLES: Final = ("drawings", "reports", "workers", "findings", "runs")  # in the order they are written in
OWN: Final = {"drawings": "drawing", "reports": "report", "workers": "scope", "findings": "rule", "runs": "status"}
"""By table, a column of every version that no other table has."""
LATER_TABLES: Final = frozenset({"drawings"})  # stores of earlier versions have none


def frame(name: str, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of a table, with all its columns; a row's keys that are no columns are left out."""
    schema = SCHEMAS[name]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema=schema, orient="row")


def with_all_columns(name: str, rows: _Rows) -> _Rows:
    """The rows of a table with the columns that they lack, as null."""
    columns = rows.collect_schema()
    return rows.with_columns(pl.lit(None, kind).alias(key) for key, kind in SCHEMAS[name].items() if key not in columns)
