"""The phases of a server's steps as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from advisor.model.finding import Finding, Value
from advisor.model.report import Run, number
from advisor.present import document as doc
from advisor.text import count, interval, ms, percent
from advisor.text import number as in_digits
from advisor.vocabulary.workloads import PHASES

if TYPE_CHECKING:  # a check does without what compares
    from advisor.model.comparison import Comparison, PhaseChange

_UNKNOWN: Final = "?"
_AMOUNTS: Final = {"steps": "steps", "requests": "requests per step", "tokens": "tokens per step"}
_SHARES: Final = {
    "idle_share": "device idle",
    "host_share": "because of the host",
    "launch_share": "launch calls",
    "communication_share": "communication",
}
_SHARES_COMPARED: Final = {name: words for name, words in _SHARES.items() if name != "host_share"}
_NONE: Final = "none"
_ARROW: Final = " \N{RIGHTWARDS ARROW} "
_HEADS: Final = ("phase", *_AMOUNTS.values(), "step time", *_SHARES.values(), "graph launches")
_MEANS: Final = (
    "All numbers except the count of steps are means per step. Launch calls are the host's time in calls that launch "
    "work. Communication is a share of the time in which the device works; the other shares are of the step."
)
_SPECULATION: Final = "Speculative decoding: drafts of tokens are checked."


def phases(run: Run) -> doc.Section | None:
    """Each phase with the means of its steps; None where the recording has no steps of a server."""
    rows = of_pace(run)
    if not rows:
        return None
    table = doc.Table(tuple(map(doc.Head, _HEADS)), tuple(doc.Row(_cells(row)) for row in rows))
    speculates = any(sign.code == "speculation" for sign in run.source.workload.signs)
    words = f"{_MEANS} {_SPECULATION}" if speculates else _MEANS
    return doc.Section("Phases of the server", (table, doc.Text(words, "quiet")), id="phases", level=doc.Level.BEHIND)


def of_pace(run: Run) -> list[Mapping[str, Value]]:
    """The rows of the worker that sets the pace."""
    return [row for row in run.metrics.get("phase", ()) if row["worker"] == run.source.steps.worker]


def in_brief(run: Run) -> tuple[str, ...]:
    """`1 prefill step of 15,360 tokens`, a phrase for each phase."""
    rows = [(row, round(number(row, "tokens"))) for row in of_pace(run)]
    steps = (count(int(number(row, "steps")), f"{PHASES.get(str(row['phase']), row['phase'])} step") for row, _ in rows)
    return tuple(f"{of} of {count(size, 'token')}" if size else of for of, (_, size) in zip(steps, rows, strict=True))


def per_step_of_phase(finding: Finding, run: Run) -> str:
    """`1.2-3 ms of each decode step of 12 ms`, of a finding about a phase, where the report counts in other steps."""
    row = next((row for row in of_pace(run) if row["phase"] == finding.phase), None)
    counted = max(1, run.source.steps.used)
    if row is None or finding.saving is None or row["steps"] == counted or finding.saving.high_ms <= 0:
        return ""
    each = counted / number(row, "steps")
    low, high = finding.saving.low_ms * each, finding.saving.high_ms * each
    return f"{interval(low, high)} of each {PHASES.get(str(finding.phase))} step of {ms(number(row, 'step_ms'))}"


def changes(comparison: Comparison) -> doc.Section | None:
    """Each phase on both sides; None where neither has steps of a server."""
    if not comparison.phases:
        return None
    heads = tuple(doc.Head(words) for words in ("phase", "steps", "step time", *_SHARES_COMPARED.values()))
    table = doc.Table(heads, tuple(doc.Row(_changed(phase)) for phase in comparison.phases))
    return doc.Section("Phases of the server", (table,), id="phases", level=doc.Level.BEHIND)


def _changed(phase: PhaseChange) -> tuple[doc.Cell, ...]:
    sides = (phase.base, phase.head)
    pairs = [
        [str(of.steps) if of else _NONE for of in sides],
        [ms(of.step_ms) if of else _NONE for of in sides],
        *([percent(getattr(of, name)) if of else _NONE for of in sides] for name in _SHARES_COMPARED),
    ]
    return tuple(doc.Cell(text) for text in (PHASES.get(phase.phase, phase.phase), *map(_ARROW.join, pairs)))


def _cells(row: Mapping[str, Value]) -> tuple[doc.Cell, ...]:
    amounts = [_written(row[name]) for name in _AMOUNTS]
    shares = [percent(v) if isinstance(v := row.get(name), float) else _UNKNOWN for name in _SHARES]
    phase = PHASES.get(str(row["phase"]), str(row["phase"]))
    texts = [phase, *amounts, ms(number(row, "step_ms")), *shares, _written(row["graph_launches"])]
    return tuple(doc.Cell(text) for text in texts)


def _written(value: Value) -> str:
    return in_digits(value) if isinstance(value, int | float) else _UNKNOWN
