"""What is sent to the launcher is the program's to handle, which keeps its exit code; no folder of ours stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from advisor.errors import UsageError
from advisor.recording import launcher
from advisor.recording.launcher import Options, run
from advisor.recording.signals import holding, interrupting
from tests.effort import every

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
TOLD = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT", "SIGTSTP")
# Says each signal that it gets; ends with 7 as soon as one has come twice, or by `end`.
PROGRAM = """
import signal, sys, time
def told(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM: sys.exit(7)
for name in {names}: signal.signal(getattr(signal, name), told)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
# Ranks in sessions of their own, as torchrun's; the parent passes on what it is told, and ends with the rank's code.
PARENT = """
import signal, subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", {program!r}], start_new_session=True)
for name in {names}: signal.signal(getattr(signal, name), lambda number, _: rank.send_signal(number))
sys.exit(rank.wait())
"""
# As a terminal starts it: what `nohup` or a shell's `&` ignores is ignored in what they start.
BEGIN = """
import signal
for name in ("SIGHUP", "SIGINT", "SIGQUIT"): signal.signal(getattr(signal, name), signal.SIG_DFL)
"""
RECORD = """
import sys
from pathlib import Path
from advisor.recording.launcher import Options, run
sys.exit(run([sys.executable, "-c", sys.argv[1]], Path("log"), Options()).exit_code)
"""
# macOS has none of these.
ON_MACOS = "import os, signal; del signal.sigtimedwait, signal.sigwaitinfo, os.waitid" + RECORD
TRY = """
import sys, time
from pathlib import Path
from advisor.trials.processes import Program, run
Path("log").mkdir()
program = Program([sys.executable, "-c", sys.argv[1]], Path("log").resolve())
def told(_):
    for path in Path("log").glob(".advisor-*/output"):
        Path("told").write_bytes(path.read_bytes())
config = {"logdir": str(Path("log").resolve()), "skip": 10, "active": 10}
sys.exit(run(program, config, {}, time.monotonic() + 60, told).exit_code)
"""

TRIALS = """
import os, sys, tempfile
tempfile.tempdir = os.getcwd()
from advisor.cli import main
sys.argv[1:] = ["try", "--patch", "optimizer", "--", "sh", "-c", sys.argv[1]]
main()
"""


@contextmanager
def launched(folder: Path, script: str, program: str) -> Iterator[subprocess.Popen[str]]:
    """The script runs the program, in a process group of its own, as a shell starts it."""
    (folder / "log").exists() and shutil.rmtree(folder / "log")
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + script, program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as one:
        try:
            yield one
        finally:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def line(one: subprocess.Popen[str]) -> str:
    assert one.stdout
    return one.stdout.readline().strip()


@pytest.mark.parametrize(
    ("record", "parent"),
    [(RECORD, None), (RECORD, PARENT), (ON_MACOS, None)],
    ids=["alone", "parent and rank", "on macOS"],
)
def test_each_signal_reaches_the_program_once(tmp_path: Path, record: str, parent: str | None):
    program = PROGRAM.format(names=TOLD)
    with launched(tmp_path, record, parent.format(program=program, names=TOLD) if parent else program) as one:
        assert line(one) == "ready"
        for name in (*TOLD[1:], "SIGTERM"):
            one.send_signal(getattr(signal, name))
            assert line(one) == name
        rest, _ = one.communicate(timeout=PATIENCE_S)
        assert (one.returncode, rest) == (7, "")
    assert list((tmp_path / "log").iterdir()) == []


COUNTING = """
import signal, sys, time
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
print("ready", flush=True)
while not came: time.sleep(0.01)
time.sleep(1)
sys.exit(len(came))
"""


@pytest.mark.parametrize(
    ("record", "to_all"), every(3, [(RECORD, True), (RECORD, False), (ON_MACOS, True), (ON_MACOS, False)])
)
def test_sigint_comes_once_whether_it_is_sent_to_the_launcher_or_to_all(tmp_path: Path, record: str, *, to_all: bool):
    """After others, of which the witness must not end."""
    with launched(tmp_path, record, COUNTING.replace("came =", "signal.signal(signal.SIGTERM, print)\ncame =")) as one:
        assert line(one) == "ready"
        os.killpg(one.pid, signal.SIGTERM)
        assert line(one)
        (os.killpg if to_all else os.kill)(one.pid, signal.SIGINT)
        assert one.wait(PATIENCE_S) == 1
    assert list((tmp_path / "log").iterdir()) == []


def test_a_second_sigint_to_all_comes_once_too(tmp_path: Path):
    twice = COUNTING.replace("not came", "len(came) < 2").replace("came.append(1)", "print(came.append(1), flush=True)")
    with launched(tmp_path, RECORD, twice) as one:
        for _ in range(2):
            assert line(one)
            time.sleep(0.5)
            os.killpg(one.pid, signal.SIGINT)
        assert one.wait(PATIENCE_S) == 2


@pytest.mark.parametrize("name", every(3, ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]))
def test_a_signal_that_the_program_does_not_handle_ends_it(tmp_path: Path, name: str):
    with launched(tmp_path, RECORD, PROGRAM.format(names=())) as one:
        assert line(one) == "ready"
        one.send_signal(getattr(signal, name))
        assert one.wait(PATIENCE_S) == 128 + getattr(signal, name)
    assert list((tmp_path / "log").iterdir()) == []


