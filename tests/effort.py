"""How much of a test is quick: a share of the examples, which `make fuzz` raises; some parameters, of many in soak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def examples(share: float, **options: Any) -> settings:
    """Settings with this share of the profile's examples: below 1 where one is slow, above where one is quick."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)), **options)


def soak(values: Iterable[Any], *, unless: Callable[[Any], bool]) -> list[Any]:
    """The values of a parameter, or of several where they are tuples; all but some are left to `make soak`."""
    rows = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*row, marks=[] if unless(value) else pytest.mark.soak) for value, row in rows]


def every(number: int, values: Iterable[Any]) -> list[Any]:
    """The values of a parameter, or of several where they are tuples; one of so many is quick, the others are soak."""
    values = [*values]
    return soak(values, unless=lambda value: values.index(value) % number == 0)
