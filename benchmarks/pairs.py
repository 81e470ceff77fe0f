"""What-if against the truth: a program is recorded at its slowest, and timed with loader and step made faster in turn.

Usage: pairs.py PYTHON [--rounds N] [--program paced_tensorflow] [--keep FOLDER] [--before COMMAND] LOAD_MS PRODUCTS
       WORKERS

Both are made 1, 2 and 4 times as fast, in 3 x 3 settings. From the one recording the step of all nine is told. The
settings run in turns; the truth is the median of their mean steps without a profiler.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import tempfile
from itertools import product
from pathlib import Path

from advisor.api import what_if
from advisor.errors import UsageError
from advisor.text import percent

ROOT = Path(__file__).parents[1]
PRODUCT_OF = {"paced": "mm", "paced_tensorflow": "MatMul", "paced_jax": "fusion"}  # what a program's product is called
SPEEDS = (1, 2, 4)
CLOSE = 0.1
IN_TURNS = """
import runpy, sys
_, script, *turns = sys.argv
for words in turns:
    sys.argv = [script, *words.split()]
    runpy.run_path(script, run_name="__main__")
"""


def main() -> None:
    """Print a row per setting, and how many are close."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("load_ms", type=float)
    parser.add_argument("products", type=int)
    parser.add_argument("workers", type=int)
    parser.add_argument("--program", choices=PRODUCT_OF, default="paced")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", help="a folder for the recording")
    parser.add_argument("--before", default="", help="of each process: 'chrt -r 10' beside programs that keep cores")
    given = parser.parse_args()
    settings = list(product(SPEEDS, SPEEDS))
    times: dict[tuple[int, int], list[float]] = {setting: [] for setting in settings}
    turns = [" ".join(_words(given, given.load_ms / load, given.products // step)) for load, step in settings]
    for _ in range(given.rounds):
        command = [*given.before.split(), given.python, "-c", IN_TURNS, _script(given), *turns]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        for setting, line in zip(settings, lines, strict=True):
            times[setting].append(float(line))
    with tempfile.TemporaryDirectory() as passing:
        folder = given.keep or passing
        recorder = [*given.before.split(), given.python, "-m", "advisor", "record", "--no-check", "-o", folder, "--"]
        program = [given.python, _script(given), *_words(given, given.load_ms, given.products)]
        subprocess.run([*recorder, *program], check=True, capture_output=True)
        rows = [(load, step, *_told(given, folder, load, step)) for load, step in settings]
    print("| loader | step | told, ms | truth, ms | its rounds, ms | off |\n| --- | --- | --- | --- | --- | --- |")
    close = 0
    for load, step, low_ms, high_ms in rows:
        truth_ms, told_ms = statistics.median(times[load, step]), (low_ms + high_ms) / 2
        off = told_ms / truth_ms - 1
        close += abs(off) <= CLOSE
        rounds = f"{min(times[load, step]):.1f}-{max(times[load, step]):.1f}"
        print(f"| {load}x | {step}x | {low_ms:.1f}-{high_ms:.1f} | {truth_ms:.1f} | {rounds} | {percent(abs(off))} |")
    print(f"{close} of {len(rows)} within {percent(CLOSE)}.")


def _script(given: argparse.Namespace) -> str:
    return str(ROOT / f"fixtures/make/plain/{given.program}.py")


def _words(given: argparse.Namespace, load_ms: float, products: int) -> list[str]:
    return [str(load_ms), str(products), str(given.workers)]


def _told(given: argparse.Namespace, folder: str, load: int, step: int) -> tuple[float, float]:
    """The step with both changes, between two ends."""
    changes = [f"input={load}x"] * (load > 1) + [f"kernels:{PRODUCT_OF[given.program]}={step}x"] * (step > 1)
    try:
        answer = what_if(folder, *changes)
    except UsageError:  # it is refused
        return (math.nan, math.nan)
    last = answer.stages[-1] if answer.stages else None
    return (last.low_ms, last.high_ms) if last else (answer.step_ms, answer.step_ms)


if __name__ == "__main__":
    main()
