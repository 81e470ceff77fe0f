"""Stored runs judged anew, from what was measured of them; no profile is read."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from advisor.config import Config
from advisor.fleet.columns import Row, Rows, as_measured, frame, judged_rows, stored
from advisor.fleet.examine import book
from advisor.fleet.labels import Labels
from advisor.fleet.recordings import Settings
from advisor.fleet.store import Store
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from advisor.runs.summary import judged_again
from advisor.system.engines import Engine, Progress, outcomes_of, silent
from advisor.text import one_line

_FLUSH_RUNS: Final = 256
_READ_AT_ONCE: Final = 512  # stored reports in memory


class Again(NamedTuple):
    """One stored run to judge anew."""

    row: Row
    report: str
    context: str
    names: str | None
    settings: Settings


class Rejudged(NamedTuple):
    """How many runs were judged again; a note on each that could not be."""

    runs: int
    notes: tuple[Note, ...]


def rejudge(  # noqa: PLR0913 - all but the first two are options
    store: Store,
    engine: Engine,
    *,
    config: Config | None = None,
    weeks: Sequence[str] | None = None,
    every: bool = False,
    today: dt.date | None = None,
    progress: Progress | None = None,
) -> Rejudged:
    """Judge the stored runs again whose rule set is another one by now, or `every` one, without reading a profile.

    Raises:
        StoreError: the store cannot be written; the same command goes on from there.
        UsageError: the configuration is wrong.
    """
    settings = Settings(config or Config(), today or dt.datetime.now(dt.UTC).date())
    version = book(settings)[2]
    outdated = pl.lit(every) | pl.col("rule_set").ne_missing(version)
    stale = store.scan("runs", weeks).filter(pl.col("status") == "checked", outdated)
    runs = store.collect(stale.select("week", "run_id").sort("week", "run_id"))
    on_done, judged, notes = (progress or silent)(runs.height), 0, []
    batch: list[tuple[Again, Rows]] = []
    for task, outcome in outcomes_of(engine, judge_run, _stored(store, runs, settings)):
        if isinstance(outcome, Exception):
            notes.append(Note("not_judged_again", run=task.row["run_id"], why=one_line(str(outcome), 200)))
        else:
            batch.append((task, outcome))
            judged += 1
        if len(batch) >= _FLUSH_RUNS:
            _rewrite(store, batch)
            batch = []
        on_done(1)
    _rewrite(store, batch)
    return Rejudged(judged, tuple(notes))


def _rewrite(store: Store, batch: Sequence[tuple[Again, Rows]]) -> None:
    tables = {name: [row for _, rows in batch for row in rows[name]] for name in ("runs", "findings", "reports")}
    ids, weeks = zip(*((task.row["run_id"], task.row["week"]) for task, _ in batch), strict=True) if batch else ((), ())
    store.write({name: frame(name, rows) for name, rows in tables.items()}, "run_id", ids, weeks)


def _stored(store: Store, runs: pl.DataFrame, settings: Settings) -> Iterator[Again]:
    """The runs with their reports, some hundred at a time; with what ran by name only if a rule selects by names."""
    has_selections = bool(selected(book(settings)[0].values()))
    for some in runs.iter_slices(_READ_AT_ONCE):
        of_slice = pl.col("run_id").is_in(some["run_id"].implode())
        weeks = some["week"].unique().to_list()
        stored = store.collect(store.scan("runs", weeks).filter(of_slice))
        texts = store.collect(store.scan("reports", weeks).filter(of_slice).select("run_id", "report", "kept"))
        contexts = {run_id: (report, beside) for run_id, report, beside in texts.iter_rows()}
        by_name = store.scan("drawings", weeks).filter(of_slice if has_selections else pl.lit(value=False))
        names = dict(store.collect(by_name.select("run_id", "names")).iter_rows())
        for row in stored.to_dicts():
            if row["run_id"] in contexts:
                yield Again(row, *contexts[row["run_id"]], names.get(row["run_id"]), settings)


def judge_run(task: Again) -> Rows:
    """One stored run judged anew: its rows of `runs`, `findings` and `reports`."""
    rules, silenced, version, changed = book(task.settings)
    before, beside, names = stored(task.report, task.context, task.names)
    judged = judge(as_measured(before, beside, names, selected(rules.values())), rules, silenced)
    run = judged_again(before, judged, beside.notes, (*beside.file_notes, *map(Reason.of, changed)))
    trials = Labels.model_validate_json(task.row["labels"] or "{}").trials
    rows = judged_rows(run, beside, version, trials)
    keys = {key: task.row[key] for key in ("week", "recording", "run_id")}
    rows["runs"] = [{**task.row, **rows["runs"][0]}]
    return {name: [{**row, **keys} for row in of] for name, of in rows.items()}
