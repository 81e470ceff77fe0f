"""Whatever is in the file, the reader gives a Profile that keeps its promises, or one line that says why not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.inputs.readers.kineto.columns import DEVICE_CATEGORIES, HOST_CATEGORIES
from advisor.model.profile import Profile
from tests import hostile as files
from tests.effort import examples
from tests.hostile import flipped, places
from tests.strategies_kineto import LAUNCH, event, events, headers, kernel, op, read, text

SMALL = Path(__file__).parents[2].parent / "shared/traces/kineto/triton-one-kernel/rank0.pt.trace.json.gz"

MADE = text(
    *LAUNCH,
    op(60, 5, "résumé", **{"Input Dims": [[1, 2]], "Call stack": "a;b"}),
    kernel(70, 5, 1, grid=[1, 2, 3]),
    event(None, "Record Window End", 99),
    after={"deviceProperties": [{"id": 0, "name": "V100", "numSms": 80}], "distributedInfo": {"rank": 0}},
)


def outcome(trace: bytes) -> Profile | None:
    """What was read, checked; None where it was refused as it should be."""
    return files.outcome(read, trace, "a/b.json")


@examples(0.4)
@given(st.binary(max_size=300) | st.text('[]{}:,"\\ tracEvns0123456789-.eNaI\n', max_size=300).map(str.encode))
def test_any_bytes(data: bytes):
    outcome(data)
    outcome(b'{"traceEvents": [' + data)
    outcome(MADE[: len(MADE) // 2] + data + MADE[len(MADE) // 2 :])
    outcome(gzip.compress(MADE)[:30] + data)


@examples(0.4)
@given(places, st.floats(0, 1))
def test_a_trace_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[float, int]], kept: float):
    for original in (MADE, gzip.compress(MADE)):
        changed = flipped(original, changes)
        outcome(changed)
        cut = outcome(original[: int(kept * len(original))])
        assert cut is None or cut.salvaged or kept > 0.99
        outcome(changed[: int(kept * len(original))])


@examples(0.4)
@given(places, st.floats(0, 1))
def test_a_real_trace_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[float, int]], kept: float):
    if not SMALL.exists():
        pytest.skip(f"{SMALL.parent} is not there")
    packed = SMALL.read_bytes()
    for original in (packed, gzip.decompress(packed)):
        outcome(flipped(original, changes))
        outcome(original[: int(kept * len(original))])


@examples(1.2)
@given(st.lists(events, max_size=6), headers, headers)
def test_any_values_in_any_field(made: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any]):
    profile = outcome(json.dumps(before | {"traceEvents": [*LAUNCH, *made]} | after).encode())
    assert profile
    assert profile.host_ops.height >= 3
    assert profile.device_ops.height >= 1 or profile.salvaged
    known = {*HOST_CATEGORIES, *DEVICE_CATEGORIES}
    expected = sum(isinstance(e.get("cat"), str) and e["cat"] in known for e in [*LAUNCH, *made])
    found = profile.host_ops.height + profile.device_ops.height
    assert found == expected or (found < expected and profile.salvaged), "events were lost without a word"


@pytest.mark.parametrize(
    "hostile",
    [
        b'"name": "' + b"x" * 10_000_000 + b'"',
        b'"name": "' + b"\\u0000" * 100_000 + b'"',
        b'"name": "\\ud800"',
        b'"name": "\xed\xa0\x80"',
        b'"name": ' + b"[" * 100_000 + b"]" * 100_000,
        b'"args": {"Input Dims": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'"x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'"args": {"Bytes": ' + b"9" * 100_000 + b"}",
        b'"ts": ' + b"9" * 100_000,
        b'"ts": 1e400',
        b'"dur": -1e400',
        b'"ts": NaN',
        b'"ts": 0.' + b"1" * 100_000,
        b'"tid": "' + b"9" * 100_000 + b'"',
        b'"args": ' + b'{"a": 1, ' * 3,
        b"\x00",
        b'"name": "\x00"',
        b"," * 1_000_000,
        b"}, " * 500_000,
        b'"name": "' + b'\\"' * 1_000_000,
        b'"traceEvents": [',
    ],
    ids=lambda hostile: repr(hostile[:24]),
)
@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_what_has_broken_other_readers(hostile: bytes, packed: bool):  # noqa: FBT001
    trace = MADE.replace(
        b'{"ph": "X", "cat": "cuda_sync"', b'{"ph": "X", "cat": "cpu_op", ' + hostile + b', "cat": "cuda_sync"'
    )
    profile = outcome(gzip.compress(trace, 1) if packed else trace)
    assert profile
    assert profile.host_ops.height >= 3
