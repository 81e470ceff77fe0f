from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from advisor.recording.inside.job import software


def torch(version: str, cudnn: int | None, *, in_use: bool = True) -> ModuleType:
    made = ModuleType("torch")
    made.__version__ = version  # type: ignore[attr-defined]
    made.cuda = SimpleNamespace(is_initialized=lambda: in_use)  # type: ignore[attr-defined]
    made.backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: cudnn))  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(("number", "version"), [(91002, "9.10.2"), (8902, "8.9.2"), (90100, "9.1.0")])
def test_versions_are_those_of_loaded_libraries(monkeypatch: pytest.MonkeyPatch, number: int, version: str):
    monkeypatch.setitem(sys.modules, "torch", torch("2.9.1+cu128", number))
    versions = software()["versions"]
    assert versions["PyTorch"] == "2.9.1"
    assert versions["cuDNN"] == version


def test_cudnn_is_not_loaded_for_a_program_that_uses_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", torch("2.9.1", 91002, in_use=False))
    assert "cuDNN" not in software()["versions"]


def test_settings_are_of_a_closed_list_and_no_path_or_secret_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "os.environ",
        {
            "NCCL_ALGO": " Ring ",
            "XLA_FLAGS": "--xla_gpu_autotune_level=4 --xla_dump_to=/home/somebody",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "OMP_NUM_THREADS": "",
        },
    )
    assert software()["settings"] == {
        "NCCL_ALGO": "Ring",
        "XLA_FLAGS": "set",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
