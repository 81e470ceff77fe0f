"""What the scripts of a comparison's page draw from: the table of work and the flame graph, as one JSON text."""

from __future__ import annotations

from typing import Final

from advisor.model.comparison import Amount, Comparison, WorkChange
from advisor.model.report import Value
from advisor.render.compared import words
from advisor.render.payload import embedded, table

_WORK: Final = (
    *("status", "work", "name", "size", "base_calls", "base_ms", "head_calls", "head_ms", "change_ms", "moved_ms"),
)
_FRAMES: Final = ("id", "parent", "name", "kind", "total_ms", "self_ms", "base_ms")


def payload(found: Comparison) -> str:
    """The data of the page; nothing in it can end the element it stands in or act as markup."""
    work = table(_WORK, [_work(change) for change in found.work]) if found.work else None
    frames = [
        (number, f.parent, f.name, f.kind, f.head_ms, f.head_self_ms, f.base_ms or None)
        for number, f in enumerate(found.frames)
    ]
    return embedded({"tables": {"work": work}, "flame": table(_FRAMES, frames) if frames else None})


def _work(change: WorkChange) -> tuple[Value, ...]:
    return (
        words.work_status(change),
        change.work,
        change.name,
        words.size(change) or None,
        *_amount(change.base),
        *_amount(change.head),
        change.change_ms,
        abs(change.change_ms),
    )


def _amount(of: Amount | None) -> tuple[Value, Value]:
    return (of.per_step, of.ms_per_step) if of else (None, None)
