"""A recording is written whole or not at all, under a name of its own."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor.recording.inside.files import compressed
from advisor.recording.inside.notes import Notes
from advisor.recording.remover import open_up


def write(content: str):
    return lambda path: Path(path).write_text(content)


@pytest.mark.parametrize("content", ['{"traceEvents": []}', ' {\n "a": {"b": 1}\n}\n', "{}"])
def test_the_block_joins_what_the_profiler_wrote(tmp_path: Path, content: str):
    path = compressed(str(tmp_path / "log"), "rank0", write(content), {"format": 1})
    assert json.loads(gzip.decompress(Path(path).read_bytes())) == {**json.loads(content), "advisor": {"format": 1}}


def test_the_host_and_the_path_are_left_out(tmp_path: Path):
    """Kineto says the host before the events, and the path behind them."""
    events = '"traceEvents": [' + ", ".join(['{"name": "host_name"}'] * 2_000) + "]"
    trace = '{"trace_id": "7F", "host_name": "node\\"17", ' + events + ', "traceName": "/home/ann/t.json"}'
    path = compressed(str(tmp_path), "rank0", write(trace), {"format": 1})
    told = json.loads(gzip.decompress(Path(path).read_bytes()))
    assert len(told["traceEvents"]) == 2_000
    names = ("trace_id", "host_name", "traceName")
    assert {name: told[name] for name in names} == dict.fromkeys(names, "")


def test_the_host_is_left_out_behind_a_long_list_of_groups_too(tmp_path: Path):
    groups = json.dumps([{"pg_name": str(n), "ranks": [*range(64)]} for n in range(2_000)])
    trace = '{"distributedInfo": {"pg_config": %s}, "host_name": "node17", "traceEvents": [], "traceName": "/home/ann"}'
    path = compressed(str(tmp_path), "rank0", write(trace % groups), {"format": 1})
    told = json.loads(gzip.decompress(Path(path).read_bytes()))
    assert len(told["distributedInfo"]["pg_config"]) == 2_000
    assert (told["host_name"], told["traceName"]) == ("", "")


def test_two_jobs_in_one_folder_overwrite_nothing(tmp_path: Path):
    paths = [compressed(str(tmp_path), "rank0", write("{}"), {"job": job}) for job in (1, 2)]
    assert [Path(path).name for path in paths] == ["rank0.pt.trace.json.gz", "rank0-2.pt.trace.json.gz"]
    assert [json.loads(gzip.decompress(Path(path).read_bytes()))["advisor"]["job"] for path in paths] == [1, 2]


@pytest.mark.parametrize("left", ["trace.json", "trace.json.tmp"])
def test_a_trace_cut_by_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, left: str):
    def cut(path: str) -> None:
        Path(path).with_name(left).write_text('{"traceEvents": [{"ph"')

    with pytest.raises(OSError, match="No space left") as error:
        compressed(str(tmp_path), "rank0", cut, {})
    assert error.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_trace_cut_by_a_limit_of_files_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (5, 5))
    for text, room, number in (('{"tra', 4, errno.EFBIG), ('{"tr', 4, errno.ENOSPC), ('{"tr', 5, errno.EFBIG)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, room=room: Mock(free=room))
        with pytest.raises(OSError, match="trace") as error:
            compressed(str(tmp_path), "rank0", write(text), {})
        assert error.value.errno == number


@pytest.mark.parametrize("spare", [0, 1])
def test_a_limit_of_open_files_is_named_and_leaves_nothing(tmp_path: Path, spare: int):
    """Kineto says nothing of it either, and writes no trace; or it can, and we cannot write beside it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def export(path: str) -> None:
        if spare:
            Path(path).write_text("{}")
        os.close(least := os.open("/", os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (least + spare, limits[1]))

    try:
        with pytest.raises(OSError, match="Too many open files"):
            compressed(str(tmp_path), "rank0", export, {})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_program_whose_clock_is_before_1970_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time", lambda: -1.0)
    assert compressed(str(tmp_path), "rank0", write("{}"), {})


@pytest.mark.parametrize("umask", [0o777, 0o277])
def test_a_program_with_a_tight_umask_is_recorded_and_its_notes_are_read(tmp_path: Path, umask: int):
    rights = []

    def export(path: str) -> None:
        rights.append(Path(path).parent.stat().st_mode & 0o777)
        Path(path).write_text("{}")

    (tmp_path / "log").mkdir()
    before = os.umask(umask)
    try:
        path = compressed(str(tmp_path / "log"), "rank0", export, {})
        Notes(str(tmp_path)).add("started")
    finally:
        os.umask(before)
    (note,) = tmp_path.glob("*.jsonl")
    assert rights == [0o700]
    assert [each.stat().st_mode & 0o777 for each in (Path(path), note)] == [0o600, 0o600]


@pytest.mark.parametrize("put", ["folder", "link"])
def test_what_a_tight_umask_closed_is_opened_to_be_removed_and_what_links_lead_to_is_not(tmp_path: Path, put: str):
    (outside := tmp_path / "outside").mkdir(mode=0o500)
    (ours := tmp_path / "ours").mkdir()
    (ours / "a").mkdir()
    (ours / "a/link").symlink_to(outside)
    (ours / "a/b").mkdir(mode=0)
    (ours / "a").chmod(0)
    (tmp_path / "put").symlink_to(ours if put == "folder" else outside)
    open_up(ours)
    open_up(tmp_path / "put")
    modes = [path.stat().st_mode & 0o777 for path in (ours / "a", ours / "a/b", outside)]
    assert modes == [0o700, 0o700, 0o500]


def test_ours_is_our_own_under_any_umask_and_the_users_program_has_that_umask():
    code = (
        "import os; from advisor.system.processes import own_files; from advisor.recording.launcher import started;"
        " own_files(); mine = os.umask(0); command = ['sh', '-c', 'umask']; started(command).wait(); print(f'{mine:o}')"
    )
    done = subprocess.run([sys.executable, "-c", code], umask=0o527, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0527", "27"]
