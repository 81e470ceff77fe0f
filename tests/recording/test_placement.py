"""Which part of a process's cores is far from its GPU, by what Linux tells of devices."""

import os
from pathlib import Path

import pytest

from advisor.recording.inside import job


def _device(root: Path, address: str, vendor: str, kind: str, cores: str) -> None:
    folder = root / address
    folder.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", kind), ("local_cpulist", cores)):
        (folder / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("own", "far"), [({0, 1}, 1.0), ({0, 1, 8, 9}, 0.5), ({8, 31}, 0.0), (set(range(32)), 16 / 32), (set(), None)]
)
def test_the_cores_of_other_nodes_than_the_gpus_are_far(
    own: set[int], far: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _device(tmp_path, "0000:3b:00.0", "0x10de", "0x030200", "8-15,24-31")
    _device(tmp_path, "0000:00:02.0", "0x8086", "0x030000", "0-7")  # a board's own graphics
    _device(tmp_path, "0000:3b:00.1", "0x10de", "0x040300", "0-7")  # the sound of a GPU
    monkeypatch.setattr(job, "_DEVICES", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: own)
    assert job.far_cores() == far


def test_without_a_gpu_nothing_is_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job, "_DEVICES", str(tmp_path / "none"))
    assert job.far_cores() is None
