"""Single runs out of the store: their lines, and their reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from advisor import __version__
from advisor.errors import NothingFound, UsageError
from advisor.fleet.store import Store
from advisor.render import html
from advisor.render.fleet.words import linked
from advisor.report import Report, Run
from advisor.text import one_line, shortened
from advisor.week import Week

_ID: pl.Expr = pl.col("run_id")
_SEVERAL = 2


def listed(store: Store, week: str | None) -> Iterator[str]:
    """One line per run of a week, the last one by default, in the order of their names.

    Raises:
        NothingFound: the store holds none.
    """
    week = week or max(store.weeks(), default="")
    columns = ("run_id", "status", "team", "job", "name", "verdict", "reason")
    rows = store.collect(store.scan("runs", [week]).select(columns)).sort("team", "job", "name", "run_id")
    if not rows.height:
        raise NothingFound(f"{store.uri}: no run of {week or 'any week'}")
    for row in rows.iter_rows(named=True):
        said = row["verdict"] if row["status"] == "checked" else f"{row['status']}: {row['reason']}"
        name = one_line(row["job"] or row["name"] or "", 40)
        team = one_line(row["team"] or "-", 20)
        yield f"{shortened(row['run_id'], 50):34} {team:12} {name:28} {one_line(said or '', 200)}"


def report_of(store: Store, run_id: str) -> Report:
    """The report of the one run whose id starts so.

    Raises:
        NothingFound: there is none.
        UsageError: there are several.
    """
    found = _reports(store, _ID.str.starts_with(run_id))
    exact = [run for name, run in found if name == run_id]
    if not found:
        raise NothingFound(
            f"{store.uri}: no checked run whose id starts with {run_id}; `advisor fleet runs` lists them"
        )
    if not exact and len(found) >= _SEVERAL:
        raise UsageError(f"{run_id}: {len(found)} runs start so: {', '.join(name for name, _ in found[:5])}")
    return _report(exact[0] if exact else found[0][1])


def pages(store: Store, week: Week) -> dict[str, str]:
    """By file name, the report of every run that the week's report leads to."""
    runs = _reports(store, _ID.is_in(linked(week)), [week.week])
    return {f"{name}.html": html.render(_report(run)) for name, run in runs}


def _reports(store: Store, which: pl.Expr, weeks: Sequence[str] | None = None) -> list[tuple[str, Run]]:
    rows = store.collect(store.scan("reports", weeks).filter(which).select("run_id", "report").sort("run_id"))
    return [(name, Run.model_validate_json(text)) for name, text in rows.iter_rows()]


def _report(run: Run) -> Report:
    return Report(advisor_version=__version__, runs=(run,))
