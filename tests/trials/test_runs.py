"""Programs that are tried as they are: one start of Python each."""

from __future__ import annotations

import ast
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import UsageError
from advisor.present.trials import headline
from advisor.recording.launcher import started
from advisor.recording.signals import interrupting
from advisor.secrets import masked_json
from advisor.trials import processes
from advisor.trials.ideas import Idea
from advisor.trials.measurement import Evidence, trial_of
from advisor.trials.processes import Ended, Events, Program, run
from advisor.trials.session import Options, Session
from advisor.trials.timings import account, blocks, ready
from tests.effort import every
from tests.torch_python import torch_python

REFUSALS = """
import torch
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __iter__(self): return iter(range(4))

next(iter(DataLoader(Stream())))
model = torch.nn.Linear(4, 4)
for _ in range(6400): model(torch.randn(4))
"""
LOOP = """
import torch
torch.manual_seed(3)
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(10)))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(10**6):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


NET = """
class Net(torch.nn.Sequential):
    def forward(self, x):
        assert not torch.compiler.is_compiling()
        return super().forward(x)
"""


def use(name: str, **arguments: object) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def tried(tmp_path: Path, text: str, *patches: dict[str, object], arm: str = "turns", number: int = 4) -> Ended:
    (tmp_path / "fit.py").write_text(text)
    config = {"patches": patches, "arm": arm, "blocks": number, "steps": 3, "skip": 3, "stop": True}
    program = Program([torch_python(), str(tmp_path / "fit.py")], tmp_path)
    return run(program, config, {"OMP_NUM_THREADS": "1"}, time.monotonic() + 60, lambda _: None)


def test_no_secret_of_the_last_line_is_told(tmp_path: Path):
    program = Program([sys.executable, "-c", f"raise SystemExit('bad token=hf_{'a1' * 17}')"], tmp_path)
    ended = run(program, {}, {}, time.monotonic() + 60, lambda _: None)
    assert ended.line == f"bad token={'x' * 37}"


def test_a_trial_that_is_killed_leaves_no_program_and_no_file(tmp_path: Path):
    """As the system does where memory is short."""
    (tmp_path / "temporary").mkdir()
    code = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "pathlib.Path('part').write_text(f'{os.getpid()} {child.pid}')\n"
        "os.rename('part', 'numbers')\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "advisor", "try", "--yes", "--", sys.executable, "-c", code]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as trial:
        wait_for((tmp_path / "numbers").exists)
        trial.kill()
    numbers = (tmp_path / "numbers").read_text().split()
    wait_for(lambda: not any((tmp_path / "temporary").iterdir()))
    wait_for(lambda: not any(map(is_running, numbers)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only what has the run's environment is known")
def test_a_helper_with_an_environment_and_a_session_of_its_own_is_ended_with_its_trial(tmp_path: Path):
    helper = "import os, time; os.fork() or os.setsid(); print(os.getpid(), flush=True); os.close(1); time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"helper = subprocess.Popen([sys.executable, '-c', {helper!r}], env={{}}, start_new_session=True, stdout=-1)\n"
        "print(helper.stdout.read().decode().split())\n"
    )
    ours = subprocess.Popen(["sleep", "600"])
    try:
        ended = run(Program([sys.executable, "-c", code], tmp_path), {}, {}, time.monotonic() + 60, lambda _: None)
        numbers = ast.literal_eval(ended.line)
        assert len(numbers) == 2
        assert not any(map(is_running, numbers))
        assert ours.poll() is None
    finally:
        ours.kill()
        ours.wait()


def test_a_signal_just_when_the_program_begins_ends_it_kindly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def begun_and_told(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        process = started(command, **options)
        wait_for((tmp_path / "begun").exists)
        signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(processes, "started", begun_and_told)
    code = "trap 'touch told; exit' TERM; touch begun; while :; do sleep 0.05; done"
    program = Program(["sh", "-c", code], tmp_path, tmp_path)
    with pytest.raises(KeyboardInterrupt) as interrupt, interrupting():
        run(program, {}, {}, time.monotonic() + 60, lambda _: None)
    assert interrupt.value.args == (signal.SIGTERM,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "told"]


def test_a_program_that_prints_without_end_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.trials.processes._MOST_PRINTED", 10_000)
    code = (
        "import os, sys, time\n"
        "output = sys.path[1] + '/output'\n"
        "print('more ' * 10_000, flush=True)\n"
        "while os.path.getsize(output) > 10_000: time.sleep(0.02)\n"
        "print('done')\n"
    )
    ended = run(Program([sys.executable, "-c", code], tmp_path), {}, {}, time.monotonic() + 60, lambda _: None)
    assert (ended.exit_code, ended.line) == (0, "done")


def is_running(number: str) -> bool:
    try:
        return bool(Path(f"/proc/{number}/cmdline").read_bytes())  # empty once it has ended
    except OSError:
        return False


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


MEDDLES = """
import json, os, sys, time
place = sys.path[1]
for event in json.loads(sys.argv[1]):
    with open(place + "/notes/x-1.jsonl", "a") as stream: stream.write(json.dumps(event | {"pid": 1}) + "\\n")
