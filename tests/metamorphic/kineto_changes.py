"""Which ways to record keep a verdict on a recording of PyTorch's profiler as it is, and which may withhold it."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[2] / "fixtures" / "make"))

from simulator import styles
from simulator.styles import Document

from advisor.inputs.readers import kineto
from advisor.model.profile import Profile

KEPT: Final[dict[str, Callable[[Document], Document | None]]] = {
    "other numbers of threads and streams": styles.permuted_ids,
    "the device's clock 300 ms ahead": styles.clock_of_device(300_000),
    "the device's clock 300 ms behind": styles.clock_of_device(-300_000),
    "kernels in another namespace": styles.other_namespaces,
    "narrower marks": styles.marks(0.9),
    "wider marks": styles.marks(1.5),
    "an idle process beside": styles.idle_process,
    "10 s of start-up in front": styles.start_up_in_front,
    "5 s of teardown behind": styles.teardown_behind,
    "ranges on another thread": styles.ranges_beside,
    "layers called steps": styles.layers_within,
    "times x 0.95": styles.scaled(0.95),
    "times x 1.05": styles.scaled(1.05),
}
"""Changes under which a verdict stays what it is."""

WITHHELD: Final[dict[str, Callable[[Document], Document | list[Document] | None]]] = {
    "10 s of host work in front": styles.host_work_in_front,
    "no annotations": styles.without_annotations,
    "no shapes": styles.without_shapes,
    "no stacks": styles.without_stacks,
    "no sizes": styles.without_sizes,
    "cut steps": styles.cut_steps,
    "a file in two": styles.halves,
}
"""Changes that take something away: a verdict stays, or is withheld with the reason."""


def load(path: Path) -> Document:
    """The document in a file."""
    data = path.read_bytes()
    content: Any = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return content if isinstance(content, dict) else {"traceEvents": content}


def read(document: Document) -> Profile:
    """Its profile."""
    return kineto.read(io.BytesIO(json.dumps(document).encode()), "worker0.pt.trace.json")


def save(document: Document, folder: Path, number: int) -> None:
    """Write it as one of several files of a folder."""
    (folder / f"worker0.{number}.pt.trace.json").write_text(json.dumps(document), "utf-8")
