"""What a recording of TensorFlow or JAX measured, added to the profiler's own file and read from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

import pytest

from advisor.inputs.readers import xplane as reader
from advisor.inputs.recorder_block import noted_json
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
    assert noted_json(text) == {}
