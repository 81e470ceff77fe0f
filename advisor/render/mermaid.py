"""Breakdowns as stacked bars that GitHub and GitLab draw: a Mermaid Gantt chart whose tasks are parts of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10
from typing import Final, NamedTuple

from advisor.vocabulary import CATEGORIES

_LEAST_SHARE: Final = 0.06  # of the longest bar: a shorter part has no room for its name
_FINE_MS: Final = 50.0  # a chart counts whole units: shorter steps are drawn in microseconds
_TICKS: Final = 8
_HEAD: Final = ("---", "displayMode: compact", "---", "gantt", "  dateFormat x")
_BUSY: Final = frozenset({"compute", "collective", "memcpy", "memset"})


class Bar(NamedTuple):
    """One step: its name, and how long each of its parts takes in ms."""

    name: str
    parts: Mapping[str, float]


def bar(name: str, parts: Iterable[tuple[str, float]]) -> Bar:
    """A bar of categories; those that are none of ours, whatever a file calls them, are one part without a name."""
    known: defaultdict[str, float] = defaultdict(float)
    for category, ms in parts:
        known[category if category in CATEGORIES else "unlisted"] += ms
    return Bar(name, known)


def bars(rows: Sequence[Bar], accent: str | None = None) -> str | None:
    """A fenced block with one bar above the other, on one scale.

    Args:
        rows: The bars. Parts that are too short to be named are drawn as one, at the end.
        accent: The part that stands out.

    Returns:
        None where no bar has any length.
    """
    longest = max((sum(bar.parts.values()) for bar in rows), default=0.0)
    if longest <= 0:
        return None
    per_ms = 1e3 if longest < _FINE_MS else 1.0
    lines = [*_HEAD, *_axis(longest * per_ms, fine=per_ms > 1)]
    for number, bar in enumerate(rows):
        lines += [f"  section {bar.name}", *_tasks(bar, number, _LEAST_SHARE * longest, per_ms, accent)]
    return "\n".join(["```mermaid", *lines, "```"])


def _axis(units: float, *, fine: bool) -> tuple[str, str]:
    """Round numbers, eight at most. Where a unit is a microsecond, the chart's seconds are milliseconds."""
    magnitude = 10.0 ** floor(log10(max(units, _TICKS) / _TICKS))
    every = next(round(nice * magnitude) for nice in (1, 2, 5, 10) if nice * magnitude * _TICKS >= units)
    label = "%Q ms" if not fine else "%-S ms" if every >= 1e3 else "%Q us"  # noqa: PLR2004 - a thousand microseconds
    return f"  axisFormat {label}", f"  tickInterval {every}millisecond"


def _tasks(bar: Bar, number: int, least_ms: float, per_ms: float, accent: str | None) -> list[str]:
    """Its parts, one task each; a bar that nothing of is long enough to be named is one task."""
    parts = [(name, ms) for name, ms in bar.parts.items() if ms >= least_ms]
    rest = sum(bar.parts.values()) - sum(ms for _, ms in parts)
    start, tasks = 0.0, []
    for order, (name, ms) in enumerate([*parts, *([("rest", rest)] if rest * per_ms >= 1 else [])]):
        kind = "crit, " if name == accent else "" if name in _BUSY else "done, "
        tasks.append(f"  {name} :{kind}t{number}p{order}, {round(per_ms * start)}, {round(per_ms * (start + ms))}")
        start += ms
    return tasks
