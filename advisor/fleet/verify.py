"""Whether a store is whole: every file readable, every row counted, and every run with its rows in all tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from advisor.errors import StoreError
from advisor.fleet.columns import TABLES
from advisor.fleet.store import Store, existing, repair
from advisor.text import count

_ID: Final = "run_id"
_RULE_IDS: Final = pl.Struct(
    {"findings": pl.List(pl.Struct({"key": pl.String})), "suppressed": pl.List(pl.Struct({"rule": pl.String}))}
)
_PARTS: Final = ("reports", "workers", "findings")


def verify(store: Store) -> tuple[dict[str, int], list[str]]:
    """The rows of each table, and a line on each thing that is wrong; week after week, so that memory stays bounded.

    Raises:
        ReadError: there is no store at all.
        StoreError: its table of runs is missing or cannot be opened.
    """
    existing(store)
    rows: dict[str, int] = {}
    problems: list[str] = []
    for name in TABLES:
        try:
            rows[name] = store.count(name)
        except StoreError as error:
            problems.append(str(error))
    return rows, problems or [problem for week in store.weeks() for problem in _of_week(store, week)]


def _of_week(store: Store, week: str) -> Iterator[str]:
    def column(name: str, *columns: Any) -> pl.DataFrame:  # noqa: ANN401 - polars' own kinds of columns
        return store.collect(store.scan(name, [week]).select(_ID, *columns))

    runs = column("runs", "status")
    if twice := runs.height - runs[_ID].n_unique():
        yield f"{week}: runs: {count(twice, 'row')} of a run that has one already; {repair('runs', store.uri)}"
    checked = runs.filter(status="checked").select(_ID)
    reports = column("reports", pl.col("report").str.json_decode(_RULE_IDS).alias("found"))
    due = reports.select(
        _ID,
        findings=pl.col("found").struct.field("findings").list.len().fill_null(0)
        + pl.col("found").struct.field("suppressed").list.len().fill_null(0),
    )
    there = {name: column(name) for name in _PARTS}
    for name, part in there.items():
        if strays := part.join(runs, on=_ID, how="anti").height:
            yield f"{week}: {name}: {count(strays, 'row')} of no run; an ingest was killed; run the same ingest again"
        if name != "findings" and (bare := checked.join(part, on=_ID, how="anti").height):
            yield f"{week}: {name}: none of {count(bare, 'checked run')}; {repair(name, store.uri)}"
    counted = there["findings"].group_by(_ID).agg(there=pl.len())
    unlike = (
        checked.join(due, on=_ID)
        .join(counted, on=_ID, how="left")
        .filter(pl.col("findings") != pl.col("there").fill_null(0))
    )
    if unlike.height:
        which = f"{count(unlike.height, 'run')} with another number than in their reports"
        yield f"{week}: findings: {which}; {repair('findings', store.uri)}"
