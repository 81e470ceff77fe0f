"""Whether a store is whole: every file readable, every row counted, and every run with its rows in all tables."""

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import polars as pl

from advisor.errors import StoreError
from advisor.fleet.columns import KEYS, SCHEMAS, TABLES
from advisor.fleet.labels import week_of
from advisor.fleet.store import Store, existing, repair
from advisor.model.clause import Note
from advisor.text import count, listing, one_line

_ID: Final = "run_id"
_RULE_IDS: Final = pl.Struct(
    {"findings": pl.List(pl.Struct({"key": pl.String})), "suppressed": pl.List(pl.Struct({"rule": pl.String}))}
)
_MOMENT_S: Final = 10.0  # by which a writer that is at work has written a run's rows to all tables


def verify(store: Store) -> tuple[dict[str, int], list[str]]:
    """The rows of each table, and a line on each thing that is wrong; week after week, so that memory stays bounded.

    A ReadError where there is no store at all, a StoreError where its table of runs cannot be opened.
    """
    existing(store)
    rows: dict[str, int] = {}
    problems, unsummed = list[str](), list[str]()
    for name in TABLES:
        try:
            rows[name], files = store.count(name), store.unsummed(name)
        except StoreError as error:
            problems.append(str(error))
            continue
        if files:
            lacks = f"{count(files, 'file')} without a checksum, which would show a changed byte"
            unsummed.append(f"{name}: {lacks}; `advisor fleet compact --store {store.uri}` notes what is there now")
    for week in () if problems else weeks_of(store):
        faults = disagreements(store, [week])
        problems += _sentences(faults, store.uri)
        if not faults.height and (unlike := _unlike_reports(store, week)):
            which = f"{count(unlike, 'run')} with another number than in their reports"
            problems.append(f"{week}: findings: {which}; {_mend(store.uri)}")
    return rows, problems + unsummed


def require_agreement(store: Store, weeks: Sequence[str]) -> None:
    """Raise where the tables disagree on runs of these weeks; what a writer completes in a moment counts as there."""
    faults = _lasting(store, weeks)
    if faults.height:
        first, *more = _sentences(faults, store.uri)
        rest = f"; `advisor fleet verify {store.uri}` shows {len(more)} more" if more else ""
        raise StoreError(f"{store.uri}: the tables of the fleet store disagree: {first}{rest}")


def _lasting(store: Store, weeks: Sequence[str]) -> pl.DataFrame:
    """The `disagreements` that no writer completes in a moment."""
    faults = disagreements(store, weeks)
    if faults.height:
        time.sleep(_MOMENT_S)
        faults = faults.join(disagreements(store, weeks), on=faults.columns, how="semi")
    return faults


def withdraw(store: Store) -> int:
    """Remove the rows of runs that the table of runs does not have; of how many."""
    torn = _lasting(store, weeks_of(store)).filter(problem="of no run")
    tables = {name: pl.DataFrame(schema=SCHEMAS[name]) for name in TABLES if name != "runs" and store.since(name)}
    store.write(tables, _ID, torn[_ID], torn["week"])
    return torn[_ID].n_unique()


def weeks_of(store: Store) -> list[str]:
    """The weeks that any table has rows of, ascending, without those that a prune forgot."""
    horizon = store.horizon()
    return sorted({week for name in TABLES for week in store.weeks(name) if week >= horizon})


def newest(weeks: Iterable[str]) -> str:
    """The last of these weeks that has begun, else the last; empty where there is none."""
    return max(weeks, key=lambda week: (week <= week_of(dt.datetime.now(dt.UTC)), week), default="")


def to_come(store: Store) -> Iterator[Note]:
    """A note on the runs of weeks that have not begun."""
    if weeks := [week for week in store.weeks() if week > week_of(dt.datetime.now(dt.UTC))]:
        paths = store.collect(store.scan("runs", weeks).select("path").sort("path"))["path"].to_list()
        yield Note("future_runs", runs=len(paths), week=weeks[0], paths=one_line(listing(paths, 3), 300))


def disagreements(store: Store, weeks: Sequence[str]) -> pl.DataFrame:
    """The runs of these weeks that lack rows, or have some too many: `week`, `recording`, `run_id`, `table`, `problem`.

    Runs are read first, and written last: what writers add meanwhile is not missing.
    """
    runs = store.collect(store.scan("runs", weeks).select(*KEYS, "status", "worst", "findings", "ingested"))
    checked = runs.filter(status="checked")
    drawings = store.collect(store.scan("drawings", weeks).select(_ID))
    since = store.since("drawings")  # runs of before that table have none
    due = checked.filter(pl.col("ingested") >= since) if since else checked.clear()
    counts = {
        name: store.collect(store.scan(name, weeks).group_by(*KEYS).agg(there=pl.len().cast(pl.Int64)))
        for name in ("reports", "workers", "findings")
    }
    of_each = checked.join(counts["findings"].select(_ID, "there"), on=_ID, how="left").with_columns(
        pl.col("there").fill_null(0)
    )
    fewest = pl.coalesce("findings", pl.col("worst").is_not_null().cast(pl.Int64))  # earlier versions did not count
    wrong = [
        ("runs", "twice", runs.filter(pl.col(_ID).is_duplicated())),
        *((name, "of no run", part.join(runs, on=_ID, how="anti")) for name, part in counts.items()),
        *((name, "none", checked.join(counts[name], on=_ID, how="anti")) for name in ("reports", "workers")),
        ("drawings", "none", due.join(drawings, on=_ID, how="anti")),
        ("findings", "number", of_each.filter(~pl.col("there").is_between(fewest, "findings"))),
    ]
    return pl.concat(rows.select(*KEYS, table=pl.lit(table), problem=pl.lit(problem)) for table, problem, rows in wrong)


def _unlike_reports(store: Store, week: str) -> int:
    """How many reports have another number of findings than the table of findings has rows."""
    due = store.scan("reports", [week]).select(_ID, pl.col("report").str.json_decode(_RULE_IDS).alias("found"))
    number = sum(pl.col("found").struct.field(of).list.len().fill_null(0) for of in ("findings", "suppressed"))
    rows = store.scan("findings", [week]).group_by(_ID).agg(there=pl.len())
    both = due.select(_ID, due=number).join(rows, on=_ID, how="left")
    return store.collect(both.filter(pl.col("due") != pl.col("there").fill_null(0))).height


def _sentences(faults: pl.DataFrame, uri: str) -> Iterator[str]:
    numbers = faults.group_by("week", "table", "problem", maintain_order=True).agg(runs=pl.col(_ID).n_unique())
    for week, table, problem, runs in numbers.iter_rows():
        which = count(runs, "run")
        sentences = {
            "twice": f"{which} with more than one row; {repair('runs', uri)}",
            "of no run": f"rows of {which} that the table of runs does not have: a writer was stopped, or that table "
            f"is an older one; `advisor fleet compact --store {uri}` removes them, the same `advisor fleet ingest` "
            "completes them",
            "none": f"no row of {which}; `advisor fleet ingest` of the same roots writes them anew",
            "number": f"too few or too many rows of {which}; {_mend(uri)}",
        }
        yield f"{week}: {table}: {sentences[problem]}"


def _mend(uri: str) -> str:
    return f"`advisor fleet ingest` of the same roots, or `advisor fleet rejudge --all --store {uri}`, writes them anew"
