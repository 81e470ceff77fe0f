from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.chrome_json.source import apart, last_boundary, repaired

VALID = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (b"[NaN, -NaN, nan, Infinity, -Infinity, inf, -inf]", [None] * 7),
        (b"[1, 2,]", [1, 2]),
        (b'{"a": [1 , ], "b": 2\n,\n}', {"a": [1], "b": 2}),
        (b'["a\nb\tc\x00d"]', ["a b c d"]),
        (b'["NaN", "1,]", ",}", "\\",}"]', ["NaN", "1,]", ",}", '",}']),
        (b'["caf\xe9"]', ["caf\N{REPLACEMENT CHARACTER}"]),
        ('["caf\N{LATIN SMALL LETTER E WITH ACUTE}"]'.encode(), ["caf\N{LATIN SMALL LETTER E WITH ACUTE}"]),
        (rb'["\ud83d\ude00 \ud800 \udc00 \\ud800"]', ["\N{GRINNING FACE} \ufffd \ufffd \\ud800"]),
        (b"[-1, 1e-5, null, true, false]", [-1, 1e-5, None, True, False]),
    ],
)
def test_what_is_put_right(wrong: bytes, right: object):
    assert json.loads(repaired(wrong)) == right


@given(VALID, st.sampled_from([None, 1]))
def test_valid_json_stays_as_it_is(value: object, indent: int | None):
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
        assert repaired(text) == text


@given(st.lists(st.floats(), max_size=5))
def test_numbers_that_are_none_become_null(values: list[float]):
    expected = [None if value != value or abs(value) == float("inf") else value for value in values]  # noqa: PLR0124
    assert json.loads(repaired(json.dumps(values).encode())) == expected


@pytest.mark.parametrize("unit", [b'"', b'\\"', b"\\", b",", b", ", b"-", b"n", b"NaN,", b'"\n', b"}", b"},", b" "])
def test_repair_takes_linear_time(unit: bytes):
    start = perf_counter()
    repaired(b'[{"name": "' + unit * 500_000)
    assert perf_counter() - start < 10  # quadratic time would take hours


# ------------------------------------------------------------------------------------------- boundaries

FIRST_KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"]


@pytest.mark.parametrize("key", FIRST_KEYS)
@pytest.mark.parametrize("between", [",{", ", {", ",\n  {\n    ", "\n  ,\n\n\n{ "])
def test_an_event_ends_where_the_next_begins(key: str, between: str):
    text = f'{{"ph": "X"}}{between}"{key}": 1}}'.encode()
    assert last_boundary(text) == len(b'{"ph": "X"}')
    assert [json.loads(part) for part in apart(text)] == [{"ph": "X"}, {key: 1}]


@pytest.mark.parametrize("text", [b"", b'[{"a": {"b": 1}}, {"other": 1}', b'{"ph": "X"} {"ph": "X"}', b"}, {"])
def test_nothing_else_is_a_boundary(text: bytes):
    assert last_boundary(text) == 0
    assert apart(text) == [text]


def test_the_last_boundary_is_found_however_far_back_it_lies():
    text = b'[{"ph": 1}, {"ph": 2}, {"ph": 3, "name": "' + b"x" * 1_000_000
    assert last_boundary(text) == text.index(b"2}") + 2


flat = st.dictionaries(st.text(max_size=4), st.integers() | st.text("a}{,[] :", max_size=9), max_size=3)


@given(st.lists(st.fixed_dictionaries({"ph": st.just("X"), "args": flat}), min_size=1, max_size=5))
def test_events_come_apart_whole(events: list[dict[str, Any]]):
    assert [json.loads(part) for part in apart(json.dumps(events).encode()[1:-1])] == events
