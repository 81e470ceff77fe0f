"""Compares the check of a TensorFlow profile of 100 MB with the overview page of XProf, whose reader is C++.

XProf is installed from PyPI into an environment of its own. Both are measured in turns, each in a process of its own.
"""

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path
from statistics import median

from kineto import BIN, CACHE, HERE, Cost, _machine, _mb, _measure, _peer_python

RECORDED = sorted((HERE.parents[1] / "shared/traces/xplane/tf-gpu-multi-worker").rglob("*.xplane.pb"))
FIXTURES = sorted((HERE.parent / "fixtures").glob("tensorflow-cpu-*/plugins/profile/run/*.xplane.pb"))
PEER = "xprof"
MOST_TIMES, MOST_MEMORY = 1.5, 0.5  # of the overview page's


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=next(iter(RECORDED or FIXTURES), None))
    parser.add_argument("--megabytes", type=float, default=100.0, help="size of the large profile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="nothing more here: XProf is always measured")
    options = parser.parse_args()
    if options.input is None:
        parser.error("no recorded profile in fixtures/: give one with --input")
    profile = _large_profile(options.input, int(options.megabytes * 1e6))
    commands = {
        "xprof, overview page": [_peer_python(PEER), str(HERE / "peers.py"), PEER, str(profile)],
        "reader": [sys.executable, str(HERE / "floor.py"), "xplane", str(profile)],
        "advisor check": [str(BIN / "advisor"), "check", str(profile), "-f", "json"],
    }
    size = _mb(profile.stat().st_size)
    print(f"\n{_machine()}\n\n{options.input.name} repeated: {size} MB; rounds: {options.rounds}\n", flush=True)
    _print(_measure(commands, options.rounds))


def _print(costs: dict[str, list[Cost]]) -> None:
    walls = {name: median(cost.wall_s for cost in runs) for name, runs in costs.items()}
    peaks = {name: max(cost.peak_mb for cost in runs) for name, runs in costs.items()}
    peer = next(iter(costs))
    print("| what | median s | least to most s | times XProf | CPU s | peak MB | times XProf |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, runs in costs.items():
        spread = f"{min(run.wall_s for run in runs):.2f} to {max(run.wall_s for run in runs):.2f}"
        times, memory = walls[name] / walls[peer], peaks[name] / peaks[peer]
        cpu = median(run.cpu_s for run in runs)
        print(f"| {name} | {walls[name]:.2f} | {spread} | {times:.2f} | {cpu:.2f} | {peaks[name]:.0f} | {memory:.2f} |")
    print(f"\nThe aim for `advisor check`: at most {MOST_TIMES} times the time and {MOST_MEMORY} times the memory.")


def _large_profile(short: Path, size_bytes: int) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    content = hashlib.sha256(short.read_bytes()).hexdigest()[:12]
    large = CACHE / f"{content}-{size_bytes}.xplane.pb"
    if not large.exists():  # made apart: a process counts its parent's memory at birth as its own peak
        make = "import sys, pathlib as p, enlarge_xplane as e; e.enlarge(*map(p.Path, sys.argv[1:3]), int(sys.argv[3]))"
        subprocess.run([sys.executable, "-c", make, short, large, str(size_bytes)], cwd=HERE, check=True)
    return large


if __name__ == "__main__":
    main()
