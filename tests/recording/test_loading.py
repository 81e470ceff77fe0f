"""What a loader takes: counts of a process by themselves, and programs with a planted fault, recorded as they are."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing import Pool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.engine import check
from advisor.options import Options
from advisor.recording.inside import loading
from advisor.recording.inside.loading import Loading, read_alone
from advisor.recording.inside.threads import Work
from advisor.recording.launcher import Options as Recording
from advisor.recording.launcher import run
from advisor.text import in_words
from tests.torch_python import torch_python


def test_a_process_counts_its_batches_their_samples_and_the_files_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hooks: list[Any] = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)  # a real one would stay
    of = Loading()
    assert of.fetch(lambda _, index: index, None, [1, 2]) == [1, 2]
    assert of.facts() == {"slow": []}
    of.begin()
    of.fetch(lambda _, index: index, None, [1, 2])
    of.fetch(lambda _, index: index, None, [3])
    assert of.request(lambda iterator: iterator, 7) == 7
    (hook,) = hooks
    for path, mode in ((tmp_path / "a", "rb"), ("b", "r"), ("c", "wb"), ("d", "r+"), ("/proc/self/io", "r"), (3, "r")):
        hook("open", (os.fspath(path) if isinstance(path, Path) else path, mode, os.O_RDONLY))
    hook("open", ("e", None, os.O_RDONLY | os.O_CLOEXEC))
    hook("open", ("f", None, os.O_WRONLY))
    hook("import", ("json",))
    for odd in ((), ("g",), (object(), "r", os.O_RDONLY), ("g\0", "r", "r"), ("g", 3, os.O_RDONLY)):
        hook("open", odd)  # an event of the program's own
    of.end()
    hook("open", ("g", "r", os.O_RDONLY))
    facts = of.facts()
    assert [facts[name] for name in ("batches", "samples", "requests", "files")] == [2, 3, 1, 3]
    assert facts["fetch_ns"] > 0 <= facts["wait_ns"]


def test_threads_that_unpickle_what_a_pool_returns_are_told_from_others(monkeypatch: pytest.MonkeyPatch):
    class Manager(threading.Thread):
        def run(self) -> None:
            over.wait()

    Manager.__name__ = "_ExecutorManagerThread"
    over = threading.Event()
    with Pool(1, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        others = [Manager(daemon=True), threading.Thread(target=over.wait, daemon=True)]
        for thread in others:
            thread.start()
        helper = next(thread for thread in threading.enumerate() if "_handle_results" in thread.name)
        times = {thread.native_id: Work(ns, 1) for ns, thread in zip((300, 40, 5), (helper, *others), strict=True)}
        monkeypatch.setattr(loading, "thread_work", dict)  # so far they ran for nothing
        of = Loading()
        of.begin()
        monkeypatch.setattr(loading, "thread_work", lambda: times)
        of.end()
        over.set()
        assert pool.apply(abs, (-1,)) == 1
    assert [of.facts()[name] for name in ("receive_ns", "threads_ns", "send_ns")] == [340, 6, 0]


def test_files_are_read_again_alone(tmp_path: Path):
    paths = [tmp_path / name for name in ("a", "gone", "b")]
    for path, size in ((paths[0], 3 << 20), (paths[2], 5)):
        path.write_bytes(b"x" * size)
    sums = read_alone(map(str, paths))
    assert (sums["alone_files"], sums["alone_bytes"]) == (2, (3 << 20) + 5)
    assert sums["cold_ns"] > 0 < sums["warm_ns"]


def test_a_sample_takes_as_long_as_the_stacks_of_one_visit():
    def frame(index: int | None) -> Any:
        fetch = SimpleNamespace(co_filename="x/torch/utils/data/_utils/fetch.py")
        outer = SimpleNamespace(f_code=fetch, f_locals={} if index is None else {"idx": index}, f_back=None)
        return SimpleNamespace(f_code=SimpleNamespace(co_filename="data.py"), f_locals={"idx": 9}, f_back=outer)

    of = Loading()
    of.sample(frame(1), 100)
    of.begin()
    for index, ns in ((1, 10), (1, 20), (2, 5), (1, 25), (None, 50), (1, 1)):
        of.sample(frame(index), ns)
    assert of.facts()["slow"] == [{"index": 1, "ns": 30}, {"index": 2, "ns": 5}]


def test_an_index_that_compares_as_the_program_says_is_not_compared():
    class Pair:
        def __eq__(self, other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]  # as of arrays

    of = Loading()
    of.begin()
    fetch = SimpleNamespace(co_filename="x/torch/utils/data/_utils/fetch.py")
    for _ in range(2):
        of.sample(SimpleNamespace(f_code=fetch, f_locals={"idx": Pair()}, f_back=None), 10)
    assert of.facts()["slow"] == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_is_not_read_again(tmp_path: Path):
    """Its reader would wait for a writer, or take what the program is to read."""
    os.mkfifo(tmp_path / "pipe")
    assert read_alone([str(tmp_path / "pipe")])["alone_files"] == 0


LOOP = """
import json, os, signal, threading, time
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
WORKERS, COLLATE = {workers}, None
{fault}
class Data(Dataset):
    def __len__(self): return 4000
    def __getitem__(self, index): return item(index)
