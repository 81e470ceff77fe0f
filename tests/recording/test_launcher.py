"""Commands run as without us, whatever they are; nothing of ours stays behind. No framework is needed here."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from shutil import copytree
from unittest.mock import Mock

import pytest

from advisor.cli.output import config_of
from advisor.config import Config
from advisor.errors import UsageError
from advisor.present.recorded_files import sentences, under_way
from advisor.recording import launcher
from advisor.recording.inside.hook import Hook
from advisor.recording.inside.notes import Notes, read
from advisor.recording.inside.phases import Phases
from advisor.recording.inside.profilers import Profiler
from advisor.recording.launcher import Options, Outcome, events, run
from tests.command import advisor
from tests.effort import every

FIXTURE = Path(__file__).parents[2] / "fixtures/simulated-input-bound-v100"


def record(tmp_path: Path, *command: str, **options: object) -> Outcome:
    return run([sys.executable, *command], tmp_path / "log", Options(**options))  # type: ignore[arg-type]


def words(outcome: Outcome, *command: str) -> str:
    return " ".join(sentences(command, outcome.events, "log", outcome.exit_code))


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("", 0)])
def test_the_exit_code_is_the_programs_own(tmp_path: Path, code: str, expected: int):
    outcome = record(tmp_path, "-c", code)
    assert outcome.exit_code == expected
    early = f"the program ended with exit code {expected} before it" if expected else "no process"
    assert f"{early} imported torch" in words(outcome)
    assert list((tmp_path / "log").iterdir()) == []


def test_a_signal_that_ends_the_program_is_told_as_shells_do(tmp_path: Path):
    outcome = record(tmp_path, "-c", "import os; os.kill(os.getpid(), 15)")
    assert outcome.exit_code == 128 + signal.SIGTERM


def test_without_a_current_folder_there_are_no_settings(monkeypatch: pytest.MonkeyPatch):
    """A program that is recorded may remove it."""
    monkeypatch.setattr(Path, "cwd", Mock(side_effect=FileNotFoundError))
    assert config_of(None) == Config()


def test_ctrl_c_is_the_programs_to_handle(tmp_path: Path):
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs in the background ignores it
        "try: os.kill(os.getppid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGINT)\n"
    )
    handler = signal.getsignal(signal.SIGINT)
    assert record(tmp_path, "-c", f"{code}except KeyboardInterrupt: raise SystemExit(7)").exit_code == 7
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_child_that_ends_late_for_another_thread_is_no_error(tmp_path: Path):
    """That thread takes the signal while we are about to take its handler away."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    record(tmp_path, "-c", "")
    assert callable(signal.getsignal(signal.SIGCHLD))


def test_a_program_inherits_nothing_that_is_for_our_own_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYDANTIC_DISABLE_PLUGINS", raising=False)
    code = "import os; assert 'PYDANTIC_DISABLE_PLUGINS' not in os.environ"
    done = advisor("record", "-o", "log", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_python_that_ignores_pythonpath_is_named_with_what_to_do(tmp_path: Path):
    outcome = record(tmp_path, "-I", "-c", "")
    assert outcome.events == ()
    assert "with `-I`; remove it" in words(outcome, "python", "-I")
    assert "call Python directly" in words(outcome, "wrapper.sh")


def test_a_log_folder_that_pythonpath_cannot_name_is_recorded_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As one that is named by the time."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    outcome = run([sys.executable, "-c", ""], tmp_path / "2026-11-29T20:08:00", Options())
    assert "no process imported torch" in words(outcome)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_foreign_sitecustomize_runs_and_the_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/sitecustomize.py").write_text("import sys; sys.theirs = __file__")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    code = (
        "import os, sys, sitecustomize; assert sys.theirs == sitecustomize.__file__;"
        "assert os.environ['PYTHONPATH'].split(os.pathsep)[1] in sys.theirs"
    )
    assert record(tmp_path, "-c", code).exit_code == 0


def test_a_hook_that_fails_lets_the_program_run(tmp_path: Path):
    (tmp_path / "torch.py").write_text("value = 1")  # lacks all that the hook needs
    outcome = record(
        tmp_path, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch; print(torch.value)"
    )
    assert outcome.exit_code == 0
    assert "advisor failed in the program, which ran on (AttributeError)" in words(outcome)


def test_a_command_that_cannot_start_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no-such-program: cannot be started: No such file"):
        run(["no-such-program"], tmp_path / "log", Options())
    assert list((tmp_path / "log").iterdir()) == []


