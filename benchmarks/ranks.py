"""Compares reading the ranks of one job one by one, side by side, and with another tool, on 8 traces of 200 MB."""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kineto import BIN, CACHE, HERE, _long_trace, _machine, _measure, _peer_python, _print_long

RECORDED = HERE.parents[1] / "shared/traces/kineto/dlrm-8rank-v100"
FLOOR = "floor: one process"


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=RECORDED, help="folder with one short trace per rank")
    parser.add_argument("--megabytes", type=float, default=200.0, help="text of each rank's trace, decompressed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="install traceinsight and compare")
    options = parser.parse_args()
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


if __name__ == "__main__":
    main()
