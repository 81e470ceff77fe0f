"""Tries the plain scripts of fixtures/make and writes what was claimed and what was measured: docs/truth.md.

Usage: truth.py PYTHON... (those that have torch or jax) [--budget SECONDS per script] [--only NAME] [--itself RUNS]

With `--itself` it only times two scripts against themselves so often: at most a tenth of the intervals may exclude 1.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.model.trials import Trial, Trials
from advisor.present.trials import claimed, result, saved, title
from advisor.text import ms, percent
from advisor.trials.measurement import Bench
from advisor.trials.processes import Program
from advisor.trials.session import Options, Session

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "fixtures/make/plain"
PAGE = ROOT / "docs/truth.md"


@dataclass(frozen=True)
class Job:
    """A script, what it needs, and patches to try besides the fixes of its findings."""

    name: str
    needs: str = "torch"
    patches: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


JOBS = (
    Job("loop_optimizer"),
    Job("slow_samples"),
    Job("tiny_ops", patches=("compile",)),
    Job("anomalies", patches=("debug-aids",)),
    Job("attention", patches=("autocast", "optimizer", "environment:OMP_NUM_THREADS=8")),
    Job("convolutions", patches=("channels_last",)),
    Job("missing_jit", needs="jax"),
    Job(
        "two_ranks",
        patches=("ddp:find_unused_parameters=false,broadcast_buffers=false,bucket_cap_mb=25",),
        words=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    ),
)


def main() -> None:
    """Try every script that a Python here can run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--itself", type=int, metavar="RUNS")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.itself:
        _against_itself(arguments.pythons[0], arguments.itself)
        return
    tried = {}
    for job in JOBS:
        python = next((python for python in arguments.pythons if _has(python, job.needs)), None)
        if python and (not arguments.only or job.name in arguments.only):
            tried[job.name] = _tried(job, python, arguments.budget)
            sys.stdout.write("\n".join(_rows(job.name, tried[job.name])) + "\n")
            sys.stdout.flush()
            PAGE.write_text(page(tried), "utf-8")


def _against_itself(python: str, runs: int) -> None:
    """How often an interval of nothing excludes 1, and how wide it is."""
    gains = []
    for number in range(runs):
        script = str(SCRIPTS / f"{('loop_optimizer', 'attention')[number % 2]}.py")
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Program([python, script], Path(folder)), 0.05, time.monotonic() + 120, lambda *_: None)
            gain = bench.itself()
        if gain:
            gains.append(gain)
            sys.stdout.write(f"{saved(gain)}, {gain.pairs} pairs, half-width {percent(gain.half_width)}\n")
            sys.stdout.flush()
    wrong = sum(not gain.low <= 1 <= gain.high for gain in gains)
    width = statistics.median(gain.half_width for gain in gains)
    sys.stdout.write(f"{wrong} of {len(gains)} intervals exclude 1; median half-width {percent(width)}\n")


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


def _tried(job: Job, python: str, budget_s: float) -> Trials:
    """The fixes of its findings, and the job's own patches, each with half of the time."""
    command = [python, *job.words, str(SCRIPTS / f"{job.name}.py")]
    sessions = [Session(command, Options(budget_s=budget_s)).run()]
    if job.patches:
        sessions.append(Session(command, Options(patches=job.patches, budget_s=budget_s)).run())
    trials = [trial for session in reversed(sessions) for trial in session.trials]
    known = {title(trial): trial for trial in sorted(trials, key=lambda trial: trial.gain is not None)}
    return sessions[-1].model_copy(update={"trials": tuple(known.values())})


def _rows(name: str, trials: Trials) -> Iterator[str]:
    for trial in trials.trials:
        cells = (
            name,
            title(trial),
            claimed(trial) or "nothing",
            saved(trial.gain) if trial.gain else "",
            _verdict(trial),
        )
        yield f"| {' | '.join(cells)} |"


def _verdict(trial: Trial) -> str:
    reasons = "; ".join(reason.words for reason in trial.reasons)
    return f"{result(trial)}{f': {reasons}' if reasons else ''}"


def _claims(tried: dict[str, Trials]) -> str:
    """How often what a finding claims and what a trial measured have anything in common."""
    both = [(t.claimed, t.gain) for trials in tried.values() for t in trials.trials if t.claimed and t.gain]
    met = sum(1 - gain.high <= claim.high_share and claim.low_share <= 1 - gain.low for claim, gain in both)
    return f"Claims that meet the measured interval: {met} of {len(both)}."


def page(tried: dict[str, Trials]) -> str:
    """The page: a row per patch, and how well the machine repeats itself."""
    today = dt.datetime.now(dt.UTC).date()
    rows = [row for name, trials in tried.items() for row in _rows(name, trials)]
    machine = [f"| {name} | {ms(t.step_ms)} | {saved(t.spread)} |" for name, t in tried.items()]
    return "\n".join(
        [
            "# Claimed and measured",
            "",
            f"`make truth` wrote this on {today} on {os.cpu_count()} shared cores ({platform.machine()}).",
            "Each script is in `fixtures/make/plain`. GPUs are untested: none was at hand.",
            "",
            "| script | patch | claimed | measured | result |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
            _claims(tried),
            "",
            "The same step against itself, on the same machine:",
            "",
            "| script | step | nothing switched |",
            "| --- | --- | --- |",
            *machine,
            "",
        ]
    )


if __name__ == "__main__":
    main()
