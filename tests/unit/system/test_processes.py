from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from advisor.system.processes import pool

_AT_ITS_END = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())))  # runs after what is registered later
from advisor.system.processes import spare_garbage
spare_garbage()
held = [[] for _ in range(5000)]
"""


def test_at_its_end_python_has_no_objects_to_look_through():
    ended = subprocess.run([sys.executable, "-c", _AT_ITS_END], capture_output=True, text=True, check=True)
    frozen, others = map(int, ended.stdout.split())
    assert frozen > 5000 > others


def test_processes_share_the_cores_and_look_for_garbage_rarely():
    with pool(2) as processes:
        threads = processes.submit(os.getenv, "POLARS_MAX_THREADS").result()
        assert threads == str(max(1, (os.cpu_count() or 1) // 2))
        assert processes.submit(gc.get_threshold).result()[0] == 1_000_000
        assert signal.SIGINT in processes.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_process_of_a_pool_ends_with_its_parent():
    code = (
        "import os\nfrom advisor.system.processes import pool\n"
        "if __name__ == '__main__':\n    print(pool(1).submit(os.getpid).result(), flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert int(done.stdout)  # it ends only when the process of the pool has closed it too


def test_a_signal_that_ends_us_leaves_no_word_of_what_is_cleared_up():
    code = (
        "import os, signal\nfrom advisor.system.engines import local\n"
        "if __name__ == '__main__':\n    local(1).executor().submit(int).result(); os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


def test_a_command_whose_modules_are_imported_is_interrupted_in_silence(monkeypatch: pytest.MonkeyPatch):
    class Modules(ModuleType):
        def __getattr__(self, _: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "advisor.cli", Modules("advisor.cli"))
    monkeypatch.delitem(sys.modules, "advisor.__main__", raising=False)
    with pytest.raises(SystemExit, match="130"):
        import_module("advisor.__main__")
