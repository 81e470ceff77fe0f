"""The phases of a serving engine as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from advisor.model.report import Run, Value
from advisor.present import document as doc
from advisor.text import ms, number, percent

_UNKNOWN: Final = "?"
_HEADS: Final = ("phase", "steps", "requests", "tokens", "step", "idle", "launch calls", "communication", "graphs")


def phases(run: Run) -> doc.Section | None:
    """Each phase with the means of its steps; None where the recording has no steps of an engine."""
    worker = run.source.steps.worker
    rows = [row for row in run.metrics.get("phase", ()) if row["worker"] == worker]
    if not rows:
        return None
    heads = tuple(doc.Head(words) for words in _HEADS)
    table = doc.Table(heads, tuple(doc.Row(_cells(row)) for row in rows))
    return doc.Section("Phases of the engine", (table,), id="phases")


def _cells(row: Mapping[str, Value]) -> tuple[doc.Cell, ...]:
    amounts = [_written(row[name]) for name in ("steps", "requests", "tokens")]
    shares = [_share(row[name]) for name in ("idle_share", "launch_share", "communication_share")]
    texts = [str(row["phase"]), *amounts, ms(_float(row["step_ms"])), *shares, _written(row["graph_launches"])]
    return tuple(doc.Cell(text) for text in texts)


def _written(value: Value) -> str:
    return number(value) if isinstance(value, int | float) else _UNKNOWN


def _share(value: Value) -> str:
    return percent(value) if isinstance(value, float) else _UNKNOWN


def _float(value: Value) -> float:
    return value if isinstance(value, float) else 0.0
