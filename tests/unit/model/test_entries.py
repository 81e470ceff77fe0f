"""The names that a metric lists, and which of many."""

import json

import pytest

from advisor.model.clause import largest_first
from advisor.model.finding import Evidence


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([5, 3, 2, 1], {"a": 5, "b": 3, "c": 2, "d": 1}),
        ([5, 3, 2, 1, 1], {"a": 5, "b": 3, "c": 2, "others": 2}),
        ([1000, 9, 9, 9], {"a": 1000, "others": 27}),
        ([1000, 9], {"a": 1000}),
        ([], {}),
    ],
)
def test_names_and_the_others_add_up(amounts: list[float], expected: dict[str, float]):
    rows = largest_first(zip("abcde", amounts, strict=False))
    assert [*rows] == [{"name": name, "ms": ms} for name, ms in expected.items()]


def test_a_name_that_comes_twice_has_the_sum():
    """3 + 4 of 14, twice as much in a unit of half the size."""
    assert largest_first([("a", 3), ("b", 7), ("a", 4)], "share", 14) == [
        {"name": "a", "share": 0.5},
        {"name": "b", "share": 0.5},
    ]


def test_json_has_numbers_and_no_column_that_the_metric_is_not_about():
    rows = [{"name": "aten::mm", "count": None, "ms": 0.0, "share": None, "what": None}, {"name": "b", "count": 2.0}]
    written = Evidence(metric="sync_calls", value=rows, unit="names", meaning="").model_dump_json()
    assert json.loads(written)["value"] == [{"name": "aten::mm", "ms": 0.0}, {"name": "b", "count": 2.0}]
    assert Evidence.model_validate_json(written).model_dump_json() == written
