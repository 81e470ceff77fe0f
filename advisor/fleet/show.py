"""Single runs out of the store, their lines and reports; and whether it is whole: each file, row and table."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from advisor import __version__
from advisor.errors import NoRuns, StoreError, UsageError
from advisor.fleet.columns import KEYS, TABLES, as_checked
from advisor.fleet.store import Store, existing, repair
from advisor.model.report import Report, Run
from advisor.model.week import Week
from advisor.present.table_builder import gpu_hours
from advisor.present.week import linked
from advisor.render.registry import Request, draw
from advisor.text import count, one_line

_ID: pl.Expr = pl.col("run_id")
_PART: Final = r"(-u?\d+)$"  # of the several runs of one recording
_DIGITS: Final = (8, 12, 16)
_NAME: Final = 36
_AT_ONCE: Final = 32  # reports in memory


def runs_of(store: Store, week: str | None, job: str | None = None) -> pl.DataFrame:
    """The runs of a week, the last one by default, in the order of their names; `job` asks for those of one job alone.

    A run without a label `job` goes by its name. `gpu_hours` are those of the recorded steps where no label tells them.

    Raises:
        NoRuns: the store holds none.
        StoreError: its tables disagree on that week.
    """
    week = week or max(weeks_of(store), default="")
    require_agreement(store, [week])
    columns = (
        *("week", "run_id", "status", "team", "name", "verdict", "reason"),
        pl.coalesce("job", "name").alias("job"),
        pl.coalesce("gpu_hours", "recorded_hours").alias("gpu_hours"),
    )
    of_job = pl.lit(value=True) if job is None else pl.col("job") == job
    rows = store.collect(store.scan("runs", [week]).select(columns).filter(of_job))
    if not rows.height:
        of = "" if job is None else f" of the job {one_line(job, 100)}"
        raise NoRuns(f"{store.uri}: no run of {week or 'any week'}{of}")
    return rows.sort("team", "job", "name", "run_id")


def listed(store: Store, week: str | None, job: str | None = None) -> Iterator[str]:
    """A heading and one line per run, as `runs_of` has them.

    Raises:
        NoRuns: the store holds none.
    """
    rows = runs_of(store, week, job)
    ids = _brief(rows["run_id"], store.collect(store.scan("runs").select("run_id"))["run_id"])
    wide = max(10, *map(len, ids))
    yield f"{rows['week'][0]:{wide}} {'Team':12} {'Job':{_NAME}} {'GPU time':>12} Verdict, or why there is none"
    for row in rows.with_columns(run_id=ids).iter_rows(named=True):
        outcome = row["verdict"] if row["status"] == "checked" else f"{row['status']}: {row['reason']}"
        name = one_line(row["job"] or "", _NAME)
        paid = "-" if row["gpu_hours"] is None else gpu_hours(row["gpu_hours"])
        team = one_line(row["team"] or "-", 12)
        yield f"{row['run_id']:{wide}} {team:12} {name:{_NAME}} {paid:>12} {one_line(outcome or '', 100)}"


def as_json(rows: pl.DataFrame) -> str:
    """Runs as a JSON list of objects, ASCII only."""
    return json.dumps(rows.to_dicts(), indent=1, allow_nan=False) + "\n"


def _brief(ids: pl.Series, among: pl.Series) -> pl.Series:
    """Ids with only as much of their recording's as no other recording of the store begins with."""
    recordings = among.str.replace(_PART, "").unique()
    hashes, part = ids.str.replace(_PART, ""), ids.str.extract(_PART).fill_null("")
    brief = hashes
    for digits in reversed(_DIGITS):
        heads = recordings.str.head(digits)
        alone = ~hashes.str.head(digits).is_in(heads.filter(heads.is_duplicated()).implode())
        brief = hashes.str.head(digits).zip_with(alone, brief)
    return brief + part


def report_of(store: Store, run_id: str) -> Report:
    """The report of the one run whose id starts so; `-3` at the end names one of several runs of a recording.

    Raises:
        NoRuns: there is none.
        UsageError: there are several.
    """
    recording, part = re.sub(_PART, "", run_id), "".join(re.findall(_PART, run_id))
    starts = store.scan("reports").filter(_ID.str.starts_with(recording))
    known = store.collect(starts.select("week", "run_id").sort("run_id"))
    ids = known["run_id"].to_list()
    exact = [name for name in ids if "".join(re.findall(_PART, name)) == part]
    ids = exact or [name for name in ids if name.startswith(run_id)]
    if not ids:
        raise NoRuns(f"{store.uri}: no checked run whose id starts with {run_id}; `advisor fleet runs` lists them")
    if run_id not in ids and len(ids) > 1:
        raise UsageError(f"{run_id}: {len(ids)} runs start so: {', '.join(ids[:5])}")
    chosen = run_id if run_id in ids else ids[0]
    ((_, run),) = _runs(store, [chosen], known.filter(run_id=chosen)["week"].to_list())
    return _report(run)


def pages(store: Store, week: Week) -> Iterator[tuple[str, str]]:
    """File names and the reports of all runs that the week's report leads to, one after the other."""
    ids = linked(week)
    for some in (ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)):
        yield from (
            (f"{name}.html", draw(Request(_report(run)), "html").decode())
            for name, run in _runs(store, some, [week.week])
        )


