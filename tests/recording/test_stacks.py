"""Sampling a process from inside: whose signal it is, what a stack says, whose workers sample, and true shares."""

from __future__ import annotations

import contextlib
import dis
import faulthandler
import gc
import inspect
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from advisor.recording.inside import hook, lines, sampling, threads, timers
from advisor.recording.inside.lines import described
from advisor.recording.inside.phases import Collections
from advisor.recording.inside.profilers import Profiler
from advisor.recording.inside.sampling import MEAN_NS, Sampler
from advisor.recording.inside.source import call_at, lines_that_need
from advisor.recording.inside.stacks import Stacks, watch_loaders
from advisor.recording.inside.threads import Threads, Work, stacks_of_threads


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    of = Sampler()
    yield of
    of.stop()


def stack_of(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    frames = []
    while frame:
        frames.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(frames)


def test_a_stack_has_the_innermost_line_of_the_program_and_what_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(lines, "_START", str(tmp_path))
    path, seen = tmp_path / "train.py", []
    path.write_text("import json\ndef log(value):\n    x = 1; return json.dumps(value, default=look)\n")
    scope: dict[str, Any] = {"look": lambda _: seen.append(stack_of(inspect.stack()[1].frame))}
    exec(compile(path.read_text(), str(path), "exec"), scope)  # noqa: S102 - a program of the test's
    scope["log"](object())
    named = described(seen[0])
    assert (named["line"], named["function"]) == ("train.py:3", "log")
    assert named["call"] == "json.dumps"
    assert named["below"][0].startswith("json/__init__.py: dumps")


def program(files: dict[str, str], folder: Path, seen: list[Any]) -> dict[str, Any]:
    """What these files of a program define; its `look` notes the stack that it is called in."""
    scope: dict[str, Any] = {"look": lambda: seen.append(stack_of(inspect.stack()[1].frame))}
    for name, source in files.items():
        exec(compile(source, str(folder / name), "exec"), scope)  # noqa: S102 - a program of the test's
    return scope


def test_lines_that_the_loader_calls_are_counted_whatever_library_is_in_between(tmp_path: Path):
    """A loop of the program, the loader, a library's pipeline, a line of the program, and the one that it calls."""
    seen: list[Any] = []
    files = {
        "site-packages/torch/utils/data/_utils/fetch.py": "def fetch(): read()",
        "site-packages/pipeline.py": "def read(): item()",
        "data.py": "def item(): decode()\ndef decode(): look()",
        "train.py": "def train(): fetch()",
    }
    scope = program(files, tmp_path, seen)
    scope["train"]()
    scope["item"]()
    assert [described(stack)["of_fetch"] for stack in seen] == [2, None]


def test_the_outermost_function_that_evaluates_is_named(tmp_path: Path):
    seen: list[Any] = []
    files = {
        "site-packages/transformers/trainer.py": "class Trainer:\n    def evaluate(self): self.evaluation_loop()\n"
        "    def evaluation_loop(self): forward()\n    def fit(self): self.evaluate(); forward()",
        "model.py": "def forward(): look()\ndef evaluated(): forward()",
    }
    scope = program(files, tmp_path, seen)
    scope["Trainer"]().fit()
    scope["evaluated"]()
    assert [described(stack)["evaluates"] for stack in seen] == [
        "transformers/trainer.py: Trainer.evaluate",
        None,
        None,
    ]


SLOW = """
def find(values, wanted):
    found = []
    for value in wanted:
        if value not in values:
            found.append(value)
    return found

def product(a):
    return a @ a

def train(a, lock):
    b = product(a)
    c = find(b, a)
    with lock:
        step(1)
    return c, step(b)

def step(x):
    return x

def count(edges, n):
    degree = [1] * n
    for a, b in edges:
        degree[a] += 1
    return degree

def first(edges, x):
    y = x @ x
    for a in edges:
        y[a] = 1

def note(found, value):
    found.append(value)
    found.get(value)
"""


def source_of(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    scope: dict[str, Any] = {"__name__": "slow", "__file__": str(path)}
    exec(compile(SLOW, str(path), "exec"), scope)  # noqa: S102 - a program of the test's
    return scope


def place(code: CodeType, opname: str, line: int) -> int:
    lines, at = dict(dis.findlinestarts(code)), 0
    for instruction in dis.get_instructions(code):
        at = lines.get(instruction.offset) or at
        if at == line and instruction.opname.startswith(opname):
            return instruction.offset
    raise AssertionError(opname)


FINDS = """
def find(rows, ids, user, np):
    [row for row in rows if row["user"] == user]
    np.where(ids == f"of {user}")
    (ids == user).nonzero()
    np.where(ids == user, 1, 2)
    return rows == user
"""


def test_what_finds_rows_is_named_by_its_comparison_without_texts(tmp_path: Path):
    path, scope = tmp_path / "finds.py", {}
    path.write_text(FINDS)
    exec(compile(path.read_text(), str(path), "exec"), scope)  # noqa: S102 - a program of the test's
    code = scope["find"].__code__
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    places = [(each, of.offset, of.opname) for each in (*inner, code) for of in dis.get_instructions(each)]
    names = {call_at(each, offset) for each, offset, opname in places if opname in {"COMPARE_OP", "CALL"}}
    assert names >= {"[row[...] == user]", "[ids == ...]", "[ids == user]", "ids == user", "rows == user", "np.where"}
    assert not {"np.where(ids == ...)", ".nonzero"} & names


def test_a_handler_behind_a_slow_operator_is_told_of_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At `append`, which takes no time, it was `in`; at the entry of `step`, the end of `product`, called before it."""
    scope = source_of(tmp_path)
    module = SimpleNamespace(**{name: scope[name] for name in ("find", "product", "__file__")})
    monkeypatch.setitem(sys.modules, "slow", module)  # type: ignore[arg-type]
    find, train, inner = (scope[name].__code__ for name in ("find", "train", "product"))
    for opname in ("CALL", "PRECALL" if sys.version_info[:2] == (3, 11) else "CALL"):
        assert described(((find, place(find, opname, 6)),))["call"] == "value not in values"
    behind = described(((find, 0), (train, place(train, "CALL", 14))))
    assert (behind["function"], behind["call"]) == ("product", "a @ a")
    assert [caller["line"].partition(":")[2] for caller in behind["callers"]] == ["13"]
    assert inner is scope["product"].__code__


def test_a_call_that_takes_no_time_is_not_named_for_the_work_before_it(tmp_path: Path):
    note = source_of(tmp_path)["note"].__code__
    calls = [described(((note, place(note, "CALL", line)),))["call"] for line in (34, 35)]
    assert calls == [None, "found.get"]  # a queue's `get` may wait


def test_behind_a_turn_of_a_loop_its_own_operators_are_as_likely_as_a_slower_one_before_it(tmp_path: Path):
    scope = source_of(tmp_path)
    count, first = (scope[name].__code__ for name in ("count", "first"))
    jumps = [(code, place(code, "JUMP_BACKWARD", line)) for code, line in ((count, 25), (first, 31))]
    lines = [described((jump,))["line"].rpartition(":")[2] for jump in jumps]
    assert lines == ["25", "29"]  # `[1] * n` is quick in most programs, `x @ x` is not


def test_a_lock_that_is_waited_for_is_named(tmp_path: Path):
    train = source_of(tmp_path)["train"].__code__
    line = described(((train, place(train, "BEFORE_WITH" if sys.version_info < (3, 14) else "CALL", 15)),))
    assert line["call"] == "lock.__enter__"


def test_a_line_is_needed_by_those_that_read_what_it_computes(tmp_path: Path):
    train = source_of(tmp_path)["train"].__code__
    assert lines_that_need(train, 13) == [14, 17]  # b, and c, which comes of it
    assert lines_that_need(train, 17) == []


def test_it_samples_and_gives_the_signal_back(sampler: Sampler):
    own = signal.signal
    assert sampler.start()
    until = time.monotonic() + 30
    while sampler.samples < 3 and time.monotonic() < until:
        sum(range(1000))
    sampler.stop()
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.signal is own
    stacks = sampler.stacks()
    assert sum(each["samples"] for each in stacks) == sampler.samples
    assert sum(each["ns"] for each in stacks) >= sampler.samples * MEAN_NS
    assert stacks[0]["line"].partition(":")[0].endswith("test_stacks.py")


# The code: push rbp; rbp = rsp; rsp = rdi; count rsi down to 0; rsp = rbp; pop rbp; ret
ON_HEAP = """
import ctypes, mmap, time
from advisor.recording.inside.sampling import Sampler
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("55 4889e5 4889fc 48ffce 75fb 4889ec 5d c3"))
spin = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
heap = ctypes.create_string_buffer(b"x" * (1 << 17))
sampler, until = Sampler(), time.monotonic() + 30
sampler.start()
while sampler.samples < 5 and time.monotonic() < until:
    spin((ctypes.addressof(heap) + (1 << 16)) & -64, 50_000_000)
sampler.stop()
print(sampler.samples, (1 << 17) - heap.raw.count(b"x"))
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="the code is of x86-64")
def test_a_signal_leaves_the_heap_alone_where_the_stack_pointer_is_in_it():
    """Products of matrices move it there. The program's process has no `faulthandler`, whose stack would do as well."""
    program = [sys.executable, "-c", ON_HEAP]
    samples, changed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert int(samples) >= 5
    assert changed == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has such a timer")
