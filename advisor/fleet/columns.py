"""The tables of the fleet's store and their columns: what each has of a run or a finding stands beside its type.

| table | one row per |
| --- | --- |
| runs | run, and file or folder that could not be read |
| findings | finding of a run, suppressed ones included |
| workers | worker of a run, and one (`scope` run) for the job as a whole; a column per metric |
| reports | run: its report as JSON, and what judging it again needs |
| drawings | run: what its report only draws, as JSON, and what ran by name: large, and judging changes none of it |
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import polars as pl

from advisor.config import MOST_HOURS
from advisor.metrics import dtypes
from advisor.metrics.metric import NAMES
from advisor.model.finding import CERTAINTY, Finding
from advisor.model.report import Run
from advisor.vocabulary.formerly import METRICS, RULES

Schema = dict[str, Any]
_Rows = TypeVar("_Rows", pl.DataFrame, pl.LazyFrame)

WEEK: Final = "week"
KEYS: Final[Schema] = {"week": pl.String, "recording": pl.String, "run_id": pl.String}
_TIME: Final = pl.Datetime("us", "UTC")
UNPROFILED: Final = "unprofiled"  # the status of a folder with labelled GPU-hours and no profile
LABELS: Final = ("team", "job", "owner", "model", "commit")
_LISTS: Final = ("passed", "not_evaluable")  # ids of rules
_HOURS_PER_MS: Final = 1 / 3.6e6
_LEAST: Final = dict.fromkeys(("gpu_hours", "recorded_hours", "price"), 0.0)


class Column(NamedTuple):
    """A column that a checked run fills: its type, and what it has of a run or of one of its findings."""

    kind: Any
    of: Callable[[Any], object]


def expected(finding: Finding) -> float | None:
    """What to expect of a finding's saving, as a share of the step: the middle, or less where less sure."""
    saving = finding.saving
    if saving is None:
        return None
    return saving.low_share + CERTAINTY[finding.confidence] * (saving.high_share - saving.low_share) / 2


def _recorded_hours(run: Run) -> float | None:
    """GPU-hours in the steps that were used."""
    steps, mean = run.source.steps.used or 1, run.source.steps.step_mean_ms
    return None if mean is None else steps * mean * _HOURS_PER_MS * len(run.source.devices)


def _gpu_type(run: Run) -> str | None:
    types = {device.model or device.name for device in run.source.devices}
    return types.pop() if len(types) == 1 else ("mixed" if types else None)


def _sum(share: Callable[[Finding], float | None]) -> Callable[[Run], float]:
    """Of all findings; parts of the step are promised once, so that they add up."""
    return lambda run: float(min(1.0, sum(share(finding) or 0.0 for finding in run.findings)))


def _saving(name: str) -> Callable[[Finding], Any]:
    return lambda finding: getattr(finding.saving, name, None)


OF_RUN: Final = {
    "recorded_hours": Column(pl.Float64, _recorded_hours),
    "format": Column(pl.String, lambda run: run.source.format),
    "framework": Column(pl.String, lambda run: run.source.framework),
    "gpu_type": Column(pl.String, _gpu_type),
    "gpus": Column(pl.Int64, lambda run: max(len(run.source.devices), run.source.world_size or 0)),
    "world_size": Column(pl.Int64, lambda run: run.source.world_size),
    "workers": Column(pl.Int64, lambda run: len(run.source.workers)),
    "steps": Column(pl.Int64, lambda run: run.source.steps.used),
    "step_ms": Column(pl.Float64, lambda run: run.source.steps.step_ms),
    "busy_share": Column(pl.Float64, lambda run: run.of_job.get("device_busy_share")),
    # of the step, without what fixes shorten
    "useful_share": Column(pl.Float64, lambda run: run.accounting.needed_share if run.accounting else None),
    # of the step, that all findings' fixes give back
    "low_share": Column(pl.Float64, _sum(_saving("low_share"))),
    "high_share": Column(pl.Float64, _sum(_saving("high_share"))),
    "expected_share": Column(pl.Float64, _sum(expected)),
    "breakdown": Column(
        pl.String,
        lambda run: json.dumps({part.part: part.share for part in run.accounting.parts} if run.accounting else {}),
    ),
    "verdict": Column(pl.String, lambda run: run.verdict),
    "worst": Column(pl.String, lambda run: run.worst),
    # rows that the table of findings has of it
    "findings": Column(pl.Int64, lambda run: len(run.findings) + len(run.suppressed)),
    "passed": Column(pl.List(pl.String), lambda run: list(run.passed)),
    "not_evaluable": Column(pl.List(pl.String), lambda run: [missing.rule for missing in run.not_evaluable]),
}
"""Columns of `runs`."""

