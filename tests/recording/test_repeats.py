"""Which functions of a program compute the same again: their arguments are alike, and they read nothing else."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from advisor.recording.inside.repeats import Repeats

SIZE = 4
SEEN: list[int] = []


class Table:
    """A class of the program: what it holds may differ."""

    def __init__(self, size: int) -> None:
        self.size = size

    def build(self) -> list[float]:
        return [0.0] * self.size


def bank(size: int, high: float = 2.0) -> list[float]:
    return [scaled(high, n) + math.sqrt(max(n, m)) for n in range(size) for m in range(SIZE)]


def scaled(high: float, at: int) -> float:
    return high * at


def drawn(size: int) -> list[float]:
    return [random.random() for _ in range(size)]  # noqa: S311 - no secret


def drawn_below(size: int) -> list[float]:
    return drawn(size)


def timed(size: int) -> float:
    return size * time.perf_counter()


def stored(size: int) -> int:
    return size + len(SEEN)


def of_object(table: Table) -> int:
    return table.size


def of_class(size: int) -> int:
    return Table(size).size


def many(*sizes: int) -> int:
    return sum(sizes)


def each(size: int) -> Iterator[int]:
    yield from range(size)


def between() -> None:
    """Where a sample lies between two calls."""


def alike(call: Callable[[int], Any], calls: int = 5) -> set[str]:
    """The functions that repeat, if each call of a function is sampled at its start."""
    repeats = Repeats()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == __file__:
            repeats.look(frame)

    sys.setprofile(look)
    try:
        for n in range(calls):
            call(n)
            between()
    finally:
        sys.setprofile(None)
    return {code.co_name for code in repeats.codes()}


def test_a_function_of_plain_values_repeats_and_what_it_calls_with_others_does_not():
    assert alike(lambda _: bank(3)) == {"bank"}


@pytest.mark.parametrize("calls", [4, 5])
def test_five_calls_are_enough(calls: int):
    assert alike(lambda _: bank(3), calls) == ({"bank"} if calls == 5 else set())


@pytest.mark.parametrize(
    "call",
    [
        bank,  # another size each time
        lambda _: drawn(3),
        lambda _: drawn_below(3),
        lambda _: timed(3),
        lambda _: stored(3),
        lambda _: of_object(Table(3)),
        lambda _: Table(3).build(),
        lambda _: of_class(3),
        lambda _: many(3),
        lambda _: list(each(3)),
        lambda _: between(),
    ],
)
def test_a_function_that_may_give_something_else_does_not_repeat(call: Callable[[int], Any]):
    assert alike(call) == set()


def test_samples_in_a_row_may_be_of_one_call():
    repeats = Repeats()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is bank.__code__:
            repeats.look(frame)

    sys.setprofile(look)
    try:
        for _ in range(20):
            bank(3)
    finally:
        sys.setprofile(None)
    assert not repeats.codes()