os.unlink(place + "/output")
os.symlink("/dev/zero", place + "/output")
os.mkdir(os.path.dirname(place) + "/limit")
if (child := os.fork()) == 0:
    os.setsid()
    time.sleep(60)
print(child)
"""


def test_what_a_program_does_to_the_folder_of_its_run_ends_nothing_and_nothing_is_left(tmp_path: Path):
    patch, hit = {"event": "patch", "name": "gc"}, {"hits": 1, "proof": {}}
    refused = [["as_it_is", {"patch": 1}], ["x", {"code": "y"}]]
    events = [
        {"event": "block"},
        *({"event": "block", "number": 0, "on": True, "step_ms": ms} for ms in (None, "c", 0, 1e-320, 1e308, math.nan)),
        *({"event": "ready", "seconds": 1, "digest": 1.0, "device": "cpu"} | odd for odd in ({}, {"hits": [1]})),
        *(patch, patch | hit | {"refusals": 3}, patch | hit | {"refusals": [["x", {"y": []}]]}),
        {"event": "failed", "number": "x"},
        patch | hit | {"refusals": refused},
    ]
    program = Program([sys.executable, "-c", MEDDLES, json.dumps(events)], tmp_path, tmp_path)
    ended = run(program, {}, {}, time.monotonic() + 60, lambda _: None)
    assert ended.exit_code == 0, ended.line
    assert [event["refusals"] for event in ended.events if event["pid"] == 1] == [refused]
    assert any(not _works(int(ended.line)) or time.sleep(0.01) for _ in range(500))
    trial = trial_of(Idea("gc", ()), Evidence("blocks", [], None, False, ended, ended), [], 1.0)
    assert [reason.code for reason in trial.reasons] == ["patch_as_it_is", "patch_x", "no_step_ended"]
    gone = Program(["python"], tmp_path, tmp_path / "gone")
    assert run(gone, {}, {}, time.monotonic() + 60, lambda _: None).why("no_step_ended").code == "folder_gone"
    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        run(program, {}, {}, time.monotonic() + 60, lambda _: None)


def test_notes_of_the_program_are_finite_and_without_secrets_and_halves_of_letters(tmp_path: Path):
    patch = {"event": "patch", "name": "gc", "hits": 1, "refusals": []}
    ready = {"event": "ready", "seconds": 1, "device": "cpu", "hits": {"gc": 1}}
    events = [
        *(patch | {"proof": {"n": number}} for number in (math.nan, math.inf)),
        *(ready | {"digest": number} for number in (math.nan, -math.inf)),
        patch | {"proof": {"token=kL9mN2pQ8r": "\ud800 password=kL9mN2pQ8r", "n": 2.5, "m": 1}},
    ]
    program = Program([sys.executable, "-c", MEDDLES, json.dumps(events)], tmp_path, tmp_path)
    (noted,) = (event for event in run(program, {}, {}, time.monotonic() + 60, lambda _: None).events if "pid" in event)
    assert noted["proof"] == {"token=xxxxxxxxxx": "? password=xxxxxxxxxx", "n": 2.5, "m": 1}


NOTES_MUCH = """
import json, sys
event = {"event": "ready", "seconds": 1.0, "digest": None, "device": "cpu", "pid": 1}
with open(sys.path[1] + "/notes/x-1.jsonl", "a") as stream:
    for number in range(300_000):
        stream.write(json.dumps(event | {"hits": {f"password=kL9mN2pQ{number}": 1}}) + "\\n")
