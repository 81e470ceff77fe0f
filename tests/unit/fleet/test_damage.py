"""Stores with missing and damaged tables: an error that names the table and the repair, never good news."""

import json
import math
import os
import shutil
from datetime import date
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from advisor.cli import app
from advisor.config import Config
from advisor.errors import ReadError, StoreError, UsageError
from advisor.fleet import ingest as room
from advisor.fleet import verify as verifying
from advisor.fleet.columns import TABLES
from advisor.fleet.ingest import ingest, rejudge
from advisor.fleet.show import runs_of
from advisor.fleet.store import Store, existing, opened
from advisor.fleet.verify import verify
from advisor.fleet.weekly import weekly
from advisor.system import engines
from tests.effort import every
from tests.fleet import Here, broken, trace

TODAY = date(2026, 11, 21)
LOST = [name for name in TABLES if name != "drawings"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    for number in range(3):
        trace(folder / "root" / f"job{number}", number)
    broken(folder / "root" / "bad", 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_FLUSH_S", math.inf)  # one commit, however slow the machine
        ingest([str(folder / "root")], Store(str(folder / "store")), Here(), today=TODAY)
    return folder


@pytest.fixture
def store(filled, tmp_path):
    shutil.copytree(filled / "store", tmp_path / "store")
    return Store(str(tmp_path / "store"))


@pytest.mark.parametrize("pattern", ["_delta_log/*.json", "week=*/*.parquet", "*/????????*"])
def test_a_pipe_in_place_of_a_file_is_damage_and_not_waited_for(store, pattern):
    place = max(Path(store.uri, "runs").glob(pattern))
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(StoreError, match=r"its table runs: [^/].* is not a regular file"):
        weekly(store, Config().fleet)


def parquet(store: Store, name: str) -> Path:
    return next(Path(store.uri, name).rglob("*.parquet"))


def log(store: Store, name: str) -> Path:
    return max(Path(store.uri, name, "_delta_log").glob("*.json"))


def test_a_sound_store_is_all_right(store):
    rows, problems = verify(store)
    assert problems == []
    assert (rows["runs"], rows["reports"], rows["workers"]) == (4, 3, 6)


def test_an_error_of_the_libraries_is_a_line_without_their_colours(store, monkeypatch):
    def full(*_):
        raise OSError("no room \x1b[31m>\x1b[0m\n  in runs")

    monkeypatch.setattr(Store, "_open", full)
    with pytest.raises(StoreError, match="its table runs: no room > in runs; "):
        store.exists()


@pytest.mark.parametrize("name", LOST)
def test_a_missing_table_is_never_nothing_found(store, name):
    shutil.rmtree(Path(store.uri, name))
    if name == "runs":
        for look in (existing, verify):
            with pytest.raises(StoreError, match=r"the table runs is missing; .*ingest"):
                look(store)
        return
    _, problems = verify(store)
    assert f"the table {name} is missing; " in problems[0]
    with pytest.raises(StoreError, match=f"the table {name} is missing"):
        store.scan(name)
    with pytest.raises(StoreError, match="is missing"):
        store.require()


def test_a_report_without_the_table_of_findings_is_an_error(store):
    shutil.rmtree(Path(store.uri, "findings"))
    with pytest.raises(StoreError, match=r"the table findings is missing; .*fleet rejudge --all --store"):
        weekly(store, Config().fleet)


def test_the_repair_of_findings_brings_them_back(store):
    before = store.collect(store.scan("findings").sort("run_id", "rule"))
    shutil.rmtree(Path(store.uri, "findings"))
    assert rejudge(store, Here(), every=True, today=TODAY).runs == 3
    assert store.collect(store.scan("findings").sort("run_id", "rule")).equals(before)
    assert verify(store)[1] == []


DAMAGES = {
    "a truncated file": lambda store, name: parquet(store, name).write_bytes(parquet(store, name).read_bytes()[:99]),
    "an empty file": lambda store, name: parquet(store, name).write_bytes(b""),
    "a file that is gone": lambda store, name: parquet(store, name).unlink(),
    "other bytes": lambda store, name: parquet(store, name).write_bytes(b"PAR1" + bytes(2000) + b"PAR1"),
    "a garbage log": lambda store, name: log(store, name).write_bytes(b"\xff\xfe garbage"),
    "a log of another kind": lambda store, name: log(store, name).write_text('{"add": 17}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_names_the_table_and_the_repair(store, damage, capfd):
    DAMAGES[damage](store, "workers")
    with pytest.raises(StoreError, match=r"workers(:| is missing).*; restore .*workers from a backup") as caught:
        store.collect(store.scan("workers"))
    assert "\n" not in str(caught.value)
    assert " 0: " not in str(caught.value)  # nor the calls of Rust, which RUST_BACKTRACE=1 adds
    problems = verify(store)[1]
    assert len(problems) == 1
    assert "workers" in problems[0]
    assert capfd.readouterr().err == ""  # of Rust's panics neither


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("name", every(len(TABLES), TABLES))
def test_a_byte_that_changed_is_no_other_number(store, name):
    """Most of Parquet's bytes are in no checksum: a changed digit of a report reads well."""
    file = parquet(store, name)
    whole = file.read_bytes()
    for place in range(40, len(whole), len(whole) // 4):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(StoreError, match=rf"{name}: .* is not as it was written; (remove|restore) .*/{name}"):
            store.scan(name)
    with pytest.raises(StoreError, match="is not as it was written"):  # no rewrite passes it on as sound
        store.compact()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StoreError, match="is not a regular file"):  # and nobody waits for who writes into it
        store.scan(name)
    file.unlink()
    file.write_bytes(whole)
    store.compact(0)
    assert verify(store)[1] == []
    assert {note.name for note in Path(store.uri, name, "_sums").iterdir()} == {parquet(store, name).name}


def test_pages_that_cannot_be_written_leave_no_empty_folder(store, tmp_path, monkeypatch):
    def full(*_):
        raise UsageError("-o w-runs/1.html: cannot be written: No space left on device")

    monkeypatch.setattr("advisor.cli.output.write", full)
    words = ["fleet", "report", "--store", store.uri, "-o", str(tmp_path / "w.html")]
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError)
    assert not (tmp_path / "w-runs").exists()


def test_lost_checksums_are_told_with_what_notes_them_again(store):
    shutil.rmtree(Path(store.uri, "runs", "_sums"))
    lacks = "1 file without a checksum, which would show a changed byte"
    assert verify(store)[1] == [f"runs: {lacks}; `advisor fleet compact --store {store.uri}` notes what is there now"]
    store.compact()
    assert verify(store)[1] == []


def test_rows_that_do_not_belong_together_are_told(store):
    runs = store.collect(store.scan("runs").filter(status="checked").sort("run_id"))["run_id"].to_list()
    nothing = store.collect(store.scan("reports").head(0))
    store.write({"reports": nothing}, "run_id", runs[:1])
    store.write({"workers": store.collect(store.scan("workers").head(0))}, "run_id", runs[1:2])
    text = " ".join(verify(store)[1])
    assert "reports: no row of 1 run;" in text
    assert "workers: no row of 1 run;" in text


@pytest.mark.parametrize("week", [{}, {"week": "9999-W99"}])
def test_a_file_without_its_week_is_damage(store, week: dict[str, str]):
    lines = [json.loads(line) for line in log(store, "runs").read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["partitionValues"] = week
    log(store, "runs").write_text("\n".join(map(json.dumps, lines)))
    done = CliRunner().invoke(app, ["fleet", "report", "--store", store.uri])
    assert isinstance(done.exception, StoreError)
    assert "its table runs: a file of no week is in its log" in str(done.exception)


def test_a_file_in_another_week_than_its_log_tells_is_damage(store):
    commit = log(store, "drawings")
    commit.write_text(commit.read_text("utf-8").replace('{"week":"', '{"week":"1'), "utf-8")
    _, (problem,) = verify(store)
    assert "its table drawings: 0 rows of 12" in problem


@pytest.mark.parametrize("name", ["runs", "findings"])
def test_a_size_that_no_file_has_is_damage(store, name):
    lines = [json.loads(line) for line in log(store, name).read_text().splitlines()]
    for line in lines:
        line.get("add", {})["size"] = -5
    log(store, name).write_text("\n".join(map(json.dumps, lines)))
    assert f"its table {name}: " in " ".join(verify(store)[1])


def test_a_commit_that_is_lost_is_told(store):
    log(store, "workers").write_bytes(b"")
    assert "workers: no row of 3 runs; `advisor fleet ingest` of the same roots" in " ".join(verify(store)[1])


def state(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """Every row, but for when it was written."""
    tables = {name: store.collect(store.scan(name).drop("ingested", strict=False)) for name in TABLES}
    return {name: sorted(rows.rows(), key=str) for name, rows in tables.items()}


@pytest.mark.parametrize("name", every(len(LOST), LOST))
def test_a_table_of_earlier_is_no_good_news_and_ingest_mends_it(filled, store, name, monkeypatch):
    """A table whose last commit is missing, as a backup of an hour ago has it."""
    monkeypatch.setattr(verifying, "_MOMENT_S", 0.0)
    before = state(store)
    log(store, name).unlink()
    for read in (partial(weekly, store, Config().fleet), partial(runs_of, store, None)):
        with pytest.raises(StoreError, match=f"disagree: 2026-W47: {'reports: rows of 3' if name == 'runs' else name}"):
            read()
    assert verify(store)[1]
    ingest([str(filled / "root")], store, Here(), today=TODAY)
    assert state(store) == before
    assert verify(store)[1] == []
    weekly(store, Config().fleet)


def test_what_a_full_disk_left_is_removed_by_compact(store, tmp_path, monkeypatch):
    """The writer came as far as the last table, and nobody ingests these recordings again."""
    monkeypatch.setattr(verifying, "_MOMENT_S", 0.0)
    before = state(store)
    trace(tmp_path / "root" / "later", 4)
    ingest([str(tmp_path / "root")], store, Here(), today=TODAY)
    log(store, "runs").unlink()
    with pytest.raises(StoreError, match=r"disagree: .* `advisor fleet compact --store .*` removes them"):
        weekly(store, Config().fleet)
    assert (
        "removed the rows of 1 run that" in CliRunner().invoke(app, ["fleet", "compact", "--store", store.uri]).output
    )
    assert (state(store), verify(store)[1]) == (before, [])
    assert "removed" not in CliRunner().invoke(app, ["fleet", "compact", "--store", store.uri]).output


# `test_a_table_of_earlier_is_no_good_news_and_ingest_mends_it` shows it of a table that every version has.
@pytest.mark.soak
def test_pictures_of_earlier_are_no_good_news_and_ingest_mends_them(store, tmp_path, monkeypatch):
    """Only of runs that came when there was a table of them: earlier versions had none."""
    monkeypatch.setattr(verifying, "_MOMENT_S", 0.0)
    trace(tmp_path / "root" / "later", 4)
    ingest([str(tmp_path / "root")], store, Here(), today=TODAY)
    before = state(store)
    log(store, "drawings").unlink()
    assert "drawings: no row of 1 run;" in " ".join(verify(store)[1])
    with pytest.raises(StoreError, match="disagree: 2026-W47: drawings"):
        weekly(store, Config().fleet)
    ingest([str(tmp_path / "root")], store, Here(), today=TODAY)
    assert state(store) == before
    shutil.rmtree(Path(store.uri, "drawings"))
    assert verify(store)[1] == []


def test_what_a_writer_is_about_to_complete_is_no_damage(filled, store, monkeypatch):
    log(store, "findings").unlink()

    def written(_: float) -> None:
        ingest([str(filled / "root")], store, Here(), today=TODAY)

    monkeypatch.setattr(verifying.time, "sleep", written)
    assert weekly(store, Config().fleet).coverage.runs == 3


def test_a_row_without_what_every_run_has_is_damage(store):
    rows = pl.read_delta(f"{store.uri}/runs").with_columns(name=pl.lit(None, pl.String), job=pl.lit(None, pl.String))
    write_deltalake(f"{store.uri}/runs", rows, mode="overwrite")
    with pytest.raises(StoreError, match=r"its table runs: a row has no valid job; remove .*/runs if it is there"):
        weekly(store, Config().fleet)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_copied_over_another_is_an_error(store, name):
    other = TABLES[TABLES.index(name) - 1]
    shutil.rmtree(Path(store.uri, name))
    shutil.copytree(Path(store.uri, other), Path(store.uri, name))
    with pytest.raises(StoreError, match=f"its table {name}: another table lies in its place; "):
        store.scan(name)
    with pytest.raises(StoreError, match="another table lies in its place"):
        weekly(store, Config().fleet)


def test_the_command_says_all_problems_and_ends_with_three(store):
    sound = CliRunner().invoke(app, ["fleet", "verify", store.uri])
    assert (sound.exit_code, "runs: 4 rows" in sound.output, "all right" in sound.output) == (0, True, True)
    DAMAGES["a garbage log"](store, "reports")
    bad = CliRunner().invoke(app, ["fleet", "verify", store.uri])
    assert isinstance(bad.exception, StoreError)
    assert "its table reports" in bad.output


def test_a_store_has_a_path_in_utf_8():
    with pytest.raises(UsageError, match="must be UTF-8"):
        opened("a\udcff")


@pytest.mark.parametrize("name", every(6, ["a#b?", "a?b", "a{b}", "a*b", "a %<>", "\N{GREEK SMALL LETTER MU}"]))
def test_a_store_lies_in_a_folder_of_any_name(filled, tmp_path, name):
    store = opened(str(tmp_path / name))
    for _ in range(2):
        ingest([str(filled / "root")], store, Here(), today=TODAY)
    shutil.copytree(store.uri, tmp_path / f"{name[0]}_{name[1:]}")  # `*` means it too
    counts = [store.count(table) for table in TABLES]
    assert counts == [Store(str(filled / "store")).count(table) for table in TABLES]
    assert verify(store)[1] == []
    store.compact(0)
    store.prune("9999-W01")
    assert store.count("runs") == 0


@pytest.mark.parametrize("name", ["a[1]b", "a%20b", "a^b", "a|b", "a\\b", "week=1", "a\nb"])
def test_a_folder_whose_name_no_table_can_lie_in_is_refused(tmp_path, monkeypatch, name):
    with pytest.raises(UsageError, match=r"cannot hold '.*'; give another folder"):
        opened(str(tmp_path / name / "store"))
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(UsageError, match="cannot hold"):
        opened("store")
    assert opened("s3://bucket/week=1")


def test_an_option_without_a_value_is_refused_and_not_repeated():
    assert opened("s3://bucket/store", ["aws_endpoint=http://localhost"]).options
    with pytest.raises(UsageError, match=r"^--option: give it as KEY=VALUE$"):
        opened("s3://bucket/store", ["hunter2"])


def test_nobody_is_told_to_remove_a_table_out_of_reach():
    refused = "Kernel error: Generic S3 error: Error performing GET: 403 Forbidden"
    assert "remove" not in str(Store("s3://bucket/store").unusable("runs", refused))
    closed = "Generic LocalFileSystem error: Unable to open file runs/_last_checkpoint: Permission denied (os error 13)"
    assert "remove" not in str(Store("store").unusable("runs", closed))
    assert "remove s3://bucket/store/runs" in str(
        Store("s3://bucket/store").unusable("runs", "Parquet error: no footer")
    )


def test_no_store_is_no_good_news(tmp_path):
    with pytest.raises(ReadError, match="holds no fleet store"):
        verify(Store(str(tmp_path / "none")))


@pytest.mark.soak
@pytest.mark.parametrize("first", every(2, [True, False]))
def test_a_store_that_is_removed_during_an_ingest_is_noticed(store, tmp_path, monkeypatch, first):
    """It held runs before, or this ingest wrote the first ones: either way it does not start again from nothing."""
    target = Store(str(tmp_path / "new")) if first else store
    for number in range(50, 54):
        trace(tmp_path / "root" / f"job{number}", number)
    monkeypatch.setattr(room, "_FLUSH_RUNS", 1)
    examined = room.examine
    done = []

    def examine(job):
        done.append(job)
        if len(done) == 3:
            shutil.rmtree(target.uri)
        return examined(job)

    monkeypatch.setattr(room, "examine", examine)
    with pytest.raises(StoreError, match=r"the table \w+ is missing"):
        ingest([str(tmp_path / "root")], target, Here(), today=TODAY)


def test_only_broken_files_end_with_three(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "engine", lambda _name, _processes: Here())
    broken(tmp_path / "root" / "bad", 1)
    words = ["fleet", "ingest", str(tmp_path / "root"), "--store", str(tmp_path / "store")]
    for _ in range(2):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 3
        assert "1 cannot be read" in done.output
    trace(tmp_path / "root" / "good", 2)
    assert CliRunner().invoke(app, words).exit_code == 0
