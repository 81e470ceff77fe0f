"""Compares the reader and the whole check with the floor, and with other tools, on a Kineto trace of 1 GB.

Each measurement is a process of its own; rounds interleave, so that a busy moment of the machine touches all alike.
"""

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir()) / "gpu-advisor-bench"
PEERS = ("traceinsight", "torch-tb-profiler")
FIXTURES = sorted((HERE.parent / "fixtures").glob("*/*.pt.trace.json.gz"))
RECORDED = sorted((HERE.parents[1] / "shared/traces/kineto/resnet50-v100-workers0").glob("*.pt.trace.json.gz"))
SMALL_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took; its peak memory is that of its largest process, where it starts others."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=max(RECORDED or FIXTURES, key=_text_bytes, default=None))
    parser.add_argument("--gigabytes", type=float, default=1.0, help="text of the long trace, decompressed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="install other tools and compare: minutes, 5 GB of memory")
    options = parser.parse_args()
    if options.input is None:
        parser.error("no recorded trace in fixtures/: give one with --input")
    trace = _long_trace(options.input, int(options.gigabytes * 1e9))
    print(f"{_machine()}\n\n{options.input.name} repeated: {_mb(_text_bytes(trace))} MB of text, ", end="")
    print(f"{_mb(trace.stat().st_size)} MB gzipped; rounds: {options.rounds}\n", flush=True)
    _print_long(_measure(_commands(trace, with_peers=options.peers), options.rounds))
    if FIXTURES:
        _print_short(min(FIXTURES, key=lambda path: abs(_text_bytes(path) - SMALL_BYTES)))


def _commands(trace: Path, *, with_peers: bool) -> dict[str, list[str]]:
    floor = [sys.executable, str(HERE / "floor.py")]
    commands = {
        "floor, whole document": [*floor, "whole", str(trace)],
        "floor, in chunks": [*floor, "chunks", str(trace)],
        "reader": [*floor, "reader", str(trace)],
        "advisor check": [str(BIN / "advisor"), "check", str(trace), "-f", "json"],
    }
    if with_peers:
        python = _peer_python()
        commands |= {name: [python, str(HERE / "peers.py"), name, str(trace)] for name in PEERS}
    return commands


def _measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(_run(command))
            print(f"{name}: {costs[name][-1].wall_s:.2f} s", file=sys.stderr)
    return costs


def _run(command: list[str]) -> Cost:
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{said.read().decode(errors='replace')}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def _print_long(costs: dict[str, list[Cost]]) -> None:
    walls = {name: median(cost.wall_s for cost in runs) for name, runs in costs.items()}
    floor_s = min(wall for name, wall in walls.items() if name.startswith("floor"))
    print("| what | median s | least to most s | CPU s | times the floor | times the check | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, runs in costs.items():
        spread = f"{min(run.wall_s for run in runs):.2f} to {max(run.wall_s for run in runs):.2f}"
        cpu = f"{median(run.cpu_s for run in runs):.2f}"
        ratios = f"{walls[name] / floor_s:.2f} | {walls[name] / walls['advisor check']:.2f}"
        print(f"| {name} | {walls[name]:.2f} | {spread} | {cpu} | {ratios} | {max(run.peak_mb for run in runs):.0f} |")


def _print_short(trace: Path, rounds: int = 9) -> None:
    advisor = str(BIN / "advisor")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "advisor --help": [advisor, "--help"],
        f"advisor check, {_text_bytes(trace) / 1e6:.1f} MB of text": [advisor, "check", str(trace)],
    }
    print("\n| what | median s | peak MB |\n| --- | ---: | ---: |")
    for name, runs in _measure(commands, rounds).items():
        print(f"| {name} | {median(run.wall_s for run in runs):.3f} | {max(run.peak_mb for run in runs):.0f} |")


def _long_trace(short: Path, size_bytes: int) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    content = hashlib.sha256(short.read_bytes()).hexdigest()[:12]
    long = CACHE / f"{content}-{size_bytes}.pt.trace.json.gz"
    if not long.exists():  # made apart: a process counts its parent's memory at birth as its own peak
        make = "import sys, pathlib, enlarge as e; e.enlarge(*map(pathlib.Path, sys.argv[1:3]), int(sys.argv[3]))"
        subprocess.run([sys.executable, "-c", make, short, long, str(size_bytes)], cwd=HERE, check=True)
    return long


def _peer_python(*packages: str) -> str:
    """The Python of an environment that has these packages; those for Kineto traces by default."""
    packages = packages or PEERS
    home = CACHE / ("peers" if packages == PEERS else "-".join(packages))
    python = home / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return str(python)


def _text_bytes(trace: Path) -> int:
    """Length of the text in a gzip file of one member below 4 GB, from its last four bytes (RFC 1952)."""
    with trace.open("rb") as stream:
        stream.seek(-4, os.SEEK_END)
        return int.from_bytes(stream.read(), "little")


def _machine() -> str:
    models = {line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")}
    packages = ", ".join(f"{name} {version(name)}" for name in ("gpu-advisor", "polars", "msgspec", "isal"))
    model = " / ".join(sorted(models)) or platform.processor()
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, {packages}"


def _cpu_lines() -> list[str]:
    told = Path("/proc/cpuinfo")
    return told.read_text().splitlines() if told.exists() else []


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f}"


if __name__ == "__main__":
    main()
