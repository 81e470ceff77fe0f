"""The rules' language: what it refuses, and that an unknown never passes for an answer."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.expressions import ExpressionError, parse

KNOWN = ("share", "other", "limit")


def over(text, share, **params):
    return parse(text, KNOWN).over(pl.DataFrame({"share": share, "other": share}), params).to_list()


def test_a_comparison_per_row():
    assert over("share >= limit", [0.1, 0.2, 0.3], limit=0.2) == [False, True, True]


def test_true_holds_for_every_row():
    assert over(True, [0.1, 0.2]) == [True, True]


def test_a_division_by_zero_is_no_number():
    assert over("1 / share", [0.0, 2.0]) == [None, 0.5]


def test_nan_is_no_number_and_no_verdict_is_taken_from_it():
    assert over("share - other", [float("nan")]) == [None]


def test_limits_name_what_a_metric_is_held_against():
    expression = parse("share >= limit AND other < 0.5", KNOWN)
    assert expression.limits({"limit": 0.2}) == {"share": 0.2, "other": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shares > 1", "unknown metric or parameter 'shares'; did you mean 'share'?"),
        ("COALESCE(share, 0) > 1", "not allowed"),
        ("GREATEST(share, other) > 1", "not allowed"),
        ("SUM(share) > 1", "not allowed"),
        ("share IS NULL", "IS is not allowed"),
        ("share > (SELECT 1)", "unknown metric or parameter 'SELECT'"),
        ("share OVER (share)", "not allowed"),
        ("share >", "not an expression"),
        ("share; DROP TABLE x", "not an expression"),
        ("", "not an expression"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ExpressionError, match=message.replace("(", r"\(").replace("?", r"\?")):
        parse(text, KNOWN)


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_an_error_that_says_so(text):
    try:
        parse(text, KNOWN)
    except ExpressionError as error:
        assert str(error)