"""


def test_any_number_of_notes_is_masked_once_and_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    masked = []
    monkeypatch.setattr(
        "advisor.trials.processes.masked_json", lambda text: masked.append(len(text)) or masked_json(text)
    )
    program = Program([sys.executable, "-c", NOTES_MUCH], tmp_path, tmp_path)
    ended = run(program, {}, {}, time.monotonic() + 60, lambda _: None)
    assert len(ended.events) > 5_000
    assert not any("kL9mN2pQ" in name for event in ended.events if "hits" in event for name in event["hits"])
    assert len(masked) == 1
    assert masked[0] < 1 << 21


def test_notes_that_take_long_to_read_are_read_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looks = []

    def slow(_: Path) -> Events:
        looks.append(time.sleep(0.2))
        return ()

    monkeypatch.setattr("advisor.trials.processes.events", slow)
    program = Program([sys.executable, "-c", "import time; time.sleep(1.5)"], tmp_path)
    run(program, {}, {}, time.monotonic() + 60, lambda _: None)
    assert len(looks) <= 3  # one every 2 s


def test_a_disk_that_fills_meanwhile_ends_nothing(tmp_path: Path):
    """What cannot be told to the program is left, and that it could note nothing is known."""
    (tmp_path / "limit.part").symlink_to("/dev/full")
    program = Program(
        [sys.executable, "-c", "import os, sys; os.symlink('/dev/full', sys.path[1] + '/notes/room')"], tmp_path
    )
    ended = run(program, {}, {}, time.monotonic() + 60, lambda _: 3)
    assert (ended.exit_code, ended.why("no_step_ended").code) == (0, "no_room")


def test_what_does_not_fit_is_left_and_the_reason_noted(tmp_path: Path):
    ended = tried(tmp_path, REFUSALS, use("dataloader", num_workers=1), use("optimizer"), use("checkpoints"))
    assert ended.exit_code == 0, ended.line
    found = account(ended.events)
    assert not found.is_applied
    assert {code: facts for code, (_, facts) in found.refusals.items()} == {
        "iterable_dataset": {"kind": "Stream"},
        "no_optimizer": {},
        "no_checkpoint": {},
    }


REMOVED = [("os.getcwd()", "no_step_recorded"), ("os.environ['PYTHONPATH'].split(os.pathsep)[0]", "folder_gone")]


@pytest.mark.parametrize(("what", "code"), every(2, REMOVED))
def test_a_program_may_remove_the_folder_that_it_runs_in_or_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, code: str
):
    (folder := tmp_path / "work").mkdir()
    monkeypatch.chdir(folder)
    text = f"import os, shutil; place = {what}; os.chdir('/'); shutil.rmtree(place)"
    trials = Session([sys.executable, "-c", text], Options()).run()
    assert (trials.trials, [note.code for note in trials.notes][-1]) == ((), code)


@pytest.mark.soak  # as the start above, with a patch that fits
def test_blocks_take_turns_and_nothing_is_left(tmp_path: Path):
    ended = tried(tmp_path, LOOP, use("optimizer", implementation="fused"))
    assert ended.exit_code == 0, ended.line
    assert [block.on for block in blocks(ended.events)] == [False, True, True, False]
    assert account(ended.events).hits == {"optimizer": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"fit.py"}
    assert not any(_runs(event["pid"]) for event in ended.events)


@pytest.mark.soak  # what a digest tells apart is in test_numbers.py
def test_a_seeded_program_repeats_itself(tmp_path: Path):
    ended = tried(tmp_path, LOOP, use("optimizer", implementation="fused"))
    digests = [known.digest for known in (ready(ended.events),) if known]
    plain = ready(tried(tmp_path, LOOP, arm="off", number=1).events)
    assert plain
    assert plain.digest == pytest.approx(digests[0], rel=1e-6)


def _works(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@pytest.mark.soak
def test_a_patch_that_cannot_be_compiled_is_not_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = LOOP.replace("model = torch.nn.Sequential(", f"{NET}model = Net(")
    (tmp_path / "fit.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = Options(patches=["compile"], within=0.3, budget_s=300)
    trials = Session([torch_python(), "fit.py"], options).run()
    (trial,) = trials.trials
    assert trial.result == "not_applied"
    assert trial.reasons[0].code == "patch_compile_failed"


@pytest.mark.soak
def test_a_session_finds_what_the_fused_optimizer_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "fit.py").write_text(LOOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    trials = Session([torch_python(), "fit.py"], Options(patches=["optimizer"], within=0.1, budget_s=300)).run()
    (trial,) = trials.trials
    assert (trial.result, trial.training) == ("faster", "rounding")
    assert trial.gain
    assert trial.gain.half_width <= 0.1
    assert headline(trials).startswith("optimizer (implementation=fused): ")


def test_a_program_that_shows_no_step_is_not_run_again_for_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch):
    runs = list[float]()

    def late(*_: object) -> Ended:
        runs.append(time.monotonic())
        return Ended(-9, (), "", 10.0, is_late=True)

    monkeypatch.setattr("advisor.trials.measurement.run", late)
    options = Options(patches=["gc"], budget_s=60.0)
    trials = Session(["python", "train.py"], options).run()
    assert len(runs) == 1
    assert "had to be killed" in str(trials.notes)
