"""The registry of patches: what each takes, and what each says of what it left as it was. No framework is needed."""

from __future__ import annotations

import ast
import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.model.clause import REASONS
from advisor.recording.inside import patches
from advisor.recording.inside.patches import PATCHES, check_use

FOLDER = Path(patches.__file__).parent


def test_every_patch_declares_itself():
    for name, patch in PATCHES.items():
        assert patch.name == name
        assert patch.numerics in {"same", "rounding", "changes"}
        assert set(patch.toggles) <= {"cpu", "cuda"}
        assert patch.__doc__
        for schema in patch.arguments.values():
            assert schema["type"] in {"integer", "boolean", "string"}
            assert schema["description"]


def test_patches_need_nothing_but_the_standard_library():
    known = {"advisor_inside", *sys.stdlib_module_names}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert {name.split(".")[0] for name in names} <= known, path


def test_every_reason_to_refuse_has_words():
    codes = {
        node.args[0].value
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "refuse"
        if isinstance(node.args[0], ast.Constant)
    } | {patch.absent for patch in PATCHES.values() if patch.absent}
    assert len(codes) > 15
    assert {f"patch_{code}" for code in codes} <= REASONS.keys()


@pytest.mark.parametrize(
    ("name", "values", "checked"),
    [
        ("dataloader", {"num_workers": "4", "pin_memory": "true"}, {"num_workers": 4, "pin_memory": True}),
        ("dataloader", {"num_workers": 4.0}, {"num_workers": 4}),
        ("optimizer", {}, {"implementation": "fused"}),
        ("environment", {"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "4"}),
        ("debug-aids", {}, {}),
        ("seldom", {"line": "train.py:9"}, {"line": "train.py:9", "every": 100}),
    ],
)
def test_arguments_are_read_by_their_schema(name: str, values: dict[str, object], checked: dict[str, object]):
    assert PATCHES[name].checked(values) == checked


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("dataloader", {}, "needs at least one of: num_workers"),
        ("dataloader", {"num_workers": "many"}, "num_workers must be a whole number"),
        ("dataloader", {"num_workers": True}, "num_workers must be a whole number"),
        ("dataloader", {"num_workers": -1}, "num_workers must be from 0 to 128"),
        ("dataloader", {"pin_memory": "maybe"}, "pin_memory must be true or false"),
        ("dataloader", {"workers": 4}, "dataloader has no argument workers; it has: num_workers"),
        ("optimizer", {"implementation": "fast"}, "implementation must be one of fused, foreach"),
        ("environment", {"LD_PRELOAD": "x.so"}, "environment has no argument LD_PRELOAD"),
        ("environment", {"PYTHONSTARTUP": "x.py"}, "environment has no argument PYTHONSTARTUP"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, values: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        PATCHES[name].checked(values)


def test_a_rule_may_leave_a_number_to_the_job():
    check_use("dataloader", {"num_workers": "{{ workers_needed }}"})
    with pytest.raises(ValueError, match="no argument workers"):
        check_use("dataloader", {"workers": "{{ workers_needed }}"})
    with pytest.raises(ValueError, match="no patch is called exec"):
        check_use("exec", {"code": "import os"})


def test_aids_of_debugging_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    aids = PATCHES["debug-aids"]({})
    assert aids.variables() == {"TORCH_DISTRIBUTED_DEBUG": "OFF", "ADVISOR_DEBUG_AIDS": "1"}


def test_a_variable_that_the_program_sets_itself_does_not_count(monkeypatch: pytest.MonkeyPatch):
    patch = PATCHES["environment"]({"OMP_NUM_THREADS": "4", "KMP_BLOCKTIME": "0"})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    patch.begin()
    assert (patch.hits, patch.refusals) == (1, {"own_variable": {"name": "OMP_NUM_THREADS"}})


def test_no_garbage_is_collected_while_its_patch_is_on(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    patch = PATCHES["gc"]({})
    try:
        patch.switch(on=True)
        patch.begin()
        gc.collect()
        assert (gc.isenabled(), calls, patch.hits) == (False, [], 2)
        patch.switch(on=False)
        gc.collect()
        assert (gc.isenabled(), calls) == (True, ["collect"])
    finally:
        gc.unfreeze()
        gc.enable()


def test_a_loader_without_workers_has_no_option_that_needs_them(monkeypatch: pytest.MonkeyPatch):
    torch: Any = SimpleNamespace(utils=SimpleNamespace(data=SimpleNamespace(IterableDataset=int)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    patch: Any = PATCHES["dataloader"]({"num_workers": 0})
    without = {"num_workers": 0, "timeout": 0, "multiprocessing_context": None, "prefetch_factor": None}
    without |= {"persistent_workers": False}
    ours = {"num_workers": 4, "timeout": 5, "multiprocessing_context": "spawn", "prefetch_factor": 3}
    assert patch._changes(ours | {"persistent_workers": True}) == without  # noqa: SLF001 - what it does to a loader
    assert not patch.refusals
    assert patch._changes(without) == {}  # noqa: SLF001
    assert [*patch.refusals] == ["as_it_is"]


def test_one_batch_is_given_again_while_its_patch_is_on():
    iterator: Any = type("Iterator", (), {"__next__": lambda self: next(self.batches)})
    dataloader = SimpleNamespace(_BaseDataLoaderIter=iterator)
    torch = SimpleNamespace(utils=SimpleNamespace(data=SimpleNamespace(dataloader=dataloader)))
    patch, loader = PATCHES["input"]({"repeat": "one-batch"}), iterator()
    loader.batches = iter(range(3))
    patch.hook(torch, None)
    assert [next(loader), next(loader)] == [0, 0]
    patch.switch(on=False)
    assert [next(loader), next(loader)] == [1, 2]
    with pytest.raises(StopIteration):
        next(loader)
    assert patch.hits == 1
