"""The rules' expression language: SQL row expressions over metric and parameter names, and nothing else.

polars evaluates them. The check before that is an allow list of words, so that no function, aggregate or null test
can make an unknown value look healthy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>'[^']*')|(?P<mark><=|>=|<>|!=|[-+*/%()<>=,]))"
)
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END", "BETWEEN", "IN", "TRUE", "FALSE", "ABS"}
)


class ExpressionError(ValueError):
    """An expression that cannot be used; the message says which word is wrong."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression: its text, the names in it, and what polars made of it."""

    text: str
    names: frozenset[str]
    expr: pl.Expr

    def over(self, frame: pl.DataFrame, params: Mapping[str, float]) -> pl.Series:
        """One value per row of `frame`; null where a name in it is null or the arithmetic gives no number."""
        given = frame.with_columns(pl.lit(value, pl.Float64).alias(name) for name, value in params.items())
        value = given.select(value=self.expr).to_series()
        value = value if len(value) == frame.height else value.new_from_index(0, frame.height)
        return _finite(value)

    def limits(self, params: Mapping[str, float]) -> dict[str, float]:
        """What each metric is directly compared with, where that is a parameter or a number."""
        found = re.findall(r"([A-Za-z_]\w*)\s*(?:<=|>=|<|>|=)\s*([A-Za-z_]\w*|\d+(?:\.\d+)?)", self.text)
        pairs = {name: params.get(limit, _number(limit)) for name, limit in found if name not in params}
        return {name: limit for name, limit in pairs.items() if limit is not None}


def parse(text: str | bool, known: Iterable[str]) -> Expression:  # noqa: FBT001 - YAML's `true`
    """Checks `text` word by word and hands it to polars.

    Raises:
        ExpressionError: a name that is not in `known`, a function, or no valid expression.
    """
    text = str(text).lower() if isinstance(text, bool) else text
    known = set(known)
    names = {word for word in _words(text) if word.upper() not in _KEYWORDS}
    for name in sorted(names - known):
        near = difflib.get_close_matches(name, known, n=1)
        raise ExpressionError(
            f"unknown metric or parameter {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        )
    try:
        expr = pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        raise ExpressionError(f"not an expression: {text!r} ({str(error).splitlines()[0]})") from None
    return Expression(text, frozenset(names), expr)


def _words(text: str) -> list[str]:
    words, at = [], 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"not an expression: {text[at : at + 10]!r} in {text!r}")
        at = token.end()
        if word := token["word"]:
            if text[at:].lstrip().startswith("(") and word.upper() not in _KEYWORDS:
                raise ExpressionError(f"{word}(...) is not allowed: a rule compares and combines metrics, row by row")
            if word.upper() in {"IS", "NULL", "OVER"}:
                raise ExpressionError(f"{word.upper()} is not allowed: a null makes the rule not evaluable by itself")
            words.append(word)
    return words


def _finite(values: pl.Series) -> pl.Series:
    """Numbers as floats; infinities and NaN become null: polars answers TRUE to NaN > x."""
    if not values.dtype.is_numeric():
        return values
    values = values.cast(pl.Float64)  # a literal is a decimal
    return pl.select(pl.when(values.is_finite()).then(values)).to_series().alias("value")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
