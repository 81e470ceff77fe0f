"""What `advisor record` costs a step outside the recorded phase: a loop of steps that do nothing, hooked and not.

    python benchmarks/record_cost.py [PYTHON]

Each figure is the least block of several processes in turns: what else runs only adds to it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from advisor.recording.launcher import Options, run

_ROUNDS: Final = 3
_NEVER: Final = 1_000_000_000
_PROGRAM: Final = """
import sys, time, torch

class Nothing(torch.optim.Optimizer):
    def step(self, closure=None):
        pass

optimizer = Nothing([torch.nn.Parameter(torch.ones(1))], {})
blocks = []
for _ in range(60):
    start = time.perf_counter_ns()
    for _ in range(1000):
        optimizer.step()
    blocks.append((time.perf_counter_ns() - start) / 1000)
open(sys.argv[1], "w").write(str(min(blocks)))
"""


def main() -> None:
    """Print the cost per step while steps are skipped, and once the recording is written."""
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_ROUNDS):
            for name, skip in (("alone", None), ("skipping", _NEVER), ("recorded", 10)):
                step_ns = _step_ns(python, Path(folder), f"{name}-{number}", skip)
                least[name] = min(step_ns, least.get(name, step_ns))
    for name in ("skipping", "recorded"):
        print(f"{name}: {(least[name] - least['alone']) / 1e3:.2f} us a step")


def _step_ns(python: str, folder: Path, name: str, skip: int | None) -> float:
    """The step of the quickest block of one process; hooked unless `skip` is None."""
    said = folder / f"{name}.txt"
    command = [python, "-c", _PROGRAM, str(said)]
    if skip is None:
        subprocess.run(command, check=True)
    else:
        run(command, folder / name, Options(skip=skip))
    return float(said.read_text("utf-8"))


if __name__ == "__main__":
    main()
