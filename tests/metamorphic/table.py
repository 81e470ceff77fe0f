"""Verdicts of recordings that were changed without changing the job, against those of the recordings themselves."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import advisor
from advisor.analysis.device.selection import select_steps
from advisor.errors import AdvisorError
from advisor.inputs.readers import kineto
from advisor.metrics import measure
from advisor.model.report import Finding, Run
from advisor.rules.candidates import CERTAINTY
from advisor.rules.judge import judge
from advisor.summary import summarise
from tests.metamorphic.changes import KEPT, WITHHELD, Document
from tests.profiles import book

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/traces/kineto"
PAGE = ROOT / "docs/same-job.md"
CHANGES: Final = {**KEPT, **WITHHELD}
PEER: Final = 0.75
SYMPTOM: Final = "low-gpu-utilisation"  # names the loss and no cause


class Verdict(NamedTuple):
    """The first finding that is not small, or none; what else was found, and what could not be judged.

    `peers` are the findings that are worth about as much as the first: which of them leads is chance.
    """

    first: str
    peers: frozenset[str]
    findings: frozenset[str]
    unknown: frozenset[str]


def recordings() -> dict[str, Path]:
    """Every Kineto recording of one worker, by name: the fixtures, and the public ones where they are there."""
    folders = [*(ROOT / "fixtures").glob("*"), *(SHARED.glob("*") if SHARED.is_dir() else ())]
    files = {folder.name: sorted(folder.glob("*.json*")) for folder in folders}
    return {name: found[0] for name, found in sorted(files.items()) if len(found) == 1}


@cache
def document(name: str) -> Document:
    data = recordings()[name].read_bytes()
    read: Any = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return read if isinstance(read, dict) else {"traceEvents": read}


@cache
def original(name: str) -> Verdict:
    return verdict([document(name)])


def verdict(documents: list[Document]) -> Verdict:
    """What a check says of one file, or of a folder with several."""
    texts = [json.dumps(content).encode() for content in documents]
    return _of(_alone(texts[0]) if len(texts) == 1 else _together(texts))


def _alone(text: bytes) -> Run | None:
    try:
        profile = kineto.read(io.BytesIO(text), "worker0.pt.trace.json")
    except AdvisorError:
        return None
    measurements = measure(select_steps(profile))
    return summarise("job", "job", measurements, judge(measurements, book(), {}))


def _together(texts: list[bytes]) -> Run | None:
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(texts):
            (Path(folder) / f"worker0.{number}.pt.trace.json").write_bytes(text)
        try:
            return advisor.check([folder]).runs[0]
        except AdvisorError:
            return None


def _of(run: Run | None) -> Verdict:
    if run is None:
        return Verdict("unreadable", *[frozenset[str]()] * 3)
    weighty = [finding for finding in run.findings if finding.severity != "low"]
    worth = {f.rule: _worth(f) for f in weighty}
    peers = frozenset(rule for rule, ms in worth.items() if ms and ms >= PEER * worth[weighty[0].rule])
    every = {f.rule for f in run.findings} | {s.rule for f in run.findings for s in f.symptoms}
    nothing = "too little" if run.outcome.code == "too_little" else "nothing"
    unknown = frozenset(n.rule for n in run.not_evaluable)
    return Verdict(weighty[0].rule if weighty else nothing, peers, frozenset(every), unknown)


def _worth(finding: Finding) -> float:
    """The expected saving, by which findings are ordered; 0 where none is claimed."""
    saving = finding.saving
    return CERTAINTY[finding.confidence] * (saving.low_ms + saving.high_ms) / 2 if saving else 0.0


def outcome(name: str, change: str) -> str:
    """`kept`, `withheld`, `not applicable`, or what the verdict became."""
    changed = CHANGES[change](document(name))
    if changed is None:
        return "not applicable"
    before, after = original(name), verdict(changed if isinstance(changed, list) else [changed])
    if after.first in {before.first, *before.peers}:
        return "kept"
    silent = after.unknown - before.unknown or after.first in {"too little", "unreadable", SYMPTOM}
    weaker = after.first in before.findings | {"nothing", "too little", "unreadable", SYMPTOM}
    return "withheld" if silent and weaker else f"{before.first} became {after.first}"


HEAD: Final = """# The same job, recorded otherwise

A recording says something about a job, and something about how it was recorded. Only the first may decide the verdict.
These tests change a recording without changing the job, and compare the first finding that is not small.

- Under the changes of the first table the verdict must stay.
- The changes of the second table take something away. The verdict must stay, or be withheld with the reason.
- Steps are cut, and a file is split, only where four steps remain in each file. Each half is a run of its own.
- Two findings whose savings differ by less than a quarter may change places.

`make test` runs 24 cells, `make soak` all of them. `python -m tests.metamorphic.table` writes this page."""


def page(names: list[str]) -> str:
    """The page of the docs, over these recordings."""
    parts = [HEAD, f"Counted over {len(names)} recordings of PyTorch's profiler."]
    for title, changes in (("The verdict must stay", KEPT), ("Or be withheld", WITHHELD)):
        rows = ["| change | stays | withheld | another | does not apply |", "| --- | ---: | ---: | ---: | ---: |"]
        for change in changes:
            found = [outcome(name, change) for name in names]
            counts = [found.count(what) for what in ("kept", "withheld", "not applicable")]
            rows.append(f"| {change} | {counts[0]} | {counts[1]} | {len(found) - sum(counts)} | {counts[2]} |")
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(sys.argv[1:] or list(recordings())), "utf-8")
