"""Compares reading the ranks of one job one by one, side by side, and with another tool, on 8 traces of 200 MB.

With --ranks it checks simulated jobs of so many ranks instead, and prints by which power of the ranks each part grows.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kineto import BIN, CACHE, HERE, _long_trace, _machine, _measure, _peer_python, _print_long

from advisor import __version__
from advisor.inputs.discover import discover
from advisor.metrics import conclude
from advisor.model.report import Report
from advisor.options import Options
from advisor.render.registry import Request, draw
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from advisor.rules.user_config import rule_book
from advisor.runs import files
from advisor.runs.summary import summarise

RECORDED = HERE.parents[1] / "shared/traces/kineto/dlrm-8rank-v100"
FLOOR = "floor: one process"
SIMULATE = HERE.parent / "fixtures/make/simulate.py"
PARTS = ("reading, CPU s", "all ranks together, CPU s", "report, CPU s", "memory, MB", "JSON, MB", "page, MB")


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=RECORDED, help="folder with one short trace per rank")
    parser.add_argument("--megabytes", type=float, default=200.0, help="text of each rank's trace, decompressed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="install traceinsight and compare")
    parser.add_argument("--ranks", help="sizes of simulated jobs to check instead, as 64,256,1024")
    parser.add_argument("--fault", default="large-slow-node", help="of those jobs")
    parser.add_argument("--steps", type=int, default=5, help="of those jobs")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_parts_of(options.one)))
        return
    if options.ranks:
        _growth([int(ranks) for ranks in options.ranks.split(",")], options.fault, options.steps)
        return
    short = sorted(options.input.glob("*.json.gz"))
    if not short:
        parser.error(f"no *.json.gz in {options.input}: give a folder of ranks with --input")
    folder = _long_traces(short, int(options.megabytes * 1e6))
    cores = os.cpu_count() or 1
    advisor = [str(BIN / "advisor"), "check", str(folder), "-f", "json", "--processes"]
    commands = {FLOOR: [*advisor, "1"], "advisor check": [*advisor, str(cores)]}
    if options.peers:
        commands["traceinsight"] = [_peer_python(), str(HERE / "peers.py"), "traceinsight", str(folder)]
    print(f"{_machine()}\n\n{len(short)} ranks of {options.megabytes:.0f} MB of text; rounds: {options.rounds}\n")
    _print_long(_measure(commands, options.rounds))


def _long_traces(short: list[Path], size_bytes: int) -> Path:
    """A folder with every rank's trace made long."""
    folder = CACHE / f"ranks-{len(short)}-{size_bytes}"
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for rank, long in enumerate(pool.map(lambda path: _long_trace(path, size_bytes), short)):
            link = folder / f"rank{rank}.pt.trace.json.gz"
            link.unlink(missing_ok=True)
            link.hardlink_to(long)
    return folder


def _growth(sizes: Sequence[int], fault: str, steps: int) -> None:
    """A row per size of job, each in a process of its own, and the exponents between the first and the last."""
    print(f"{_machine()}\n\n{fault}, {steps} steps\n\n| ranks | {' | '.join(PARTS)} |\n|{' ---: |' * (1 + len(PARTS))}")
    rows = []
    for ranks in sizes:
        folder = CACHE / f"{fault}-{ranks}-{steps}"
        if not folder.exists():
            made = [str(SIMULATE), "--fault", fault, "--ranks", str(ranks), "--steps", str(steps), "-o", str(folder)]
            subprocess.run([sys.executable, *made], check=True, stdout=subprocess.DEVNULL)
        run = subprocess.run([sys.executable, __file__, "--one", str(folder)], check=True, capture_output=True)
        rows.append([float(value) for value in json.loads(run.stdout)])
        print(f"| {ranks:,} | {' | '.join(f'{value:,.1f}' for value in rows[-1])} |", flush=True)
    if len(sizes) > 1:
        times = math.log(sizes[-1] / sizes[0])
        powers = [math.log(last / first) / times for first, last in zip(rows[0], rows[-1], strict=True)]
        print(f"| exponent | {' | '.join(f'{power:.2f}' for power in powers)} |")


def _parts_of(folder: Path) -> list[float]:
    """What each of `PARTS` takes for the job in a folder, whose ranks as many processes read as there are cores."""
    (recording,), _ = discover([str(folder)])
    book = rule_book(Options().config)
    read, _ = files.parts(recording, Options(processes=os.cpu_count() or 1), selected(book.values()))
    times = [_cpu_s()]
    measurements = conclude(read)
    times.append(_cpu_s())
    run = summarise(recording.name, recording.path, measurements, judge(measured_run(measurements), book, {}))
    report = Report(advisor_version=__version__, runs=(run,), unreadable=())
    drawn = [len(draw(Request(report), kind)) / 1e6 for kind in ("json", "html")]
    times.append(_cpu_s())
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return [times[0], times[1] - times[0], times[2] - times[1], memory_mb, *drawn]


def _cpu_s() -> float:
    """CPU time of this process so far, and of those that it waited for."""
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


if __name__ == "__main__":
    main()