def test_a_folder_with_a_recording_is_refused_before_anything_runs(tmp_path: Path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log/rank0.pt.trace.json.gz").touch()
    with pytest.raises(UsageError, match="holds a recording already"):
        record(tmp_path, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert not (tmp_path / "ran").exists()


def test_a_folder_with_a_recording_by_hand_is_refused_too(tmp_path: Path):
    folder = Path(__file__).parents[2] / "fixtures" / "jax-cpu-none"
    done = advisor(
        "record", "-o", folder, "--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')", cwd=tmp_path
    )
    assert (done.returncode, "holds a recording already" in done.stderr) == (2, True)
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        run([sys.executable], tmp_path / "file/log", Options())


def result(process: str, **facts: object) -> list[dict[str, object]]:
    framework = {"event": "framework", "process": process, "name": "torch"}
    marker = {"event": "marker", "process": process, "kind": "optimizer", "label": "Adam"}
    return [framework, marker, {"event": "result", "process": process, "steps": 50, "path": None, **facts}]


def test_of_several_nodes_each_says_where_its_files_are():
    block = {"unprofiled": {"before_ms": 12.0, "after_ms": None}, "profiled": {"step_ms": 14.0}}
    events = [
        event
        for rank in (0, 1)
        for event in result(f"h-{rank}", path=f"/n/log/rank{rank}.pt.trace.json.gz", world="4", block=block)
    ]
    said = " ".join(sentences(["python"], events, "log"))
    assert "2 of 4 ranks are here (rank0.pt.trace.json.gz and rank1.pt.trace.json.gz)" in said
    assert "median step, less its waits for other programs: 12 ms before the recording, 14 ms in it" in said
    assert "a step ends with a call of Adam.step" in said


def test_a_rank_that_ends_before_its_recording_is_written_is_none_of_another_node():
    """As one that the system kills; the launcher imports the framework, and ends no step."""
    lost = [{"event": "framework", "process": name, "name": "torch"} for name in ("h-1", "launcher")]
    lost.append({"event": "marker", "process": "h-1", "kind": "optimizer", "label": "Adam"})
    events = [*result("h-0", path="/n/log/rank0.pt.trace.json.gz", world="2"), *lost]
    said = " ".join(sentences(["torchrun"], events, "log"))
    assert "1 of 2 ranks are here (rank0.pt.trace.json.gz): 1 rank ended before the recording was written" in said
    assert "copy the files" not in said


@pytest.mark.parametrize("is_passive", [True, False])
def test_on_a_busy_machine_threads_that_hold_their_cores_are_told_not_to(*, is_passive: bool):
    block = {"unprofiled": {"before_ms": 12.0, "after_ms": None}, "profiled": {"step_ms": 14.0, "run_delay_ms": 9.0}}
    framework, *others = result("h", path="/log/a.pt.trace.json.gz", block=block)
    said = " ".join(sentences(["python"], [framework | {"is_passive": is_passive}, *others], "log"))
    assert "record on a quiet machine" in said
    assert ("OMP_WAIT_POLICY" in said) != is_passive


def test_a_page_that_cannot_be_written_takes_no_report_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def recorded(_: object, logdir: Path, *__: object) -> Outcome:
        copytree(FIXTURE, tmp_path / logdir)
        (tmp_path / logdir / "report.html").mkdir()  # in the place of the page
        return Outcome(5, ({"event": "result", "process": "a", "path": "x"},))

    monkeypatch.setattr(launcher, "run", recorded)
    done = advisor("record", "-o", "log", "--", "python", cwd=tmp_path)
    assert done.returncode == 5
    assert "num_workers" in done.stdout
    assert "advisor: no page: -o log/report.html: cannot be written: Is a directory\n" in done.stderr


@pytest.mark.parametrize(
    ("number", "says"), [(28, "disk of the log folder is full"), (27, "`ulimit -f unlimited`"), (24, "`ulimit -n")]
)
def test_a_full_disk_and_a_limit_of_files_are_named(number, says):
    events = [*result("a")[:2], {"event": "failed", "process": "a", "kind": "OSError", "number": number}]
    assert says in " ".join(sentences(["python"], events, "log"))


def test_what_nothing_can_be_noted_on_is_a_full_disk(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/room").symlink_to("/dev/full")
    assert "disk of the log folder is full" in sentences(["python"], launcher.last_events(tmp_path), "log")[0]
    (tmp_path / "notes/a.jsonl").write_text('{"event": "result", "pid": 1, "steps": 3}\n')
    assert [event["event"] for event in launcher.last_events(tmp_path)] == ["result"]


def test_a_program_that_may_open_no_more_files_is_told(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    notes, limits = Notes(str(tmp_path / "notes")), resource.getrlimit(resource.RLIMIT_NOFILE)
    notes.add("framework", name="torch")
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        notes.add("failed", number=errno.EMFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "allow more: `ulimit -n 4096`" in sentences(["python"], launcher.last_events(tmp_path), "log")[0]


def test_a_program_that_breaks_what_notes_are_written_with_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as broken:
        broken.setattr("json.dumps", None)
        broken.setattr("builtins.open", None)
        Notes(str(tmp_path)).add("failed", kind="TypeError")
    (event,) = read(str(next(tmp_path.iterdir())))
    assert event["kind"] == "TypeError"


def test_a_program_that_ends_too_early_is_told_with_what_to_give():
    assert "ended after 50 steps" in " ".join(sentences(["python"], result("a"), "log"))


@pytest.mark.parametrize(
    ("exit_code", "says"),
    [
        (0, "or the recorder could not write (an audit hook of it"),
        (1, "a signal or `os._exit` ended"),
        (137, "the signal SIGKILL ended"),
        (255, "a signal or"),
    ],
)
def test_a_program_that_ends_while_it_is_recorded_is_told_as_its_exit_code_shows(exit_code, says):
    assert says in sentences(["python"], result("a")[:2], "log", exit_code)[0]


def test_a_program_killed_amid_its_recording_says_what_that_takes():
    timed = {"event": "timed", "process": "a", "step_ms": 2_000.0, "steps": 24}
    says = sentences(["python"], [*result("a")[:2], timed], "log")
    assert "a step takes 2 s; recording it takes about 48 s more" in says[0]
    assert "`--active 3`" in says[0]
    assert under_way([*result("a")[:2], timed]) == [
        "a step ends with a call of Adam.step",
        "a step takes 2 s; recording it takes about 48 s more",
    ]
    assert under_way([*result("a")[:2], timed | {"step_ms": None}]) == ["a step ends with a call of Adam.step"]


def test_a_profile_that_was_written_before_the_program_was_killed_is_told_and_checked(tmp_path: Path):
    """JAX writes its profile before the steps behind it are timed."""
    jax = Path(__file__).parents[2] / "fixtures/jax-cpu-none"
    note = '{"event": "framework", "pid": 1, "name": "jax"}'
    place = "open(glob.glob('log/.adv*/notes')[0] + '/a.jsonl', 'w')"
    code = f"import glob, os, shutil\nwith {place} as notes: notes.write({note!r})\n"
    code += f"shutil.copytree({str(jax)!r}, 'log', dirs_exist_ok=True)\nos.kill(os.getpid(), 15)"
    done = advisor("record", "-o", "log", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGTERM
    ended = "the signal SIGTERM ended the program before times and lines were in it"
    assert f"advisor: 1 recording in log, but {ended}\n" in done.stderr
    assert "jax profile" in done.stdout


def test_what_the_program_notes_is_passed_on_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.recording.launcher._EVERY_S", 0.01)
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"
    monkeypatch.chdir(tmp_path)
    run([sys.executable, "-c", wait], tmp_path / "log", Options(), lambda _: (tmp_path / "go").touch())


@pytest.mark.parametrize(
    "put",
    [
        lambda place: place.mkdir(),
        os.mkfifo,
        lambda place: place.symlink_to("nowhere"),
        lambda place: place.symlink_to("/dev/zero"),
        lambda place: place.write_text('["event"]\n{"event": ["x"], "pid": 1}\n{"event": "x", "pid": "1"}\n\0'),
        lambda place: place.write_text("[" * 100_000),
    ],
)
def test_what_the_program_puts_among_its_notes_is_passed_over(tmp_path: Path, put: Callable[[Path], object]):
    Notes(str(tmp_path)).add("started")
    put(tmp_path / "a.jsonl")
    assert [event["event"] for path in tmp_path.iterdir() for event in read(str(path))] == ["started"]


@pytest.mark.parametrize(
    "note", every(3, ['{"event": "marker", "pid": 1}', "\\0" * 9, '{"event": "result", "pid": "a"}'])
)
@pytest.mark.parametrize("is_recorded", [False, True])
def test_damaged_notes_change_no_exit_code_and_spare_no_recording(tmp_path: Path, note: str, is_recorded: bool):  # noqa: FBT001
    """The recorder's own process wrote as it should; another one, or the disk, damaged what a rank noted."""
    copied = f"shutil.copytree({str(FIXTURE)!r}, 'log', dirs_exist_ok=True)" if is_recorded else "0"
    rank = f"open(glob.glob('log/.adv*/notes')[0] + '/a.jsonl', 'w').write('{note}')"
    code = f"import glob, shutil; {copied}; {rank}; raise SystemExit(5)"
    done = advisor("record", "-o", "log", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 5
    told = "advisor: the program, or what it starts, damaged the recorder's notes in log, which tell what became of"
    assert [line for line in done.stderr.splitlines() if line.startswith(told)] == done.stderr.splitlines()[:1]
    assert "report this" not in done.stderr
    assert ("num_workers" in done.stdout) == is_recorded


def test_of_any_number_of_notes_so_many_are_read(tmp_path: Path):
    note = '{"event": "x", "pid": 1}\n'
    (tmp_path / "notes").mkdir()
    for number in range(100):
        (tmp_path / "notes" / f"{number:03}.jsonl").write_text(note * 10_000)
    assert len(events(tmp_path)) * len(note) <= 1 << 24


def test_a_folder_that_the_program_removed_is_told(tmp_path: Path):
    nothing = events(tmp_path / ".advisor-x")
    assert sentences(["python"], nothing, "log") == [
        "nothing recorded: the program removed the log folder; give one with -o that it leaves alone"
    ]
    assert under_way(nothing) == []
    assert sentences(["python"], nothing, "log", is_there=True) == [
        "1 recording in log, but the program removed the log folder; give one with -o that it leaves alone"
    ]


@pytest.mark.parametrize("put", ["open(place, 'w')", "os.symlink(kept, place)", "os.symlink('nowhere', place)"])
def test_what_the_program_puts_in_place_of_our_folder_goes_and_what_it_leads_to_stays(tmp_path: Path, put: str):
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").touch()
    code = f"import os, shutil, sys; place, kept = sys.path[1], {str(kept)!r}; shutil.rmtree(place); {put}"
    record(tmp_path, "-c", code)
    assert [*(tmp_path / "log").iterdir()] == []
    assert [*kept.iterdir()] == [kept / "file"]


def test_a_program_that_goes_on_writing_into_our_folder_does_not_keep_it(tmp_path: Path):
    """It writes whenever the folder's end begins: what is removed first is there again before the rest is gone."""
    code = (
        "import os, sys, time\n"
        "place = sys.path[1]\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.close(1); os.close(2)\n"
        "    end = time.monotonic() + 20\n"
        "    while os.path.exists(place) and time.monotonic() < end:\n"
        "        try: [open(f'{place}/notes/{i}', 'w') for i in range(50)]\n"
        "        except OSError: pass\n"
        "else: time.sleep(0.2)\n"
    )
    record(tmp_path, "-c", code)
    assert [*(tmp_path / "log").iterdir()] == []


def test_a_note_that_cannot_be_written_is_no_error_of_the_program(tmp_path: Path):
    Notes(str(tmp_path / "nowhere")).add("started")
    assert not [*tmp_path.iterdir()]


def test_a_program_that_kills_its_group_leaves_nothing_of_ours(tmp_path: Path):
    code = "import os, signal; assert any(os.scandir('log')); os.killpg(0, signal.SIGKILL)"
    command = [sys.executable, "-m", "advisor", "record", "-o", "log", "--", sys.executable, "-c", code]
    assert subprocess.run(command, check=False, cwd=tmp_path, start_new_session=True).returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while any((tmp_path / "log").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "log").iterdir()) == []


def test_a_program_that_goes_on_in_the_background_is_told_and_finds_nothing_of_ours(tmp_path: Path):
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "open('left', 'w').write(str(os.listdir('log')))\n"
    )
    done = advisor("record", "-o", "log", "--", sys.executable, "-c", code, cwd=tmp_path)
    (tmp_path / "go").touch()
    assert done.returncode == 0
    assert done.stderr.startswith("advisor: nothing recorded: the program went on in the background; give a command")
    deadline = time.monotonic() + 20
    while not (tmp_path / "left").exists() or not (tmp_path / "left").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (tmp_path / "left").read_text() == "[]"


def test_a_program_killed_before_its_recording_is_told():
    assert "a signal or `os._exit`" in " ".join(sentences(["python"], result("a")[:1], "log", 1))


def test_a_loader_that_ends_without_a_word_is_no_killed_program():
    assert "ended after 50 steps" in " ".join(sentences(["python"], [*result("a"), *result("worker")[:1]], "log"))


def test_a_program_of_another_user_and_one_that_may_write_no_file_are_told(tmp_path: Path):
    assert "as another user, who cannot read" in " ".join(sentences(["setpriv", "python", "train.py"], [], "log"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.jsonl").touch()
    assert "`ulimit -f unlimited`" in " ".join(sentences(["python"], launcher.last_events(tmp_path), "log"))


def test_a_command_that_sets_the_path_anew_is_told_where_to_set_it():
    said = " ".join(sentences(["env", "PYTHONPATH=lib", "python", "train.py"], [], "log"))
    assert "`PYTHONPATH=... advisor record -- ...`" in said


@pytest.mark.parametrize("waited_ms", [2.0, 6.0])
def test_a_busy_machine_is_named(waited_ms: float):
    block = {
        "unprofiled": {"before_ms": 12.0, "after_ms": None},
        "profiled": {"step_ms": 20.0, "run_delay_ms": waited_ms},
    }
    said = " ".join(sentences(["python"], result("a", path="/log/a.pt.trace.json.gz", block=block), "log"))
    assert ("kept the CPU from it for 6 ms of each recorded step" in said) == (waited_ms > 4)


def test_processes_that_only_import_torch_are_no_ranks():
    idle = [
        {"event": "framework", "process": "agent"},
        {"event": "result", "process": "agent", "steps": 0, "path": None},
    ]
    assert "no step ended" in " ".join(sentences(["python"], idle, "log"))
    assert sentences(["python"], idle, "log", 1) == [
        "nothing recorded: the program ended with exit code 1 before a step ended"
    ]


def test_a_program_that_fails_after_a_few_steps_is_told_with_its_exit_code():
    assert "ended with exit code 2 after 50 steps" in sentences(["python"], result("a"), "log", 2)[0]


def test_deepspeeds_engine_counts_updates_and_not_micro_batches(tmp_path: Path):
    package = tmp_path / "deepspeed/runtime"
    package.mkdir(parents=True)
    (tmp_path / "deepspeed/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(
        "class DeepSpeedEngine:\n    global_steps = calls = 0\n"
        "    def step(self):\n        self.calls += 1\n        self.global_steps = self.calls // 4\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from deepspeed.runtime.engine import DeepSpeedEngine as E\n"
        "import advisor_inside.hook as h, gc\n"
        "hook = next(o for o in gc.get_objects() if isinstance(o, h.Hook))\n"
        "engine = E()\n[engine.step() for _ in range(20)]\n"
        "assert hook.marker.calls == 5 and hook.marker.kind == 'engine', hook.marker.calls\n"
    )
    assert record(tmp_path, "-c", code, skip=100).exit_code == 0


def test_the_hook_runs_on_an_old_python_and_imports_nothing_heavy(tmp_path: Path):
    heavy = {"asyncio", "ctypes", "gzip", "pathlib", "socket", "advisor"}
    code = f"import sys; heavy = {heavy} & set(sys.modules); assert not heavy, heavy"
    assert record(tmp_path, "-c", code).exit_code == 0


def test_a_forked_child_begins_anew(tmp_path: Path):
    code = (
        "import os, gc, advisor_inside.hook as h\n"
        "hook = next(o for o in gc.get_objects() if isinstance(o, h.Hook))\n"
        "hook.is_over = True\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(hook.is_over)\n"
        "raise SystemExit(os.waitpid(pid, 0)[1])\n"
    )
    assert record(tmp_path, "-c", code).exit_code == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [(InterruptedError(4, "x"), True), (RuntimeError("poll: Interrupted system call"), True), (ValueError("x"), False)],
)
def test_a_program_that_a_signal_interrupted_is_told_how_to_do_without(error, expected, monkeypatch):
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    hook = Hook({"skip": 1}, notes := Notes())
    hook.finish()
    told = sentences(["python"], [event | {"process": "a"} for event in notes.events], "log")
    assert ("record with `--no-samples`" in told[0]) == expected


def test_without_samples_no_signal_reaches_the_program():
    hook = Hook({"skip": 1, "active": 3, **asdict(Options(samples=False))}, Notes())
    phases = hook._phases(Profiler, "optimizer")  # noqa: SLF001 - what it does with the steps
    assert isinstance(phases, Phases)
    phases.stacks.resume()
    assert not phases.stacks.sampler.is_on
