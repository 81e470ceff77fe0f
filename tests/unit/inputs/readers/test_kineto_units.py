"""Times of a Chrome trace in other units than microseconds."""

from __future__ import annotations

import io
import json

import pytest

from advisor.errors import ReadError
from advisor.inputs.readers import kineto
from advisor.inputs.readers.kineto import checked
from tests.tables import on_host, profile


def ops(number: int, length_us: float, every_us: float):
    """So many ops of one thread; every tenth takes ten times as long."""
    rows = [
        on_host("op", n * every_us, n * every_us + length_us * (10 if n % 10 == 0 else 1), name="aten::add", thread=2)
        for n in range(number)
    ]
    return profile([], rows).host_ops


@pytest.mark.parametrize("per_us", [1e-3, 1e-6])
def test_no_op_takes_nanoseconds(per_us: float):
    """Ops of 20 us, every 60 us: in milliseconds they seem to take 20 ns, in seconds nothing."""
    with pytest.raises(ReadError, match="the typical op takes under 100 ns: the times are not in microseconds"):
        checked(ops(200, 20 * per_us, 60 * per_us), "x.json")


@pytest.mark.parametrize(
    ("number", "length_us", "every_us"), [(200, 0.4, 1.0), (200, 0, 2), (99, 0.02, 0.06), (1500, 20, 60)]
)
def test_times_that_may_be_microseconds_are_taken(number: int, length_us: float, every_us: float):
    assert checked(ops(number, length_us, every_us), "x.json") is None


@pytest.mark.parametrize(("number", "length_us", "noted"), [(1000, 100, True), (1000, 99, False), (999, 100, False)])
def test_where_even_the_shortest_ops_are_long_a_note_says_so(number: int, length_us: float, *, noted: bool):
    note = checked(ops(number, length_us, 10 * length_us), "x.json")
    assert (note is not None) == noted
    if note:
        assert note.words.startswith("even the shortest ops take 0.1 ms: the times may be in nanoseconds")


def test_events_whose_times_no_clock_shows_are_named_with_the_unit():
    """Nanoseconds since 1970 where microseconds belong are a year far ahead."""
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.8e18, "dur": 5e3}] * 3
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    with pytest.raises(ReadError, match="no event has a valid start and length: `ts` and `dur`"):
        kineto.read(io.BytesIO(text), "x.json")
