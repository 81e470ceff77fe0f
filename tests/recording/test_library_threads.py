"""Threads of libraries, which have the name of the process and run no Python."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from advisor.inputs.recorder_block import noted
from advisor.recording.inside import threads
from advisor.recording.inside.threads import Threads, Work

MAIN = threading.main_thread().native_id or 0
PYTHON, BLAS, XLA = MAIN + 1, MAIN + 2, MAIN + 3
NAMES = {os.getpid(): "python", PYTHON: "python", BLAS: "python", XLA: "tf_XLAEigen"}


@pytest.mark.parametrize("has_torch", [False, True])
def test_what_threads_without_a_name_run_is_noted_where_it_is_known_whose_they_are(
    monkeypatch: pytest.MonkeyPatch, *, has_torch: bool
):
    """PyTorch's own pool of threads has no name either."""
    ran = {MAIN: 0, PYTHON: 0, BLAS: 0, XLA: 0}
    monkeypatch.setattr(threads, "thread_work", lambda: {of: Work(ns, 0) for of, ns in ran.items()})
    monkeypatch.setattr(threads, "_name_of", NAMES.get)
    of_python = [SimpleNamespace(native_id=of) for of in (MAIN, PYTHON)]
    running = SimpleNamespace(enumerate=lambda: of_python, main_thread=threading.main_thread)
    monkeypatch.setattr(threads, "threading", running)
    monkeypatch.setattr(threads, "sys", SimpleNamespace(modules={"torch": threads} if has_torch else {}))
    of = Threads()
    of.begin()
    ran.update({MAIN: 10, PYTHON: 20, BLAS: 50, XLA: 20})
    of.end()
    block = of.block(100)
    assert (block.get("unnamed_ns"), block.get("all_ns")) == ((None, None) if has_torch else (50, 100))


def test_their_part_is_of_what_all_threads_run():
    block = (
        b'{"format":1,"unprofiled":{},"profiled":{},"stacks":{"span_ns":100,"threads":{"main":{"run_ns":10,'
        b'"wait_ns":0},"unnamed_ns":50,"all_ns":200}}}'
    )
    assert noted(block).get("unnamed_part") == 0.25