@pytest.mark.parametrize(("record", "sent"), [(RECORD, "SIGTSTP"), (RECORD, "SIGSTOP"), (ON_MACOS, "SIGTSTP")])
def test_where_the_program_stops_the_launcher_stops_and_continues_with_it(tmp_path: Path, record: str, sent: str):
    with launched(tmp_path, record, PROGRAM.format(names=("SIGTERM",))) as one:
        assert line(one) == "ready"
        *_, program = children(one.pid)  # after what removes our folder
        os.kill(one.pid if sent == "SIGTSTP" else program, getattr(signal, sent))
        for pid in (program, one.pid):
            until(lambda pid=pid: state(pid) == "T")
        one.send_signal(signal.SIGCONT)
        until(lambda: state(program) != "T")
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE_S) == 7
    assert list((tmp_path / "log").iterdir()) == []


def test_where_all_are_stopped_and_continued_both_go_on_whichever_is_first(tmp_path: Path):
    """As a cluster's manager suspends a job."""
    with launched(tmp_path, RECORD, PROGRAM.format(names=("SIGTERM",))) as one:
        assert line(one) == "ready"
        *_, program = children(one.pid)
        for pid in (one.pid, program):
            os.kill(pid, signal.SIGSTOP)
            until(lambda pid=pid: state(pid) == "T")
        one.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        os.kill(program, signal.SIGCONT)
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE_S) == 7


def test_a_launcher_that_was_stopped_for_long_goes_on(tmp_path: Path):
    """As where the machine slept: longer than it waits for a signal."""
    record = "from advisor.recording import launcher; launcher._EVERY_S = 0.1" + RECORD
    with launched(tmp_path, record, PROGRAM.format(names=("SIGTERM",))) as one:
        assert line(one) == "ready"
        for _ in range(4):
            one.send_signal(signal.SIGSTOP)
            until(lambda: state(one.pid) == "T")
            time.sleep(0.15)
            one.send_signal(signal.SIGCONT)
            until(lambda: state(one.pid) != "T")
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE_S) == 7


def test_a_trial_passes_signals_on_and_stops_its_program(tmp_path: Path):
    told = tmp_path / "told"
    with launched(tmp_path, TRY, PROGRAM.format(names=("SIGUSR1", "SIGWINCH", "SIGTERM"))) as one:
        until(lambda: told.exists() and "ready" in told.read_text())
        (program,) = children(one.pid)
        for name in ("SIGUSR1", "SIGWINCH"):
            one.send_signal(getattr(signal, name))
            until(lambda name=name: name in told.read_text())
        one.send_signal(signal.SIGTSTP)
        for pid in (program, one.pid):
            until(lambda pid=pid: state(pid) == "T")
        one.send_signal(signal.SIGCONT)
        until(lambda: state(program) != "T")
        os.kill(program, signal.SIGTERM)
        assert one.wait(PATIENCE_S) == 7
    assert not list((tmp_path / "log").glob(".advisor-*"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_that_asks_to_end_says_its_number(name: str):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # a shell's `&` ignores two of them

    def interrupted() -> None:
        with interrupting():
            signal.raise_signal(signal.SIGUSR1)  # for a program, and none runs
            signal.raise_signal(number)

    try:
        with pytest.raises(KeyboardInterrupt) as interrupt:
            interrupted()
    finally:
        signal.signal(number, before)
    assert interrupt.value.args == (number,)


def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupting():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_shell_lets_its_background_ignore_the_program_ignores_too(tmp_path: Path):
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program = "import signal, sys; sys.exit(42 if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else 0)"
    with launched(tmp_path, ignoring + RECORD, program) as one:
        assert one.wait(60) == 42


def test_trials_end_with_the_signals_code_and_a_second_one_kills_the_program(tmp_path: Path):
    program = 'trap "touch told" TERM; echo $$ > pid; touch begun; while :; do sleep 0.05; done'
    with launched(tmp_path, TRIALS, program) as one:
        until((tmp_path / "begun").exists)
        one.send_signal(signal.SIGTERM)
        until((tmp_path / "told").exists)
        one.send_signal(signal.SIGTERM)
        assert one.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "pid", "told"]


def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launcher.shutil, "copyfile", full)
    with pytest.raises(UsageError, match=r"-o .*log: cannot be written: No space left on device; "):
        run([sys.executable, "-c", ""], tmp_path / "log", Options())
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_another_thread_takes_first_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    seen = iter(({signal.SIGCHLD}, set()))
    monkeypatch.setattr(signal, "sigpending", lambda: next(seen))
    with holding():
        pass
    assert list(seen) == [set()]  # none had come, so it was not asked again
