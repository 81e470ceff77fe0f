"""Single runs out of the store: their lines, and their reports."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from advisor import __version__
from advisor.errors import NoRuns, UsageError
from advisor.fleet.columns import as_checked
from advisor.fleet.store import Store
from advisor.fleet.verify import newest, require_agreement, weeks_of
from advisor.model.report import Report, Run
from advisor.model.week import Week
from advisor.present.table_builder import gpu_hours
from advisor.present.week import linked
from advisor.render.registry import Request, draw
from advisor.text import one_line

_ID: pl.Expr = pl.col("run_id")
_PART: Final = r"(-u?\d+)$"  # of the several runs of one recording
_NAME: Final = 36
_AT_ONCE: Final = 32  # reports in memory


def runs_of(store: Store, week: str | None, job: str | None = None) -> pl.DataFrame:
    """The runs of a week in the order of their names; `job` asks for those of one job alone.

    By default the last week that has begun. A run without a label `job` goes by its name. `gpu_hours` are those of the
    recorded steps where no label tells them. NoRuns where the store holds none, a StoreError where its tables disagree
    on that week.
    """
    week = week or newest(weeks_of(store))
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
    """A heading and one line per run, as `runs_of` has them; NoRuns where the store holds none."""
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


def _brief(ids: pl.Series, among: pl.Series) -> pl.Series:
    """Ids with only as much of their recording's as no other recording of the store begins with."""
    recordings = among.str.replace(_PART, "").unique()
    hashes, part = ids.str.replace(_PART, ""), ids.str.extract(_PART).fill_null("")
    brief = hashes
    for digits in (16, 12, 8):
        heads = recordings.str.head(digits)
        alone = ~hashes.str.head(digits).is_in(heads.filter(heads.is_duplicated()).implode())
        brief = hashes.str.head(digits).zip_with(alone, brief)
    return brief + part


def report_of(store: Store, run_id: str) -> Report:
    """The report of the one run whose id starts so; `-3` at the end names one of several runs of a recording.

    NoRuns where there is none, a UsageError where there are several.
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
    return Report(advisor_version=__version__, runs=(run,))


def pages(store: Store, week: Week) -> Iterator[tuple[str, str]]:
    """File names and the reports of all runs that the week's report leads to, one after the other."""
    ids = linked(week)
    for some in (ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)):
        yield from (
            (f"{name}.html", draw(Request(Report(advisor_version=__version__, runs=(run,))), "html").decode())
            for name, run in _runs(store, some, [week.week])
        )


def _runs(store: Store, ids: Sequence[str], weeks: Sequence[str]) -> Iterator[tuple[str, Run]]:
    chosen = _ID.is_in(ids)
    texts, drawings = (
        dict(store.collect(store.scan(name, weeks).filter(chosen).select("run_id", column)).iter_rows())
        for name, column in (("reports", "report"), ("drawings", "drawing"))
    )
    return ((name, as_checked(text, drawings.get(name))) for name, text in sorted(texts.items()))
