"""Patterns that users write: regular expressions of Rust, whose time is linear in what they are searched in."""

import re
from functools import lru_cache
from typing import Final

from advisor.text import one_line

_PLAIN: Final = re.compile(r"(?:[\w :,/^$|]|[.][*+]?)*")
"""Patterns that compile for certain: names, their alternatives and ends, and what may stand between."""


@lru_cache(maxsize=4_096)
def compiling(pattern: str) -> str:
    """The pattern; a ValueError where it is none."""
    if _PLAIN.fullmatch(pattern):
        return pattern
    import polars as pl  # noqa: PLC0415 - settings seldom need it, and drawing a saved report does not

    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.PolarsError as error:
        why = one_line(str(error).partition("\n")[0].removeprefix("regex error: ").rstrip("."))
        # It tells of the pattern in lines, with a mark below the place.
        if match := re.search(r"^ {4}(?P<before> *)\^+\nerror: (?P<why>.+)", str(error), re.MULTILINE):
            why = f"{one_line(match['why'])}, at character {len(match['before']) + 1}"
        raise ValueError(f"{pattern!r} is no regular expression of Rust: {why}") from None
    return pattern
