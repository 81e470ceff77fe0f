"""The rules' language: what it refuses, and that an unknown never passes for an answer."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.metric import NAMES, table_of
from advisor.rules.expressions import ExpressionError, parse
from advisor.text import in_words

KNOWN = ("share", "other", "limit")


def over(text, share, **params):
    return parse(text, KNOWN).over(pl.DataFrame({"share": share, "other": share}), params)


def test_a_comparison_per_row():
    assert over("share >= limit", [0.1, 0.2, 0.3], limit=0.2) == [False, True, True]


def test_names_are_compared_as_the_text_that_a_sentence_has():
    rows = [[{"name": "a", "ms": 1.5}], [], None]
    frame = table_of([{"long_lines": names} for names in rows], {"long_lines": NAMES})
    assert parse("long_lines <> ''", {"long_lines"}).over(frame, {}) == [True, False, None]
    assert parse("long_lines = 'a (1.5 ms)'", {"long_lines"}).over(frame, {}) == [True, False, None]


def test_a_text_in_the_place_of_names_is_one_name_as_earlier_versions_stored_it():
    names = table_of([{"n": "a (1 ms), b (2 ms)"}, {"n": ""}, {}], {"n": NAMES, "share": pl.Float64})["n"].to_list()
    assert [None if of is None else in_words(of) for of in names] == ["a (1 ms), b (2 ms)", "", None]


def test_a_text_that_is_no_number_is_unknown_whatever_stands_in_the_other_rows():
    texts = [{"ms": text} for text in ("[", "9" * 400, "5", 2.0, None)]
    assert table_of(texts, {"ms": pl.Int64})["ms"].to_list() == [None, None, 5, 2, None]
    assert table_of([{"ms": "["}], {"ms": pl.Float64})["ms"].to_list() == [None]


def test_true_holds_for_every_row():
    assert over("true", [0.1, 0.2]) == [True, True]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("min(share, 2)", [1.0, 2.0, None]),
        ("MAX(share * 2, 3) + 1", [4.0, 7.0, None]),
        ("clamp(share, 2, limit)", [2.0, 2.5, None]),
        ("max(min(share, 2), 1 - other, 0.5)", [1.0, 2.0, None]),
    ],
)
def test_the_least_and_the_most_of_an_unknown_are_unknown(text, values):
    assert over(text, [1.0, 3.0, None], limit=2.5) == values


@pytest.mark.parametrize(
    "text", ["min(share)", "clamp(share, 1)", "min(min(min(min(share, 1), 1), 1), 1)", "min", "max("]
)
def test_a_function_that_is_written_wrong_is_refused(text):
    with pytest.raises(ExpressionError):
        over(text, [1.0])


def test_a_division_by_zero_is_no_number():
    assert over("1 / share", [0.0, 2.0]) == [None, 0.5]


def test_nan_is_no_number_and_no_verdict_is_taken_from_it():
    assert over("share - other", [float("nan")]) == [None]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("share >= limit AND other < 0.5", {"share": 0.2, "other": 0.5}),
        ("share >= limit * other", {"share": 1.6}),
        ("share >= limit * (other - 2) + 1 OR other < 9", {"share": 2.2, "other": 9.0}),
        ("NOT (share > other) AND other > 1", {"share": 8.0, "other": 1.0}),
        ("share >= limit OR (other > 3 AND share > limit / 2)", {"share": 0.2, "other": 3.0}),  # the first
        ("share + other > limit", {}),
        ("limit > share", {}),
        ("limit * (share) >= 3", {}),
        ("share > 1 / (other - 8)", {}),
        ("share > CASE WHEN other > 1 THEN 2 ELSE 3 END", {"other": 1.0}),
        ("CASE WHEN share > 2 THEN other > 3 ELSE FALSE END", {"share": 2.0, "other": 3.0}),
        ("share BETWEEN 1 AND 2", {}),
    ],
)
def test_a_limit_is_the_value_of_all_that_a_metric_is_held_against(text, limits):
    limited = parse(text, KNOWN).limits({"share": 4.0, "other": 8.0}, {"limit": 0.2})
    assert {name: value for name, (_, value) in limited.items()} == pytest.approx(limits)


def test_a_limit_has_the_side_on_which_the_condition_holds():
    limits = parse("share < limit AND other > 0 AND other <= 9", KNOWN).limits(
        {"share": 4.0, "other": 8.0}, {"limit": 1}
    )
    assert limits == {"share": ("<", 1.0), "other": (">", 0)}


def test_what_is_unknown_is_no_limit():
    assert parse("share > other", KNOWN).limits({"share": 1.0, "other": None}, {}) == {}


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
        ("share > " + "9" * 5_000, "not an expression"),
        ("share = '" + "x" * 10_000 + "'", "more than 10,000 characters"),
        ("", "not an expression"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ExpressionError, match=message.replace("(", r"\(").replace("?", r"\?")):
        parse(text, KNOWN)


def test_an_error_is_short_however_long_the_expression():
    with pytest.raises(ExpressionError) as refused:
        parse("share > " + "9" * 5_000, KNOWN)
    assert len(str(refused.value)) < 500


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_an_error_that_says_so(text):
    try:
        parse(text, KNOWN)
    except ExpressionError as error:
        assert str(error)