def _runs(store: Store, ids: Sequence[str], weeks: Sequence[str]) -> Iterator[tuple[str, Run]]:
    """Runs as they were checked or last judged."""
    chosen = _ID.is_in(ids)
    texts, drawings = (
        dict(store.collect(store.scan(name, weeks).filter(chosen).select("run_id", column)).iter_rows())
        for name, column in (("reports", "report"), ("drawings", "drawing"))
    )
    return ((name, as_checked(text, drawings.get(name))) for name, text in sorted(texts.items()))


def _report(run: Run) -> Report:
    return Report(advisor_version=__version__, runs=(run,))


_KEYS: Final = "run_id"
_RULE_IDS: Final = pl.Struct(
    {"findings": pl.List(pl.Struct({"key": pl.String})), "suppressed": pl.List(pl.Struct({"rule": pl.String}))}
)
_PARTS: Final = ("reports", "workers", "findings")
_MOMENT_S: Final = 10.0  # by which a writer that is at work has written a run's rows to all tables


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
    return rows, problems or [problem for week in weeks_of(store) for problem in _of_week(store, week)]


def require_agreement(store: Store, weeks: Sequence[str]) -> None:
    """Nothing, where the tables agree on the runs of these weeks. What a writer completes in a moment counts as there.

    Raises:
        StoreError: they do not, or one cannot be read.
    """
    faults = disagreements(store, weeks)
    if faults.height:
        time.sleep(_MOMENT_S)
        faults = faults.join(disagreements(store, weeks), on=faults.columns, how="semi")
    if faults.height:
        first, *more = _sentences(faults, store.uri)
        rest = f"; `advisor fleet verify {store.uri}` shows {len(more)} more" if more else ""
        raise StoreError(f"{store.uri}: the tables of the fleet store disagree: {first}{rest}")


def weeks_of(store: Store) -> list[str]:
    """The weeks that any table has rows of, ascending, without those that a prune forgot."""
    horizon = store.horizon()
    return sorted({week for name in TABLES for week in store.weeks(name) if week >= horizon})


def disagreements(store: Store, weeks: Sequence[str]) -> pl.DataFrame:
    """The runs of these weeks that lack rows, or have some too many: `week`, `recording`, `run_id`, `table`, `problem`.

    Runs are read first, and written last: what writers add meanwhile is not missing.

    Raises:
        StoreError: a table is missing or cannot be read.
    """
    runs = store.collect(store.scan("runs", weeks).select(*KEYS, "status", "worst", "findings"))
    checked = runs.filter(status="checked")
    counts = {
        name: store.collect(store.scan(name, weeks).group_by(*KEYS).agg(there=pl.len().cast(pl.Int64)))
        for name in _PARTS
    }
    of_each = checked.join(counts["findings"].select(_KEYS, "there"), on=_KEYS, how="left").with_columns(
        pl.col("there").fill_null(0)
    )
    fewest = pl.coalesce("findings", pl.col("worst").is_not_null().cast(pl.Int64))  # earlier versions did not count
    wrong = [
        ("runs", "twice", runs.filter(pl.col(_KEYS).is_duplicated())),
        *((name, "of no run", part.join(runs, on=_KEYS, how="anti")) for name, part in counts.items()),
        *((name, "none", checked.join(counts[name], on=_KEYS, how="anti")) for name in ("reports", "workers")),
        ("findings", "number", of_each.filter(~pl.col("there").is_between(fewest, "findings"))),
    ]
    return pl.concat(rows.select(*KEYS, table=pl.lit(table), problem=pl.lit(problem)) for table, problem, rows in wrong)


def _of_week(store: Store, week: str) -> Iterator[str]:
    faults = disagreements(store, [week])
    yield from _sentences(faults, store.uri)
    if not faults.height and (unlike := _unlike_reports(store, week)):
        yield f"{week}: findings: {count(unlike, 'run')} with another number than in their reports; {_mend(store.uri)}"


def _unlike_reports(store: Store, week: str) -> int:
    """How many reports have another number of findings than the table of findings has rows."""
    due = store.scan("reports", [week]).select(_KEYS, pl.col("report").str.json_decode(_RULE_IDS).alias("found"))
    number = sum(pl.col("found").struct.field(of).list.len().fill_null(0) for of in ("findings", "suppressed"))
    rows = store.scan("findings", [week]).group_by(_KEYS).agg(there=pl.len())
    both = due.select(_KEYS, due=number).join(rows, on=_KEYS, how="left")
    return store.collect(both.filter(pl.col("due") != pl.col("there").fill_null(0))).height


def _sentences(faults: pl.DataFrame, uri: str) -> Iterator[str]:
    """A line per week, table and problem."""
    numbers = faults.group_by("week", "table", "problem", maintain_order=True).agg(runs=pl.col(_KEYS).n_unique())
    for week, table, problem, runs in numbers.iter_rows():
        which = count(runs, "run")
        sentences = {
            "twice": f"{which} with more than one row; {repair('runs', uri)}",
            "of no run": f"rows of {which} that the table of runs does not have: a writer was killed, or that table is "
            "an older one; run the same `advisor fleet ingest` again",
            "none": f"no row of {which}; `advisor fleet ingest` of the same roots writes them anew",
            "number": f"too few or too many rows of {which}; {_mend(uri)}",
        }
        yield f"{week}: {table}: {sentences[problem]}"


def _mend(uri: str) -> str:
    return f"`advisor fleet ingest` of the same roots, or `advisor fleet rejudge --all --store {uri}`, writes them anew"
