"""The rules' expression language: SQL row expressions over metric and parameter names, and nothing else.

polars evaluates them. The check before that is an allow list of words, so that no function, aggregate or null test
can make an unknown value look healthy.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, cast, get_args

import polars as pl

from advisor.model.finding import Operator
from advisor.text import did_you_mean, in_words, one_line

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>'[^']*')|(?P<mark><=|>=|<>|!=|[-+*/%()<>=,]))"
)
_MOST_TOKENS = 500  # polars' parser and planner go as deep as the expression, with no stack or time to spare for 20,000
_LONGEST = 10_000  # characters
_TOO_LONG = f"more than {_LONGEST:,} characters; make several rules of it"
_QUOTED = 200
_CLAUSES = frozenset({"AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END", "BETWEEN", "IN"})
_FUNCTIONS = frozenset({"MIN", "MAX", "CLAMP"})
_KEYWORDS = _CLAUSES | _FUNCTIONS | {"TRUE", "FALSE", "ABS"}
_MOST_NESTED = 3  # calls of functions, each of which repeats what stands in it
_COMPARING = frozenset(get_args(Operator))
_TURNED = {"(": ")", ")": "("}


class ExpressionError(ValueError):
    """An expression that cannot be used; the message says which word is wrong."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression: its text, the names in it, and what polars made of it."""

    text: str
    names: frozenset[str]
    expr: pl.Expr

    def over(self, frame: pl.DataFrame, params: Mapping[str, float]) -> list[Any]:
        """One value per row of `frame`; None where a name in it is null or the arithmetic gives no number."""
        return evaluated({"": self}, frame, params)[""]

    def limits(self, row: Mapping[str, object], params: Mapping[str, float]) -> dict[str, tuple[Operator, float]]:
        """What each metric is held against in this row: the sign, and the value of all that stands across from it.

        A metric that is compared as a part of something, or with what has no value here, has no limit.
        """
        of_metrics = {name: row[name] for name in self.names if name not in params}
        frame = pl.DataFrame([of_metrics]) if of_metrics else pl.DataFrame({"": [None]})
        limits: dict[str, tuple[Operator, float]] = {}
        for name, sign, across in comparisons(self.text):
            value = parse(across, self.names).over(frame, params)[0] if name in of_metrics else None
            if isinstance(value, float):
                limits.setdefault(name, (sign, value))  # of several the one that stands first
        return limits


def evaluated(
    expressions: Mapping[str, Expression], frame: pl.DataFrame, params: Mapping[str, float]
) -> dict[str, list[Any]]:
    """Each expression's values, as `Expression.over` gives them, in one pass over `frame`."""
    names = set().union(*(expression.names for expression in expressions.values())) - params.keys()
    numbers = (pl.Series(name, [value] * frame.height, pl.Float64) for name, value in params.items())
    columns = [frame.get_column(name) for name in names]
    for at, of in enumerate(columns):  # as conditions compare them: names are a text, empty if there are none
        if of.dtype == pl.List:
            words = [None if each is None else in_words(each) for each in of.to_list()]
            columns[at] = pl.Series(of.name, words, pl.String)
    inputs = pl.DataFrame([*columns, *numbers])
    outputs = inputs.select_seq(expression.expr.alias(key) for key, expression in expressions.items())
    values = {column.name: [_finite(value) for value in column.to_list()] for column in outputs.get_columns()}
    return {key: of if len(of) == frame.height else of * frame.height for key, of in values.items()}


def parse(text: str, *known: Collection[str]) -> Expression:
    """Checks `text` word by word and hands it to polars.

    An ExpressionError says which name none of `known` has, that a function is called, or that it is no expression.
    """
    names = _names(text)
    for name in sorted(name for name in names if not any(name in of for of in known)):
        raise ExpressionError(f"unknown metric or parameter {name!r}{did_you_mean(name, {*chain(*known)})}")
    return Expression(text, names, _expr(text))


