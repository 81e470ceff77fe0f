"""How much of a test is quick: a share of the examples, which `make fuzz` raises; some parameters, of many in soak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

is_quick = False
"""Whether this run leaves all that is soak alone: such values of parameters then cost no time to collect."""


def examples(share: float, **options: Any) -> settings:
    """Settings with this share of the profile's examples: below 1 where one is slow, above where one is quick."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)), **options)


def soak(values: Iterable[Any], *, unless: Callable[[Any], bool]) -> list[Any]:
    """The values of a parameter, or of several where they are tuples; all but some are left to `make soak`."""
    rows = [(value if isinstance(value, tuple) else (value,), unless(value)) for value in values]
    collected = [row for row, is_always in rows if is_always or not is_quick] or [row for row, _ in rows]
    quick = {id(row) for row, is_always in rows if is_always}
    return [pytest.param(*row, marks=[] if id(row) in quick else pytest.mark.soak) for row in collected]


def every(number: int, values: Iterable[Any]) -> list[Any]:
    """The values of a parameter, or of several where they are tuples; one of so many is quick, the others are soak."""
    values = [*values]
    return soak(values, unless=lambda value: values.index(value) % number == 0)