OF_FINDING: Final = {
    "rule": Column(pl.String, lambda finding: finding.rule),
    "title": Column(pl.String, lambda finding: finding.title),
    "severity": Column(pl.String, lambda finding: finding.severity),
    "confidence": Column(pl.String, lambda finding: finding.confidence),
    "of": Column(pl.String, _saving("of")),
    "low_ms": Column(pl.Float64, _saving("low_ms")),
    "high_ms": Column(pl.Float64, _saving("high_ms")),
    "low_share": Column(pl.Float64, _saving("low_share")),
    "high_share": Column(pl.Float64, _saving("high_share")),
    "expected_share": Column(pl.Float64, expected),
    "worker": Column(pl.Int64, lambda finding: finding.scope.told_of),
    "workers": Column(pl.List(pl.Int64), lambda finding: list(finding.scope.workers)),
    "says": Column(pl.String, lambda finding: finding.says),
    # the first for its framework
    "fix": Column(pl.String, lambda finding: finding.fixes[0].do if finding.fixes else None),
}
"""Columns of `findings`."""

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
        "price": pl.Float64,  # of a GPU-hour, as labelled
        **{name: column.kind for name, column in OF_RUN.items()},
        "rule_set": pl.String,
        "advisor_version": pl.String,
    },
    "findings": {
        **KEYS,
        **{name: column.kind for name, column in OF_FINDING.items()},
        "rank": pl.Int64,
        "tried_low_share": pl.Float64,  # that the fix saved when it was tried
        "tried_high_share": pl.Float64,
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
        **{name: kind for name, kind in dtypes().items() if kind != NAMES},  # which reports have
    },
    "reports": {**KEYS, "report": pl.String, "kept": pl.String},
    "drawings": {**KEYS, "drawing": pl.String, "names": pl.String},
}
TABLES: Final = ("drawings", "reports", "workers", "findings", "runs")  # in the order they are written in
OWN: Final = {"drawings": "drawing", "reports": "report", "workers": "scope", "findings": "rule", "runs": "status"}
"""By table, a column of every version that no other table has."""
LATER_TABLES: Final = frozenset({"drawings"})  # stores of earlier versions have none


def frame(name: str, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of a table, with all its columns; a row's keys that are no columns are left out."""
    schema = SCHEMAS[name]
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema=schema, orient="row")


def of_now(name: str, rows: _Rows) -> _Rows:
    """The rows of a table with the names of now, and with the columns that they lack, as null.

    So is a number of a run or a finding that labels may not have either: sums over all runs stay finite.
    """
    columns = rows.collect_schema()
    floats = [column for column, kind in columns.items() if kind == pl.Float64 and name in {"runs", "findings"}]
    bounds = {column: pl.col(column).is_between(_LEAST.get(column, -MOST_HOURS), MOST_HOURS) for column in floats}
    rows = rows.with_columns(pl.when(is_sound).then(column) for column, is_sound in bounds.items())
    if RULES and name == "findings":
        rows = rows.with_columns(pl.col("rule").replace(RULES))
    if RULES and name == "runs":
        rows = rows.with_columns(pl.col(_LISTS).list.eval(pl.element().replace(RULES)))
    for old in METRICS.keys() & columns.keys() if name == "workers" else ():
        new = METRICS[old]
        rows = rows.with_columns(pl.coalesce(*([new] if new in columns else []), old).alias(new))
        columns = rows.collect_schema()
    return rows.with_columns(pl.lit(None, kind).alias(key) for key, kind in SCHEMAS[name].items() if key not in columns)


def values(columns: Mapping[str, Column], of: Run | Finding) -> dict[str, object]:
    """What these columns have of a run or of a finding."""
    return {name: column.of(of) for name, column in columns.items()}
