"""Makes a large Nsight Systems export of a small one, by SQL: the same job for longer, with more threads, sampled."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

_MOMENTS: Final = ("start", "end", "timestamp", "rawTimestamp")
_EVENTS: Final = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "PROFILER_OVERHEAD", "OSRT_API", "SCHED_EVENTS", "GPU_METRICS")
_OS_EVENTS: Final = ("OSRT_API", "SCHED_EVENTS")  # those of threads that do not exist are no less real to a reader
_GAP_NS: Final = 1_000_000
_SAMPLED: Final = """
create table if not exists COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, cpu INTEGER,
    threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT NULL);
create table if not exists SAMPLING_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
    kernelMode INTEGER, thumbCode INTEGER, unresolved INTEGER, specialEntry INTEGER, originalIP INTEGER,
    unwindMethod INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
create table if not exists SCHED_EVENTS (start INTEGER NOT NULL, cpu INTEGER NOT NULL, isSchedIn INTEGER NOT NULL,
    globalTid INTEGER, threadState INTEGER, threadBlock INTEGER);
"""


def enlarge(short: Path, long: Path, *, kernels: int, os_events: int, samples: int) -> None:
    """Write `long`: the recording one copy after another until it has that many kernels.

    Then operating system calls of further threads up to `os_events`, half as many scheduling events, one before and one
    after each call, where there are none; and `samples` call stacks of depth 2.
    """
    unfinished = long.with_suffix(".part")
    unfinished.write_bytes(short.read_bytes())
    with closing(sqlite3.connect(unfinished)) as connection:
        connection.text_factory = bytes
        connection.executescript("pragma journal_mode = off; pragma synchronous = off;")
        _repeat(connection, kernels)
        _multiply(connection, os_events)
        connection.executescript(_SAMPLED)
        _schedule(connection, os_events // 2)
        _sample(connection, samples)
        connection.commit()
    unfinished.rename(long)


def _repeat(connection: sqlite3.Connection, kernels: int) -> None:
    """Copies of every event, each later than the one before and with correlation ids of its own."""
    (recorded,) = connection.execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    tables = {table: _columns(connection, table) for table in _tables(connection) if table.startswith(_EVENTS)}
    stride = {
        "time": _most(connection, tables, "end") - _least(connection, tables, "start") + _GAP_NS,
        "correlation": _most(connection, tables, "correlationId") + 1,
    }
    for table, columns in tables.items():
        connection.execute(f'create temporary table once as select * from "{table}"')  # noqa: S608 - a name of the database's own
        for copy in range(1, -(-kernels // recorded)):
            later = {name: f'"{name}" + {copy * stride["time"]}' for name in _MOMENTS}
            later["correlationId"] = f'nullif("correlationId", 0) + {copy * stride["correlation"]}'
            _insert(connection, table, [(name, later.get(name, f'"{name}"')) for name in columns])
        connection.execute("drop table once")


def _multiply(connection: sqlite3.Connection, os_events: int) -> None:
    """The calls of the operating system, by as many more threads as it takes."""
    if "OSRT_API" not in _tables(connection):
        return
    (recorded,) = connection.execute("select count(*) from OSRT_API").fetchone()
    connection.execute("create temporary table once as select * from OSRT_API")
    for copy in range(1, -(-os_events // recorded)):
        columns = _columns(connection, "OSRT_API")
        thread = f'"globalTid" + {copy * 1000}'
        _insert(connection, "OSRT_API", [(name, thread if name == "globalTid" else f'"{name}"') for name in columns])
    connection.execute("drop table once")


def _schedule(connection: sqlite3.Connection, events: int) -> None:
    (there,) = connection.execute("select count(*) from SCHED_EVENTS").fetchone()
    if there or "OSRT_API" not in _tables(connection):
        return
    for moment, into in (("start", 0), ("end", 1)):
        connection.execute(
            f'insert into SCHED_EVENTS select "{moment}", rowid % 64, {into}, globalTid, 1, null from OSRT_API '  # noqa: S608 - names of ours
            f"limit {events // 2}"
        )


def _sample(connection: sqlite3.Connection, samples: int) -> None:
    (last,) = connection.execute("select ifnull(max(id), 0) from COMPOSITE_EVENTS").fetchone()
    more = {"last": last, "samples": samples}
    connection.execute(
        "insert into COMPOSITE_EVENTS with recursive n(i) as (select :last + 1 union all select i + 1 from n "
        "where i < :last + :samples) select i, i * 10000, i % 64, 1, 281474976710656, 1 from n",
        more,
    )
    connection.execute(
        "insert into SAMPLING_CALLCHAINS select id, 613, 605, 0, 0, 0, null, 136333041567703 + id, 0, depth "
        "from COMPOSITE_EVENTS, (select 0 as depth union all select 1) where id > :last",
        {"last": last},
    )


def _insert(connection: sqlite3.Connection, table: str, columns: list[tuple[str, str]]) -> None:
    """Adds the rows of the temporary table `once`, each column as its expression says."""
    names = ", ".join(f'"{name}"' for name, _ in columns)
    values = ", ".join(value for _, value in columns)
    connection.execute(f'insert into "{table}" ({names}) select {values} from once')  # noqa: S608 - names of the database's own


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [_text(name) for (name,) in connection.execute("select name from main.sqlite_master where type = 'table'")]


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [_text(row[1]) for row in connection.execute(f'pragma table_info("{table}")')]


def _most(connection: sqlite3.Connection, tables: dict[str, list[str]], column: str) -> int:
    return max(_found(connection, tables, column, "max"))


def _least(connection: sqlite3.Connection, tables: dict[str, list[str]], column: str) -> int:
    return min(_found(connection, tables, column, "min"))


def _found(connection: sqlite3.Connection, tables: dict[str, list[str]], column: str, function: str) -> list[int]:
    having = [table for table, columns in tables.items() if column in columns]
    rows = [connection.execute(f'select {function}("{column}") from "{table}"').fetchone() for table in having]  # noqa: S608 - names of the database's own
    return [value for (value,) in rows if value is not None]


def keep_only(export: Path, lean: Path, tables: list[str]) -> None:
    """Write `lean`: the export with no more than these tables."""
    unfinished = lean.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(f"{unfinished.resolve().as_uri()}?mode=rwc", uri=True)) as connection:
        connection.execute("attach ? as whole", (str(export),))
        for table in tables:
            made = connection.execute("select sql from whole.sqlite_master where name = ?", (table,)).fetchone()
            if made:
                connection.execute(made[0])  # all before any rows: a profile is told by the file's beginning
        for table in _tables(connection):
            connection.execute(f'insert into "{table}" select * from whole."{table}"')  # noqa: S608 - names of the database's own
        connection.commit()
    unfinished.rename(lean)