def main():
    model = torch.nn.Linear(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Data(), batch_size=4, num_workers=WORKERS, collate_fn=COLLATE)
    for step, x in enumerate(loader):
        optimizer.zero_grad()
        x = torch.as_tensor(np.stack(x) if isinstance(x, list) else x)
        model(x.reshape(4, -1)[:, :64].float()).sum().backward()
        optimizer.step()
        if step == 70: break
if __name__ == "__main__": main()
"""

STORAGE = """
os.mkfifo("slow")
if os.fork() == 0:
    signal.alarm(120)  # who waits for a reader sees nothing of its parent's end
    while os.getppid() > 1:
        time.sleep(0.004)
        open("slow", "wb").write(bytes(256))
def item(index): return np.frombuffer(open("slow", "rb").read()[:256].ljust(256, b"0"), "f4")
"""

SMALL = """
os.mkdir("small")
for number in range(200): open("small/%d" % number, "wb").write(bytes(256))
def item(index):
    parts = [open("small/%d" % ((index * 7 + number) % 200), "rb").read() for number in range(200)]
    return np.frombuffer(parts[0], "f4")
"""

DECODE = """
TEXT = json.dumps(np.random.rand(12000).tolist())
def item(index): return np.array(json.loads(TEXT)[:64], "f4")
"""

TRANSFORM = """
RAW = np.random.rand(400000)
def item(index): return np.sort(RAW)[:64]
"""

COLLATE = """
def item(index): return np.zeros(64, "f4")
def collate(samples):
    total = 0
    for number in range(150000): total += number
    return torch.as_tensor(np.stack(samples))
COLLATE = collate
"""

PICKLED = """
def item(index): return np.zeros(1 << 20, "f4")
def COLLATE(samples): return samples
"""

LOCK = """
def item(index):
    total = 0
    for number in range(60000): total += number
    return np.zeros(64, "f4")
def count():
    number = 0
    while True: number += 1
threading.Thread(target=count, daemon=True).start()
"""

FAULTS = (
    (PICKLED, 2, "handing over", "transport"),
    (STORAGE, 0, "reading files", "storage"),
    (SMALL, 0, "reading files", None),
    (DECODE, 1, "decoding", None),
    (TRANSFORM, 1, "transforming", None),
    (COLLATE, 1, "collating", None),
    (LOCK, 0, "", "lock"),
)
"""A fault, processes that load, the longest stage, and what sets the pace; None where a busy machine may change it."""


@pytest.mark.soak  # stages are in tests/unit/analysis/device/test_loading_stages.py, a real launch is in test_torch.py
@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_the_stage_of_a_planted_fault_is_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    fault, workers, stage, limit = FAULTS[number]
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(workers=workers, fault=fault))
    outcome = run([torch_python(), str(script)], tmp_path / "log", Recording(skip=2, active=5))
    assert outcome.exit_code == 0
    (checked,) = check([str(tmp_path / "log")], Options()).runs
    (row,) = checked.metrics["device"]
    assert in_words(row["loading_stages"]).startswith(stage)
    assert limit in {None, row["loading_limit"]}
    assert checked.findings[0].rule in {"input-bound", "single-process-data-loader"}
    assert ((row["small_files"], row["small_file_bytes"]) == (800, 256)) is (fault is SMALL)