def test_no_other_thread_gets_the_signal(sampler: Sampler):
    """The main thread puts it off; another one, which would take it, does not get it."""
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        assert sampler.start()
        until = time.monotonic() + 30
        while signal.SIGALRM not in signal.sigpending() and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.01)
        assert (signal.SIGALRM in signal.sigpending(), sampler.samples) == (True, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        is_over.set()
        thread.join()


def test_a_call_that_delays_the_handler_is_given_its_time(sampler: Sampler, monkeypatch: pytest.MonkeyPatch):
    clock, gaps = [1_000_000_000], list[int]()
    waited = [0]
    monkeypatch.setattr(sampling.time, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(sampling.RunDelay, "__call__", lambda _: waited[0])
    monkeypatch.setattr(timers.SignalTimer, "set", lambda _, ns: gaps.append(ns))
    assert sampler.start()
    handler: Any = sampler._sample  # noqa: SLF001 - to ask for the handler stops it
    clock[0], waited[0] = clock[0] + gaps[0], 500_000  # it waited for a CPU: the sample is due later
    handler(signal.SIGALRM, inspect.currentframe())
    assert (sampler.samples, gaps[1:]) == (0, [500_000])
    clock[0] += 500_000 + 70_000_000
    handler(signal.SIGALRM, inspect.currentframe())
    assert [each["ns"] for each in sampler.stacks()] == [MEAN_NS + 70_000_000]


def test_what_a_call_behind_an_operator_takes_is_the_calls(sampler: Sampler, monkeypatch: pytest.MonkeyPatch):
    """No handler runs between `@` and the call. Looks after 0.5, 3 and 8 ms, and the handler after 20."""
    clock = [1_000_000_000]
    monkeypatch.setattr(sampling.time, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(sampling.RunDelay, "__call__", lambda _: 0)
    monkeypatch.setattr(timers.SignalTimer, "set", lambda *_: None)
    monkeypatch.setattr(timers.WakeTimer, "set", lambda *_: None)
    assert sampler.start()
    due_ns, main = sampler._due_ns, threading.get_ident()  # noqa: SLF001
    operator, call = (((each.__code__, 0),) for each in (Sampler.stop, Sampler.start))
    looks = [(500_000, operator), (3_000_000, operator), (8_000_000, call)]
    sampler._lookout.looks = [(due_ns + at, {main: stack}) for at, stack in looks]  # noqa: SLF001
    clock[0] = due_ns + 20_000_000
    sampler._sample(signal.SIGALRM, inspect.currentframe())  # noqa: SLF001
    ns = {stack: ns for (stack, _), (_, ns) in sampler._weights.items()}  # noqa: SLF001
    assert ns == {operator: MEAN_NS + 5_500_000, call: 14_500_000}  # half way between the looks


def test_a_wait_for_a_lock_is_of_its_line_and_not_of_the_next_call(sampler: Sampler):
    """The handler runs behind `id`; the lock is held until somebody has looked, and then the other thread waits."""
    lock, is_held, here = threading.Lock(), threading.Event(), inspect.currentframe().f_code  # type: ignore[union-attr]
    main, is_over = threading.get_ident(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            until = time.monotonic() + 30
            while time.monotonic() < until:
                looks = [dict(stacks[main]) for _, stacks in sampler._lookout.looks]  # noqa: SLF001
                if any(here in frames for frames in looks):
                    break
                time.sleep(0.001)
        is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    sampler.start()
    with lock:
        str(lock)
    sampler.stop()
    is_over.set()
    thread.join()
    of_others = [frame for stacks in sampler.threads._weights.values() for stack in stacks for frame in stack]  # noqa: SLF001
    assert "time.sleep" in [call_at(*frame) for frame in of_others]
    assert "lock.__enter__" in [each["call"] for each in sampler.stacks()]


# A program that closes all files and opens its own, which then have the numbers of those that were open.
CLOSES = """
import os, time
from advisor.recording.inside.clock import Lap
from advisor.recording.inside.sampling import Sampler
lap, sampler, until = Lap(), Sampler(), time.monotonic() + 30
sampler.start()
os.closerange(3, 1000)
pipes = [os.pipe() for _ in range(8)]
for _, end in pipes:
    os.write(end, b"of the program")
while sampler.samples < 5 and time.monotonic() < until:
    sum(range(1000))
sampler.stop()
lap.add()
lap.close()
print(sampler.samples, {os.read(begin, 99) for begin, _ in pipes})
"""


def test_files_of_a_program_that_has_closed_all_are_left_alone():
    done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, check=True)
    samples, held = done.stdout.split(maxsplit=1)
    assert int(samples) >= 5
    assert held.strip() == "{b'of the program'}"


def test_no_garbage_is_collected_and_nobody_else_asks_while_frames_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    """The end of a tensor would let another thread run, which would wait for the same lock."""
    asked, current = list[object](), sys._current_frames  # noqa: SLF001 - what it uses itself

    def frames() -> dict[int, FrameType]:
        asked.extend((gc.isenabled(), stacks_of_threads(5)))
        return current()

    monkeypatch.setattr(sys, "_current_frames", frames)
    stack = stacks_of_threads(2)[threading.get_ident()]
    assert [code.co_name for code, _ in stack] == ["frames", "stacks_of_threads"]
    assert (asked, gc.isenabled()) == ([False, {}], True)


@pytest.mark.parametrize("look", [lambda: stacks_of_threads(9), hook._is_importing])  # noqa: SLF001
def test_what_a_function_holds_is_destroyed_in_its_thread(look: Callable[[], object]):
    """Whoever holds a frame last destroys it: nobody here holds one while other threads run."""
    ends, is_over, interval = set[int](), threading.Event(), sys.getswitchinterval()

    class Held:
        def __del__(self) -> None:
            ends.add(threading.get_ident())

    def deep(left: int) -> object:
        held = Held()
        return (held, deep(left - 1)) if left else None

    def run() -> None:
        while not is_over.is_set():
            deep(20)

    thread = threading.Thread(target=run)
    thread.start()
    sys.setswitchinterval(1e-6)
    try:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            look()
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join()
    assert ends == {thread.ident}


def test_it_leaves_a_signal_that_the_program_uses(sampler: Sampler):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        assert not sampler.start()
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert sampler.lack == "signal"


@pytest.mark.parametrize(
    "use",
    [
        lambda: signal.alarm(0),
        lambda: signal.setitimer(signal.ITIMER_REAL, 0),
        lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL),
        lambda: signal.getsignal(signal.SIGALRM),
        lambda: os.execv("/no/such/program", ["x"]),  # noqa: S606 - there is none
    ],
)
def test_it_steps_aside_when_the_program_uses_the_signal_or_becomes_another(
    sampler: Sampler, use: Callable[[], object]
):
    assert sampler.start()
    signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
    assert sampler.is_on
    with contextlib.suppress(FileNotFoundError):
        use()
    assert not sampler.is_on


@pytest.mark.parametrize(("samples", "span_ms", "lacks_ms"), [(100, 2000, 8000), (5, 2000, 7425), (500, 2000, 0)])
def test_what_samples_still_take_is_at_their_pace_or_at_that_of_steps(samples: int, span_ms: int, lacks_ms: float):
    """400 of 20 ms; five are too few for a pace, so 495 of 10 ms, half as long again for waits for a CPU."""
    stacks = Stacks()
    stacks.sampler.samples, stacks.sampler.span_ns = samples, span_ms * 1_000_000
    assert stacks.lacking_ms(1.5) == lacks_ms


def test_another_thread_samples_nothing(sampler: Sampler):
    began: list[bool] = []
    thread = threading.Thread(target=lambda: began.append(sampler.start()))
    thread.start()
    thread.join()
    assert began == [False]


def test_other_threads_of_python_have_their_line_and_what_they_run(monkeypatch: pytest.MonkeyPatch):
    """A thread ran 6 of 10 ms, another 0.1 ms, which is next to nothing; the main thread ran 3 and waited for 2."""
    is_over, began = threading.Event(), threading.Barrier(3)
    others = [threading.Thread(target=lambda: (began.wait(), is_over.wait())) for _ in range(2)]
    for thread in others:
        thread.start()
    began.wait()
    until = time.monotonic() + 30
    while len(is_over._cond._waiters) < 2 and time.monotonic() < until:  # type: ignore[attr-defined]  # noqa: SLF001
        time.sleep(0.001)
    main = threading.main_thread().native_id
    ran = {main: Work(3, 2), others[0].native_id: Work(6, 0), others[1].native_id: Work(0, 9)}
    noted = [{thread: Work(10, 10) for thread in ran}, {at: Work(10 + of[0], 10 + of[1]) for at, of in ran.items()}]
    monkeypatch.setattr(threads, "thread_work", lambda: noted.pop(0))
    of = Threads()
    of.begin()
    stacks = stacks_of_threads(9)
    of.look({thread.ident or 0: stacks[thread.ident or 0] for thread in others}, 5)
    of.end()
    is_over.set()
    block = of.block(10)
    (thread,) = block.pop("others")
    assert (block["main"], block["batches"]) == ({"run_ns": 3, "wait_ns": 2}, [])
    (at,) = thread["stacks"]
    assert (thread["run_ns"], at["samples"], at["ns"]) == (6, 1, 5)
    assert (at["call"], at["below"]) == ("is_over.wait", ["threading.py: Event.wait", "threading.py: Condition.wait"])


def test_what_a_thread_of_tensorflow_makes_a_batch_of_is_a_stack_of_a_loader(tmp_path: Path):
    """TensorFlow calls a generator of a library, that a line of the program, and that a function of the program."""
    seen: list[Any] = []
    files = {
        "site-packages/tensorflow/python/ops/script_ops.py": "def call(): take()",
        "site-packages/keras/adapter.py": "def take(): item()",
        "data.py": "def item(): clean()\ndef clean(): look()",
    }
    scope = program(files, tmp_path, seen)
    thread = threading.Thread(target=scope["call"])  # TensorFlow's have no number: Python did not start them
    thread.start()
    thread.join()
    of = Threads()
    of.begin()
    for _ in range(2):
        of.look({0: seen[0]}, 5)
    of.end()
    block = of.block(10)
    (batch,) = block["batches"]
    assert (block["others"], batch["line"][-9:], batch["of_fetch"]) == ([], "data.py:2", 2)
    assert (batch["samples"], batch["ns"]) == (2, 10)


def test_a_thread_that_has_ended_has_its_line_and_what_it_ran_so_far(monkeypatch: pytest.MonkeyPatch):
    """It had run 7 ns when it was last looked at, in the eighth look."""
    is_over, began = threading.Event(), threading.Event()

    def load() -> None:
        began.set()
        is_over.wait()

    thread = threading.Thread(target=load)
    thread.start()
    began.wait()
    monkeypatch.setattr(threads, "thread_work", dict)
    ran = {str(thread.native_id): Work(7, 0)}
    monkeypatch.setattr(threads, "_of_thread", lambda path: ran.get(path.rpartition("/")[2]))
    of = Threads()
    of.begin()
    for _ in range(8):
        of.look(stacks_of_threads(9), 1)
    is_over.set()
    thread.join()
    of.end()
    (ended,) = of.block(10)["others"]
    assert (ended["run_ns"], ended["stacks"][0]["function"][-4:]) == (7, "load")


def test_workers_sample_while_their_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Parent and worker are one process here: its number is made to be its parent's."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    fetched: list[int] = []
    fetcher, other = (type("Fetcher", (), {"fetch": lambda _, index: fetched.append(index)}) for _ in range(2))
    fetch = SimpleNamespace(_MapDatasetFetcher=fetcher, _IterableDatasetFetcher=other)
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.fetch", fetch)  # type: ignore[arg-type]
    iterator = type("Iterator", (), {"__next__": lambda _: 1})
    loader = SimpleNamespace(_BaseDataLoaderIter=iterator)
    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", loader)  # type: ignore[arg-type]
    data = SimpleNamespace(get_worker_info=lambda: 1)
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)  # type: ignore[arg-type]
    watch_loaders(str(tmp_path))
    get: Any = fetcher()
    parent = Stacks(str(tmp_path))
    get.fetch(1)
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(parent.sampler, "start", lambda: True)
    parent.resume()
    get.fetch(2)
    parent.pause()
    get.fetch(3)
    assert fetched == [1, 2, 3]
    block = parent.block()
    assert block is not None
    assert [set(worker) for worker in block["workers"]] == [{"samples", "stacks", "loading"}]
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_collections_are_marked_by_who_asks_for_them():
    marks: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            marks.append(self.name)

        def __exit__(self, *_: object) -> None:
            marks.append("end")

    profiler = Profiler()
    profiler.range = Range  # type: ignore[method-assign, assignment]
    collections = Collections(profiler)
    collections.begin()
    gc.collect()
    gc.collect(0)
    collections.end()
    gc.collect()
    assert marks == ["gc.collect", "end"]
    collections.begin()
    gc.callbacks[-1]("start", {"generation": 2})
    collections.end()
    assert marks[2:] == ["Python GC"]


PHASES = """
import json, os, sys, tempfile, time, zlib
from advisor.recording.inside.sampling import Sampler
def python():
    total = 0
    for i in range(60_000): total += i * i
def frees(): zlib.compress(DATA, 6)
def holds(): json.dumps(LIST)
def writes():
    FILE.seek(0); FILE.write(DATA * 3); FILE.flush()
DATA, LIST, FILE = os.urandom(200_000), list(range(60_000)), tempfile.TemporaryFile()
def run():
    sampler, phases = Sampler(), (python, frees, holds, writes)
    took = dict.fromkeys((phase.__name__ for phase in phases), 0)
    sampler.start()
    until = time.monotonic() + 12
    while time.monotonic() < until:
        for phase in phases:
            began = time.perf_counter_ns()
            phase()
            took[phase.__name__] += time.perf_counter_ns() - began
    sampler.stop()
    seen = {}
    for stack in sampler.stacks():
        seen[stack["function"]] = seen.get(stack["function"], 0) + stack["ns"]
    print(json.dumps([took, seen]), flush=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("where", ["run()", "os.waitpid(pid, 0) if (pid := os.fork()) else run()"])
def test_shares_of_four_phases_are_within_five_points(where: str, tmp_path: Path):
    import subprocess  # noqa: PLC0415 - of this test alone

    (tmp_path / "phases.py").write_text(PHASES + where)
    ran = subprocess.run([sys.executable, tmp_path / "phases.py"], capture_output=True, text=True, check=True)
    took, seen = json.loads(ran.stdout)
    total, sampled = sum(took.values()), sum(seen.values())
    for phase, ns in took.items():
        assert abs(ns / total - seen.get(phase, 0) / sampled) < 0.05, (phase, took, seen)


def test_where_the_program_recurses_to_the_limit_no_sample_ends_it(sampler: Sampler, monkeypatch: pytest.MonkeyPatch):
    def visit(*_: object) -> None:
        raise RecursionError

    sampler.visit = visit
    sampler.start()
    monkeypatch.setattr(sampler, "_due_ns", 0)
    sampler._sample(0, None)  # noqa: SLF001 - as the signal's handler is called
    assert sampler.samples == 0


def test_an_instruction_that_no_line_stands_for_costs_no_recording(sampler: Sampler, monkeypatch: pytest.MonkeyPatch):
    """From Python 3.11 on `f_lineno` may be None."""
    code = described.__code__
    frame = SimpleNamespace(f_code=code, f_lasti=0, f_lineno=None, f_back=None)
    sampler.start()
    monkeypatch.setattr(sampler, "_due_ns", 0)
    sampler._sample(0, frame)  # noqa: SLF001 - as the signal's handler is called
    sampler.stop()
    assert sum(each["samples"] for each in sampler.stacks()) >= 1


def test_what_a_handler_meets_in_the_program_costs_a_sample_and_not_the_program(sampler: Sampler):
    calls = []

    def visit(*_: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError

    sampler.visit = visit
    assert sampler.start()
    until_s = time.monotonic() + 5
    while sampler.samples < 2 and time.monotonic() < until_s:
        pass
    assert len(calls) > sampler.samples >= 2


@pytest.mark.parametrize("name", ["signal", "setitimer", "alarm"])
def test_a_name_of_the_program_for_the_signals_functions_keeps_the_sampler_off(
    name: str, sampler: Sampler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """No wrapper stands behind `from signal import setitimer`: the timer would end the program's own calls."""
    module = ModuleType("of_the_program")
    monkeypatch.setitem(sys.modules, "of_the_program", module)
    module.__dict__.update(__file__=str(tmp_path / "train.py"), limit=getattr(signal, name))
    assert (sampler.start(), sampler.lack) == (False, "signal")
    module.__dict__.update(limit=signal.pause)
    assert sampler.start()


@pytest.mark.skipif(sys.platform != "linux", reason="only there is a handler in C looked at")
def test_a_handler_in_c_keeps_the_signal(sampler: Sampler, tmp_path: Path):
    with (tmp_path / "dump").open("w") as file:
        faulthandler.register(signal.SIGALRM, file)
        try:
            assert (sampler.start(), sampler.lack) == (False, "timer")
        finally:
            faulthandler.unregister(signal.SIGALRM)
    assert sampler.start()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows wants a socket")
def test_who_has_signals_written_into_a_file_does_not_get_the_samplers(sampler: Sampler):
    into, file = os.pipe()
    os.set_blocking(file, False)
    try:
        signal.set_wakeup_fd(file)
        assert (sampler.start(), sampler.lack) == (False, "signal")
        assert signal.set_wakeup_fd(-1) == file
        assert sampler.start()
        signal.set_wakeup_fd(file)
        assert not sampler.is_on
    finally:
        signal.set_wakeup_fd(-1)
        os.close(into)
        os.close(file)