def meanings(let: Mapping[str, str]) -> dict[str, str]:
    """What each name stands for, in brackets; it may be of the names before it.

    An ExpressionError where a name is a word of the language, or stands for too much.
    """
    known: dict[str, str] = {}
    for name, text in let.items():
        if name.upper() in _KEYWORDS:
            raise ExpressionError(f"{name} is a word of the language: give it another name")
        known[name] = f"({expanded(text, known)})"
    return known


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The text with what the names in it stand for; an ExpressionError where it is too long then."""
    long = re.sub(r"'[^']*'|\w+", lambda word: known.get(word[0], word[0]), text) if known else text
    if len(long) > _LONGEST:
        raise ExpressionError(_TOO_LONG)
    return long


def as_condition(text: str, rows: pl.DataFrame) -> str:
    """The text in polars' SQL, checked as `parse` does, and to hold or not of rows with the types of these.

    An ExpressionError where it is no condition, or holds a text against a number.
    """
    expr = parse(text, rows.columns).expr
    try:
        is_condition = rows.select(expr).dtypes == [pl.Boolean]
    except pl.exceptions.PolarsError as error:
        raise ExpressionError(f"{one_line(text, _QUOTED)!r}: {one_line(str(error).partition(chr(10))[0])}") from None
    if not is_condition:
        raise ExpressionError(f"{one_line(text, _QUOTED)!r} is no condition; compare it, as in `us > 20`")
    return _sql(text)


# Each check of a profile parses the book again.
@lru_cache(maxsize=4_096)
def _names(text: str) -> frozenset[str]:
    if len(text) > _LONGEST:
        raise ExpressionError(_TOO_LONG)
    tokens = _tokens(text)
    if len(tokens) > _MOST_TOKENS:
        raise ExpressionError(f"more than {_MOST_TOKENS} words and signs; make several rules of it")
    return frozenset(word for word in _words(text, tokens) if word.upper() not in _KEYWORDS)


@lru_cache(maxsize=4_096)
def _expr(text: str) -> pl.Expr:
    try:
        return pl.sql_expr(_sql(text))
    except pl.exceptions.PolarsError as error:
        why = one_line(str(error), _QUOTED)
        raise ExpressionError(f"not an expression: {one_line(text, _QUOTED)!r} ({why})") from None


def _sql(text: str) -> str:
    """With names in quotes: a parameter may be called `limit`, which SQL reads as a clause."""
    words = ((token[0].strip(), token["word"]) for token in _tokens(text))
    return " ".join(_as_sql([f'"{t}"' if word and word.upper() not in _KEYWORDS else t for t, word in words]))


@lru_cache(maxsize=4_096)
def _tokens(text: str) -> Sequence[re.Match[str]]:
    tokens, at, text = list[re.Match[str]](), 0, text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"not an expression: {text[at : at + 10]!r} in {one_line(text, _QUOTED)!r}")
        at = token.end()
        tokens.append(token)
    return tokens


def _as_sql(tokens: Sequence[str], nested: int = 0) -> Iterator[str]:
    """The tokens with the functions in SQL's words. SQL's own leave out a null, which makes the whole unknown here."""
    at = 0
    while at < len(tokens):
        name = tokens[at].upper()
        if name not in _FUNCTIONS or tokens[at + 1 : at + 2] != ["("]:
            yield tokens[at]
            at += 1
            continue
        if nested == _MOST_NESTED:
            raise ExpressionError(f"min, max and clamp stand in each other {_MOST_NESTED} times at most")
        inner = list(_operand(tokens[at + 2 :], ends=()))
        values = [" ".join(_as_sql(value, nested + 1)) for value in _arguments(inner)]
        yield _called(name, values)
        at += len(inner) + 3


def _called(name: str, values: Sequence[str]) -> str:
    if len(values) != 3 if name == "CLAMP" else len(values) < 2:  # noqa: PLR2004 - a value and its two bounds
        raise ExpressionError("write min(a, b), max(a, b) or clamp(value, least, most)")
    if name == "CLAMP":
        return _called("MIN", [_called("MAX", values[:2]), values[2]])
    function = "LEAST" if name == "MIN" else "GREATEST"
    return f"({function}({', '.join(values)}) + 0 * ({' + '.join(f'({value})' for value in values)}))"


def _arguments(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    """What stands between the commas that are in no brackets."""
    start = depth = 0
    for at, word in enumerate(tokens):
        depth += (word == "(") - (word == ")")
        if word == "," and not depth:
            yield tokens[start:at]
            start = at + 1
    yield tokens[start:]


def comparisons(text: str) -> Iterator[tuple[str, Operator, str]]:
    """Each comparison: the arithmetic before it, its sign, and the arithmetic after it."""
    tokens = [token[0].strip() for token in _tokens(text)]
    for at, sign in enumerate(tokens):
        if sign in _COMPARING:
            before = [_TURNED.get(token, token) for token in reversed(tokens[:at])]
            first = [_TURNED.get(token, token) for token in _operand(before)]
            across = list(_operand(tokens[at + 1 :]))
            if first and "CASE" not in map(str.upper, (*first, *across)):
                yield " ".join(reversed(first)), cast("Operator", sign), " ".join(across)


def _operand(tokens: Iterable[str], ends: Collection[str] = (*_COMPARING, *_CLAUSES - {"CASE"})) -> Iterator[str]:
    """The tokens up to the end of the arithmetic that they begin with."""
    depth = 0
    for word in tokens:
        depth += (word == "(") - (word == ")")
        if depth < 0 or (not depth and word.upper() in ends):
            return
        yield word


def _words(text: str, tokens: Iterable[re.Match[str]]) -> list[str]:
    words = []
    for token in tokens:
        if word := token["word"]:
            called = text[token.end() :].lstrip().startswith("(")
            if word.upper() in _FUNCTIONS and not called:
                raise ExpressionError(f"{word} is a function: write {word}(a, b)")
            if called and word.upper() not in _KEYWORDS:
                raise ExpressionError(f"{word}(...) is not allowed: a rule compares and combines metrics, row by row")
            if word.upper() in {"IS", "NULL", "OVER"}:
                raise ExpressionError(f"{word.upper()} is not allowed: a null makes the rule not evaluable by itself")
            words.append(word)
    return words


def _finite(value: object) -> object:
    """Numbers as floats; infinities and NaN become None: polars answers TRUE to NaN > x."""
    if value is None or isinstance(value, bool | str):
        return value
    number = float(value)  # type: ignore[arg-type]  # a literal is a decimal
    return number if math.isfinite(number) else None
