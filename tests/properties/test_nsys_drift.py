"""Whatever tables, columns and values an export lacks or mangles, it is read or refused, and never read wrongly."""

from __future__ import annotations

import copy as copying
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.selection import select_steps
from advisor.errors import ReadError
from advisor.inputs.readers import nsys
from advisor.metrics import conclude, measure_part
from advisor.model.profile import SCHEMAS, Profile
from tests.effort import every, examples
from tests.strategies_nsys import FULL, Row, write, write_parquet

COLUMNS = sorted({(table, column) for table, rows in FULL.items() for row in rows for column in row})
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from(["aten::mm, sizes = [[", "ProfilerStep#99999999999", "MPI Rank 9", -1, 0, 1, 59, 60, 75]),
)


def opened(tables: dict[str, list[Row]], *, parquet: bool = False) -> Profile:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        return nsys.read(write_parquet(path.with_name("a_pqtdir"), tables) if parquet else write(path, tables), "a")


def without(table: str, column: str | None = None) -> dict[str, list[Row]]:
    tables = dict(FULL)
    rows = tables.pop(table)
    if column is not None:
        tables[table] = [{key: value for key, value in row.items() if key != column} for row in rows]
    return {name: rows for name, rows in tables.items() if any(rows)}


WHOLE = opened(FULL)
UNSURE = {  # what a column's absence may put in other words
    "utcEpochNs": ("start_ns",),
    "demangledName": ("name",),
    "copyKind": ("name",),
    "srcKind": ("name",),
    "dstKind": ("name",),
    "memKind": ("name",),
    "graphId": ("name",),
    "id": ("name",),
    "value": ("name",),
    "streamId": ("stream",),
}


def known(profile: Profile, table: str) -> dict[str, list[object]]:
    """The values of each column, without ids, which are row numbers."""
    ids = {"id", "launch", "op", "parent", "device_op"}
    return {
        column.name: column.to_list()
        for column in getattr(profile, table).cast(pl.String, strict=False)
        if column.name not in ids
    }


@pytest.mark.parametrize("table", every(8, FULL))
def test_each_table_may_be_absent(table: str):
    conclude([measure_part(select_steps(opened(without(table))))])


@pytest.mark.parametrize(("table", "column"), every(20, COLUMNS))
def test_each_column_may_be_absent_and_changes_no_other(table: str, column: str):
    made = opened(without(table, column))
    if column in {"start", "end"}:  # then the table means nothing
        return
    complete = known(WHOLE, "device_ops")
    for name, values in known(made, "device_ops").items():
        whole = complete[name]
        told = [value for value in values if value is not None]
        assert len(values) == len(whole)
        assert name in UNSURE.get(column, ()) or all(value in whole for value in told)


def test_the_whole_of_it_fills_every_table():
    tables = ("workers", "devices", "steps", "device_ops", "host_ops", "allocations", "threads", "os_calls")
    assert all(getattr(WHOLE, table).height for table in (*tables, "off_cpu", "gpu_samples"))


@examples(0.3)
@given(st.data())
def test_any_part_of_an_export_with_any_values_is_read_or_refused(data: st.DataObject):
    tables = copying.deepcopy(FULL)
    for table in data.draw(st.lists(st.sampled_from(sorted(tables)), max_size=8, unique=True)):
        del tables[table]
    left = [(table, column) for table, column in COLUMNS if table in tables]
    for table, column in data.draw(st.lists(st.sampled_from(left), max_size=6)) if left else []:
        for row in tables[table]:
            row.pop(column, None)
        tables[table] = [row for row in tables[table] if row]
    for table, column in data.draw(st.lists(st.sampled_from(left), max_size=8)) if left else []:
        rows = [row for row in tables[table] if column in row]
        for row in itertools.islice(rows, data.draw(st.integers(0, 3)), None, data.draw(st.integers(1, 5))):
            row[column] = data.draw(VALUES)
    try:
        made = opened(tables)
    except ReadError:
        return
    conclude([measure_part(select_steps(made))])


@examples(0.4)
@given(st.binary(min_size=1, max_size=64), st.floats(0, 1), st.booleans())
def test_a_database_cut_short_or_overwritten_is_read_or_refused(noise: bytes, at: float, cut: bool):  # noqa: FBT001 - drawn
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.sqlite", FULL)
        content = bytearray(path.read_bytes())
        place = int(at * (len(content) - 1))
        content[place : None if cut else place + len(noise)] = b"" if cut else noise
        path.write_bytes(content)
        try:
            nsys.read(path, "a")
        except ReadError as error:
            assert str(error).startswith("a: ")


POISONED = (
    *("COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS", "OSRT_CALLCHAINS", "CUDA_CALLCHAINS", "PROCESSES", "GENERIC_EVENTS"),
    *("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GRAPH_NODE_EVENTS"),
    *("DIAGNOSTIC_EVENT", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "TARGET_INFO_CUDA_STREAM", "NET_NIC_METRIC"),
)


def test_tables_that_no_metric_needs_are_never_read(tmp_path: Path):
    path = write(tmp_path / "a.sqlite", {name: rows for name, rows in FULL.items() if name not in POISONED})
    known = everything(path)
    with closing(sqlite3.connect(path)) as connection:
        for name in POISONED:
            connection.executescript(f'drop table if exists "{name}"; create table "{name}" (n)')
            connection.execute(f'insert into "{name}" values (-9223372036854775808)')  # noqa: S608 - names of ours
            for column in ("start", "end", "id", "name", "value", "globalTid"):  # overflows whenever it is read
                connection.execute(f'alter table "{name}" add column "{column}" integer generated always as (abs(n))')
        connection.commit()
        with pytest.raises(sqlite3.OperationalError, match="overflow"):
            connection.execute("select start from COMPOSITE_EVENTS").fetchall()
    assert everything(path) == known


def everything(path: Path) -> list[object]:
    made = nsys.read(path, "a")
    return [getattr(made, table).to_dict(as_series=False) for table in SCHEMAS]
