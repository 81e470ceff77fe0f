"""Logs of the Flight Recorder and of NCCL's Inspector whose fields, pickles and bytes are changed at random."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.trees import changed, spoilt

_FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
_DUMPS: Final = [pickle.loads(path.read_bytes()) for path in sorted((_FIXTURES / "flight-recorder/pickle").iterdir())]  # noqa: S301 - ours
_LOGS: Final = [
    [json.loads(line) for line in path.read_text().splitlines()]
    for path in sorted((_FIXTURES / "nccl-inspector").glob("*.log"))
]


def case(random: Random, folder: Path) -> Path:
    """Writes the changed logs of a job: some ranks are whole."""
    logs = random.choice((_DUMPS, _LOGS))
    for rank, log in enumerate(logs):
        data, name = _written(log if random.random() < 0.3 else changed(log, random), rank, random)
        (folder / name).write_bytes(spoilt(data, random) if random.random() < 0.2 else data)
    return folder


def _written(log: Any, rank: int, random: Random) -> tuple[bytes, str]:
    if not isinstance(log, dict):
        return "\n".join(map(_text, log)).encode(), f"host0-pid{4000 + rank}.log"
    if random.random() < 0.5:
        return pickle.dumps(log, random.choice((2, 2, 4, 5))), f"nccl_trace_rank_{rank}"
    return _text(log).encode(), f"nccl_trace_rank_{rank}.json"


def _text(value: Any) -> str:
    return json.dumps(value, default=lambda data: data.decode("latin-1"))
