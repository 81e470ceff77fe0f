"""Checks files of each format that are changed at random, many in each of several processes of little memory.

    python -m tests.fuzz [--cases 5000] [--first 0] [--keep FOLDER] [--processes 2] [kineto nsys ...]

Saved reports, stores of a fleet and signals to a recorded program are targets too: they have a `check` of their own.

A case is its number: the same number gives the same file. Reported are tracebacks, those that were contained included,
processes that died, cases slower than 10 s + 10 s per MB, and those that took more than 1 GB; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

from advisor import engine
from advisor.config import Config
from advisor.errors import AdvisorError
from advisor.render.registry import Request, draw

TARGETS: Final = {
    "kineto": 2,
    "xplane": 1,
    "nsys": 2,
    "logs": 1,
    "scrub": 10,
    "reports": 2,
    "yaml": 1,
    "stores": 20,
    "signals": 50,
}
"""What is changed at random, and how many cases of a file one of its cases takes: so many fewer are run."""
_CASES_OF_A_PROCESS: Final = 250
_MOST_BYTES: Final = 1 << 30
_FRAME: Final = re.compile(r'File "[^"]*?/(advisor/[^"]+)", line (\d+), in (\w+)')


def main() -> int:
    """Runs what the command line asks for; the number of findings, at most 1."""
    options = _options()
    if options.child:
        return _child(options)
    found = 0
    for name in options.formats or TARGETS:
        began, end = time.monotonic(), options.first + max(1, options.cases // TARGETS[name])
        parts = range(options.first, end, _CASES_OF_A_PROCESS)
        with ThreadPoolExecutor(options.processes) as processes:
            run = partial(_run, name, keep=options.keep)
            told = processes.map(run, parts, [min(end, first + _CASES_OF_A_PROCESS) for first in parts])
            lines = [line for part in told for line in part]
        found += sum("fault" in line for line in lines)
        _show(name, range(options.first, end), lines, time.monotonic() - began)
    return min(found, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[*TARGETS, []])
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name: str, first: int, end: int, keep: Path | None) -> list[dict[str, Any]]:
    """What is said of these cases; a process that ends early is followed by one that goes on behind its last case."""
    lines: list[dict[str, Any]] = []
    while first < end:
        command = [sys.executable, "-m", "tests.fuzz", "--child", "--first", str(first), "--cases", str(end - first)]
        command += ["--keep", str(keep), name] if keep else [name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as child:
            assert child.stdout
            told = [json.loads(line) for line in child.stdout if line.startswith("{")]
        lines += (line for line in told if len(line) > 1)
        last = max((line["case"] for line in told), default=first)
        if child.returncode and not any(line["case"] == last and "fault" in line for line in told):
            lines.append({"case": last, "fault": f"the process died ({child.returncode})", "at": ""})
        first = end if not child.returncode else last + 1
    return lines


def _environment() -> dict[str, str]:
    return {**os.environ, "ADVISOR_DEBUG": "1", "POLARS_MAX_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def _show(name: str, cases: range, lines: list[dict[str, Any]], seconds: float) -> None:
    seeds = f"seeds {name}-{cases[0]} to {name}-{cases[-1]}"
    faults = [line for line in lines if "fault" in line]
    print(f"{name}: {len(cases):,} cases ({seeds}) in {seconds:,.0f} s, {len(faults):,} with a fault", flush=True)
    if most := [line for line in lines if "most_mb" in line]:
        mb, took = (max(line[key] for line in most) for key in ("most_mb", "most_s"))
        print(f"  at most {took:.1f} s of CPU for a case and {mb:,} MB of memory", flush=True)
    alike = defaultdict(list)
    for fault in faults:
        alike[fault["fault"].splitlines()[-1][:90], fault["at"]].append(fault["case"])
    for (what, at), numbers in sorted(alike.items(), key=lambda one: -len(one[1])):
        print(f"  {len(numbers):5} x {what} {at}; cases {', '.join(map(str, numbers[:5]))}", flush=True)


# ------------------------------------------------------------------------------------------ in a process of its own


def _child(options: argparse.Namespace) -> int:
    book = engine.rule_book(Config())
    engine.rule_book = lambda _: book  # a third of a small case's time
    (name,) = options.formats
    target, most = import_module(f"tests.fuzz.{name}"), 0.0
    for number in range(options.first, options.first + options.cases):
        with tempfile.TemporaryDirectory() as folder:
            path = target.case(Random(f"{name}-{number}"), Path(folder))
            _say(case=number)
            began = time.process_time()
            if (wrong := _fault(path, number, getattr(target, "check", _check))) and options.keep:
                _keep(path, options.keep / f"{name}-{number}")
            if wrong:
                _say(case=number, **wrong)
            most = max(most, time.process_time() - began)
    _say(case=number, most_s=most, most_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
    return 0


def _fault(path: Path, number: int, check: Callable[[Path], None]) -> dict[str, Any]:
    """What went wrong in the check of one file; empty where nothing did."""
    size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
    most, began = 10 + 10 * size / 1e6, time.process_time()
    done = threading.Event()
    threading.Thread(target=_watch, args=(done, number, 3 * most), daemon=True).start()
    said = checked(path, check)
    done.set()
    seconds = time.process_time() - began
    slow = {"fault": f"took {seconds:.0f} s for {size / 1e6:.2f} MB", "at": ""}
    return fault(said) or (slow if seconds > most else {})


def _check(path: Path) -> None:
    report = engine.check([str(path)])
    for kind in ("json", "markdown", "terminal"):
        draw(Request(report), kind)


def checked(path: Path, check: Callable[[Path], None] = _check) -> str:
    """What a check writes on standard error; the traceback where it fails."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            check(path)
        except AdvisorError:
            pass
        except BaseException:  # noqa: BLE001 - a panic of polars is no Exception
            traceback.print_exc()
    return said.getvalue()


def fault(said: str) -> dict[str, Any]:
    """The traceback in it, if there is one, and the innermost place of our own."""
    places = _FRAME.findall(said)
    wrong = places or "Traceback (most recent call last)" in said  # of a target's own check
    return {"fault": said.strip(), "at": ":".join(places[-1]) if places else ""} if wrong else {}


def _watch(done: threading.Event, number: int, seconds: float) -> None:
    """Ends the process when a case takes too much time or memory."""
    began = time.process_time()  # other processes take nothing from it
    while not done.wait(0.05):
        used = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        slow = time.process_time() - began > seconds
        if used > _MOST_BYTES or slow:
            _say(case=number, fault="no end in sight" if slow else f"took {used >> 20} MB of memory", at="")
            os._exit(9)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _keep(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(path, folder / path.name, dirs_exist_ok=True) if path.is_dir() else shutil.copy(path, folder)


if __name__ == "__main__":
    sys.exit(main())
