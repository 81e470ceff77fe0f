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
        raise ValueError(f"{pattern!r} is no regular expression of Rust: {_in_short(str(error))}") from None
    return pattern


def _in_short(error: str) -> str:
    """What the engine tells of a pattern in lines, with a mark below the place: `unclosed group, at character 7`."""
    if not (match := re.search(r"^ {4}(?P<before> *)\^+\nerror: (?P<why>.+)", error, re.MULTILINE)):
        return one_line(error.partition("\n")[0].removeprefix("regex error: ").rstrip("."))
    return f"{one_line(match['why'])}, at character {len(match['before']) + 1}"
