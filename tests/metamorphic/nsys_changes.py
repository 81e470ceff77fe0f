"""The same of a recording of Nsight Systems: SQL on its tables."""

# ruff: noqa: S608 - the tables are those of the database itself

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

sys.path.append(str(Path(__file__).parents[2] / "fixtures" / "make"))

from simulator import nsys as export
from simulator.styles import FEWEST_STEPS

from advisor.errors import ReadError
from advisor.inputs.readers import nsys
from advisor.model.profile import Profile

Database: TypeAlias = bytes
"""A database as SQLite lays it out in a file."""

_Edit: TypeAlias = Callable[[sqlite3.Connection], object]

_DEVICE: Final = r"^CUPTI_ACTIVITY_KIND_(?:KERNEL|MEMCPY|MEMSET|GRAPH_TRACE)$"
_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_MARKS: Final = "NVTX_EVENTS"
_STACKS: Final = r"CALLCHAINS$|^COMPOSITE_EVENTS$"
_OF_THE_SYSTEM: Final = r"^(?:OSRT_API|SCHED_EVENTS)$"
_TIMES: Final = ("start", "end", "timestamp")
_THREAD: Final = 0xFFFFFF
_OTHER: Final = 77_001


class _DoesNotApplyError(Exception):
    """The recording has nothing that the change is about."""


def load(path: Path) -> Database:
    """The database in a file; of a Kineto document, what Nsight Systems would have recorded of the same run."""
    if path.suffix == ".sqlite":
        return path.read_bytes()
    from tests.metamorphic import kineto_changes  # noqa: PLC0415 - a document is one of its

    with tempfile.TemporaryDirectory() as folder:
        return export.write(kineto_changes.load(path), Path(folder) / "report.sqlite").read_bytes()


def read(database: Database) -> Profile:
    """Its profile."""
    with tempfile.TemporaryDirectory() as folder:
        save(database, Path(folder), 1)
        return nsys.read(Path(folder) / "report1.sqlite", "report1.sqlite")


def save(database: Database, folder: Path, number: int) -> None:
    """Write it as one of several files of a folder."""
    (folder / f"report{number}.sqlite").write_bytes(database)


def _edited(*edits: _Edit) -> Callable[[Database], Database | None]:
    """The database after these edits, None where one of them does not apply to it."""

    def change(database: Database) -> Database | None:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(database)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            try:
                for edit in edits:
                    edit(connection)
            except _DoesNotApplyError:
                return None
            connection.commit()
            return connection.serialize()

    return change


