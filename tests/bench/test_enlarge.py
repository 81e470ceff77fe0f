from __future__ import annotations

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

enlarge = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/enlarge.py"))["enlarge"]

SPAN_US = 250  # from 100 to 350, with the last event's length
GAP_US = 1000
EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "ts": 0, "args": {"name": "python"}},
    {"ph": "X", "name": "ProfilerStep#3", "ts": 100, "dur": 100, "args": {"External id": 0}},
    {"ph": "X", "name": "ProfilerStep#4", "ts": 200.5, "dur": 149.5, "args": {"External id": 7, "Ev Idx": 0}},
    {"ph": "X", "name": "100% %d", "ts": 210, "dur": 5, "args": {"correlation": 11, "stream": 7}},
    {"ph": "s", "id": 11, "name": "ac2g", "ts": 210},
    {"ph": "X", "name": "outer", "ts": 220, "dur": 1, "args": {"Python id": 5}},
    {"ph": "X", "name": "inner", "ts": 221, "dur": 1, "args": {"Python id": 6, "Python parent id": 5}},
]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("traces")
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS})
    (folder / "short.json").write_text(text)
    enlarge(folder / "short.json", folder / "long.json.gz", len(text) + 1)
    document = json.loads(gzip.decompress((folder / "long.json.gz").read_bytes()))
    assert document["schemaVersion"] == 1
    assert document["traceEvents"][0] == EVENTS[0]
    repeated = document["traceEvents"][1:]
    assert len(repeated) == 2 * len(EVENTS[1:])
    return [repeated[: len(EVENTS) - 1], repeated[len(EVENTS) - 1 :]]


def test_the_first_copy_is_the_original(copies: list[list[dict[str, Any]]]):
    assert copies[0] == EVENTS[1:]


def test_the_second_copy_goes_on_where_the_first_ends(copies: list[list[dict[str, Any]]]):
    assert [event["ts"] - SPAN_US - GAP_US for event in copies[1]] == [100, 200.5, 210, 210, 220, 221]
    assert [event["name"] for event in copies[1]] == [
        "ProfilerStep#5",
        "ProfilerStep#6",
        "100% %d",
        "ac2g",
        "outer",
        "inner",
    ]


def test_links_stay_inside_a_copy_and_no_id_remains_none(copies: list[list[dict[str, Any]]]):
    step, other_step, kernel, flow, outer, inner = copies[1]
    assert step["args"] == {"External id": 0}
    assert other_step["args"] == {"External id": 8, "Ev Idx": 0}
    assert kernel["args"] == {"correlation": 12, "stream": 7}
    assert flow["id"] == 12
    assert inner["args"]["Python parent id"] == outer["args"]["Python id"] == 7
