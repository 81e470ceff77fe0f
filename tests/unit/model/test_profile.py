from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.errors import ReadError
from advisor.model.clause import Note
from advisor.model.profile import SCHEMAS, TEXT, Profile, in_order, join, lean, rows_where, table, unnumbered
from tests.tables import kernel, on_host, profile, step


def of_worker(worker: int, *, kernels: int, **changes: object) -> Profile:
    """A profile with an op on the host around the launch of each of its kernels."""
    ops = [on_host("op", 10 * i, 10 * i + 8, worker=worker, parent=i - 1 if i else None) for i in range(kernels)]
    device = [kernel(10 * i + 5, 10 * i + 9, 10 * i + 4, worker=worker, op=i) for i in range(kernels)]
    collectives = [{"device_op": kernels - 1, "worker": worker}]
    made = profile(device, ops, [step(1, 0, 100, worker=worker)], collectives=collectives)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_an_empty_table_is_named_without_its_columns():
    made = of_worker(0, kernels=1)
    needs = ("device_ops", "device_ops.occupancy", "host_ops.name", "os_calls", "os_calls.name", "collectives.bytes")
    assert made.empty(needs) == ["device_ops.occupancy", "os_calls", "collectives.bytes"]


# ------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_of_nothing_has_its_schema(name: str):
    assert table(name).schema == pl.Schema(SCHEMAS[name])
    assert table(name).height == 0


def test_a_table_is_ordered_cast_and_filled_with_nulls():
    made = table("os_calls", {"dur_ns": [7], "worker": [0], "unasked": ["x"]})
    assert made.columns == list(SCHEMAS["os_calls"])
    assert made["worker"].dtype == pl.Int32
    assert made.drop_nulls("dur_ns").select("start_ns", "dur_ns").rows() == [(None, 7)]


def test_the_longest_texts_are_cut_where_all_rows_with_them_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.model.profile._MOST_TEXT", 100)
    columns = ("name", "shapes", "stack")
    names = ["short"] * 4 + ["e" + "é" * 40] * 3 + ["b" * 60, None]  # 20 bytes and 80 for four texts: 20 each
    texts = pl.DataFrame({"name": names, "shapes": names, "stack": names}, schema=dict.fromkeys(columns, TEXT))
    profile = Profile.of({"host_ops": texts}, format="test")
    whole = profile.host_ops
    assert [dict(note.facts) for note in profile.salvaged] == [{"column": name, "of": 9} for name in ("name", "shapes")]
    assert whole["name"].to_list() == ["short"] * 4 + ["e" + "é" * 9] * 3 + ["b" * 20, None]
    assert whole["shapes"].to_list() == ["short"] * 4 + [None] * 5
    assert whole["stack"].to_list() == names


def test_numbers_in_texts_are_one_sign():
    frame = pl.DataFrame({"name": ["step 12 of 100", "step 13 of 100", None, "plain"]}, schema={"name": TEXT})
    assert frame.select(unnumbered())["name"].to_list() == ["step # of #", "step # of #", None, "plain"]
    assert frame.select(unnumbered()).schema == {"name": TEXT}


def test_a_token_is_gone_before_its_digits_are():
    name = "step 12 ghp_" + "aBcD3fGhI" * 4
    made = Profile.of(
        {"host_ops": pl.DataFrame([on_host("annotation", 0, 5, name=each) for each in (name, "a 7")])}, format="x"
    )
    assert made.host_ops["name"].to_list() == ["step 12 ghp_\u2026", "a 7"]
    assert made.host_ops.select(unnumbered())["name"].to_list() == ["step # ghp_\u2026", "a #"]


def test_a_kind_that_is_none_of_the_known_is_refused():
    with pytest.raises(pl.exceptions.InvalidOperationError):
        table("device_ops", {"kind": ["teleport"]})


def test_a_profile_of_some_tables_has_them_all():
    made = Profile.of({"steps": pl.DataFrame({"step": [3]})}, format="test", salvaged=[Note("tpu")])
    assert made.steps["step"].to_list() == [3]
    assert all(getattr(made, name).schema == pl.Schema(schema) for name, schema in SCHEMAS.items())
    assert made.salvaged == (Note("tpu"),)


@pytest.mark.parametrize(
    "broken",
    [
        pl.DataFrame({"worker": [0]}),
        table("os_calls").rename({"name": "sort"}),
        table("os_calls").cast({"pid": pl.Int8}),
    ],
)
def test_a_reader_that_breaks_the_schema_is_a_bug(broken: pl.DataFrame):
    with pytest.raises(TypeError, match="table os_calls breaks its schema"):
        replace(profile(), os_calls=broken)


# ------------------------------------------------------------------------------------ what is absent


def test_why_a_column_is_lacking_is_its_own_reason_or_its_table_s():
    made = profile(lacks={"os_calls": "no records", "host_ops.stack": "no stacks"})
    assert made.why_lacking("os_calls") == made.why_lacking("os_calls.name") == "no records"
    assert made.why_lacking("host_ops.stack") == "no stacks"
    assert made.why_lacking("host_ops") is made.why_lacking("host_ops.shapes") is None


# ------------------------------------------------------------------------------------------- joining


def test_one_profile_stays_what_it_is():
    alone = of_worker(3, kernels=1)
    assert join([alone]) is alone