def _tables(connection: sqlite3.Connection, pattern: str = "") -> Iterator[tuple[str, list[str]]]:
    """The tables whose names fit, each with its columns."""
    for (name,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
        if re.search(pattern, name):
            yield name, [row[1] for row in connection.execute(f'pragma table_info("{name}")')]


def _set(values: Mapping[str, str], pattern: str = "") -> _Edit:
    """These columns get these values, in all tables that fit and have them."""

    def edit(connection: sqlite3.Connection) -> None:
        for table, columns in _tables(connection, pattern):
            if both := ", ".join(f'"{name}" = {value}' for name, value in values.items() if name in columns):
                connection.execute(f'update "{table}" set {both}')

    return edit


def _without(pattern: str) -> _Edit:
    """No rows in the tables that fit."""

    def edit(connection: sqlite3.Connection) -> None:
        emptied = [connection.execute(f'delete from "{name}"').rowcount for name, _ in _tables(connection, pattern)]
        if not any(emptied):
            raise _DoesNotApplyError

    return edit


def _device_later(by_ns: int) -> _Edit:
    return _set({time: f'"{time}" + {by_ns}' for time in ("start", "end")}, _DEVICE)


def _scaled(factor: float) -> _Edit:
    def edit(connection: sqlite3.Connection) -> None:
        zero = _least(connection)
        each = {time: f'cast({zero} + ("{time}" - {zero}) * {factor} as integer)' for time in _TIMES}
        _set(each)(connection)

    return edit


def _least(connection: sqlite3.Connection) -> int:
    return int(_bounds(connection)[0])


def _bounds(connection: sqlite3.Connection) -> tuple[int, int]:
    """When the first event begins and the last one ends."""
    both = [
        connection.execute(f'select min(start), max("end") from "{table}"').fetchone()
        for table, columns in _tables(connection, "^CUPTI_ACTIVITY_KIND_")
        if {"start", "end"} <= {*columns}
    ]
    if not (times := [(start, end) for start, end in both if start is not None]):
        raise _DoesNotApplyError
    return min(start for start, _ in times), max(end for _, end in times)


def _fork(connection: sqlite3.Connection) -> None:
    """The namespaces of kernels lie in another one."""
    if not any(_tables(connection, f"^{_KERNELS}$")):
        raise _DoesNotApplyError
    connection.create_function("forked", 1, lambda name: re.sub(r"^(void )?(?=\w+::)", r"\1acme::", name or ""))
    of_kernels = f'select demangledName from "{_KERNELS}"'
    connection.execute(f"update StringIds set value = forked(value) where id in ({of_kernels})")


def _marks(connection: sqlite3.Connection) -> list[tuple[int, int, int, int]]:
    """Row, thread, start and end of each range that the reader takes for a step."""
    try:
        steps = read(connection.serialize()).steps
    except ReadError:
        raise _DoesNotApplyError from None
    names = {*steps["name"].drop_nulls().cast(str).to_list()} if steps.height else set[str]()
    if not names or not any(_tables(connection, f"^{_MARKS}$")):
        raise _DoesNotApplyError
    rows: list[Any] = connection.execute(
        f'select e.rowid, globalTid, start, "end", coalesce(e.text, s.value) from {_MARKS} e '
        'left join StringIds s on s.id = e.textId where "end" is not null order by globalTid, start'
    ).fetchall()
    if not (marks := [tuple(row[:4]) for row in rows if row[4] in names]):
        raise _DoesNotApplyError
    return marks


def _narrow(connection: sqlite3.Connection) -> None:
    """Marks that begin a tenth of their time later, or with the first call: a batch is fetched before each."""
    for row, _, start, end in _marks(connection):
        calls = connection.execute(f"select min(start) from {_CALLS} where start >= ?", (start,)).fetchone()
        later = min(start + (end - start) // 10, calls[0] or end)
        connection.execute(f"update {_MARKS} set start = ? where rowid = ?", (later, row))


def _widen(connection: sqlite3.Connection) -> None:
    """Marks that reach half of their time further, if the next one leaves room."""
    for _, of_thread in groupby(_marks(connection), lambda mark: mark[1]):
        marks = [*of_thread]
        following = [start for _, _, start, _ in marks[1:]] + [marks[-1][3]]
        for (row, _, start, end), after in zip(marks, following, strict=True):
            until = max(end, min(after, start + (end - start) * 3 // 2))
            connection.execute(f'update {_MARKS} set "end" = ? where rowid = ?', (until, row))


def _idle_process(connection: sqlite3.Connection) -> None:
    """Another process that was recorded too, and does nothing."""
    if not any(_tables(connection, f"^{_MARKS}$")):
        raise _DoesNotApplyError
    start, end = _bounds(connection)
    for i in range(5):
        at = start + i * (end - start) // 5
        beat = (at, at + 1000, 59, "heartbeat", (1 << 48) + (_OTHER << 24) + _OTHER)
        connection.execute(
            f'insert into {_MARKS} (start, "end", eventType, text, globalTid) values (?, ?, ?, ?, ?)', beat
        )


def _calls_of_cuda(*spans: tuple[float, float], behind: bool = False) -> _Edit:
    """More calls of `cudaFree` by the busiest thread: start in s from the first event, or the last, and length."""

    def edit(connection: sqlite3.Connection) -> None:
        if not any(_tables(connection, f"^{_CALLS}$")):
            raise _DoesNotApplyError
        zero = _bounds(connection)[behind]
        thread = f"(select globalTid from {_CALLS} group by 1 order by count(*) desc limit 1)"
        name = 1 + connection.execute("select max(id) from StringIds").fetchone()[0]
        connection.execute("insert into StringIds (id, value) values (?, 'cudaFree_v3020')", (name,))
        known = {"eventClass", "returnValue", "correlationId"} & {
            column for _, columns in _tables(connection, f"^{_CALLS}$") for column in columns
        }
        columns = ", ".join(['start, "end", globalTid, nameId', *sorted(known)])
        for start, length in spans:
            at = zero + int(start * 1e9)
            zeros = ", 0" * len(known)
            connection.execute(
                f"insert into {_CALLS} ({columns}) values (?, ?, {thread}, ?{zeros})",
                (at, at + int(length * 1e9), name),
            )

    return edit


def _ranges(connection: sqlite3.Connection, thread: int | None, spans: list[tuple[str, int, int]]) -> None:
    """More ranges, by the process that calls most."""
    if not any(_tables(connection, f"^{_MARKS}$")):
        raise _DoesNotApplyError
    of_calls = f"select globalTid from {_CALLS} group by 1 order by count(*) desc limit 1"
    launching = connection.execute(of_calls).fetchone()[0]
    owner = launching if thread is None else (launching & ~_THREAD) | thread
    connection.executemany(
        f'insert into {_MARKS} (start, "end", eventType, text, globalTid) values (?, ?, 59, ?, {owner})',
        [(start, end, name) for name, start, end in spans],
    )


def _beside(connection: sqlite3.Connection) -> None:
    """A second thread with ranges, whose names count layers or are a loader's, all over the recording."""
    first, last = _bounds(connection)
    part = (last - first) // 20
    names = (f"layer {n}" if n % 2 else f"[DALI][Executor] RunCPU {n}" for n in range(20))
    spans = [(name, first + n * part, first + n * part + part * 9 // 10) for n, name in enumerate(names)]
    _ranges(connection, 4242, spans)


def _layers(connection: sqlite3.Connection) -> None:
    """Four ranges in each step, which are called steps of layers."""
    parts = [(start, (end - start) // 4) for _, _, start, end in _marks(connection)]
    if len(parts) < FEWEST_STEPS:
        raise _DoesNotApplyError
    spans = [(f"layer_step {n}", at + n * part + 1, at + (n + 1) * part - 1) for at, part in parts for n in range(4)]
    _ranges(connection, None, spans)


def _between(begin: float, end: float) -> _Edit:
    """What begins in that time; a device op goes with the call that launched it."""

    def edit(connection: sqlite3.Connection) -> None:
        connection.execute(
            f'create temporary table called as select correlationId, min(start) as at from "{_CALLS}" group by 1'
        )
        connection.execute("create index temp.by_call on called (correlationId)")
        for table, columns in _tables(connection):
            if "start" in columns:
                at = "start"
                if re.search(_DEVICE, table):
                    at = f'coalesce((select at from called c where c.correlationId = "{table}".correlationId), start)'
                connection.execute(f'delete from "{table}" where {at} < ? or {at} >= ?', (begin, end))

    return edit


def _cut(connection: sqlite3.Connection) -> None:
    """The recording begins amid the second step and ends amid the last but one."""
    marks = sorted((start, end) for _, _, start, end in _marks(connection))
    if len(marks) < FEWEST_STEPS + 3:
        raise _DoesNotApplyError
    _between(sum(marks[1]) / 2, sum(marks[-2]) / 2)(connection)


def halves(database: Database) -> list[Database] | None:
    """One recording in two files, the second from where the first ends; None where a half has too few steps."""
    starts: list[int] = []
    _edited(lambda connection: starts.extend(sorted(start for _, _, start, _ in _marks(connection))))(database)
    if len(starts) < 2 * FEWEST_STEPS:
        return None
    bounds = (float("-inf"), starts[len(starts) // 2], float("inf"))
    parts = [_edited(_between(begin, end))(database) for begin, end in pairwise(bounds)]
    return [part for part in parts if part]


KEPT: Final[dict[str, Callable[[Database], Database | None]]] = {
    "other numbers of threads and streams": _edited(
        _set(
            {
                "globalTid": f"(globalTid & ~{_THREAD}) | ((globalTid + 1445) & {_THREAD})",
                "streamId": "case when streamId between 0 and 900000 then 900001 - streamId else streamId end",
            }
        )
    ),
    "the device's clock 300 ms ahead": _edited(_device_later(300_000_000)),
    "the device's clock 300 ms behind": _edited(_device_later(-300_000_000)),
    "kernels in another namespace": _edited(_fork),
    "narrower marks": _edited(_narrow),
    "wider marks": _edited(_widen),
    "an idle process beside": _edited(_idle_process),
    "10 s of start-up in front": _edited(_calls_of_cuda((-10.2, 10))),
    "5 s of teardown behind": _edited(_calls_of_cuda(*((n, 1) for n in range(5)), behind=True)),
    "ranges on another thread": _edited(_beside),
    "layers called steps": _edited(_layers),
    "times x 0.95": _edited(_scaled(0.95)),
    "times x 1.05": _edited(_scaled(1.05)),
}
"""Changes under which a verdict stays what it is."""

WITHHELD: Final[dict[str, Callable[[Database], Database | list[Database] | None]]] = {
    "10 s of host work in front": _edited(_calls_of_cuda((-10.2, 1e-6))),
    "no annotations": _edited(_without(f"^{_MARKS}$")),
    "no stacks": _edited(_without(_STACKS)),
    "no calls of the system": _edited(_without(_OF_THE_SYSTEM)),
    "cut steps": _edited(_cut),
    "a file in two": halves,
}
"""Changes that take something away: a verdict stays, or is withheld with the reason."""
