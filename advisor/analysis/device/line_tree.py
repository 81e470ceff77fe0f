"""Sampled lines of the program by who calls them: each function's lines, and the functions that a line calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_INNER: Final = r"(?:\.<locals>\.<\w+>)+$"  # an expression's own function: `log.<locals>.<genexpr>`
_HOLDS: Final = 0.8  # of a node's time: it is the place, and not what is around it
_STRAY: Final = 0.01  # of a node's time: samples of a line beside it


@dataclass(slots=True)
class Node:
    """A line (`line` is set), or a function with its lines."""

    function: str
    line: str = ""
    ns: int = 0  # time of the samples here and below that count
    own_ns: int = 0  # time of the step's own work here and below
    self_ns: int = 0  # time that counts in the line itself and in what it calls of libraries
    calls: Counter[str | None] = field(default_factory=Counter)  # what the line calls, by time
    kinds: Counter[str] = field(default_factory=Counter)  # kinds of those calls, by time, here and below
    needed: tuple[int, ...] = ()  # lines of the function that need what the line computes
    below: dict[str, Node] = field(default_factory=dict)  # functions that a line calls, or lines of a function

    def add(self, frames: list[Mapping[str, Any]], ns: int, kind: str, *, counts: bool, is_own: bool) -> None:
        """A stack of lines, the outermost first, below this one; `kind` is of what the last one calls."""
        node, path = self, [self]
        for frame in frames:
            function, line = re.sub(_INNER, "", frame["function"] or ""), frame["line"]
            in_file = f"{line.rpartition(':')[0]} {function}"
            node = node.below.setdefault(in_file, Node(function))
            path.append(node)
            node = node.below.setdefault(line, Node(function, line, needed=tuple(frame.get("needed") or ())))
            node.calls[frame["call"]] += ns * counts
            path.append(node)
        for each in path:
            each.ns += ns * counts
            each.own_ns += ns * is_own
            each.kinds[kind] += ns * counts
        node.self_ns += ns * counts

    def units(self) -> Iterator[Node]:
        """The outermost nodes without any of the step's own work; a line that does some counts alone, for the rest."""
        for node in self.below.values():
            if node.ns and node.own_ns <= _STRAY * (node.ns + node.own_ns):
                yield node
                continue
            if node.self_ns:
                yield Node(node.function, node.line, node.self_ns, 0, node.self_ns, node.calls, node.kinds)
            yield from node.units()

    def place(self) -> Node:
        """Where the time is: down as long as one line or function holds four fifths of it."""
        largest = max(self.below.values(), key=lambda node: node.ns, default=None)
        return largest.place() if largest and largest.ns >= _HOLDS * self.ns else self

    @property
    def lines(self) -> list[str]:
        """The lines of a function that count, in their order; of a line itself."""
        of = [self] if self.line else [node for node in self.below.values() if node.ns]
        return sorted((node.line for node in of), key=number_of)

    @property
    def call(self) -> str | None:
        """What is called for most of the time."""
        calls = self.calls or max(self.below.values(), key=lambda node: node.ns).calls
        return calls.most_common(1)[0][0]


def number_of(line: str) -> int:
    """41 of `train.py:41`."""
    number = line.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
