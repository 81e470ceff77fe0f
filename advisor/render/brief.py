"""A report or a comparison as JSON of at most 5 kB, for programs with little room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.model.brief import MOST_BYTES, Brief
from advisor.model.comparison import Comparison
from advisor.model.report import Report
from advisor.present.brief import Room, brief

_SENTENCE: Final = 700  # bytes of the longest texts of the rules
_FINDINGS: Final = (8, 6, 5, 4, 3, 2)
_RUNS: Final = (8, 5, 3, 2, 1)
_LETTERS: Final = (350, 200, 120, 70, 40, 24)


def render(value: Report | Comparison, most: int = MOST_BYTES) -> str:
    """As much of the value as fits into so many bytes: first go findings, then runs; texts are cut last.

    One line, ASCII only. What is unknown or empty is left out.
    """
    return _json(fitting(value, most))


def fitting(value: Report | Comparison, most: int = MOST_BYTES) -> Brief:
    """The largest brief that takes at most so many bytes."""
    complete = brief(value, Room())
    for smaller in (brief(value, room) for room in _rooms()):
        cut = smaller.model_copy(update={"truncated": smaller != complete})
        if len(_json(cut)) <= most:
            break
    return cut


def _rooms() -> Iterator[Room]:
    """Less and less room."""
    yield from (Room(_RUNS[0], findings, findings + 2, _SENTENCE) for findings in _FINDINGS)
    yield from (Room(runs, 1, 3, _SENTENCE) for runs in _RUNS)
    yield from (Room(1, 1, 2, letters) for letters in _LETTERS)


def _json(value: Brief) -> str:
    text = value.model_dump_json(ensure_ascii=True, exclude_defaults=True)
    return text.replace("\x7f", "\\u007f") + "\n"
