"""Programs that train with torch, recorded as they are: one start of Python each, and what it leaves."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.present.recorded_files import sentences
from advisor.recording.inside.torch_steps import uncounted, watch_root
from advisor.recording.launcher import Options, Outcome, run
from tests.command import advisor
from tests.torch_python import torch_python

LOOP = """
import sys, torch
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def steps(number):
    for _ in range(number):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
"""
STEPS = 2 + 3 + 2 + 3 + 2 + 3  # that a recording of three takes, two of them skipped


def test_each_call_of_the_first_module_ends_one_step_where_the_program_holds_on_to_its_call(
    monkeypatch: pytest.MonkeyPatch,
):
    """As `generate` of transformers, which takes `model.__call__` once and calls it for each token."""

    class Module:
        def __call__(self) -> None:
            pass

    steps = watched_root(Module, monkeypatch)
    model = Module()
    forward = model.__call__
    for _ in range(3):
        forward()
    model()
    assert steps == ["module"] * 4
    uncounted(model)()  # a loader's transform
    assert steps == ["module"] * 4


@pytest.mark.parametrize("calls", [0, 1])
def test_what_a_program_puts_around_all_modules_sees_those_of_the_first_ones_class(
    calls: int, monkeypatch: pytest.MonkeyPatch
):
    """As `symbolic_trace` of torch.fx, which notes the calls of all modules."""

    class Module:
        def __call__(self) -> str:
            return "called"

    class Linear(Module):
        pass

    steps = watched_root(Module, monkeypatch)
    model = Linear()
    for _ in range(calls):
        assert model() == "called"
    call = Module.__call__
    monkeypatch.setattr(Module, "__call__", lambda self: "noted, " + call(self))
    assert model() == "noted, called"
    assert model() == "noted, called"
    assert steps == ["module"] * (calls + 2)


def watched_root(module: type, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that calls of the first module end, from now on."""
    torch = SimpleNamespace(nn=SimpleNamespace(Module=module), compiler=SimpleNamespace(is_compiling=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    steps: list[str] = []
    watch_root(lambda kind, *_: steps.append(kind))
    return steps


def program(tmp_path: Path, rest: str, name: str = "train.py") -> Path:
    path = tmp_path / name
    path.write_text(LOOP + rest)
    return path


def record(tmp_path: Path, *command: object, **options: object) -> Outcome:
    words = [torch_python(), *map(str, command)]
    return run(words, tmp_path / "log", Options(skip=2, active=3, **options))  # type: ignore[arg-type]


def trace(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def steps_of(content: dict[str, Any]) -> list[str]:
    return [
        event["name"]
        for event in content["traceEvents"]
        if event.get("name", "").startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    ]


def test_a_script_is_recorded_checked_and_leaves_only_the_log_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = program(tmp_path, f"steps({STEPS + 5})\nprint('trained', sys.argv[1])\nsys.exit(5)\n")
    before = {*tmp_path.iterdir()}
    command = ["record", "-o", "log", "--skip", 2, "--active", 3, "--", torch_python(), script, "--lr"]
    done = advisor(*command, cwd=tmp_path)
    printed, errors = capfd.readouterr()
    assert done.returncode == 5
    assert (printed, errors) == ("trained --lr\n", "")
    assert "1 recording in log" in done.stderr
    assert "a step ends with a call of SGD.step" in done.stderr
    assert "before the recording" in done.stderr
    assert "log · pytorch profile (kineto)" in done.stdout
    assert {*tmp_path.iterdir()} - before == {tmp_path / "log"}
    assert {path.name for path in (tmp_path / "log").iterdir()} == {"train.pt.trace.json.gz", "report.html"}
    content = trace(tmp_path / "log/train.pt.trace.json.gz")
    assert steps_of(content) == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]  # of 0 to 6 two are skipped
    block = content["advisor"]
    assert (block["marker"], block["ended"]) == ("optimizer", "complete")
    assert block["unprofiled"]["before_ms"] > 0 < block["unprofiled"]["after_ms"]


@pytest.mark.soak  # each launch of torch takes seconds; a script is above
def test_a_program_saves_copies_and_compiles_its_objects_as_without_the_recorder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    script = program(
        tmp_path,
        f"""
import copy, io, pickle
steps({STEPS + 2})
kept = io.BytesIO()
torch.save(model, kept)
for each in (model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)):
    pickle.dumps(each)
    copy.deepcopy(each)
torch.jit.script(model)
print(len(model._forward_hooks), b"advisor" in kept.getvalue())
""",
    )
    assert record(tmp_path, script).exit_code == 0
    assert capfd.readouterr().out == "0 False\n"


@pytest.mark.soak  # without torch: codes and signals in test_launcher.py, a program that ends early in test_phases.py
def test_a_module_that_fails_keeps_its_code_its_traceback_and_the_recording_so_far(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    program(tmp_path, f"steps({STEPS - 7})\nraise ValueError('of theirs')\n", "job.py")
    monkeypatch.chdir(tmp_path)
    outcome = record(tmp_path, "-m", "job")
    errors = capfd.readouterr().err
    assert outcome.exit_code == 1
    assert re.search(r"^Traceback.*line 11, in <module>.*\nValueError: of theirs\n$", errors, re.DOTALL)
    content = trace(tmp_path / "log/job.pt.trace.json.gz")
    assert content["advisor"]["ended"] == "early"
    assert content["advisor"]["unprofiled"]["after_ms"] is None


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
TWICE = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as free: port = free.getsockname()[1]
job = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
both = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**job, "RANK": str(rank)}) for rank in (0, 1)]
sys.exit(max(one.wait() for one in both))
"""


@pytest.mark.soak  # each rank counts its steps by itself, as the one process above
@pytest.mark.parametrize("launcher", [("-c", TWICE), TORCHRUN], ids=["plain", "torchrun"])
def test_all_ranks_of_a_launcher_record_the_same_steps(tmp_path: Path, launcher: tuple[str, ...]):
    script = program(
        tmp_path,
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(model)\n"
        f"steps({STEPS})\ndist.destroy_process_group()\n",
    )
    outcome = record(tmp_path, *launcher, script)
    assert outcome.exit_code == 0
    traces = [trace(tmp_path / f"log/rank{rank}.pt.trace.json.gz") for rank in (0, 1)]
    assert [content["distributedInfo"]["rank"] for content in traces] == [0, 1]
    assert steps_of(traces[0]) == steps_of(traces[1]) != []
    assert sentences(["torchrun"], outcome.events, "log")[0] == "2 recordings in log"


@pytest.mark.soak  # as the last one of test_phases.py, with torch
def test_before_a_profiler_of_the_program_ours_stands_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = program(
        tmp_path,
        f"steps({STEPS - 7})\nwith torch.profiler.profile() as profile: steps(30)\n"
        "print(sum(event.key == 'Optimizer.step#SGD.step' and event.count for event in profile.key_averages()))\n",
    )
    outcome = record(tmp_path, script)
    assert (outcome.exit_code, capfd.readouterr().out) == (0, "30\n")
    assert list((tmp_path / "log").iterdir()) == []
    assert "the program uses a profiler itself" in " ".join(sentences(["python"], outcome.events, "log"))


@pytest.mark.soak  # as the last one
def test_a_profiler_that_is_switched_off_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    script = program(
        tmp_path,
        f"with torch.autograd.profiler.profile(False) as profile: steps({STEPS})\nprint('done')\n",
    )
    outcome = record(tmp_path, script)
    assert (outcome.exit_code, capfd.readouterr().out) == (0, "done\n")
    assert len([*(tmp_path / "log").iterdir()]) == 1


@pytest.mark.soak  # as the next one, by another marker
def test_inference_in_a_forked_process_stops_after_the_recording(tmp_path: Path):
    script = program(
        tmp_path,
        "import torch.multiprocessing as mp\n"
        "def work():\n    model.eval()\n    for _ in range(10**6): model(torch.randn(4, 16))\n"
        "child = mp.get_context('fork').Process(target=work)\nchild.start()\nchild.join()\nsys.exit(child.exitcode)\n",
    )
    outcome = record(tmp_path, script, stop=True)
    assert outcome.exit_code == 0
    assert trace(tmp_path / "log/train.pt.trace.json.gz")["advisor"]["marker"] == "module"


@pytest.mark.soak
def test_a_process_that_is_forked_while_the_profiler_runs_ends_as_without_it(tmp_path: Path):
    script = program(
        tmp_path,
        f"import os\nsteps(2 + 3 + 2 + 1)\nchild = os.fork()\nsteps({STEPS})\n"
        "raise SystemExit(os.waitpid(child, 0)[1] if child else 0)\n",
    )
    assert record(tmp_path, script).exit_code == 0


@pytest.mark.soak  # as the script above; only what begins and ends the recording differs
def test_a_program_without_steps_is_recorded_for_a_time(tmp_path: Path):
    script = program(tmp_path, "for _ in range(10**7): torch.randn(64, 64) @ torch.randn(64, 64)\n")
    outcome = record(tmp_path, script, seconds=0.5, stop=True)
    assert outcome.exit_code == 0
    content = trace(tmp_path / "log/train.pt.trace.json.gz")
    assert content["advisor"]["ended"] == "window"
    assert any(event.get("name") == "aten::mm" for event in content["traceEvents"])
