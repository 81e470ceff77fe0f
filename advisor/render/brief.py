"""A report or a comparison as JSON of at most 5 kB, for programs with little room."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from advisor.model.brief import MOST_BYTES, Brief
from advisor.model.comparison import Comparison
from advisor.model.report import Report
from advisor.present.brief import brief
from advisor.text import one_line, shortened

_EVERYTHING: Final = 1 << 30
_SIGNIFICANT: Final = 4
_DECIMALS: Final = 4


@dataclass(frozen=True, slots=True)
class Room:
    """How much a brief may hold: of each kind of thing so many, and texts of so many bytes of JSON."""

    runs: int = _EVERYTHING
    findings: int = _EVERYTHING
    details: int = _EVERYTHING
    text: int = _EVERYTHING

    def short(self, text: str) -> str:
        """The text on one line, cut where it takes more bytes."""
        line = one_line(text, self.text)
        while (excess := _bytes(line) - self.text) > 0:
            line = shortened(line, max(1, len(line) - 1 - excess // 12))  # no character takes more than twelve
        return line


_LEAST: Final = Room(runs=1, findings=1, details=2, text=24)
_MORE: Final = {
    "text": (700, 350, 200, 120, 70, 40),  # 700 bytes are the longest texts of the rules
    "runs": (8, 5, 3, 2),
    "findings": (8, 6, 5, 4, 3, 2),
    "details": (10, 8, 6, 5, 4, 3),
}
"""What room is given first; of each, how much of it to try."""

_NUMBERS: Final = frozenset({"evidence", "parts_ms"})  # fields that map names of the recording to numbers
_FOR_PROGRAMS: Final = frozenset({"next", "note", "pointer"})  # texts that are of no use once they are cut
_COUNTS: Final = {
    "runs": "more_runs",
    "findings": "more_findings",
    "could_not_tell": "more_unknown",
    "rules": "more_rules",
    "work": "more_work",
    "unreadable": "more_unreadable",
}
"""By field, the one that says how many of it are missing; of a report's findings, which."""


def render(value: Report | Comparison, most: int = MOST_BYTES) -> str:
    """As much of the value as fits into so many bytes: texts first, then runs, findings, and what is behind them.

    One line, ASCII only. What is unknown or empty is left out.
    """
    return _json(fitting(value, most))


def fitting(value: Report | Comparison, most: int = MOST_BYTES) -> Brief:
    """The largest brief that takes at most so many bytes."""
    complete = _cut(brief(value).model_dump(exclude_defaults=True), Room(), Counter())
    room, everything = _LEAST, _within(complete, Room())
    if len(_json(everything)) <= most:
        return everything
    for kind, amounts in _MORE.items():
        larger = (replace(room, **{kind: amount}) for amount in amounts)
        room = next((more for more in larger if len(_json(_within(complete, more))) <= most), room)
    return _within(complete, room)


def _within(complete: Mapping[str, Any], room: Room) -> Brief:
    left_out = Counter[str]()
    smaller = _cut(complete, room, left_out)
    return Brief.model_validate({**smaller, "truncated": bool(+left_out), "left_out": +left_out})


def _cut(part: Any, room: Room, left_out: Counter[str], field: str = "") -> Any:  # noqa: ANN401 - any part of a brief
    """As much of a part as there is room for; what is missing, or cut, is counted by its field."""
    if isinstance(part, Mapping):
        result = {}
        for name, item in [*part.items()][: room.details if field == "evidence" else None]:
            of = field if field in _NUMBERS else name
            result[room.short(name)] = some = _cut(item, room, left_out, of)
            if of in _COUNTS and isinstance(item, tuple) and (missing := item[len(some) :]):
                ids = tuple(room.short(each["id"]) for each in missing[: room.details] if "pointer" in each)
                result[_COUNTS[of]] = ids or len(missing)
        left_out[field] += sum(name not in result for name in part)
        return result
    if isinstance(part, tuple):
        of_things = {"runs": room.runs, "findings": room.findings, "work": room.findings, "actions": len(part)}
        are_names = any(isinstance(item, str) for item in part)
        most = room.details if are_names else of_things.get(field, room.details)
        left_out[field] += max(0, len(part) - most)
        return tuple(_cut(item, room, left_out, field) for item in part[:most])
    if field == "code":  # there as a whole or not at all
        left_out[field] += _bytes(part) > room.text
        return part if _bytes(part) <= room.text else None
    if isinstance(part, str) and field not in _FOR_PROGRAMS:
        left_out[field] += room.short(part) != part
        return room.short(part)
    return round(float(f"{part:.{_SIGNIFICANT}g}"), _DECIMALS) if isinstance(part, float) and field != "at_ms" else part


def _bytes(text: str) -> int:
    return len(json.dumps(text)) - 2


def _json(value: Brief) -> str:
    text = value.model_dump_json(ensure_ascii=True, exclude_defaults=True)
    return text.replace("\x7f", "\\u007f") + "\n"
