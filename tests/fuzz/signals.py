"""Signals to a recorded program in any order: each arrives, the exit code is the program's, nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

_HANDLED = ("SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH", "SIGCONT", "SIGHUP", "SIGTSTP")
_PATIENCE_S = 60
_PROGRAM = """
import signal, sys, time
def told(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM: sys.exit(7)
for name in {names}: signal.signal(getattr(signal, name), told)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
_RECORD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it, and so would the program
from pathlib import Path
from advisor.recording.launcher import Options, run
sys.exit(run([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), Options()).exit_code)
"""


def case(random: Random, folder: Path) -> Path:
    """Writes a plan: what the program handles, and what it is sent; the last ends it."""
    handled = random.sample(_HANDLED, random.randint(0, len(_HANDLED)))
    harmless = [*handled, "SIGWINCH", "SIGCONT"]
    sent = [
        *random.choices(harmless, k=random.randint(0, 12)),
        random.choice(["SIGTERM", "SIGKILL", "SIGINT", "SIGINT to all"]),
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps({"handled": [*handled, "SIGTERM"], "sent": sent, "waits": random.random() < 0.5}))
    return path


def check(path: Path) -> None:
    """Runs the plan.

    Raises:
        AssertionError: a signal was lost or came twice, the exit code is another, or a folder is left.
    """
    plan = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", _RECORD, _PROGRAM.format(names=plan["handled"]), f"{folder}/log"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, process_group=0) as one:
            try:
                code, expected, said = _told(one, plan)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)
        assert (code, said) == expected, f"{plan}: {(code, said)}"
        assert not [*Path(folder, "log").iterdir()], f"{plan}: a folder is left"


def _told(one: subprocess.Popen[str], plan: dict[str, list[str]]) -> tuple[int, tuple[int, list[str]], list[str]]:
    """The exit code, what code and lines are expected, and the lines."""
    assert one.stdout
    one.stdout.readline()
    child = int(Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()[-1])  # the first one tidies up
    due, said = [], []
    *before, last = plan["sent"]
    for name in before:
        one.send_signal(getattr(signal, name))
        if name in plan["handled"]:
            due.append(name)
            said.append(one.stdout.readline().strip())  # signals of one kind that wait are one
    if last == "SIGTERM":
        one.send_signal(signal.SIGTERM)
        due.append(last)
    elif last == "SIGKILL":
        os.kill(child, signal.SIGKILL)
    else:
        (os.killpg if last == "SIGINT to all" else os.kill)(one.pid, signal.SIGINT)
    rest, _ = one.communicate(timeout=_PATIENCE_S)
    code = {"SIGTERM": 7, "SIGKILL": 128 + 9}.get(last, 128 + 2)
    return one.returncode, (code, due), said + rest.split()