def test_ids_of_joined_profiles_are_row_numbers_and_links_follow():
    joined = join([of_worker(5, kernels=2), of_worker(2, kernels=3)])
    assert joined.workers["worker"].to_list() == [5, 2]
    for rows in (joined.device_ops, joined.host_ops):
        assert rows["id"].to_list() == list(range(rows.height))
    # Two ops and their two calls of worker 5, then three and three of worker 2.
    assert joined.device_ops["op"].to_list() == [0, 1, 4, 5, 6]
    assert joined.device_ops["launch"].to_list() == [2, 3, 7, 8, 9]
    assert joined.host_ops["parent"].to_list() == [None, 0, None, None, None, 4, 5, None, None, None]
    assert joined.collectives["device_op"].to_list() == [1, 4]


def test_a_rank_that_two_files_claim_is_refused_with_their_names():
    twice = [of_worker(1, kernels=1) for _ in range(2)]
    named = [replace(p, workers=p.workers.with_columns(file=pl.lit(f"{i}.json"))) for i, p in enumerate(twice)]
    with pytest.raises(ReadError, match=r"0\.json, 1\.json: more than one file of the same rank"):
        join(named)


ONE, TWO = Note("malformed"), Note("ends_early")


def test_notes_are_gathered_and_only_what_all_lack_is_lacking():
    first = of_worker(0, kernels=1, salvaged=(ONE,), lacks={"os_calls": "a", "allocations": "b", "host_ops.stack": "c"})
    second = of_worker(1, kernels=1, salvaged=(TWO,), lacks={"os_calls": "d", "host_ops": "e"})
    joined = join([first, second])
    assert joined.salvaged == (ONE, TWO)
    assert joined.lacks == {"os_calls": "a", "host_ops.stack": "c"}
    of_each = [[joined.why_lacking(need, worker) for need in ("allocations", "os_calls")] for worker in (0, 1)]
    assert of_each == [["b", "a"], [None, "d"]]


def test_a_column_that_one_lacks_with_its_table_and_the_other_alone_is_lacking():
    first = of_worker(0, kernels=1, lacks={"host_ops": "no host"})
    second = of_worker(1, kernels=1, lacks={"host_ops.stack": "no stacks"})
    assert join([first, second]).why_lacking("host_ops.stack") is not None


def test_a_note_names_the_workers_that_it_is_of_unless_all_have_it():
    one, other = (
        replace(
            made := of_worker(worker, kernels=1),
            workers=made.workers.with_columns(name=pl.lit(f"rank{worker}")),
            salvaged=(Note("no_header"), Note("untimed_events", events=worker + 1)),
        )
        for worker in (0, 1)
    )
    of_all, *of_ranks = join([one, other]).salvaged
    assert of_all == Note("no_header")
    assert [note.words for note in of_ranks] == [
        "1 event without a valid start and length left out (rank0)",
        "2 events without a valid start and length left out (rank1)",
    ]


def test_secrets_in_the_names_of_threads_and_devices_are_masked_and_paths_of_files_stay():
    key = "0123456789abcdef" * 2
    tables = {
        "threads": pl.DataFrame({"thread": [1], "name": ["api_key=S3cretValue"]}),
        "devices": pl.DataFrame({"name": [f"H100 {key}"]}),
        "workers": pl.DataFrame({"file": [f"{key}/a.json"]}),
    }
    profile = Profile.of(tables, format="kineto")
    names = [*profile.threads["name"], *profile.devices["name"], *profile.workers["file"]]
    assert names == ["api_key=xxxxxxxxxxx", f"H100 {'x' * 32}", f"{key}/a.json"]


def test_columns_of_nulls_alone_are_what_they_were():
    rows = pl.DataFrame({"a": [1, 2], "b": [None, None], "c": [None, "x"]}, {"a": pl.Int8, "b": TEXT, "c": pl.String})
    for some in (rows, rows.clear(), rows.drop("a", "c")):
        assert lean(some).equals(some)
        assert lean(some).schema == some.schema
    many = pl.DataFrame({"a": range(1000)}).with_columns(b=pl.Series([None] * 1000, dtype=pl.Int64))
    assert lean(many).estimated_size() < many.estimated_size() * 0.6


def test_large_columns_of_one_value_are_what_they_were_and_take_no_memory():
    many = pl.DataFrame({"a": range(10_000), "b": [7] * 10_000, "c": [7] * 9_999 + [8], "d": ["x"] * 10_000})
    many = many.with_columns(pl.col("d").cast(TEXT), e=pl.Series([7] * 9_999 + [None]))
    small, changing = lean(many), many.select("a", "c", "e").estimated_size()
    assert small.estimated_size() < changing + 1_000
    assert small.filter(pl.col("a") > 9).sort("c").estimated_size() < changing + 1_000
    assert small.schema == many.schema
    assert small.equals(many)


def test_rows_that_all_fit_or_are_in_order_are_no_copy():
    rows = pl.DataFrame({"a": [1, 2, 2, 3], "b": [0, 5, 6, 0], "c": [None, True, True, False]})
    assert rows_where(rows, pl.col("a") > 0, pl.Series([True] * 4)) is rows
    assert rows_where(rows, pl.col("a") > 1, "c")["b"].to_list() == [5, 6]
    assert in_order(rows, "a", "b") is rows
    assert in_order(rows, "b", "a")["a"].to_list() == [1, 3, 2, 2]
