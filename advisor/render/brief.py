"""A report or a comparison as JSON of at most 5 kB, for programs with little room."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any, Final

from advisor.model.brief import MOST_BYTES, Brief
from advisor.model.comparison import Comparison
from advisor.model.report import Report
from advisor.present.brief import Room, brief

_LEAST: Final = Room(runs=1, findings=1, details=2, text=24)
_MORE: Final = {
    "text": (700, 350, 200, 120, 70, 40),  # 700 bytes are the longest texts of the rules
    "runs": (8, 5, 3, 2),
    "findings": (8, 6, 5, 4, 3, 2),
    "details": (10, 8, 6, 5, 4, 3),
}
"""What room is given first; of each, how much of it to try."""

_NUMBERS: Final = frozenset({"evidence", "parts_ms"})
"""Fields that map names of the recording to numbers."""


def render(value: Report | Comparison, most: int = MOST_BYTES) -> str:
    """As much of the value as fits into so many bytes: texts first, then runs, findings, and what is behind them.

    One line, ASCII only. What is unknown or empty is left out.
    """
    return _json(fitting(value, most))


def fitting(value: Report | Comparison, most: int = MOST_BYTES) -> Brief:
    """The largest brief that takes at most so many bytes."""
    complete = brief(value, Room())
    if len(_json(complete)) <= most:
        return complete
    everything = complete.model_dump(exclude_defaults=True)
    room = _LEAST
    for kind, amounts in _MORE.items():
        larger = (replace(room, **{kind: amount}) for amount in amounts)
        room = next((more for more in larger if len(_json(_cut(value, more, everything))) <= most), room)
    return _cut(value, room, everything)


def _cut(value: Report | Comparison, room: Room, everything: Mapping[str, Any]) -> Brief:
    smaller = brief(value, room)
    left_out = Counter(_left_out(everything, smaller.model_dump(exclude_defaults=True)))
    return smaller.model_copy(update={"truncated": bool(left_out), "left_out": dict(left_out)})


def _left_out(complete: Any, smaller: Any, field: str = "") -> Iterator[str]:  # noqa: ANN401 - any part of a brief
    """The field of each entry that the complete brief has and the smaller one lacks, or of a text that it cuts."""
    if isinstance(complete, Mapping):
        for key, item in complete.items():
            if not key.startswith("more_"):  # what counts the missing is longer where more is missing
                yield from _left_out(item, (smaller or {}).get(key), field if field in _NUMBERS else key)
    elif isinstance(complete, tuple):
        yield from repeat(field, len(complete) - len(smaller or ()))
        for item, other in zip(complete, smaller or (), strict=False):
            yield from _left_out(item, other, field)
    elif complete != smaller:
        yield field


def _json(value: Brief) -> str:
    text = value.model_dump_json(ensure_ascii=True, exclude_defaults=True)
    return text.replace("\x7f", "\\u007f") + "\n"
