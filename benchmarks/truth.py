"""Tries the plain scripts of fixtures/make and writes what was claimed and what was measured: docs/truth.md.

Usage: truth.py PYTHON... (those that have torch or jax) [--budget SECONDS per script] [--only NAME]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.model.trials import Trial, Trials
from advisor.present.trials import claimed, result, saved, title
from advisor.text import ms
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
    Job("missing_jit", needs="jax", patches=("jax-jit",)),
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
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tried = {}
    for job in JOBS:
        python = next((python for python in arguments.pythons if _has(python, job.needs)), None)
        if python and (not arguments.only or job.name in arguments.only):
            tried[job.name] = _tried(job, python, arguments.budget)
            sys.stdout.write("\n".join(_rows(job.name, tried[job.name])) + "\n")
            sys.stdout.flush()
    PAGE.write_text(page(tried), "utf-8")


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], check=False, capture_output=True).returncode == 0


def _tried(job: Job, python: str, budget_s: float) -> Trials:
    """The fixes of its findings, and the job's own patches, each with half of the time."""
    command = [python, *job.words, str(SCRIPTS / f"{job.name}.py")]
    sessions = [Session(command, Options(budget_s=budget_s)).run()]
    if job.patches:
        sessions.append(Session(command, Options(patches=job.patches, budget_s=budget_s)).run())
    known = {title(trial): trial for session in reversed(sessions) for trial in session.trials}
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
