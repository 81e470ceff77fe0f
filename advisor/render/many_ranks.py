"""The tables of a job of many ranks in JSON: rows of the ranks of which more is told, the rest by column."""

import operator
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from typing import Final

from advisor.model.finding import Value
from advisor.model.report import Columns, Row, Run, number
from advisor.present.ranks import ranks_of

_MANY: Final = 32
_MOST_IN_ROWS: Final = 16
_OF_RANKS: Final = ("worker", "device", "step", "accounting", "over_time")
_OF_JOB: Final = ("wait", "pace")  # which have a row per pair of ranks, and per rank and step
_DIGITS: Final = 6  # significant ones: a step of 30 ms to 100 ns


def folded(run: Run) -> Run:
    """A run with the rows of most ranks in columns, where it has many ranks."""
    if len(run.source.workers) <= _MANY:
        return run
    ranks = set(islice(dict.fromkeys(_ranks_in_rows(run)), _MOST_IN_ROWS))
    metrics, columns = dict(run.metrics), dict[str, Columns]()
    for table in (*_OF_RANKS, *_OF_JOB):
        if not (rows := run.metrics.get(table)):
            continue
        stays = [table in _OF_RANKS and row.get("worker") in ranks for row in rows]
        rest = list(compress(rows, map(operator.not_, stays)))
        metrics[table] = tuple(compress(rows, stays))
        is_again = table == "device" and rows == run.metrics.get("worker")  # one device a rank
        columns[table] = Columns(like="worker") if is_again else _columns(rest)
    return run.model_copy(update={"metrics": metrics, "columns": columns})


def _ranks_in_rows(run: Run) -> Iterator[Value]:
    """The ranks that set the pace, are awaited most and wait most, and those that findings are about."""
    yield run.source.steps.worker
    yield from (run.of_job.get(metric) for metric in ("awaited_most", "waiting_most"))
    yield from (finding.scope.told_of for finding in run.findings)
    for finding in run.findings:
        yield from ranks_of(finding, run.source)


def _columns(rows: Sequence[Row]) -> Columns:
    columns = {name: tuple(_short(row[name]) for row in rows) for name in (rows[0] if rows else ())}
    same = {name: values[0] for name, values in columns.items() if len(rows) > 1 and len(set(values)) == 1}
    return Columns(same=same, columns={name: values for name, values in columns.items() if name not in same})


def _short(value: Value) -> Value:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def values(run: Run) -> int:
    """How many values the rows have that are in columns: one that is the same in all of them is written once."""
    return sum(_length(of) * (len(of.same) + len(of.columns)) for _, of in _tables(run))


def unfolded(run: Run) -> Run:
    """The run with all rows in their tables again, in the order of the ranks."""
    metrics = dict(run.metrics)
    for table, of in _tables(run):
        rows = zip(*(column[: _length(of)] for column in of.columns.values()), strict=True)
        again = ({**of.same, **dict(zip(of.columns, row, strict=True))} for row in rows)
        every = (*metrics.get(table, ()), *again)
        metrics[table] = tuple(sorted(every, key=lambda row: (number(row, "worker"), number(row, "device"))))
    return run.model_copy(update={"metrics": metrics, "columns": {}})


def _tables(run: Run) -> list[tuple[str, Columns]]:
    """The tables that have columns, with those of another table where their rows are the same."""
    tables = [(table, run.columns[table]) for table in (*_OF_RANKS, *_OF_JOB) if table in run.columns]
    return [(table, run.columns.get(of.like or table, of)) for table, of in tables]


def _length(of: Columns) -> int:
    """Rows of a table; of a damaged file the shortest column counts."""
    return min(map(len, of.columns.values()), default=0)
