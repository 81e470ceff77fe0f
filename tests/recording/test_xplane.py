"""What a recording of TensorFlow or JAX measured, added to the profiler's own file and read from there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Self

import pytest

from advisor.inputs.readers import xplane as reader
from advisor.inputs.recorder_block import noted
from advisor.recording.inside import xplane

FIXTURE = Path(__file__).parents[2] / "fixtures/jax-cpu-none"
STACK = {"samples": 3, "ns": 30_000_000, "line": "train.py:4", "call": "json.dumps", "below": ["x" * 200]}
BLOCK: dict[str, Any] = {
    "format": 1,
    "unprofiled": {"before_ms": 12.5, "after_ms": 13.0},
    "profiled": {"step_ms": 14.0},
    "stacks": {"main": [STACK]},
    "job": {"cpus": 2},
}


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURE / "plugins", tmp_path / "plugins")
    return tmp_path


def test_a_profile_keeps_all_it_has_and_gains_the_block(logdir: Path):
    (path,) = logdir.rglob("*.xplane.pb")
    with path.open("rb") as stream:
        before = reader.read(stream, "host.xplane.pb")
    xplane.add(str(logdir), BLOCK)
    with path.open("rb") as stream:
        after = reader.read(stream, "host.xplane.pb")
    assert after.host_ops.equals(before.host_ops)
    worker = after.workers.row(0, named=True)
    assert (worker["before_ms"], worker["after_ms"], worker["profiled_ms"], worker["cpus"]) == (12.5, 13.0, 14.0, 2)
    assert [stack["line"] for stack in worker["stacks"]] == ["train.py:4"]
    assert before.workers["before_ms"].to_list() == [None]


def test_on_a_full_disk_the_profile_stays_as_it_was(logdir: Path, monkeypatch: pytest.MonkeyPatch):
    (path,) = logdir.rglob("*.xplane.pb")
    whole = path.read_bytes()

    class Full:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, data: bytes) -> None:
            path.write_bytes(whole + data[:10])
            raise OSError

    monkeypatch.setattr("builtins.open", lambda *_: Full())
    xplane.add(str(logdir), BLOCK)
    monkeypatch.undo()
    assert path.read_bytes() == whole


def test_without_a_profile_nothing_is_added(tmp_path: Path):
    xplane.add(str(tmp_path), BLOCK)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"format": 2}'])
def test_a_block_that_is_none_gives_nothing(text: str):
    assert noted(text.encode()) == {}


def test_no_file_holds_the_name_of_the_host(logdir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "3")
    (path,) = logdir.rglob("*.xplane.pb")
    named = path.with_name("node17.example.org.xplane.pb")
    path.rename(named)
    whole = named.read_bytes()
    named.write_bytes(b"\x22\x06node17" + whole + b"\x22\x12node17.example.org")
    (named.parent / "rank3.xplane.pb").touch()  # of another process with that rank
    (named.parent / "node17.example.org.trace.json.gz").touch()
    (logdir / "events.out.tfevents.17.node17.example.org.profile-empty").touch()
    os.utime(named.parent / "rank3.xplane.pb", (0, 0))
    assert xplane.add(str(logdir), BLOCK) == str(named)
    xplane.unname(str(logdir), str(named))
    files = {file.name: file for file in logdir.rglob("*.*") if file.is_file()}
    assert {"rank3-2.xplane.pb", "rank3-2.trace.json.gz", "events.out.tfevents.17.rank3-2.profile-empty"} <= {*files}
    assert not any("node17" in name or b"node17" in file.read_bytes() for name, file in files.items())
    content = files["rank3-2.xplane.pb"].read_bytes()
    assert content.startswith(b"\x22\x06xxxxxx" + whole.removesuffix(b"vm"))  # what the fixture's own ends with
    assert b"/advisor:" in content


@pytest.mark.parametrize("content", [b"", b"\x22", b"\x22\xff\xff\x03abc", b"\xff" * 40, b"\x08\x01"])
def test_what_is_no_profile_keeps_its_size(tmp_path: Path, content: bytes):
    run = tmp_path / "plugins/profile/1"
    run.mkdir(parents=True)
    (run / "node17.xplane.pb").write_bytes(content)
    xplane.unname(str(tmp_path), str(run / "node17.xplane.pb"))
    (file,) = run.iterdir()
    assert len(file.read_bytes()) == len(content)
    assert "node17" not in file.name
